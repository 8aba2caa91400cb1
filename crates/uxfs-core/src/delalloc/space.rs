//! Space for data that is written back later.
//!
//! Not all free blocks are usable: some are in the free-space btrees, which count as free, and
//! every AG keeps some for btrees that may grow. An allocation learns that from the AG; a
//! reservation has to know it in advance. So while data is dirty, reservations leave the *floor*
//! free: the blocks that are free but not usable.
//!
//! The floor is computed AG by AG when space is short, and again when a quarter of the space above
//! it has been used.

use std::sync::atomic::Ordering;

use uxfs_format::AgNo;

use super::flush::How;
use super::register::Delalloc;
use crate::alloc;
use crate::error::Result;
use crate::fs::Fs;

/// Blocks per AG by which its btrees may grow during write-back.
const GROWTH: u64 = 8;

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Fs {
    /// Computes the floor if it may matter to a reservation of `need` blocks. The caller holds no
    /// lock other than content locks.
    pub(super) fn watch_space(&self, dirty: &Delalloc, need: u64) -> Result<()> {
        let left = self.available().saturating_sub(signed(need));
        if left >= dirty.floor.look_at.load(Ordering::Acquire) {
            return Ok(());
        }
        let groups = u64::from(self.geo.ag_count);
        // Free-space btrees need less than an eighth of free space, the rmap btree less than a
        // sixteenth of all.
        let rmap = if self.geo.has_rmap() { self.geo.dblocks / 16 } else { 0 };
        let plenty = signed(self.free_blocks() / 8 + groups * 64 + rmap);
        if left >= plenty {
            dirty.floor.floor.store(0, Ordering::Release);
            dirty.floor.look_at.store(plenty, Ordering::Release);
            return Ok(());
        }
        let mut spare = 0;
        for ag in (0..self.geo.ag_count).map(AgNo) {
            let mut tx = self.begin_tx(0)?;
            tx.lock_ag(ag)?;
            spare += alloc::spare(&tx, ag);
        }
        let available = self.available();
        let rest = self.free_blocks().saturating_sub(self.aside());
        let promised = rest.saturating_sub(available.max(0) as u64);
        // Data in single blocks needs the most rmap records.
        let growth = groups * GROWTH + if self.geo.has_rmap() { promised / 16 } else { 0 };
        let floor = signed(rest) - signed(spare) + signed(growth);
        let headroom = (available - floor).max(0);
        dirty.floor.floor.store(floor.max(0), Ordering::Release);
        dirty.floor.look_at.store(available - headroom / 4, Ordering::Release);
        Ok(())
    }

    /// Computes the floor anew at the next reservation, because the volume grew.
    pub(crate) fn watch_grown_space(&self) {
        if let Some(dirty) = &self.delalloc {
            dirty.floor.look_at.store(i64::MAX, Ordering::Release);
            self.fill_pool(dirty);
        }
    }

    /// A reservation of `need` blocks found no space: computes the floor, and writes dirty data
    /// back, which frees most of the blocks reserved for btrees. The caller holds no lock other
    /// than content locks. It waits for the write-back of other threads only if it blocks no file's
    /// write-back itself.
    pub(crate) fn relieve(&self, need: u64, wait: bool) -> Result<bool> {
        let Some(dirty) = &self.delalloc else { return Ok(false) };
        if dirty.floor.files.load(Ordering::Acquire) == 0 && self.unsettled.blocks() == 0 {
            return Ok(false);
        }
        if self.ordered {
            self.settle_freed()?;
        } else {
            // Errors are recorded for the next sync of the file.
            let how = if wait { How::PLAIN } else { How::PLAIN_OTHERS };
            let _kept = self.write_back_all_of(dirty, how);
        }
        dirty.floor.look_at.store(i64::MAX, Ordering::Release);
        self.watch_space(dirty, need)?;
        Ok(true)
    }
}
