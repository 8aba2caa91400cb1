//! What was written to a device since a moment, and the content of that moment while it is read.
//!
//! 1. A block is marked dirty before it is written. `freeze` waits until no write is under way, and takes
//!    the marks: the frozen moment is the device's content then.
//! 2. A frozen block that is about to be overwritten is first copied aside, unless it was read already.
//!    The copies are bounded; a writer waits for room.
//! 3. What was frozen and is not shipped is marked dirty again by `thaw`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use uxfs_disk::BlockDev;

use crate::bits::Bits;
use crate::fault::{Fault, planted};

/// Blocks of a frozen moment that are read at once.
const READ_AT_ONCE: u64 = 64;

/// What changed on a device.
pub(crate) struct Tracker {
    block: u64,
    blocks: u64,
    len: u64,
    /// Held for reading while a write is under way.
    gate: RwLock<()>,
    dirty: Bits,
    /// Blocks of the frozen moment that are still to be read from the device.
    frozen: Bits,
    /// The whole frozen set, for `thaw`.
    all: Mutex<Vec<u64>>,
    is_frozen: AtomicBool,
    aside: Mutex<BTreeMap<u64, Box<[u8]>>>,
    room: Condvar,
    /// Most blocks in `aside`.
    aside_max: usize,
}

impl Tracker {
    /// A device of `len` bytes on which nothing changed. At most `aside_max` bytes are copied aside.
    pub(crate) fn new(len: u64, block: u32, aside_max: usize) -> Self {
        let block = u64::from(block);
        let blocks = len.div_ceil(block);
        Self {
            block,
            blocks,
            len,
            gate: RwLock::new(()),
            dirty: Bits::new(blocks),
            frozen: Bits::new(blocks),
            all: Mutex::default(),
            is_frozen: AtomicBool::new(false),
            aside: Mutex::default(),
            room: Condvar::new(),
            aside_max: (aside_max / block as usize).max(1),
        }
    }

    pub(crate) fn block(&self) -> u64 {
        self.block
    }

    /// The run of all blocks.
    pub(crate) fn all_blocks(&self) -> (u64, u64) {
        (0, self.blocks)
    }

    /// Bytes of blocks that changed, and that were frozen and not read yet.
    pub(crate) fn pending(&self) -> u64 {
        (self.dirty.count() + self.frozen.count()) * self.block
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.count() > 0
    }

    /// Has the block changed, or was it frozen and not shipped yet?
    pub(crate) fn is_pending(&self, block: u64) -> bool {
        let bit = |words: &[u64]| {
            words.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
        };
        self.dirty.has(block) || bit(&self.all.lock())
    }

    /// Marks blocks as changed.
    pub(crate) fn mark(&self, first: u64, count: u64) {
        for block in first..(first + count).min(self.blocks) {
            self.dirty.set(block);
        }
    }

    /// Called before a range is written. The write must be done while the guard is held.
    pub(crate) fn before_write(
        &self,
        dev: &dyn BlockDev,
        offset: u64,
        len: u64,
    ) -> io::Result<RwLockReadGuard<'_, ()>> {
        let guard = self.gate.read();
        let end = offset.saturating_add(len).min(self.len);
        if offset >= end {
            return Ok(guard);
        }
        let touched = offset / self.block..(end - 1) / self.block + 1;
        if self.is_frozen.load(Ordering::Acquire) && !planted(Fault::FrozenOverwritten) {
            for block in touched.clone().filter(|block| self.frozen.has(*block)) {
                self.copy_aside(dev, block)?;
            }
        }
        for block in touched {
            self.dirty.set(block);
        }
        Ok(guard)
    }

    fn copy_aside(&self, dev: &dyn BlockDev, block: u64) -> io::Result<()> {
        let mut aside = self.aside.lock();
        while aside.len() >= self.aside_max && self.frozen.has(block) {
            self.room.wait(&mut aside);
        }
        if self.frozen.has(block) {
            let mut data = vec![0; self.block as usize];
            self.read(dev, block, &mut data)?;
            aside.insert(block, data.into());
            self.frozen.clear(block);
        }
        Ok(())
    }

    /// Reads blocks from the device. What is behind its end is zero.
    fn read(&self, dev: &dyn BlockDev, block: u64, data: &mut [u8]) -> io::Result<()> {
        let at = block * self.block;
        let inside = (self.len - at).min(data.len() as u64) as usize;
        data[inside..].fill(0);
        dev.read_at(at, &mut data[..inside])
    }

    /// Freezes the moment: from now on [`Tracker::next_frozen`] reads the device's present content, of the
    /// blocks that changed and of those in `more`.
    pub(crate) fn freeze(&self, more: &[(u64, u64)]) {
        let _still = self.gate.write();
        for (first, count) in more {
            self.mark(*first, *count);
        }
        let words = self.dirty.take();
        self.frozen.put(&words);
        *self.all.lock() = words;
        self.is_frozen.store(true, Ordering::Release);
    }

    /// The next run of frozen blocks that is not below `from`: its first block, and its bytes in `data`.
    pub(crate) fn next_frozen(
        &self,
        dev: &dyn BlockDev,
        from: u64,
        data: &mut Vec<u8>,
    ) -> io::Result<Option<u64>> {
        let mut aside = self.aside.lock();
        let there = self.frozen.next(from);
        let copied = aside.range(from..).next().map(|(block, _)| *block);
        if let Some(block) = copied.filter(|copied| there.is_none_or(|there| *copied < there)) {
            data.clear();
            data.extend_from_slice(&aside.remove(&block).unwrap_or_default());
            self.room.notify_all();
            return Ok(Some(block));
        }
        let Some(first) = there else { return Ok(None) };
        let most = (first + READ_AT_ONCE).min(self.blocks);
        let end = (first..most).find(|block| !self.frozen.has(*block)).unwrap_or(most);
        data.resize(((end - first) * self.block) as usize, 0);
        self.read(dev, first, data)?;
        (first..end).for_each(|block| self.frozen.clear(block));
        // A writer may wait for room to copy one of these.
        self.room.notify_all();
        Ok(Some(first))
    }

    /// Ends the frozen moment, which was shipped.
    pub(crate) fn release(&self) {
        self.end(false);
    }

    /// Ends the frozen moment, which was not shipped: its blocks have changed still.
    pub(crate) fn thaw(&self) {
        self.end(true);
    }

    fn end(&self, keep: bool) {
        let mut aside = self.aside.lock();
        let words = std::mem::take(&mut *self.all.lock());
        if keep && !planted(Fault::FailureForgotten) {
            self.dirty.put(&words);
        }
        self.frozen.take();
        aside.clear();
        self.is_frozen.store(false, Ordering::Release);
        self.room.notify_all();
    }

    /// Takes the marks of blocks away while no write is under way. Later writes mark them again.
    pub(crate) fn unmark(&self, blocks: &[(u64, u64)]) {
        let _still = self.gate.write();
        for (first, count) in blocks {
            (*first..(first + count).min(self.blocks)).for_each(|block| self.dirty.clear(block));
        }
    }

    /// The present content of blocks.
    pub(crate) fn present(
        &self,
        dev: &dyn BlockDev,
        block: u64,
        data: &mut [u8],
    ) -> io::Result<()> {
        self.read(dev, block, data)
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;

    fn write(tracker: &Tracker, dev: &MemDev, at: u64, data: &[u8]) {
        let _guard = tracker.before_write(dev, at, data.len() as u64).unwrap();
        dev.write_at(at, data).unwrap();
    }

    fn frozen(tracker: &Tracker, dev: &MemDev) -> Vec<(u64, Vec<u8>)> {
        let (mut found, mut from, mut data) = (Vec::new(), 0, Vec::new());
        while let Some(first) = tracker.next_frozen(dev, from, &mut data).unwrap() {
            for block in data.chunks(512) {
                found.push((first + (from.max(first) - first), block.to_vec()));
                from = found.last().unwrap().0 + 1;
            }
        }
        found
    }

    #[test]
    fn a_frozen_moment_does_not_see_later_writes() {
        let dev = MemDev::new(512 * 10 + 7);
        let tracker = Tracker::new(512 * 10 + 7, 512, 1 << 20);
        write(&tracker, &dev, 500, &[1; 20]);
        write(&tracker, &dev, 512 * 10, &[2; 7]);
        tracker.freeze(&[]);
        assert!(!tracker.is_dirty());
        write(&tracker, &dev, 0, &[9; 512 * 10 + 7]);
        let seen = frozen(&tracker, &dev);
        assert_eq!(seen.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [0, 1, 10]);
        assert_eq!((seen[0].1[499], seen[0].1[500], seen[1].1[7], seen[1].1[8]), (0, 1, 1, 0));
        assert_eq!((seen[2].1[6], seen[2].1[7]), (2, 0));
        tracker.release();
        assert_eq!(tracker.pending(), 11 * 512);
    }

    #[test]
    fn what_was_not_shipped_stays_dirty() {
        let dev = MemDev::new(512 * 10);
        let tracker = Tracker::new(512 * 10, 512, 1 << 20);
        write(&tracker, &dev, 512, &[1; 512]);
        tracker.freeze(&[]);
        write(&tracker, &dev, 1024, &[1; 512]);
        tracker.thaw();
        assert_eq!(tracker.pending(), 2 * 512);
        tracker.unmark(&[(0, 2)]);
        assert_eq!(tracker.dirty.next(0), Some(2));
    }

    /// A writer that finds no room goes on when the reader has come past its block.
    #[test]
    fn writers_wait_for_room() {
        let dev = MemDev::new(512 * 10);
        let tracker = Tracker::new(512 * 10, 512, 512);
        write(&tracker, &dev, 0, &[1; 5120]);
        tracker.freeze(&[]);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&tracker, &dev, 0, &[2; 5120]));
            let seen = frozen(&tracker, &dev);
            assert!(seen.len() == 10 && seen.iter().all(|(_, data)| data == &[1; 512]));
        });
    }
}
