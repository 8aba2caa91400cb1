//! Where overwritten blocks go in ordered mode, which overwrites nothing in place.
//!
//! 1. Dirty blocks that follow each other go to one place, also where they lay in several.
//! 2. They take along the written blocks of their aligned unit: clean ones are copied. Always with an extent
//!    size hint (`extsize`, `cowextsize`), which gives the unit; without one, in units of [`UNIT`], if few are
//!    clean or the unit is in many extents. If space is short, each goes alone.
//! 3. A block that was placed in this batch is not taken along: its data is not on the device yet.
//! 4. The new place begins behind the block before it, if that is free: a block that moved away comes back
//!    when its old place is free again.
//!
//! Called by write-back ([`super::flush`]), in its transaction.

use smallvec::SmallVec;
use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock};

use super::flush::{DirtyBlock, WritebackBatch, run_len};
use crate::alloc::Goal;
use crate::bmap;
use crate::cow::AllocUnit;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::InodeState;
use crate::limits::EXTENTS_A_STEP;
use crate::tx::{InodeSlot, Tx};

/// Bytes of a unit of a file without a hint: as much as the kernel's default for copies on write.
const UNIT: u64 = 128 << 10;
/// Most clean blocks that are copied for each dirty one, while the unit is in few extents.
const CLEAN_FOR_EACH: u64 = 3;
/// So many extents are many. Each overwrite adds at most two, so every third one copies a unit.
const MANY: usize = 4;

/// Written extents that follow each other in a file.
type Chain = SmallVec<[Extent; 8]>;

/// What was moved.
pub(super) struct Moved {
    /// How many of the dirty blocks have a place now.
    pub(super) done: usize,
    /// How many extents they were in.
    pub(super) extents: u64,
}

impl Fs {
    /// Places the first dirty blocks of `part`, the first of which is mapped and written, elsewhere. They lie
    /// in at most `most` extents; if a unit lies in more, none is placed unless `most` is
    /// [`EXTENTS_A_STEP`].
    pub(super) fn place_moved(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        batch: &mut WritebackBatch,
        part: &[DirtyBlock],
        (most, goal): (u64, Goal),
    ) -> Result<Moved> {
        let block = FileBlock(part[0].0);
        let end = block.plus(run_len(part, true));
        let hint = AllocUnit::of(&self.geo, &tx.inode(slot).core).cow;
        let unit = if hint > 1 { hint } else { UNIT >> self.geo.block_log };
        let placed = batch.placed_to();
        let mut old = Chain::new();
        if unit > 1 {
            let low = FileBlock(block.0 - block.0 % unit).max(FileBlock(placed));
            let high = FileBlock(end.0.next_multiple_of(unit));
            old = self.written_around(tx.inode(slot), block, low..high)?;
            let blocks: u64 = old.iter().map(|extent| extent.len).sum();
            let more = blocks.saturating_sub(end.0 - block.0);
            let pays = hint > 1 || old.len() >= MANY || {
                let dirty =
                    part.partition_point(|(block, ..)| *block < FileRange::of(&old).end.0) as u64;
                blocks.saturating_sub(dirty) <= dirty * CLEAN_FOR_EACH
            };
            if pays && most < old.len() as u64 && most < EXTENTS_A_STEP {
                return Ok(Moved { done: 0, extents: 0 });
            }
            if !pays || old.len() as u64 > most || tx.reserve_more(more).is_err() {
                old.clear();
            }
        }
        if old.is_empty() {
            old = self.written_around(tx.inode(slot), block, block..end)?;
            old.truncate(most as usize);
        }
        let whole = FileRange::of(&old);
        let dirty = part.partition_point(|(block, ..)| *block < whole.end.0);
        let new = self.remap(tx, slot, whole.start, whole.end.0 - whole.start.0, goal)?;
        for new in &new {
            batch.add_scattered(self, &part[..dirty], new);
        }
        self.copy_clean(&part[..dirty], &old, &new)?;
        if let Some(split) = &self.split_files {
            split.note(tx.inode(slot).ino);
        }
        Ok(Moved { done: dirty, extents: old.len() as u64 })
    }

    /// The written extents around `block` in a range, without a hole between them.
    fn written_around(
        &self,
        inode: &InodeState,
        block: FileBlock,
        range: core::ops::Range<FileBlock>,
    ) -> Result<Chain> {
        let mut chain = Chain::new();
        let mut at = range.start;
        while at < range.end
            && let Some(extent) = bmap::at_or_after(self, inode, Fork::Data, at)?
            && extent.offset < range.end
        {
            let extent = bmap::slice(&extent, range.start, range.end);
            at = extent.end();
            let follows = chain.last().is_none_or(|last| last.end() == extent.offset);
            if extent.unwritten || !follows {
                if extent.offset > block {
                    break;
                }
                chain.clear();
            }
            if !extent.unwritten {
                chain.push(extent);
            }
        }
        Ok(chain)
    }

    /// Copies the blocks between two places of a range that are not dirty.
    fn copy_clean(&self, dirty: &[DirtyBlock], old: &[Extent], new: &[Extent]) -> Result<()> {
        for new in new {
            for old in old.iter().filter(|old| old.offset < new.end() && new.offset < old.end()) {
                let (from, to) = (old.offset.max(new.offset), old.end().min(new.end()));
                let mut at = from;
                while at < to {
                    let next = dirty.partition_point(|(block, ..)| *block < at.0);
                    let stop = dirty.get(next).map_or(to, |(block, ..)| to.min(FileBlock(*block)));
                    if stop == at {
                        at = at.plus(1);
                        continue;
                    }
                    let place = |extent: &Extent| extent.start.plus(at.0 - extent.offset.0);
                    self.copy_blocks(place(old), place(new), stop.0 - at.0)?;
                    at = stop;
                }
            }
        }
        Ok(())
    }
}

/// The range of a chain.
struct FileRange {
    start: FileBlock,
    end: FileBlock,
}

impl FileRange {
    fn of(chain: &[Extent]) -> Self {
        let start = chain.first().map_or(FileBlock(0), |extent| extent.offset);
        Self { start, end: chain.last().map_or(start, Extent::end) }
    }
}
