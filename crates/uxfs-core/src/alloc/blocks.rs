//! Allocating blocks, in a given group or in the first group that has enough.

use uxfs_format::btree::RmapOwner;
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, AgNo, FsBlock};

use super::extent::{Want, take as take_extent};
use super::owner::Owner;
use super::rmap;
use crate::deferred::{Deferred, FreedOwner};
use crate::error::{Error, Result};
use crate::mount::Counters;
use crate::tx::Tx;

/// Blocks of a group that data allocations leave for the reference count tree, which grows when a
/// file gives up a part of a shared extent. Metadata may still take them.
pub(super) const KEEP: u32 = 8;
/// Further blocks that unwritten allocations leave for the reverse-mapping tree, which changes
/// again when the blocks are written.
pub(super) const KEEP_UNWRITTEN: u32 = 16;

/// Where an allocation should start.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Near this block.
    Near(FsBlock),
    /// After the last data allocation in this group.
    Stream(AgNo),
}

impl From<FsBlock> for Goal {
    fn from(fsb: FsBlock) -> Self {
        Self::Near(fsb)
    }
}

/// Allocates one block of group `ag`, near `near`.
pub(crate) fn alloc_block(
    tx: &mut Tx<'_>,
    ag: AgNo,
    near: AgBlock,
    owner: RmapOwner,
) -> Result<AgBlock> {
    // The reference count tree may use the blocks kept for it.
    let keep = if owner == RmapOwner::REFC { 0 } else { tx.fs().kept(ag) };
    let want = Want { near, keep, ..Want::default() };
    match alloc_in(tx, ag, &want, Owner::Special(owner))? {
        Some((block, _)) => Ok(block),
        None => Err(Error::NoSpace),
    }
}

/// Allocates blocks of group `ag`, whose lock the transaction holds, and records their owner.
/// Returns `None` if the group does not have them.
pub(crate) fn alloc_in(
    tx: &mut Tx<'_>,
    ag: AgNo,
    want: &Want,
    owner: Owner,
) -> Result<Option<(AgBlock, u32)>> {
    let Some((start, len)) = take_extent(tx, ag, want)? else { return Ok(None) };
    if tx.fs().geo.has_rmap() {
        rmap::add(tx, ag, &owner.rmap(start, len))?;
    }
    tx.count(Counters { fdblocks: -i64::from(len), ..Counters::default() });
    Ok(Some((start, len)))
}

/// Allocates between `min` and `max` contiguous blocks, in the group of `goal` or the next group
/// that has them.
pub(crate) fn alloc_anywhere(
    tx: &mut Tx<'_>,
    goal: impl Into<Goal>,
    min: u64,
    max: u64,
    owner: Owner,
) -> Result<(FsBlock, u64)> {
    let geo = std::sync::Arc::clone(&tx.fs().geo);
    let goal = goal.into();
    let first = match goal {
        Goal::Near(fsb) => geo.fsb_ag(fsb),
        Goal::Stream(ag) => ag,
    };
    let data = matches!(owner, Owner::Fork { fork: Fork::Data, .. });
    let mut keep = if data && geo.has_reflink() { KEEP } else { 0 };
    if matches!(owner, Owner::Fork { unwritten: true, .. }) && geo.has_rmap() {
        keep += KEEP_UNWRITTEN;
    }
    let clamp = |blocks: u64| blocks.min(u64::from(geo.ag_blocks)) as u32;
    // First try groups that have all blocks, then groups that have any.
    for least in [clamp(max), clamp(min)] {
        for step in 0..geo.ag_count {
            let ag = AgNo((first.0 + step) % geo.ag_count);
            let held = tx.holds_ag(ag);
            if !tx.lock_ag(ag)? {
                continue;
            }
            let near = match goal {
                Goal::Near(fsb) if ag == first => geo.fsb_agblock(fsb),
                _ => stream_start(tx, ag),
            };
            let idle = matches!(owner, Owner::Fork { .. });
            let keep = keep + tx.fs().kept(ag);
            let want = Want { min: least, max: clamp(max), near, keep, idle, ..Want::default() };
            if let Some((start, len)) = alloc_in(tx, ag, &want, owner)? {
                if matches!(goal, Goal::Stream(_)) {
                    tx.ag_mut(ag).next_data = Some(start.plus(len));
                }
                return Ok((geo.fsb(ag, start), len.into()));
            }
            if !held {
                tx.unlock_ag(ag);
            }
        }
        if min == max {
            break;
        }
    }
    Err(Error::NoSpace)
}

/// The start of data allocations in a group. It lies some way into the group: the blocks before it
/// are left for inodes and directories, so that data stays contiguous and metadata lies together.
fn stream_start(tx: &Tx<'_>, ag: AgNo) -> AgBlock {
    let geo = &tx.fs().geo;
    let log = if geo.log_ag() == Some(ag) { geo.log_blocks } else { 0 };
    tx.ag(ag).next_data.unwrap_or(AgBlock(log + (geo.ag_len(ag) - log.min(geo.ag_len(ag))) / 16))
}

/// Frees metadata blocks of the volume at the end of the transaction.
pub(crate) fn free_later(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32, owner: RmapOwner) {
    let owner = FreedOwner::Known(Owner::Special(owner));
    tx.deferred.push(Deferred::Free { ag, start, len, owner });
}
