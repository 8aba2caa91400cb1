//! Discarding free space on the device (FITRIM, fstrim(8)).
//!
//! 1. A block is discarded only if it is free and its freeing is durable, so a power cut cannot bring
//!    back a file that needs it.
//! 2. The group is locked meanwhile, so its blocks cannot be allocated. The lock is released after
//!    every few extents, so other callers need not wait long.

use core::ops::Range;

use uxfs_format::{AgBlock, AgNo};

use crate::btree::{BnoTree, Cursor, Env};
use crate::error::Result;
use crate::fs::Fs;
use crate::tx::Tx;

/// Extents discarded before the group is unlocked.
const STEP: usize = 32;

impl Fs {
    /// Discards free extents of at least `least` bytes in `range`, which counts the bytes of all
    /// allocation groups in order. Returns the number of bytes discarded. Calls `progress` with the
    /// number of finished groups and the number of groups.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], or a damaged structure on the way. A discard is a hint, so a
    /// device that cannot discard is not an error.
    pub fn trim(
        &self,
        range: Range<u64>,
        least: u64,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<u64> {
        let block = u64::from(self.geo.block_size);
        let least = u32::try_from(least.div_ceil(block).max(1)).unwrap_or(u32::MAX);
        let (first, end) = (range.start.div_ceil(block), range.end / block);
        let groups = self.geo.ag_count;
        let mut done = 0;
        for ag in 0..groups {
            progress(ag, groups);
            let base = u64::from(ag) * u64::from(self.geo.ag_blocks);
            let len = u64::from(self.geo.ag_len(AgNo(ag)));
            let within = |at: u64| u32::try_from(at.saturating_sub(base).min(len)).unwrap_or(0);
            let (from, until) = (within(first), within(end));
            if from < until {
                done += self.trim_group(AgNo(ag), from..until, least)?;
            }
        }
        progress(groups, groups);
        Ok(done << self.geo.block_log)
    }

    /// Discards blocks freed since the last call, if their freeing is durable and they are still
    /// free. Returns the number of bytes discarded. The first call only starts recording freed
    /// blocks.
    ///
    /// # Errors
    /// As [`Fs::trim`].
    pub fn trim_freed(&self) -> Result<u64> {
        let _inside = self.changes();
        let mut done = 0;
        for ag in (0..self.geo.ag_count).map(AgNo) {
            let freed = {
                let mut tx = self.begin_tx(0)?;
                tx.lock_ag(ag)?;
                tx.expire_busy(ag);
                tx.ag_mut(ag).busy.take_expired()
            };
            for range in freed {
                done += self.trim_group(ag, range, 1)?;
            }
        }
        Ok(done << self.geo.block_log)
    }

    /// As [`Fs::trim`] in one group, in blocks.
    fn trim_group(&self, ag: AgNo, range: Range<u32>, least: u32) -> Result<u64> {
        let mut done = 0;
        let mut from = range.start;
        while from < range.end {
            let mut tx = self.begin_tx(0)?;
            tx.lock_ag(ag)?;
            tx.expire_busy(ag);
            let (idle, next) = idle_extents(&tx, ag, from..range.end, least)?;
            for extent in &idle {
                let at = self.geo.ag_daddr(ag, AgBlock(extent.start)).bytes();
                let len = u64::from(extent.end - extent.start);
                self.dev.discard(at, len << self.geo.block_log);
                done += len;
            }
            from = next;
        }
        Ok(done)
    }
}

/// Free extents of a range that may be discarded, and the block to continue at.
fn idle_extents(
    tx: &Tx<'_>,
    ag: AgNo,
    range: Range<u32>,
    least: u32,
) -> Result<(Vec<Range<u32>>, u32)> {
    let (env, tree) = (Env::Tx(tx), BnoTree::new(ag));
    let key = (range.start, u32::MAX);
    let mut cursor = match Cursor::<BnoTree>::seek_le(env, &tree, &key)? {
        Some(cursor) => cursor,
        None => Cursor::<BnoTree>::first(env, &tree)?,
    };
    let mut idle = Vec::with_capacity(STEP);
    while let Some(free) = cursor.rec(env, &tree) {
        let end = free.start.0.saturating_add(free.len).min(range.end);
        if free.start.0 >= range.end {
            break;
        }
        let start = free.start.0.max(range.start);
        if start < end {
            let parts = tx.ag(ag).busy.idle(start..end);
            idle.extend(parts.into_iter().filter(|part| part.end - part.start >= least));
            if idle.len() >= STEP {
                return Ok((idle, end));
            }
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok((idle, range.end))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uxfs_disk::{BlockDev, MemDev};

    use crate::ops::NewInode;
    use crate::{Fs, OpenOptions};

    #[test]
    fn trim_discards_only_free_blocks() {
        let dev = Arc::new(MemDev::new(320 << 20));
        let layout = uxfs_mkfs::Layout::new(&uxfs_mkfs::Options::default(), dev.len()).unwrap();
        uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::default()).unwrap();
        let ino = fs.create(fs.root(), b"f", &NewInode::file(0o644)).unwrap();
        fs.write_at(ino, 0, &vec![7; 3 << 20]).unwrap();
        fs.sync().unwrap();
        let free = fs.statfs().free_blocks * u64::from(fs.geo.block_size);
        let (mut reported, all) = (0, 0..u64::MAX);
        let trimmed = fs.trim(all.clone(), 0, &mut |done, _| reported = done).unwrap();
        assert_eq!(reported, fs.geo.ag_count);
        // Some free blocks are reserved for the trees.
        assert!((free..free + (16 << 20)).contains(&trimmed), "{trimmed} of {free}");
        assert!(fs.trim(all.clone(), trimmed, &mut |_, _| {}).unwrap() < trimmed);
        let part = fs.trim(1 << 20..2 << 20, 0, &mut |_, _| {}).unwrap();
        assert!(part <= 1 << 20, "{part}");
        assert_eq!(fs.trim_freed().unwrap(), 0);
        // Blocks freed only in memory still belong to the file on the device.
        fs.unlink(fs.root(), b"f").unwrap();
        assert_eq!(fs.trim(all.clone(), 0, &mut |_, _| {}).unwrap(), trimmed);
        assert_eq!(fs.trim_freed().unwrap(), 0);
        fs.sync().unwrap();
        let freed = fs.trim_freed().unwrap();
        assert!((3 << 20..4 << 20).contains(&freed), "{freed}");
        assert_eq!(fs.trim_freed().unwrap(), 0);
        let after = fs.trim(all, 0, &mut |_, _| {}).unwrap();
        assert!(after >= trimmed + (3 << 20), "{after} after {trimmed}");
        fs.close().unwrap();
    }
}
