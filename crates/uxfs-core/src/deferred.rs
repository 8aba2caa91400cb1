//! A deferred operation, which runs at the end of its transaction ([`crate::defer`]).

use uxfs_format::btree::Rmap;
use uxfs_format::{AgBlock, AgNo};

use crate::alloc::Owner;

/// A step that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deferred {
    /// Blocks are free again. No file maps them; if `owner` is given, its reverse mapping goes too.
    Free {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// Who loses them.
        owner: Option<Owner>,
    },
    /// Blocks get one more owner.
    Share {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// Blocks lose one owner, and are free if that was the last one.
    Drop {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// A file maps blocks that are not newly allocated.
    Map {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// A file maps blocks no more.
    Unmap {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// A mapping changes between written and unwritten, to what `rmap` says.
    Convert {
        /// The group.
        ag: AgNo,
        /// The mapping as it is to be.
        rmap: Rmap,
    },
}

impl Deferred {
    /// The group that the step works in.
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
