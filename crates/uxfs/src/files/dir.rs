//! Directories read entry by entry.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_core::Fs;
use uxfs_format::Ino;

use super::error::{Fault, PathError, Result};
use super::file::Held;
use super::lookup;
use super::metadata::{FileType, Metadata};
use super::path::{bytes_of, os_string};
use super::volume::Volume;

/// Entries read at a time.
const BATCH: usize = 256;

struct Found {
    name: Vec<u8>,
    ino: Ino,
    kind: Option<FileType>,
}

/// The entries of a directory, without `.` and `..`, in no order that means something. Entries that
/// are added or removed meanwhile may or may not be seen; all others are, once.
pub struct ReadDir {
    held: Arc<Held>,
    path: PathBuf,
    entries: VecDeque<Found>,
    next: u64,
    ended: bool,
    /// The error behind the last entry, which ends the iteration.
    failed: Option<Fault>,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

/// An entry of a directory.
pub struct DirEntry {
    held: Arc<Held>,
    dir: PathBuf,
    name: OsString,
    ino: Ino,
    kind: Option<FileType>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl Volume {
    /// Reads a directory.
    ///
    /// # Errors
    /// ENOTDIR; those of looking the path up.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        self.on_path("read_dir", path, |fs, bytes| {
            let held = self.hold(fs, || lookup::inode(fs, bytes, true))?;
            if !lookup::is_dir(fs, held.ino)? {
                return Err(uxfs_core::Error::NotDir.into());
            }
            Ok(ReadDir {
                held: Arc::new(held),
                path: path.to_owned(),
                entries: VecDeque::new(),
                next: 0,
                ended: false,
                failed: None,
            })
        })
    }
}

impl ReadDir {
    fn fill(&mut self) -> core::result::Result<(), Fault> {
        let (entries, next) = (&mut self.entries, &mut self.next);
        let ino = self.held.ino;
        self.held.shared.run(|fs: &Fs| {
            Ok(fs.read_dir(ino, *next, &mut |entry| {
                *next = entry.next;
                if !entry.is_dot() {
                    entries.push_back(Found {
                        name: entry.name.to_vec(),
                        ino: entry.ino,
                        kind: FileType::of_entry(entry.ftype),
                    });
                }
                if entries.len() < BATCH {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?)
        })?;
        self.ended = self.entries.len() < BATCH;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty()
            && !self.ended
            && let Err(fault) = self.fill()
        {
            // The entries before it come first.
            (self.ended, self.failed) = (true, Some(fault));
        }
        let Some(Found { name, ino, kind }) = self.entries.pop_front() else {
            let fault = self.failed.take()?;
            return Some(Err(PathError::new("read_dir", &self.path, fault)));
        };
        Some(Ok(DirEntry {
            held: Arc::clone(&self.held),
            dir: self.path.clone(),
            name: os_string(name),
            ino,
            kind,
        }))
    }
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The path: that of the directory, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.ino.0
    }

    /// The type, which most volumes keep in the directory.
    ///
    /// # Errors
    /// Those of reading the inode, if the directory does not have the type.
    pub fn file_type(&self) -> Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// The attributes; a symbolic link is not followed.
    ///
    /// # Errors
    /// ENOENT if the file was removed meanwhile; the errors of [`Fs::stat`].
    pub fn metadata(&self) -> Result<Metadata> {
        let volume = Volume(Arc::clone(&self.held.shared));
        let found = self.held.shared.run(|fs| {
            let name = bytes_of(Path::new(&self.name));
            // By name, as in std::fs: the inode may have become that of another file.
            let file = volume.hold(fs, || Ok(fs.lookup(self.held.ino, &name)?))?;
            Ok(Metadata { stat: fs.stat(file.ino)?, block_size: fs.geo.block_size })
        });
        found.map_err(|fault| PathError::new("metadata", &self.path(), fault))
    }
}
