//! The extent map of a fork: where a file's blocks lie.
//!
//! 1. Extents are in ascending order of offset. None is empty, and none overlap. Contiguous neighbours
//!    are merged, up to the maximum length of an extent.
//! 2. A fork is in extents form exactly if its records fit into it. Otherwise they are in a btree.
//! 3. The inode's counts of extents and blocks agree with the map after each call.
//! 4. Every extent is checked to lie inside one allocation group of the volume before it is used.

mod btree;
mod convert;
mod records;
mod remap;
mod shift;

use uxfs_format::extent::MAX_EXTENT_LEN;
use uxfs_format::inode::Fork;
use uxfs_format::{Check, Extent, FileBlock, FsBlock};

pub use btree::Bmbt;
pub use convert::fit;
pub use records::{at_or_after, before};
use records::{delete_rec, insert_rec, update_rec};
pub(crate) use remap::unmap_only;
pub(crate) use shift::{shift_down, shift_up, split};

use crate::alloc::{self, Goal, Owner};
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Returns the extent that maps block `at` of a fork.
///
/// # Errors
/// A damaged structure on the way.
pub fn lookup(fs: &Mount, inode: &InodeState, fork: Fork, at: FileBlock) -> Result<Option<Extent>> {
    Ok(at_or_after(fs, inode, fork, at)?.filter(|e| e.offset <= at))
}

/// Returns the first offset not below `from` at which `len` blocks of a fork are unmapped.
///
/// # Errors
/// A damaged structure on the way.
pub fn first_unused(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    len: u64,
    from: FileBlock,
) -> Result<FileBlock> {
    let mut at = from;
    while let Some(extent) = at_or_after(fs, inode, fork, at)? {
        if extent.offset.0 >= at.0.saturating_add(len) {
            break;
        }
        at = extent.end();
    }
    Ok(at)
}

/// Returns the offset after the last mapped block below `below`; 0 if there is none.
///
/// # Errors
/// A damaged structure on the way.
pub fn last_before(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    below: FileBlock,
) -> Result<FileBlock> {
    let last = before(fs, inode, fork, below)?;
    Ok(last.map_or(FileBlock(0), |e| e.end().min(below)))
}

/// Adds an extent to the map in a hole, merged with its neighbours. The caller updates the inode's
/// block count.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooBig`], or a damaged structure on the way.
pub(crate) fn map(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, new: Extent) -> Result<()> {
    let fs = tx.fs();
    let inode = tx.inode(slot);
    let left = before(fs, inode, fork, new.offset)?;
    let right = at_or_after(fs, inode, fork, new.offset)?;
    let overlap =
        left.is_some_and(|l| l.end() > new.offset) || right.is_some_and(|r| r.offset < new.end());
    if overlap {
        return Err(inode.corrupt(
            Check::Overlap,
            format!("{fork:?} blocks at {} are mapped twice", new.offset),
        ));
    }
    let left = left.filter(|l| joins(fs, l, &new));
    let right = right.filter(|r| joins(fs, &new, r));
    match (left, right) {
        (Some(left), Some(right)) if left.len + new.len + right.len <= MAX_EXTENT_LEN => {
            delete_rec(tx, slot, fork, &right)?;
            let len = left.len + new.len + right.len;
            update_rec(tx, slot, fork, &left, &Extent { len, ..left })
        }
        (Some(left), _) => {
            update_rec(tx, slot, fork, &left, &Extent { len: left.len + new.len, ..left })
        }
        (None, Some(right)) => {
            let joined = Extent { len: new.len + right.len, ..new };
            update_rec(tx, slot, fork, &right, &joined)
        }
        (None, None) => insert_rec(tx, slot, fork, &new),
    }
}

/// Are two extents contiguous, within one allocation group?
fn joins(fs: &Mount, left: &Extent, right: &Extent) -> bool {
    left.joins(right) && fs.geo.fsb_ag(left.start) == fs.geo.fsb_ag(right.start)
}

/// Allocates and maps exactly `len` written blocks in the hole at offset `at` of a fork, in as few
/// extents as free space allows. Updates the inode's block count.
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub fn alloc_all(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    len: u64,
) -> Result<()> {
    let ino = tx.inode(slot).ino;
    let goal = Goal::Near(tx.fs().inode_goal(ino));
    let mut at = at;
    let end = at.plus(len);
    while at < end {
        let extent = alloc_some(tx, slot, fork, at, end.0 - at.0, false, goal)?;
        at = extent.end();
    }
    Ok(())
}

/// Allocates and maps blocks from offset `at` of a fork, in a hole of at least `want` blocks, as
/// many as are contiguous. Continues the preceding extent if possible, otherwise starts at `goal`.
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub(crate) fn alloc_some(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    want: u64,
    unwritten: bool,
    goal: Goal,
) -> Result<Extent> {
    alloc_run(tx, slot, fork, &Run { at, min: 1, want, unwritten }, goal)
}

/// Blocks to be allocated in a hole of a fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Offset of the first block.
    pub(crate) at: FileBlock,
    /// Number of blocks that should be contiguous if free space allows.
    pub(crate) min: u64,
    /// Number of blocks wanted.
    pub(crate) want: u64,
    /// Allocate the blocks as unwritten.
    pub(crate) unwritten: bool,
}

/// As [`alloc_some`].
///
/// # Errors
/// As [`alloc_some`].
pub(crate) fn alloc_run(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    run: &Run,
    goal: Goal,
) -> Result<Extent> {
    let fs = tx.fs();
    let follow = before(fs, tx.inode(slot), fork, run.at)?.map(|e| e.start.plus(e.len));
    let goal = match follow {
        Some(fsb) if fs.geo.fsb_valid(fsb, 1) => Goal::Near(fsb),
        _ => goal,
    };
    alloc_at(tx, slot, fork, run, goal)
}

/// As [`alloc_run`], but starts at `goal` even if the preceding extent could be continued.
///
/// # Errors
/// As [`alloc_some`].
pub(crate) fn alloc_at(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    run: &Run,
    goal: Goal,
) -> Result<Extent> {
    let Run { at, min, want, unwritten } = *run;
    let ino = tx.inode(slot).ino;
    let owner = Owner::Fork { ino, fork, offset: at, unwritten };
    let most = want.min(MAX_EXTENT_LEN);
    let got = match alloc::alloc_anywhere(tx, goal, min.min(most), most, owner) {
        Err(Error::NoSpace) if min > 1 => alloc::alloc_anywhere(tx, goal, 1, most, owner),
        got => got,
    };
    let (start, len) = got?;
    let extent = Extent { offset: at, start, len, unwritten };
    tx.count_blocks(slot, len)?;
    map(tx, slot, fork, extent)?;
    Ok(extent)
}

/// Maps blocks of another file in a hole of the data fork, and adds the file to their owners
/// (deferred). Updates the inode's block count.
///
/// # Errors
/// As [`map`].
pub(crate) fn map_shared(tx: &mut Tx<'_>, slot: InodeSlot, extent: Extent) -> Result<()> {
    let ino = tx.inode(slot).ino;
    tx.count_blocks(slot, extent.len)?;
    map(tx, slot, Fork::Data, extent)?;
    alloc::share_later(tx, ino, &extent);
    Ok(())
}

/// Unmaps up to `max_extents` extents among the `len` blocks from `at` on, from the end backwards,
/// and frees their blocks (deferred). Returns the number of blocks from `at` that may still be
/// mapped, 0 when done.
///
/// # Errors
/// A damaged structure on the way.
pub fn unmap(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    len: u64,
    max_extents: u64,
) -> Result<u64> {
    let ino = tx.inode(slot).ino;
    let mut end = FileBlock(at.0.saturating_add(len));
    for _ in 0..max_extents {
        let Some(cut) = unmap_last(tx, slot, fork, at, end)? else { return Ok(0) };
        alloc::free_fork_later(tx, ino, fork, &cut);
        end = cut.offset;
        if end <= at {
            return Ok(0);
        }
    }
    Ok(end.0 - at.0)
}

/// Unmaps the blocks between `at` and `end` of the last extent there, and returns what they were
/// mapped to. Updates the inode's block count.
pub(super) fn unmap_last(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    end: FileBlock,
) -> Result<Option<Extent>> {
    let Some(old) = before(tx.fs(), tx.inode(slot), fork, end)? else { return Ok(None) };
    let Some(cut) = slice_opt(&old, at, end) else { return Ok(None) };
    cut_out(tx, slot, fork, &old, &cut)?;
    let inode = tx.inode(slot);
    if inode.core.nblocks < cut.len {
        return Err(inode.corrupt(Check::Counter, "fewer blocks counted than mapped"));
    }
    tx.core_mut(slot).nblocks -= cut.len;
    Ok(Some(cut))
}

/// Removes the part `cut` from the record `old`, and keeps what lies before and after it.
fn cut_out(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, old: &Extent, cut: &Extent) -> Result<()> {
    match (slice_opt(old, old.offset, cut.offset), slice_opt(old, cut.end(), old.end())) {
        (None, None) => delete_rec(tx, slot, fork, old),
        (Some(only), None) | (None, Some(only)) => update_rec(tx, slot, fork, old, &only),
        (Some(left), Some(right)) => {
            update_rec(tx, slot, fork, old, &left)?;
            insert_rec(tx, slot, fork, &right)
        }
    }
}

/// Converts the unwritten blocks of the data fork in `at..at + len` to written.
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub(crate) fn mark_written(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    at: FileBlock,
    len: u64,
) -> Result<()> {
    let fork = Fork::Data;
    let ino = tx.inode(slot).ino;
    let (mut at, end) = (at, at.plus(len));
    while at < end
        && let Some(old) = at_or_after(tx.fs(), tx.inode(slot), fork, at)?
    {
        if old.offset >= end {
            break;
        }
        let (from, to) = (old.offset.max(at), old.end().min(end));
        at = to;
        if !old.unwritten {
            continue;
        }
        let part = Extent { unwritten: false, ..slice(&old, from, to) };
        // Remove the part and add it again in its new state, so that `map` merges it.
        cut_out(tx, slot, fork, &old, &part)?;
        map(tx, slot, fork, part)?;
        alloc::convert_later(tx, ino, fork, &part);
    }
    Ok(())
}

/// The part of an extent between two offsets, which must not be empty.
pub(crate) fn slice(extent: &Extent, from: FileBlock, to: FileBlock) -> Extent {
    let (from, to) = (from.max(extent.offset), to.min(extent.end()));
    debug_assert!(from < to);
    let start = FsBlock(extent.start.0 + (from.0 - extent.offset.0));
    Extent { offset: from, start, len: to.0 - from.0, unwritten: extent.unwritten }
}

fn slice_opt(extent: &Extent, from: FileBlock, to: FileBlock) -> Option<Extent> {
    (from.max(extent.offset) < to.min(extent.end())).then(|| slice(extent, from, to))
}
