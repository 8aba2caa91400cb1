//! Writing into memory.
//!
//! 1. A write holds the content lock from start to end. While it reads, or waits for anything but the
//!    device, it holds no lock of the inode.
//! 2. Files may be written back meanwhile. That only turns holes into blocks and dirty blocks into clean
//!    ones: what a write reserved may then be too much, never too little.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uxfs_format::inode::{Fork, InodeCore};
use uxfs_format::{FileBlock, Ino};

use super::file::{File, Pages, tree_blocks};
use super::flush::How;
use super::page::{Backing, MemoryReservation};
use super::register::Delalloc;
use crate::bmap;
use crate::dquot::Limiting;
use crate::error::{Error, Result};
use crate::file::check_write;
use crate::fs::Fs;
use crate::full::Stuck;
use crate::inode::{InodeRef, InodeState};

/// Most bytes copied in one step.
const STEP: u64 = 1 << 20;
/// Files examined when a writer needs memory.
const FILES: usize = 1024;

/// A prepared write.
struct Plan {
    file: Arc<File>,
    /// The file's length.
    size: u64,
    /// First block, and the backing of each block.
    first: u64,
    backing: Vec<Backing>,
    /// Are all blocks mapped already, and go elsewhere?
    overwrites: bool,
    /// Old content of blocks that are overwritten in part.
    old: [Option<(u64, Box<[u8]>)>; 2],
}

/// The result of copying a write into memory.
enum Taken {
    Done,
    /// The file changed since the write was prepared.
    Again,
    NoSpace,
    /// The quota of an owner is used up.
    NoQuota(Error),
}

impl Fs {
    /// Stores `data` in memory as a part of a file, to be written back later.
    pub(crate) fn write_delayed(
        &self,
        dirty: &Delalloc,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        self.check_writable()?;
        if self.is_stuck(Stuck::Data) {
            self.retry_data(dirty)?;
        }
        let block_size = u64::from(self.geo.block_size);
        let step = (dirty.options.dirty_bytes / 4).clamp(block_size, STEP.max(block_size));
        let step = step - step % block_size;
        let _content = self.iolocks.change(ino);
        let mut done = 0;
        while done < data.len() as u64 {
            let at = offset + done;
            let left = data.len() as u64 - done;
            // An epoch is not cut inside a step, so in ordered mode a write of up to a step is whole.
            let len = if self.ordered { step.min(left) } else { (step - at % step).min(left) };
            self.write_step(dirty, ino, at, &data[done as usize..(done + len) as usize])?;
            done += len;
        }
        Ok(())
    }

    fn write_step(&self, dirty: &Delalloc, ino: Ino, at: u64, data: &[u8]) -> Result<()> {
        let block_size = u64::from(self.geo.block_size);
        let blocks = self.geo.blocks_for(at % block_size + data.len() as u64);
        let mut reservation = self.admit(dirty, blocks * block_size)?;
        let cell = self.inodes.get(self, ino)?;
        self.check_sharing(&cell)?;
        if self.is_shared_behind(&cell, at)? {
            let _blocked = self.flush_and_block(ino)?;
            self.free_shared_behind(ino, at)?;
        }
        let need = blocks + tree_blocks(blocks);
        self.watch_space(dirty, need)?;
        self.relieve_epoch(dirty)?;
        let mut pressed = false;
        loop {
            let freeze = self.hold_off_freeze();
            let plan = self.plan_write(dirty, &cell, at, data.len() as u64)?;
            match self.take_in(dirty, &mut reservation, &plan, at, data) {
                Taken::Done => {
                    self.touch_written(dirty, &cell);
                    return Ok(());
                }
                Taken::Again => {}
                Taken::NoQuota(error) => {
                    // Overwrites of shared blocks need less once they are written back.
                    if pressed {
                        dirty.update_entry(&plan.file);
                        return Err(error);
                    }
                    pressed = true;
                    drop(freeze);
                    self.write_back_file(ino)?;
                }
                Taken::NoSpace if !pressed => {
                    pressed = true;
                    drop(freeze);
                    self.relieve(need, true)?;
                }
                Taken::NoSpace => {
                    dirty.update_entry(&plan.file);
                    return Err(Error::NoSpace);
                }
            }
        }
    }

    /// Counts a run of dirty blocks that begins at `block`, for the next epoch.
    fn note_run(&self, dirty: &Delalloc, pages: &Pages, block: u64) {
        if self.ordered && (block == 0 || !pages.map.contains_key(&(block - 1))) {
            dirty.runs.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Sets the times of a file that was written to.
    fn touch_written(&self, dirty: &Delalloc, cell: &InodeRef) {
        let mut inode = uxfs_sync::write(cell);
        let now = self.now();
        let times = (inode.core.mtime, inode.core.ctime);
        if times != (now, now) {
            inode.log.unlogged.get_or_insert(times);
            (inode.core.mtime, inode.core.ctime) = (now, now);
            // The data may have been written back already; the times keep the inode in memory.
            let limits = self.limits_of(&inode.core).unwrap_or_default();
            let file = dirty.file_or_new(cell, &inode, limits);
            dirty.take_turn(&file, &mut file.pages());
        }
    }

    /// Tries to write the oldest data, because the host was full.
    ///
    /// # Errors
    /// If the host still has no space.
    pub(crate) fn retry_data(&self, dirty: &Delalloc) -> Result<()> {
        let files = dirty.oldest(u64::MAX, FILES);
        match self.write_back(dirty, &files, How::OTHERS, STEP) {
            Err(error) if error.is_host_full() => Err(error),
            // Other callers get the error from their own file.
            _ => Ok(()),
        }
    }

    /// Waits until there is memory for this many bytes, and writes back the oldest data.
    fn admit(&self, dirty: &Delalloc, bytes: u64) -> Result<MemoryReservation> {
        let reserve = || MemoryReservation::new(&dirty.memory, bytes, dirty.options.dirty_bytes);
        if let Some(reservation) = reserve() {
            return Ok(reservation);
        }
        loop {
            let waiter = dirty.memory.completions.begin_waiting();
            if let Some(reservation) = reserve() {
                return Ok(reservation);
            }
            let least = if self.ordered { 0 } else { dirty.options.background() };
            let most = dirty.memory.used().saturating_sub(least).max(bytes);
            let files = dirty.oldest(u64::MAX, FILES);
            let done = self.write_back(dirty, &files, How::OTHERS, most);
            if done.is_err() {
                // Data that cannot be written may belong to other files. If there is no other data,
                // it blocks this write.
                return reserve().map_or_else(|| Err(done.err().unwrap_or(Error::NoSpace)), Ok);
            }
            if done.is_ok_and(|done| done == 0) {
                // All of it is being written already.
                waiter.wait();
            }
        }
    }

    /// Prepares a write.
    fn plan_write(&self, dirty: &Delalloc, cell: &InodeRef, at: u64, len: u64) -> Result<Plan> {
        let inode = uxfs_sync::read(cell);
        if inode.core.mode == 0 {
            return Err(Error::NotFound);
        }
        let known = dirty.file(inode.ino);
        let size = known.as_ref().map_or(inode.core.size, |file| file.size(inode.core.size));
        check_write(&inode, at, size)?;
        if at > size {
            // Below the length on disk there is content.
            self.zero_behind(&inode, size.max(inode.core.size), at)?;
        }
        let file = match known {
            Some(file) => file,
            None => dirty.file_or_new(cell, &inode, self.limits_of(&inode.core)?),
        };
        let first = at >> self.geo.block_log;
        let last = (at + len - 1) >> self.geo.block_log;
        let (backing, overwrites) = self.backing(&inode, first, last)?;
        let mut old = [None, None];
        let ends = if first == last { 1 } else { 2 };
        for (old, block) in old.iter_mut().zip([first, last]).take(ends) {
            let start = block << self.geo.block_log;
            let end = (start + u64::from(self.geo.block_size)).min(size);
            let partly = start < at && start < size || at + len < end;
            if partly && !file.pages().map.contains_key(&block) {
                *old = Some((block, self.old_content(&inode, block)?));
            }
        }
        Ok(Plan { file, size, first, backing, overwrites, old })
    }

    /// The backing of each block of a range, and whether all are mapped and written, and move.
    fn backing(&self, inode: &InodeState, first: u64, last: u64) -> Result<(Vec<Backing>, bool)> {
        let shares = self.moves_overwrites(&inode.core);
        let mut all = Vec::with_capacity((last - first + 1) as usize);
        let mut at = first;
        let mut overwrites = self.ordered;
        while at <= last {
            let found = bmap::at_or_after(self, inode, Fork::Data, FileBlock(at))?;
            let (end, backing) = match found {
                None => (last + 1, Backing::Reserved),
                Some(extent) if extent.offset.0 > at => (extent.offset.0, Backing::Reserved),
                Some(extent) if extent.unwritten => (extent.end().0, Backing::Unwritten),
                // The block may have to be copied.
                Some(extent) if shares => (extent.end().0, Backing::Reserved),
                Some(extent) => (extent.end().0, Backing::Own),
            };
            overwrites &= found.is_some_and(|e| e.offset.0 <= at && !e.unwritten);
            let end = end.min(last + 1);
            all.resize((end - first) as usize, backing);
            at = end;
        }
        Ok((all, overwrites))
    }

    /// The content of a block that is not dirty. Bytes after the end of the file on disk are zero.
    fn old_content(&self, inode: &InodeState, block: u64) -> Result<Box<[u8]>> {
        let mut content = vec![0; self.geo.block_size as usize].into_boxed_slice();
        let start = block << self.geo.block_log;
        let live = inode.core.size.saturating_sub(start).min(content.len() as u64) as usize;
        self.read_mapped(inode, start, &mut content[..live])?;
        Ok(content)
    }

    /// The dquots whose limits bind a file of this core.
    fn limits_of(&self, core: &InodeCore) -> Result<Limiting> {
        match self.quota.as_ref().filter(|quota| quota.enforces()) {
            Some(quota) => quota.limits_of(&self.bufs, core),
            None => Ok(Limiting::new()),
        }
    }

    /// Do the quotas of a file's owners admit new data of this many blocks? They count it if so.
    fn admit_data(&self, pages: &mut Pages, blocks: u64) -> Result<()> {
        let Some(quota) = self.quota.as_ref().filter(|_| blocks > 0) else { return Ok(()) };
        pages.admit(quota, blocks, self.now().sec.max(0) as u64)
    }

    /// Stores the bytes in memory, if the volume has space for them.
    fn take_in(
        &self,
        dirty: &Delalloc,
        reservation: &mut MemoryReservation,
        plan: &Plan,
        at: u64,
        data: &[u8],
    ) -> Taken {
        let mut pages = plan.file.pages();
        if pages.gone {
            return Taken::Again;
        }
        let block_size = u64::from(self.geo.block_size);
        let end = at + data.len() as u64;
        let (mut reserved, mut changes) = (0, 0);
        for (block, backing) in (plan.first..).zip(&plan.backing) {
            if pages.map.contains_key(&block) {
                continue;
            }
            reserved += u64::from(*backing == Backing::Reserved);
            changes += u64::from(*backing != Backing::Own);
            let start = block * block_size;
            let known = plan.old.iter().flatten().any(|(known, _)| *known == block);
            let partly =
                start < at && start < plan.size || end < (start + block_size).min(plan.size);
            if partly && !known {
                // It was written back in between.
                return Taken::Again;
            }
        }
        if let Err(error) = self.admit_data(&mut pages, reserved) {
            return Taken::NoQuota(error);
        }
        let tree = tree_blocks(pages.changes + changes).saturating_sub(pages.tree);
        let room = match plan.overwrites {
            true => self.reserve_overwrite(reserved + tree),
            false => self.reserve(reserved + tree),
        };
        if reserved + tree > 0 && room.is_err() {
            pages.end_admission();
            return Taken::NoSpace;
        }
        pages.tree += tree;
        let mut rest = &plan.backing[..];
        while let [backing, behind @ ..] = rest {
            let block = plan.first + (plan.backing.len() - rest.len()) as u64;
            let start = block * block_size;
            let new = start >= at && !pages.map.contains_key(&block);
            let run = if new { pages.clean_before(block, end / block_size) } else { 0 };
            if run > 0 {
                let from = (start - at) as usize;
                let bytes = run << self.geo.block_log;
                let content = reservation.fill_from(&data[from..from + bytes]);
                let (these, behind) = rest.split_at(run);
                self.note_run(dirty, &pages, block);
                pages.insert_run(block, &content, these, block_size as usize);
                rest = behind;
                continue;
            }
            let (low, high) = (at.max(start), end.min(start + block_size));
            let part = &data[(low - at) as usize..(high - at) as usize];
            let range = (low - start) as usize..(high - start) as usize;
            rest = behind;
            if let Some(page) = pages.map.get_mut(&block) {
                reservation.unshare(&mut page.content)[range].copy_from_slice(part);
                continue;
            }
            let old = plan.old.iter().flatten().find(|(known, _)| *known == block);
            let mut content = match old {
                Some((_, old)) => old.clone(),
                None => vec![0; block_size as usize].into_boxed_slice(),
            };
            content[range].copy_from_slice(part);
            self.note_run(dirty, &pages, block);
            pages.insert(block, reservation.fill(content), *backing);
        }
        pages.end_admission();
        pages.size = plan.size.max(end);
        dirty.take_turn(&plan.file, &mut pages);
        Taken::Done
    }
}
