//! The owner of allocated blocks, as reverse mappings record it.

use uxfs_format::btree::{Rmap, RmapOwner};
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, FileBlock, Ino};

/// The owner of allocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A metadata structure of the volume.
    Special(RmapOwner),
    /// Mapped blocks of a fork, starting at `offset`.
    Fork {
        /// The inode.
        ino: Ino,
        /// Data or attribute fork.
        fork: Fork,
        /// Offset of the first block.
        offset: FileBlock,
        /// The blocks are allocated but not written.
        unwritten: bool,
    },
    /// A block of a fork's extent btree.
    Bmbt {
        /// The inode.
        ino: Ino,
        /// Data or attribute fork.
        fork: Fork,
    },
}

impl Owner {
    /// The reverse mapping of blocks with this owner.
    pub(crate) fn rmap(&self, start: AgBlock, len: u32) -> Rmap {
        let base = Rmap { start, len, ..Rmap::default() };
        match *self {
            Self::Special(owner) => Rmap { owner, ..base },
            Self::Fork { ino, fork, offset, unwritten } => Rmap {
                owner: RmapOwner(ino.0),
                offset: offset.0,
                attr: fork == Fork::Attr,
                unwritten,
                ..base
            },
            Self::Bmbt { ino, fork } => {
                Rmap { owner: RmapOwner(ino.0), attr: fork == Fork::Attr, bmbt: true, ..base }
            }
        }
    }
}
