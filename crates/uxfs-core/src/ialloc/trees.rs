//! Allocating and freeing blocks for the inode trees.

use uxfs_format::{AgBlock, AgNo};

use crate::alloc;
use crate::btree::{AgKind, BlockSource, FinoKind, InoKind};
use crate::error::Result;
use crate::tx::Tx;

impl BlockSource for InoKind {
    fn take(tx: &mut Tx<'_>, ag: AgNo, near: AgBlock) -> Result<AgBlock> {
        alloc::alloc_block(tx, ag, near, Self::OWNER)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        alloc::free_later(tx, ag, block, 1, Self::OWNER);
        Ok(())
    }
}

impl BlockSource for FinoKind {
    fn take(tx: &mut Tx<'_>, ag: AgNo, near: AgBlock) -> Result<AgBlock> {
        alloc::alloc_block(tx, ag, near, Self::OWNER)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        alloc::free_later(tx, ag, block, 1, Self::OWNER);
        Ok(())
    }
}
