//! A file with dirty data: its dirty blocks, its length, and its reservation.
//!
//! 1. While a block is dirty, `size` is the length that callers see. The length on disk is never
//!    larger, and stays behind while data is not written. Otherwise `size` is the length on disk.
//! 2. Bytes after `size` in a dirty block are zero.
//! 3. A block whose backing is [`Backing::Reserved`] holds one block of the volume's reservation.
//!    `tree` further blocks are reserved for the file's extent btree and for conversions.
//! 4. Write-back and the unmapping of blocks hold the file's [`WritebackBlock`], so that no block
//!    is freed while data is being written to it. Readers and writers do not need it.
//!
//! Lock order: IoLock, Writeback (of several files in ascending order), the locks of a transaction,
//! the inode, `pages`, the order by age.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RawMutex;
use parking_lot::lock_api::ArcMutexGuard;
use uxfs_format::Ino;
use uxfs_sync::{self as sync, Mutex, MutexGuard, Rank};

use super::page::{Backing, Content, Memory, Page};
use crate::dquot::{Limiting, Quota};
use crate::error::Result;
use crate::inode::InodeRef;

/// Attempts of [`File::hold_in_epoch`]: some at once, the others after a pause each; five seconds in all.
const YIELDS: u32 = 1000;
const ATTEMPTS: u32 = YIELDS + 5000;
const PAUSE: Duration = Duration::from_millis(1);

/// A file with dirty data.
pub(crate) struct File {
    pub(super) ino: Ino,
    /// Its inode, which this reference keeps in memory.
    pub(super) cell: InodeRef,
    writeback: Arc<parking_lot::Mutex<()>>,
    memory: Arc<Memory>,
    pages: Mutex<Pages>,
    /// Number of callers of fsync that write it back, or wait for that.
    syncing: AtomicU32,
}

/// A caller of fsync of a file, until it is dropped.
pub(super) struct Syncing<'a>(&'a File);

impl Syncing<'_> {
    /// Is there another one of this file?
    pub(super) fn has_others(&self) -> bool {
        self.0.syncing.load(Ordering::Relaxed) > 1
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.0.syncing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The dirty blocks of a file.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) map: BTreeMap<u64, Page>,
    pub(super) size: u64,
    /// Dirty blocks that hold a reserved block each.
    pub(super) reserved: u64,
    /// Dirty blocks that will change the extent map.
    pub(super) changes: u64,
    /// Blocks reserved for the extent btree.
    pub(super) tree: u64,
    /// The file's position in the order by age; `None` while nothing is dirty.
    pub(super) turn: Option<u64>,
    /// The file was removed from the register.
    pub(super) gone: bool,
    /// The dquots that reserve the blocks of new data.
    pub(super) limits: Limiting,
    /// Blocks that the dquots have counted already, for data that a write is about to insert.
    admitted: u64,
}

/// The dirty blocks of a file at one moment.
pub(super) struct Snapshot {
    /// Dirty blocks in order.
    pub(super) pages: Vec<(u64, Content, Backing)>,
    pub(super) size: u64,
    /// The first dirty block that did not fit into the batch.
    pub(super) more: Option<u64>,
}

/// The dirty data at an offset of a file.
pub(super) enum Found {
    /// This many bytes were copied.
    Copied(usize),
    /// Nothing is dirty before this offset.
    Clean(u64),
}

impl File {
    pub(super) fn new(ino: Ino, cell: InodeRef, memory: &Arc<Memory>, limits: Limiting) -> Self {
        Self {
            ino,
            cell,
            writeback: Arc::default(),
            memory: Arc::clone(memory),
            pages: Mutex::ranked(Rank::Pages, Pages { limits, ..Pages::default() }),
            syncing: AtomicU32::new(0),
        }
    }

    /// Counts a caller of fsync.
    pub(super) fn sync(&self) -> Syncing<'_> {
        self.syncing.fetch_add(1, Ordering::Relaxed);
        Syncing(self)
    }

    /// Its changes.
    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock()
    }

    /// As [`File::hold`], while an epoch keeps everything else out; `None` if another thread has the right.
    /// A thread that has it while data is dirty is about to discard the data, and waits for nothing; it
    /// gets some time.
    pub(super) fn hold_in_epoch(&self) -> Option<WritebackBlock> {
        let mut attempts = 0;
        loop {
            let hold = self.try_hold();
            if hold.is_some() || !self.is_dirty() || attempts == ATTEMPTS {
                return hold;
            }
            attempts += 1;
            match attempts {
                ..YIELDS => sync::yield_now(),
                _ => sync::pause(PAUSE),
            }
        }
    }

    /// Has it data in memory only?
    pub(crate) fn is_dirty(&self) -> bool {
        !self.pages().map.is_empty()
    }

    /// Its length, if that is `on_disk` on disk.
    pub(crate) fn size(&self, on_disk: u64) -> u64 {
        self.pages().size(on_disk)
    }

    /// Waits until no other thread writes the file back or unmaps its blocks.
    pub(super) fn hold(&self) -> WritebackBlock {
        let guard = Some(sync::lock_arc(&self.writeback));
        WritebackBlock { guard, memory: Arc::clone(&self.memory) }
    }

    /// The same, without waiting.
    pub(super) fn try_hold(&self) -> Option<WritebackBlock> {
        let guard = Some(self.writeback.try_lock_arc()?);
        Some(WritebackBlock { guard, memory: Arc::clone(&self.memory) })
    }

    /// Copies dirty bytes from `at` on into `buf`, which ends at the end of the request.
    pub(super) fn read(&self, at: u64, buf: &mut [u8], block_log: u32) -> Found {
        let pages = self.pages();
        let block_size = 1usize << block_log;
        let mut done = 0;
        let mut next = at >> block_log;
        for (block, page) in pages.map.range(next..) {
            if *block != next || done == buf.len() {
                break;
            }
            let skip = if done == 0 { at as usize & (block_size - 1) } else { 0 };
            let len = (block_size - skip).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&page.content.bytes()[skip..skip + len]);
            done += len;
            next += 1;
        }
        if done > 0 {
            return Found::Copied(done);
        }
        let first = pages.map.range(next..).next();
        Found::Clean(first.map_or(u64::MAX, |(block, _)| block.saturating_mul(block_size as u64)))
    }
}

impl Pages {
    /// The file's length, if that is `on_disk` on disk.
    pub(super) fn size(&self, on_disk: u64) -> u64 {
        if self.map.is_empty() { on_disk } else { self.size }
    }

    /// Adds a dirty block, or replaces one.
    pub(super) fn insert(&mut self, block: u64, content: Content, backing: Backing) {
        self.count(backing, true);
        if let Some(old) = self.map.insert(block, Page { content, backing }) {
            self.count(old.backing, false);
        }
    }

    /// Adds consecutive dirty blocks with this content.
    pub(super) fn insert_run(
        &mut self,
        first: u64,
        content: &Content,
        backing: &[Backing],
        block_size: usize,
    ) {
        for ((block, backing), at) in (first..).zip(backing).zip((0..).step_by(block_size)) {
            self.insert(block, content.part(at..at + block_size), *backing);
        }
    }

    /// Number of clean blocks from `first` on, which is clean, before `end`.
    pub(super) fn clean_before(&self, first: u64, end: u64) -> usize {
        if end <= first {
            return 0;
        }
        let dirty = self.map.range(first..end).next().map_or(end, |(block, _)| *block);
        (dirty - first) as usize
    }

    /// Removes a dirty block, which may free a reserved block.
    pub(super) fn remove(&mut self, block: u64) {
        if let Some(old) = self.map.remove(&block) {
            self.count(old.backing, false);
        }
    }

    /// Changes the backing of a block.
    pub(super) fn set_backing(&mut self, block: u64, backing: Backing) {
        if let Some(page) = self.map.get_mut(&block) {
            let old = core::mem::replace(&mut page.backing, backing);
            self.count(old, false);
            self.count(backing, true);
        }
    }

    /// Lets the dquots count new data of this many blocks, if their limits allow it.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded).
    pub(super) fn admit(&mut self, quota: &Quota, blocks: u64, now: u64) -> Result<()> {
        for (number, dquot) in self.limits.iter().enumerate() {
            if let Err(error) = dquot.admit_delayed(quota, blocks, now) {
                self.limits[..number].iter().for_each(|dquot| dquot.count_delayed(blocks, false));
                return Err(error);
            }
        }
        self.admitted = blocks;
        Ok(())
    }

    /// Gives up what a write was admitted and did not insert.
    pub(super) fn end_admission(&mut self) {
        let left = core::mem::take(&mut self.admitted);
        self.limits.iter().for_each(|dquot| dquot.count_delayed(left, false));
    }

    fn count(&mut self, backing: Backing, more: bool) {
        let reserved = u64::from(backing == Backing::Reserved);
        let changes = u64::from(backing != Backing::Own);
        if more && reserved > 0 && self.admitted > 0 {
            self.admitted -= 1;
        } else if reserved > 0 {
            self.limits.iter().for_each(|dquot| dquot.count_delayed(reserved, more));
        }
        if more {
            (self.reserved, self.changes) = (self.reserved + reserved, self.changes + changes);
        } else {
            (self.reserved, self.changes) = (self.reserved - reserved, self.changes - changes);
        }
    }

    /// Removes all dirty blocks. Returns the number of reserved blocks that this frees.
    pub(super) fn clear(&mut self) -> u64 {
        self.limits.iter().for_each(|dquot| dquot.count_delayed(self.reserved, false));
        self.map.clear();
        self.changes = 0;
        core::mem::take(&mut self.reserved) + core::mem::take(&mut self.tree)
    }

    /// The dirty blocks in a range, at most `most`.
    pub(super) fn snapshot(&self, blocks: Range<u64>, most: usize) -> Snapshot {
        let Range { start: from, end } = blocks;
        let dirty = self.map.range(from..end.max(from));
        let shown = |(block, page): (&u64, &Page)| (*block, page.content.clone(), page.backing);
        let pages: Vec<_> = dirty.take(most).map(shown).collect();
        let behind = pages.last().map_or(from, |(block, ..)| block + 1);
        let more = self.map.range(behind..end.max(behind)).next().map(|(block, _)| *block);
        Snapshot { pages, size: self.size, more }
    }
}

/// Most blocks that a file's extent btree can take for `changes` dirty blocks.
pub(super) fn tree_blocks(changes: u64) -> u64 {
    if changes == 0 { 0 } else { 5 + changes / 50 }
}

/// Releases the btree reservation of a file without dirty blocks.
pub(super) fn tidy(pages: &mut Pages) -> u64 {
    if pages.map.is_empty() { core::mem::take(&mut pages.tree) } else { 0 }
}

/// The right to write a file back, or to unmap its blocks.
pub(crate) struct WritebackBlock {
    guard: Option<ArcMutexGuard<RawMutex, ()>>,
    memory: Arc<Memory>,
}

impl Drop for WritebackBlock {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.memory.completions.notify();
    }
}
