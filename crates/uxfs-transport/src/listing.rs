//! The content of a directory's listing, entry by entry.

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::attr::Entry;

/// The kind of a directory entry, with the number that `readdir(3)` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

/// A name in a listing.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub ino: u64,
    /// Where a listing goes on after this entry.
    pub next: u64,
    pub kind: Kind,
    pub name: &'a [u8],
}

/// A listing that is being written.
pub struct Listing<'a> {
    to: &'a mut [u8],
    used: usize,
}

impl<'a> Listing<'a> {
    pub fn new(to: &'a mut [u8]) -> Self {
        Self { to, used: 0 }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a name. Returns false, and adds nothing, if it does not fit.
    #[must_use]
    pub fn add(&mut self, name: &Name<'_>) -> bool {
        self.append(&[], name)
    }

    /// Adds a name with its inode's attributes. The kernel holds the inode, unless the entry's
    /// number is 0. Returns false, and adds nothing, if it does not fit.
    #[must_use]
    pub fn add_plus(&mut self, entry: &Entry, name: &Name<'_>) -> bool {
        let wire: EntryOut = entry.wire();
        self.append(wire.as_bytes(), name)
    }

    fn append(&mut self, entry: &[u8], name: &Name<'_>) -> bool {
        let dirent = Dirent {
            ino: name.ino,
            next: name.next,
            name_len: u32::try_from(name.name.len()).unwrap_or(u32::MAX),
            kind: name.kind as u32,
        };
        let parts = [entry, dirent.as_bytes(), name.name];
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let padded = len.next_multiple_of(8);
        let Some(room) = self.to.get_mut(self.used..self.used + padded) else { return false };
        let mut at = 0;
        for part in parts {
            room[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        room[at..].fill(0);
        self.used += padded;
        true
    }
}
