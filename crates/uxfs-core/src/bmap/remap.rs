//! Unmapping without freeing: for blocks that go to another offset or another file.

use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock};

use super::records::{before, delete_rec, insert_rec, update_rec};
use super::slice_opt;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// Unmaps the `len` blocks from `at` on, which stay allocated, and gives what was mapped there. The
/// inode's block count follows.
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
        && let Some(old) = before(tx.fs(), tx.inode(slot), fork, end)?
        && let Some(cut) = slice_opt(&old, at, end)
    {
        match (slice_opt(&old, old.offset, at), slice_opt(&old, end, old.end())) {
            (None, None) => delete_rec(tx, slot, fork, &old)?,
            (Some(only), None) | (None, Some(only)) => update_rec(tx, slot, fork, &old, &only)?,
            (Some(left), Some(right)) => {
                update_rec(tx, slot, fork, &old, &left)?;
                insert_rec(tx, slot, fork, &right)?;
            }
        }
        let inode = tx.inode(slot);
        if inode.core.nblocks < cut.len {
            return Err(inode.corrupt("fewer blocks counted than mapped"));
        }
        tx.core_mut(slot).nblocks -= cut.len;
        end = cut.offset;
        gone.push(cut);
    }
    Ok(gone)
}
