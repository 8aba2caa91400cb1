//! The objects that the journal tracks from commit to write in place (buffers, inodes, dquots,
//! the superblock, intents), and the log space of their items.

use std::sync::Arc;

use uxfs_format::Ino;
use uxfs_format::dquot::QuotaType;
use uxfs_format::log::CHUNK;
use uxfs_journal::{LogItem, Logged, Records};

use super::buf_item;
use crate::buf::BufRef;
use crate::dquot::DquotRef;
use crate::error::Error;
use crate::inode::InodeRef;

/// Regions of an inode item and of the buffer item of its unlinked list pointer.
pub(super) const INODE_REGIONS: u64 = 4 + 2;
/// Bytes of an inode item without its forks.
pub(super) const INODE_BYTES: u64 = 56 + 176 + 2 * 72 + 8 + 36 + CHUNK as u64;

/// An object that the journal tracks until it is written in place.
#[derive(Clone)]
pub enum Handle {
    /// A metadata buffer.
    Buf(BufRef),
    /// An inode.
    Inode(Ino, InodeRef),
    /// A dquot.
    Dquot(DquotRef),
    /// The primary superblock.
    Superblock,
    /// A pending intent, by its id. It is never written in place, but holds the log's tail.
    Intent(u64),
}

/// The identity of an object: its kind, and its address or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The primary superblock.
    Superblock,
    /// A buffer, by its address.
    Buf(u64),
    /// An inode, by its number.
    Inode(u64),
    /// A dquot, by its type and id.
    Dquot(QuotaType, u32),
    /// An intent, by its number.
    Intent(u64),
}

impl LogItem for Handle {
    type Key = Key;

    fn key(&self) -> Key {
        match self {
            Self::Buf(buf) => Key::Buf(buf.daddr().0),
            Self::Inode(ino, _) => Key::Inode(ino.0),
            Self::Dquot(dquot) => Key::Dquot(dquot.kind, dquot.id),
            Self::Superblock => Key::Superblock,
            Self::Intent(id) => Key::Intent(*id),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Buf(a), Self::Buf(b)) => Arc::ptr_eq(a, b),
            (Self::Inode(_, a), Self::Inode(_, b)) => Arc::ptr_eq(a, b),
            (Self::Dquot(a), Self::Dquot(b)) => Arc::ptr_eq(a, b),
            (Self::Superblock, Self::Superblock) => true,
            (Self::Intent(a), Self::Intent(b)) => a == b,
            _ => false,
        }
    }

    fn intent(id: u64) -> Self {
        Self::Intent(id)
    }

    fn is_intent(&self) -> bool {
        matches!(self, Self::Intent(_))
    }

    fn freed_address(&self) -> Option<usize> {
        match self {
            Self::Inode(_, cell) => Some(Arc::as_ptr(cell).addr()),
            _ => None,
        }
    }

    fn format(&self, logged: Logged<'_>, records: &mut Records) {
        match (self, logged) {
            (Self::Buf(buf), Logged::Chunks { kind, chunks, bytes }) => {
                buf_item::write_chunks(buf.pieces(), kind, chunks, bytes, records);
            }
            (_, logged) => logged.write_regions(records),
        }
    }
}

/// The open checkpoint.
pub(crate) type Cil = uxfs_journal::Cil<Handle, Error>;
