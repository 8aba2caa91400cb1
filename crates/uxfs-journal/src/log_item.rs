//! Log items, as the journal sees them: objects that it tracks from commit until they are written in place,
//! without knowing what they are.
//!
//! Implemented by the engine for buffers, inodes, the superblock and intents. Used by [`crate::Cil`] and
//! [`crate::Ail`].

use core::fmt::Debug;
use core::hash::Hash;

use crate::copies::Logged;
use crate::records::Records;

/// A receiver of the regions of log items.
pub trait Regions {
    /// Adds a region.
    fn region(&mut self, bytes: &[u8]);
}

impl Regions for Records {
    fn region(&mut self, bytes: &[u8]) {
        Self::region(self, bytes);
    }
}

/// An object that the journal tracks.
pub trait LogItem: Clone {
    /// The identity of an object on the volume: its kind, and its address or number.
    type Key: Copy + Debug + Eq + Hash;

    /// The object's key.
    fn key(&self) -> Self::Key;

    /// Are they the same object in memory? A key can pass to another object, for example when a block
    /// is freed and used again.
    fn is(&self, other: &Self) -> bool;

    /// The item of a pending intent. It is never written in place, but holds the log's tail.
    fn intent(id: u64) -> Self;

    /// Is it an intent?
    fn is_intent(&self) -> bool;

    /// The address in memory of an object whose copy must not be logged if the object is freed in the
    /// same checkpoint; `None` for one whose copy is dropped when it is freed.
    fn freed_address(&self) -> Option<usize>;

    /// Writes the object's log items, made of the copy of what is logged of it.
    fn format(&self, logged: Logged<'_>, records: &mut Records);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An item that is a number: an intent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Item(pub(crate) u64);

    pub(crate) fn intent(id: u64) -> Item {
        Item(id)
    }

    impl LogItem for Item {
        type Key = u64;

        fn key(&self) -> u64 {
            self.0
        }

        fn is(&self, other: &Self) -> bool {
            self == other
        }

        fn intent(id: u64) -> Self {
            Self(id)
        }

        fn is_intent(&self) -> bool {
            true
        }

        fn freed_address(&self) -> Option<usize> {
            Some(self.0 as usize)
        }

        fn format(&self, logged: Logged<'_>, records: &mut Records) {
            logged.write_regions(records);
        }
    }
}
