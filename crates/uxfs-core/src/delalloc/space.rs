//! Space for data that is written back later.
//!
//! Free blocks are not all of use: some are in the free-space trees, which count as free, and every
//! group keeps some for trees that may grow. Who allocates at once is told so by its group; who
//! only reserves has to know before. So while anything is dirty, reservations stop short of the
//! *floor*: what is available but of no use.
//!
//! The floor is looked up group by group when space is short, and again when a quarter of what it
//! left has been used.

use std::sync::atomic::Ordering;

use uxfs_format::AgNo;

use super::flush::How;
use super::register::Delalloc;
use crate::alloc;
use crate::error::Result;
use crate::fs::Fs;

/// Blocks of each group that its trees may grow by while data is written back.
const GROWTH: u64 = 8;

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Fs {
    /// Looks at what space is of use, if that may matter to a reservation of `need` blocks. The
    /// caller holds no lock but of content.
    pub(super) fn watch_space(&self, dirty: &Delalloc, need: u64) -> Result<()> {
        let left = self.available().saturating_sub(signed(need));
        if left >= dirty.floor.look_at.load(Ordering::Acquire) {
            return Ok(());
        }
        let groups = u64::from(self.geo.ag_count);
        // Free-space trees take less than an eighth of free space, reverse mappings less than a
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
        // Data in single blocks takes the most reverse mappings.
        let growth = groups * GROWTH + if self.geo.has_rmap() { promised / 16 } else { 0 };
        let floor = signed(rest) - signed(spare) + signed(growth);
        let headroom = (available - floor).max(0);
        dirty.floor.floor.store(floor.max(0), Ordering::Release);
        dirty.floor.look_at.store(available - headroom / 4, Ordering::Release);
        Ok(())
    }

    /// A reservation of `need` blocks found no space: looks what there is, and writes back what is
    /// dirty, which gives back most of what was reserved for trees. The caller holds no lock but
    /// of content, and waits for what others write back only if it holds no file.
    pub(crate) fn relieve(&self, need: u64, wait: bool) -> Result<bool> {
        let Some(dirty) = &self.delalloc else { return Ok(false) };
        if dirty.floor.files.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        // What fails is kept for those who sync.
        let how = if wait { How::PLAIN } else { How::PLAIN_OTHERS };
        let _kept = self.write_back_all_of(dirty, how);
        dirty.floor.look_at.store(i64::MAX, Ordering::Release);
        self.watch_space(dirty, need)?;
        Ok(true)
    }
}
