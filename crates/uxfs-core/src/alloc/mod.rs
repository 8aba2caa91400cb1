//! Free space: taking blocks and giving them back, with the reverse mappings and reference counts
//! that go with it.
//!
//! 1. Both free-space trees hold the same extents, merged; the AGF's totals agree.
//! 2. Before anything in a group changes, its free list is long enough for every tree to grow by a
//!    level ([`freelist::fix`]); what an allocation leaves must still allow that.
//! 3. With reverse mapping on, every block taken has its owner recorded at once, and every block
//!    given back loses it.
//! 4. Freeing is deferred to the end of a transaction ([`crate::defer`]), so that groups can be
//!    locked one after the other in any order.

mod extent;
pub mod freelist;
pub(crate) mod recover;
mod refcount;
mod rmap;

use uxfs_format::btree::{Rmap, RmapOwner};
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, AgNo, Extent, FileBlock, FsBlock, Ino};

pub(crate) use extent::{Want, free as free_extent, take as take_extent};
pub(crate) use refcount::{shared_at, shared_run};

use crate::defer::Deferred;
use crate::error::{Error, Result};
use crate::tx::{Counters, Tx};

/// Whom blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The volume's own structures.
    Special(RmapOwner),
    /// A fork's mapped blocks, from this offset on.
    Fork {
        /// The inode.
        ino: Ino,
        /// Which of its forks.
        fork: Fork,
        /// Offset of the first block.
        offset: FileBlock,
        /// Allocated but not written.
        unwritten: bool,
    },
    /// A block of a fork's extent tree.
    Bmbt {
        /// The inode.
        ino: Ino,
        /// Which of its forks.
        fork: Fork,
    },
}

impl Owner {
    /// The reverse mapping of blocks of this owner.
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

/// Blocks of a group that data leaves for the reference counts, which grow when a file gives up a
/// part of what it shares: that must not fail.
const KEEP: u32 = 8;
/// Blocks that unwritten data leaves besides, for the reverse mappings, which change again when it
/// is written.
const KEEP_UNWRITTEN: u32 = 16;

/// Where blocks are wanted.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Near this block.
    Near(FsBlock),
    /// Behind what was last allocated for data in this group.
    Stream(AgNo),
}

/// Takes one block of group `ag`, near `near`.
pub(crate) fn alloc_block(
    tx: &mut Tx<'_>,
    ag: AgNo,
    near: AgBlock,
    owner: RmapOwner,
) -> Result<AgBlock> {
    // Reference counts may take what is kept for them.
    let keep = if owner == RmapOwner::REFC { 0 } else { tx.fs().kept(ag) };
    let want = Want { min: 1, max: 1, align: 1, near, keep, idle: false };
    match alloc_in(tx, ag, &want, Owner::Special(owner))? {
        Some((block, _)) => Ok(block),
        None => Err(Error::NoSpace),
    }
}

/// Takes blocks of group `ag`, which the transaction holds, and records their owner. `None` if the
/// group cannot give them.
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

/// Takes between `min` and `max` blocks in one piece, in the group of `goal` or the next that has
/// them.
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
    // First where all of it fits, then where any of it does.
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
            let want = Want { min: least, max: clamp(max), align: 1, near, keep, idle };
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

/// Where data of a group goes on. A stream starts some way into the group: what lies before fills
/// up with inodes and directories, so that data stays in one piece, and they close together.
fn stream_start(tx: &Tx<'_>, ag: AgNo) -> AgBlock {
    let geo = &tx.fs().geo;
    let log = if geo.fsb_ag(geo.log_start) == ag { geo.log_blocks } else { 0 };
    tx.ag(ag).next_data.unwrap_or(AgBlock(log + (geo.ag_len(ag) - log.min(geo.ag_len(ag))) / 16))
}

impl From<FsBlock> for Goal {
    fn from(fsb: FsBlock) -> Self {
        Self::Near(fsb)
    }
}

/// Gives back blocks of the volume's own structures at the end of the transaction.
pub(crate) fn free_later(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
    owner: Option<RmapOwner>,
) {
    let owner = owner.map(Owner::Special);
    tx.deferred.push(Deferred::Free { ag, start, len, owner });
}

/// Gives back blocks of a fork's tree at the end of the transaction.
pub(crate) fn free_owned_later(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32, owner: Owner) {
    tx.deferred.push(Deferred::Free { ag, start, len, owner: Some(owner) });
}

/// Group, first block and reverse mapping of a fork's extent.
fn fork_rmap(tx: &Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) -> (AgNo, Rmap) {
    let geo = &tx.fs().geo;
    let (ag, start) = (geo.fsb_ag(extent.start), geo.fsb_agblock(extent.start));
    let owner = Owner::Fork { ino, fork, offset: extent.offset, unwritten: extent.unwritten };
    // An extent never has more blocks than fit its 21 bits.
    (ag, owner.rmap(start, extent.len as u32))
}

/// Gives back a fork's extent at the end of the transaction; data that is shared with other files
/// only loses this owner.
pub(crate) fn free_fork_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    let (ag, rmap) = fork_rmap(tx, ino, fork, extent);
    let (start, len) = (rmap.start, rmap.len);
    if tx.fs().geo.has_rmap() {
        tx.deferred.push(Deferred::Unmap { ag, rmap });
    }
    // Reference counts tell what is shared; the inode's flag may have been lost.
    let step = match fork == Fork::Data && tx.fs().geo.has_reflink() {
        true => Deferred::Drop { ag, start, len },
        false => Deferred::Free { ag, start, len, owner: None },
    };
    tx.deferred.push(step);
}

/// Makes a file an owner more of blocks that its data fork maps now, at the end of the transaction.
pub(crate) fn share_later(tx: &mut Tx<'_>, ino: Ino, extent: &Extent) {
    let (ag, rmap) = fork_rmap(tx, ino, Fork::Data, extent);
    tx.deferred.push(Deferred::Share { ag, start: rmap.start, len: rmap.len });
    if tx.fs().geo.has_rmap() {
        tx.deferred.push(Deferred::Map { ag, rmap });
    }
}

/// Tells the reverse mappings, at the end of the transaction, that a fork's extent is at another
/// offset now.
pub(crate) fn move_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, old: &Extent, new: &Extent) {
    if tx.fs().geo.has_rmap() {
        let (ag, rmap) = fork_rmap(tx, ino, fork, old);
        tx.deferred.push(Deferred::Unmap { ag, rmap });
        let (ag, rmap) = fork_rmap(tx, ino, fork, new);
        tx.deferred.push(Deferred::Map { ag, rmap });
    }
}

/// Changes blocks of a fork between written and unwritten, in the reverse mappings, at the end of
/// the transaction.
pub(crate) fn convert_later(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) {
    if tx.fs().geo.has_rmap() {
        let (ag, rmap) = fork_rmap(tx, ino, fork, extent);
        tx.deferred.push(Deferred::Convert { ag, rmap });
    }
}

/// One deferred free, in a group that the transaction holds.
pub(crate) fn free_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
    owner: Option<Owner>,
) -> Result<()> {
    freelist::fix(tx, ag)?;
    if tx.fs().geo.has_rmap()
        && let Some(owner) = owner
    {
        rmap::remove(tx, ag, &owner.rmap(start, len))?;
        freelist::fix(tx, ag)?;
    }
    free_extent(tx, ag, start, len)?;
    tx.count(Counters { fdblocks: len.into(), ..Counters::default() });
    Ok(())
}

/// One deferred sharing, in a group that the transaction holds; gives what is left of it.
pub(crate) fn share_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let done = refcount::adjust(tx, ag, start, len, refcount::Change::More)?;
    Ok(rest(start, len, done.len))
}

/// One deferred loss of an owner, in a group that the transaction holds; gives what is left of it.
/// Blocks without an owner are freed later.
pub(crate) fn drop_now(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let done = refcount::adjust(tx, ag, start, len, refcount::Change::Less)?;
    for (start, len) in done.free {
        tx.deferred.push(Deferred::Free { ag, start, len, owner: None });
    }
    Ok(rest(start, len, done.len))
}

fn rest(start: AgBlock, len: u32, done: u32) -> Option<(AgBlock, u32)> {
    (done < len).then(|| (start.plus(done), len - done))
}

/// One deferred mapping, in a group that the transaction holds.
pub(crate) fn map_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::add(tx, ag, rmap)
}

/// One deferred loss of a mapping, in a group that the transaction holds.
pub(crate) fn unmap_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::remove(tx, ag, rmap)
}

/// One deferred conversion, in a group that the transaction holds.
pub(crate) fn convert_now(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    rmap::convert(tx, ag, rmap)
}

/// Blocks that unwritten data can still take of a held group.
pub(crate) fn spare(tx: &Tx<'_>, ag: AgNo) -> u64 {
    let agf = tx.agf(ag);
    let geo = &tx.fs().geo;
    let keep = if geo.has_reflink() { KEEP } else { 0 };
    let keep = keep + if geo.has_rmap() { KEEP_UNWRITTEN } else { 0 };
    let free = agf.freeblks.get() + agf.flcount.get();
    free.saturating_sub(freelist::needed(tx, ag) + keep).into()
}

/// Keeps the blocks of a held group that a split of its reference counts takes, to the end of the
/// transaction, which may let go of the group before that. `false` if it has not so many.
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
