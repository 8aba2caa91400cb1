//! Unmapping without freeing, for blocks that move to another offset or another file.

use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock};

use super::unmap_last;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// Unmaps the `len` blocks from `at` on without freeing them, and returns the extents that were
/// mapped there. Updates the inode's block count.
///
/// # Errors
/// A damaged structure on the way.
pub(crate) fn unmap_only(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    len: u64,
) -> Result<Vec<Extent>> {
    let mut end = FileBlock(at.0.saturating_add(len));
    let mut gone = Vec::new();
    while end > at
        && let Some(cut) = unmap_last(tx, slot, fork, at, end)?
    {
        end = cut.offset;
        gone.push(cut);
    }
    Ok(gone)
}
