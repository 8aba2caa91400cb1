//! A deferred operation, which runs at the end of its transaction ([`crate::defer`]).

use uxfs_format::btree::Rmap;
use uxfs_format::{AgBlock, AgNo};

use crate::alloc::Owner;

/// A deferred operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deferred {
    /// Free blocks that no file maps. If `owner` is given, remove its reverse mapping too.
    Free {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// The owner whose reverse mapping is removed.
        owner: Option<Owner>,
    },
    /// Add one owner to blocks.
    Share {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// Remove one owner from blocks, and free them if it was the last one.
    Drop {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// Add a file's mapping of blocks that are not newly allocated.
    Map {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// Remove a file's mapping of blocks.
    Unmap {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// Convert a mapping between written and unwritten, to the state in `rmap`.
    Convert {
        /// The group.
        ag: AgNo,
        /// The mapping after the conversion.
        rmap: Rmap,
    },
}

impl Deferred {
    /// The group in which the operation works.
    pub(crate) fn ag(&self) -> AgNo {
        match *self {
            Self::Free { ag, .. }
            | Self::Share { ag, .. }
            | Self::Drop { ag, .. }
            | Self::Map { ag, .. }
            | Self::Unmap { ag, .. }
            | Self::Convert { ag, .. } => ag,
        }
    }
}
