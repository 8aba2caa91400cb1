//! Copy on write: giving a file its own blocks in place of shared ones.
//!
//! 1. Blocks shared with other files are never overwritten, and in ordered mode ([`crate::epoch`]) no block
//!    that is mapped and written.
//! 2. The content is in the new blocks before the transaction that maps them commits.
//! 3. Where blocks are shared, the inode's flag says so. On a damaged volume it may be missing: an operation
//!    that overwrites blocks in place corrects it first ([`crate::Fs::check_sharing`]).

use smallvec::SmallVec;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{Flags, Flags2, Fork, InodeCore};
use uxfs_format::{Check, Extent, FileBlock, FsBlock, Geometry};

use crate::alloc::{self, Goal};
use crate::bmap;
use crate::engine::Engine;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// The blocks that a write goes to.
pub(crate) struct Place {
    /// The extent, which includes blocks of the write.
    pub(crate) extent: Extent,
    /// The blocks do not hold content of the file yet.
    pub(crate) fresh: bool,
    /// The shared blocks that held the file's content before.
    pub(crate) old: Option<Extent>,
}

/// Allocation units of a file in blocks; 1 for no alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocUnit {
    /// For new blocks (extent size hint).
    pub(crate) fresh: u64,
    /// For blocks that replace shared ones (CoW extent size hint).
    pub(crate) cow: u64,
}

impl AllocUnit {
    /// No alignment.
    pub(crate) const ANY: Self = Self { fresh: 1, cow: 1 };

    /// The units that an inode's hints ask for, within the limits of the volume.
    pub(crate) fn of(geo: &Geometry, core: &InodeCore) -> Self {
        let most = u64::from(geo.ag_blocks / 2).clamp(1, uxfs_format::extent::MAX_EXTENT_LEN);
        let size = |on: bool, hint: u32| if on { u64::from(hint).clamp(1, most) } else { 1 };
        let fresh = size(core.flags.contains(Flags::EXTSIZE), core.extsize);
        let cow = size(core.flags2.contains(Flags2::COWEXTSIZE), core.cowextsize);
        Self { fresh, cow: cow.max(fresh) }
    }

    /// Most blocks that alignment may add to an allocation, at both ends together.
    pub(crate) fn more(&self) -> u64 {
        2 * (self.fresh.max(self.cow) - 1)
    }
}

impl Engine {
    /// If an extent shares blocks with other files, allocates new blocks for at least its first
    /// block. The transaction must not have locked a group yet, so that it can wait for the
    /// extent's group.
    pub(crate) fn own(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        extent: Extent,
        unit: AllocUnit,
        goal: Goal,
    ) -> Result<Place> {
        let mine = Place { extent, fresh: extent.unwritten, old: None };
        if extent.unwritten {
            return Ok(mine);
        }
        if self.moves_all() {
            return self.move_blocks(tx, slot, extent, extent, goal);
        }
        if !tx.inode(slot).core.flags2.contains(Flags2::REFLINK) {
            return Ok(mine);
        }
        let (ag, start) = (self.geo.fsb_ag(extent.start), self.geo.fsb_agblock(extent.start));
        tx.lock_ag(ag)?;
        let Some((at, len)) = alloc::shared_run(tx, ag, start, extent.len as u32)? else {
            return Ok(mine);
        };
        if at > start {
            let len = u64::from(at.0 - start.0);
            return Ok(Place { extent: Extent { len, ..extent }, ..mine });
        }
        let old = Extent { len: len.into(), ..extent };
        let old = if unit.cow > 1 { self.widened(tx, slot, &old, unit.cow)? } else { old };
        self.move_blocks(tx, slot, extent, old, goal)
    }

    /// Replaces the blocks of `old`, which includes the first block of `extent`. Copies their content, but
    /// for the place that it returns, which the caller fills.
    fn move_blocks(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        extent: Extent,
        old: Extent,
        goal: Goal,
    ) -> Result<Place> {
        let (mut place, mut at) = (None, 0);
        for new in self.remap(tx, slot, old.offset, old.len, goal)? {
            let part = Extent { start: old.start.plus(at), ..new };
            at += new.len;
            if place.is_none() && new.end() > extent.offset {
                place = Some(Place { extent: new, fresh: true, old: Some(part) });
            } else {
                self.copy_blocks(part.start, new.start, new.len)?;
            }
        }
        place.ok_or_else(|| {
            tx.inode(slot).corrupt(Check::State, "shared blocks changed while they were copied")
        })
    }

    /// Maps newly allocated blocks in place of those that a range is mapped to. They hold no content yet.
    pub(crate) fn remap(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        from: FileBlock,
        blocks: u64,
        goal: Goal,
    ) -> Result<SmallVec<[Extent; 2]>> {
        bmap::unmap(tx, slot, Fork::Data, from, blocks, u64::MAX)?;
        let (mut all, mut at) = (SmallVec::new(), 0);
        while at < blocks {
            let new =
                bmap::alloc_some(tx, slot, Fork::Data, from.plus(at), blocks - at, false, goal)?;
            at += new.len;
            all.push(new);
        }
        Ok(all)
    }

    /// Does every overwrite go to other blocks? In ordered mode an earlier epoch may show the old ones.
    fn moves_all(&self) -> bool {
        self.ordered && !planted(Fault::OverwrittenInPlace)
    }

    /// Can overwrites of a file's blocks go to other blocks?
    pub(crate) fn moves_overwrites(&self, core: &InodeCore) -> bool {
        self.moves_all() || core.flags2.contains(Flags2::REFLINK)
    }

    /// Extends `part` to multiples of `unit` blocks of the file, as far as the blocks are mapped
    /// and shared like the first block.
    fn widened(&self, tx: &Tx<'_>, slot: InodeSlot, part: &Extent, unit: u64) -> Result<Extent> {
        let Some(whole) = bmap::lookup(self, tx.inode(slot), Fork::Data, part.offset)? else {
            return Ok(*part);
        };
        let (ag, base) = (self.geo.fsb_ag(whole.start), self.geo.fsb_agblock(whole.start));
        let first = self.geo.fsb_agblock(part.start);
        let Some((start, len)) = alloc::shared_at(tx, ag, first)? else { return Ok(*part) };
        let end = start.0 + len;
        // Both ranges count from the start of the extent in the file.
        let shared = u64::from(start.0.saturating_sub(base.0))..u64::from(end - base.0);
        let low = part.offset.0 - part.offset.0 % unit;
        let high = part.end().0.next_multiple_of(unit);
        let low = low.saturating_sub(whole.offset.0).max(shared.start);
        let high = (high - whole.offset.0).min(whole.len).min(shared.end);
        let from = whole.offset.plus(low);
        Ok(Extent { offset: from, start: whole.start.plus(low), len: high - low, unwritten: false })
    }

    /// Copies blocks on the device.
    pub(crate) fn copy_blocks(&self, from: FsBlock, to: FsBlock, blocks: u64) -> Result<()> {
        let (from, to) = (self.geo.fsb_daddr(from).bytes(), self.geo.fsb_daddr(to).bytes());
        let bytes = blocks << self.geo.block_log;
        let mut buf = vec![0; bytes.min(1 << 20) as usize];
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(buf.len() as u64) as usize;
            self.read_device(from + done, &mut buf[..step])?;
            self.write_device(to + done, &buf[..step])?;
            done += step as u64;
        }
        Ok(())
    }
}
