//! Moving extents of the data fork to other offsets. Their blocks stay where they are on the volume.
//!
//! 1. The order of moves keeps extents from overlapping: from the first extent when moving down, from
//!    the last when moving up.
//! 2. Each call leaves a valid map. A gap of the shift distance separates the extents that have moved
//!    from the others. The two parts of a split extent adjoin until the second one moves.
//! 3. Only a split needs a new block. It comes before all moves.
//! 4. Reverse mappings follow as deferred operations. Reference counts and the inode's block count do
//!    not change.
//!
//! Called by fallocate's collapse and insert modes.

use uxfs_format::inode::Fork;
use uxfs_format::{Check, Extent, FileBlock};

use super::records::{at_or_after, before, delete_rec, insert_rec, update_rec};
use super::{joins, slice};
use crate::alloc;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

const FORK: Fork = Fork::Data;

/// Moves up to `max` extents, starting with the first at or after `from`, down by `by` blocks into
/// a hole. Returns where to continue, `None` when done.
///
/// # Errors
/// A damaged structure on the way.
pub(crate) fn shift_down(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    from: FileBlock,
    by: u64,
    max: u64,
) -> Result<Option<FileBlock>> {
    let ino = tx.inode(slot).ino;
    let mut next = from;
    for _ in 0..max {
        let Some(old) = at_or_after(tx.fs(), tx.inode(slot), FORK, next)? else { return Ok(None) };
        next = old.end();
        let Some(to) = old.offset.0.checked_sub(by).map(FileBlock) else {
            return Err(tx
                .inode(slot)
                .corrupt(Check::Overlap, "an extent lies where a hole was made"));
        };
        let new = Extent { offset: to, ..old };
        let left = before(tx.fs(), tx.inode(slot), FORK, old.offset)?;
        if left.is_some_and(|left| left.end() > to) {
            return Err(tx
                .inode(slot)
                .corrupt(Check::Overlap, "an extent lies where a hole was made"));
        }
        match left.filter(|left| joins(tx.fs(), left, &new)) {
            Some(left) => {
                delete_rec(tx, slot, FORK, &old)?;
                let len = left.len + new.len;
                update_rec(tx, slot, FORK, &left, &Extent { len, ..left })?;
            }
            None => update_rec(tx, slot, FORK, &old, &new)?,
        }
        alloc::move_later(tx, ino, FORK, &old, &new);
    }
    Ok(Some(next))
}

/// Splits the extent that maps the blocks on both sides of `at` into two records. Its blocks have the
/// same reverse mapping as before.
///
/// # Errors
/// [`crate::Error::NoSpace`], [`crate::Error::FileTooBig`], or a damaged structure on the way.
pub(crate) fn split(tx: &mut Tx<'_>, slot: InodeSlot, at: FileBlock) -> Result<()> {
    let old = before(tx.fs(), tx.inode(slot), FORK, at)?;
    let Some(old) = old.filter(|old| old.end() > at) else { return Ok(()) };
    update_rec(tx, slot, FORK, &old, &slice(&old, old.offset, at))?;
    insert_rec(tx, slot, FORK, &slice(&old, at, old.end()))
}

/// Moves up to `max` extents, starting with the last below `below`, up by `by` blocks, but none
/// below `from`, where an extent begins or a hole is ([`split`]). Returns where to continue, `None`
/// when done.
///
/// # Errors
/// A damaged structure on the way.
pub(crate) fn shift_up(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    from: FileBlock,
    below: FileBlock,
    by: u64,
    max: u64,
) -> Result<Option<FileBlock>> {
    let ino = tx.inode(slot).ino;
    let mut below = below;
    for _ in 0..max {
        let Some(old) = before(tx.fs(), tx.inode(slot), FORK, below)? else { return Ok(None) };
        if old.offset < from {
            return Ok(None);
        }
        let new = Extent { offset: old.offset.plus(by), ..old };
        update_rec(tx, slot, FORK, &old, &new)?;
        alloc::move_later(tx, ino, FORK, &old, &new);
        below = old.offset;
    }
    Ok(Some(below))
}
