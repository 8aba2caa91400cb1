//! The objects that the journal tracks from commit to write in place (buffers, inodes, the
//! superblock, intents), and the log space of their items.

use uxfs_format::Ino;
use uxfs_format::log::CHUNK;

use crate::buf::BufRef;
use crate::inode::InodeRef;

/// Regions of an inode item and of the buffer item of its unlinked list pointer.
pub(super) const INODE_REGIONS: u64 = 4 + 2;
/// Bytes of an inode item without its forks.
pub(super) const INODE_BYTES: u64 = 56 + 176 + 2 * 72 + 8 + 36 + CHUNK as u64;
/// Most bytes of an intent of one element.
pub(super) const INTENT_BYTES: u64 = 16 + 32;
/// Most bytes of a done item.
pub(super) const DONE_BYTES: u64 = 16 + 16;
/// Bytes of the superblock item.
pub(super) const SUPERBLOCK_BYTES: u64 = 24 + 384;

/// An object that the journal tracks until it is written in place.
#[derive(Clone)]
pub(crate) enum Handle {
    /// A metadata buffer.
    Buf(BufRef),
    /// An inode.
    Inode(Ino, InodeRef),
    /// The primary superblock.
    Superblock,
    /// A pending intent, by its id. It is never written in place, but holds the log's tail.
    Intent(u64),
}

/// The identity of an object: its kind, and its address or number.
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
