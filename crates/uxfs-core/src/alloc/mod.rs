//! Free space: allocating and freeing blocks, with their reverse mappings and reference counts.
//!
//! 1. Both free-space trees hold the same extents, merged; the AGF's totals agree with them.
//! 2. Before anything in a group changes, its AGFL is long enough for every tree to grow by a level
//!    ([`freelist::fix`]). What an allocation leaves free must still allow that.
//! 3. With reverse mapping, the owner of every block is recorded as it is allocated, and removed as it is
//!    freed.
//! 4. Freeing is deferred to the end of a transaction ([`crate::defer`]), so that groups can be locked one
//!    after the other in any order.

pub(crate) mod agfl;
mod blocks;
mod extent;
pub mod freelist;
mod owner;
mod refcount;
mod rmap;
pub(crate) mod room;
pub(crate) mod staging;

use uxfs_format::btree::{Rmap, RmapKey};
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, AgNo, Check, Extent, Ino};

pub use blocks::Goal;
use blocks::{KEEP, KEEP_UNWRITTEN};
pub(crate) use blocks::{alloc_anywhere, alloc_block, alloc_in, free_later};
pub(crate) use extent::{Want, free as free_extent, take as take_extent};
pub use owner::Owner;
pub(crate) use refcount::{shared_at, shared_run};

use crate::btree::{Cursor, Env, RmapTree};
use crate::deferred::{Deferred, FreedOwner, RefcountChange, RmapChange};
use crate::error::Result;
use crate::mount::Counters;
use crate::tx::Tx;

/// Frees blocks of a fork's extent btree at the end of the transaction.
pub(crate) fn free_owned_later(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32, owner: Owner) {
    tx.deferred.push(Deferred::Free { ag, start, len, owner: FreedOwner::Known(owner) });
}

/// Group, first block and reverse mapping of a fork's extent.
fn fork_rmap(tx: &Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) -> (AgNo, Rmap) {
    let geo = &tx.fs().geo;
    let (ag, start) = (geo.fsb_ag(extent.start), geo.fsb_agblock(extent.start));
    let owner = Owner::Fork { ino, fork, offset: extent.offset, unwritten: extent.unwritten };
    // An extent's length always fits into 21 bits.
    (ag, owner.rmap(start, extent.len as u32))
}

/// Frees a fork's extent at the end of the transaction. Data shared with other files only loses
/// this owner.
pub(crate) fn free_fork_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    unmap_later(tx, ino, fork, extent);
    let (ag, Rmap { start, len, .. }) = fork_rmap(tx, ino, fork, extent);
    // The reference counts decide what is shared, because the inode's flag may be missing.
    let step = match fork == Fork::Data && tx.fs().geo.has_reflink() {
        true => Deferred::Refcount { ag, start, len, change: RefcountChange::Decrease },
        false => Deferred::Free { ag, start, len, owner: FreedOwner::None },
    };
    tx.deferred.push(step);
}

/// Adds a file as an owner of blocks that its data fork now maps, at the end of the transaction.
pub(crate) fn share_later(tx: &mut Tx<'_>, ino: Ino, extent: &Extent) {
    let (ag, Rmap { start, len, .. }) = fork_rmap(tx, ino, Fork::Data, extent);
    let change = RefcountChange::Increase;
    tx.deferred.push(Deferred::Refcount { ag, start, len, change });
    map_later(tx, ino, Fork::Data, extent);
}

/// Updates the reverse mappings of a fork's extent that moved to another offset, at the end of the
/// transaction.
pub(crate) fn move_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, old: &Extent, new: &Extent) {
    unmap_later(tx, ino, fork, old);
    map_later(tx, ino, fork, new);
}

/// Updates the reverse mappings of a fork's blocks that changed between written and unwritten, at
/// the end of the transaction.
pub(crate) fn convert_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    rmap_later(tx, ino, fork, extent, RmapChange::Convert);
}

/// Adds the reverse mapping of a fork's extent, at the end of the transaction.
pub(crate) fn map_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    rmap_later(tx, ino, fork, extent, RmapChange::Map);
}

/// Removes the reverse mapping of a fork's extent, at the end of the transaction.
pub(crate) fn unmap_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    rmap_later(tx, ino, fork, extent, RmapChange::Unmap);
}

fn rmap_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent, change: RmapChange) {
    if tx.fs().geo.has_rmap() {
        let (ag, rmap) = fork_rmap(tx, ino, fork, extent);
        tx.deferred.push(Deferred::Rmap { ag, rmap, change });
    }
}

/// Runs a deferred free in a group that the transaction has locked.
pub(crate) fn free_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
    owner: FreedOwner,
) -> Result<()> {
    freelist::fix(tx, ag)?;
    let owned = match owner {
        _ if !tx.fs().geo.has_rmap() => None,
        FreedOwner::None => None,
        FreedOwner::Known(owner) => Some(owner.rmap(start, len)),
        FreedOwner::Any => any_owner(tx, ag, start, len)?,
    };
    if let Some(rmap) = owned {
        rmap::remove(tx, ag, &rmap)?;
        freelist::fix(tx, ag)?;
    }
    free_extent(tx, ag, start, len)?;
    tx.count(Counters { fdblocks: len.into(), ..Counters::default() });
    Ok(())
}

/// The reverse mapping of all blocks of an extent that is to be freed.
///
/// # Errors
/// If a reverse mapping overlaps only a part of the extent, or several do.
fn any_owner(tx: &Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<Option<Rmap>> {
    let mut owners = Vec::new();
    let (low, high) = (RmapKey::at(start), RmapKey::last_at(start.plus(len - 1)));
    let tree = RmapTree::new(ag);
    Cursor::<RmapTree>::overlapping(Env::Tx(tx), &tree, &low, &high, &mut |rec| {
        owners.push(*rec);
        owners.len() < 2
    })?;
    match owners[..] {
        [] => Ok(None),
        [rec] if rec.start <= start && rec.start.0 + rec.len >= start.0 + len => {
            let skipped = if rec.offset_moves() { start.0 - rec.start.0 } else { 0 };
            Ok(Some(Rmap { start, len, offset: rec.offset + u64::from(skipped), ..rec }))
        }
        _ => {
            let problem = format!("blocks {start}+{len} to be freed have owners");
            Err(tx.ag(ag).headers().agf.corrupt(Check::Owner, problem))
        }
    }
}

/// Runs a deferred share in a group that the transaction has locked. Returns the unfinished rest.
pub(crate) fn share_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let done = refcount::adjust(tx, ag, start, len, refcount::Change::More)?;
    Ok(rest(start, len, done.len))
}

/// Runs a deferred loss of an owner in a group that the transaction has locked. Returns the
/// unfinished rest. Blocks without an owner are freed by another deferred operation.
pub(crate) fn drop_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let done = refcount::adjust(tx, ag, start, len, refcount::Change::Less)?;
    for (start, len) in done.free {
        tx.deferred.push(Deferred::Free { ag, start, len, owner: FreedOwner::None });
    }
    Ok(rest(start, len, done.len))
}

fn rest(start: AgBlock, len: u32, done: u32) -> Option<(AgBlock, u32)> {
    (done < len).then(|| (start.plus(done), len - done))
}

/// Runs a deferred mapping in a group that the transaction has locked.
pub(crate) fn map_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::add(tx, ag, rmap)
}

/// Runs a deferred unmapping in a group that the transaction has locked.
pub(crate) fn unmap_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::remove(tx, ag, rmap)
}

/// Runs a deferred conversion in a group that the transaction has locked.
pub(crate) fn convert_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::convert(tx, ag, rmap)
}

/// Blocks of a locked group that are still available for unwritten data.
pub(crate) fn spare(tx: &Tx<'_>, ag: AgNo) -> u64 {
    let agf = tx.agf(ag);
    let geo = &tx.fs().geo;
    let keep = if geo.has_reflink() { KEEP } else { 0 };
    let keep = keep + if geo.has_rmap() { KEEP_UNWRITTEN } else { 0 };
    let free = agf.freeblks.get() + agf.flcount.get();
    free.saturating_sub(freelist::needed(tx, ag) + keep).into()
}

/// Keeps the blocks that a split of the reference count tree takes in a locked group, until the end
/// of the transaction, also across unlocking the group. Returns `false` if the group does not have
/// them.
pub(crate) fn keep_for_counts(tx: &mut Tx<'_>, ag: AgNo) -> bool {
    let agf = tx.agf(ag);
    let free = agf.freeblks.get() + agf.flcount.get();
    let blocks = agf.refcount_level.get() + 3;
    let others = freelist::needed(tx, ag) + tx.fs().kept(ag);
    let enough = free.saturating_sub(others) >= blocks;
    if enough {
        tx.keep(ag, blocks);
    }
    enough
}
