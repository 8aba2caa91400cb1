//! What a volume needs of a store: objects by name, put whole, read in parts.
//!
//! 1. An object is there whole or not at all. Only [`Store::replace`] changes one, at once.
//! 2. What was put is seen by every later call of every process.

use std::io;
use std::ops::Range;

use bytes::Bytes;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name below the volume's prefix.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A store of objects. Names are relative to the prefix of one volume.
///
/// Errors have the kind [`io::ErrorKind::NotFound`] for a missing object,
/// [`io::ErrorKind::PermissionDenied`] for missing rights, and any other for what may pass.
pub trait Store: Send + Sync {
    /// Puts an object unless there is one of this name. Returns false if there is.
    ///
    /// # Errors
    /// Those of the store. The object may be there all the same.
    fn put_new(&self, name: &str, bytes: Bytes) -> io::Result<bool>;

    /// Puts an object, in place of one of this name.
    ///
    /// # Errors
    /// Those of the store. The object may be there all the same.
    fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()>;

    /// Begins an object that is put in parts, in place of one of this name.
    ///
    /// # Errors
    /// Those of the store.
    fn begin_parts<'s>(&'s self, name: &str) -> io::Result<Box<dyn Parts + 's>>;

    /// Reads an object of at most `most` bytes.
    ///
    /// # Errors
    /// Those of the store; [`io::ErrorKind::InvalidData`] if it is longer.
    fn get(&self, name: &str, most: u64) -> io::Result<Bytes>;

    /// Reads a part of an object. It may return fewer bytes if the object ends before.
    ///
    /// # Errors
    /// Those of the store.
    fn get_range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes>;

    /// The objects whose names begin with `prefix`, which ends with a slash, in any order.
    ///
    /// # Errors
    /// Those of the store.
    fn list(&self, prefix: &str) -> io::Result<Vec<Entry>>;

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// An object that is being put in parts. It is there when it is finished.
pub trait Parts: Send + Sync {
    /// Puts a part. They are numbered from 0 on, and several are put at once, in any order. After
    /// an error the same part can be put again.
    ///
    /// # Errors
    /// Those of the store.
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()>;

    /// Makes the object of its parts, all of which were put. After an error it can be tried again.
    ///
    /// # Errors
    /// Those of the store. The object may be there all the same.
    fn finish(&self) -> io::Result<()>;

    /// Gives the object up.
    fn abandon(&self);
}
