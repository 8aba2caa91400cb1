//! What the journal follows from commit to write in place: buffers, inodes, the superblock, intents; and
//! how much of a record each takes.

use uxfs_format::Ino;
use uxfs_format::log::CHUNK;

use crate::buf::BufRef;
use crate::inode::InodeRef;

/// Regions of an inode's item, and of that of its place in a list of unlinked ones.
pub(super) const INODE_REGIONS: u64 = 4 + 2;
/// Bytes of an inode's item besides its forks.
pub(super) const INODE_BYTES: u64 = 56 + 176 + 2 * 72 + 8 + 36 + CHUNK as u64;
/// Bytes of an intent of one step, at most.
pub(super) const INTENT_BYTES: u64 = 16 + 32;
/// Bytes of a done, at most.
pub(super) const DONE_BYTES: u64 = 16 + 16;
/// Bytes of the superblock's item.
pub(super) const SUPERBLOCK_BYTES: u64 = 24 + 384;

/// Something that the journal follows until it is home.
#[derive(Clone)]
pub(crate) enum Handle {
    /// A metadata buffer.
    Buf(BufRef),
    /// An inode.
    Inode(Ino, InodeRef),
    /// The primary superblock.
    Superblock,
    /// An intent that is not done, by its number: nothing to write, but the tail stays before it.
    Intent(u64),
}

/// By what the journal knows an object: its kind, and its address or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// The primary superblock.
    Superblock,
    /// A buffer, by its address.
    Buf(u64),
    /// An inode, by its number.
    Inode(u64),
    /// An intent, by its number.
    Intent(u64),
}

impl Handle {
    /// The object's key.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Buf(buf) => Key::Buf(buf.daddr().0),
            Self::Inode(ino, _) => Key::Inode(ino.0),
            Self::Superblock => Key::Superblock,
            Self::Intent(id) => Key::Intent(*id),
        }
    }

    /// Are they the same object in memory?
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Buf(a), Self::Buf(b)) => std::sync::Arc::ptr_eq(a, b),
            (Self::Inode(_, a), Self::Inode(_, b)) => std::sync::Arc::ptr_eq(a, b),
            (Self::Superblock, Self::Superblock) => true,
            (Self::Intent(a), Self::Intent(b)) => a == b,
            _ => false,
        }
    }
}
