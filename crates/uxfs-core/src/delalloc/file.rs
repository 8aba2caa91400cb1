//! A file with changes in memory: its dirty blocks, its length, and what is reserved for them.
//!
//! 1. While anything is dirty, `size` is the file's length as everybody sees it; that on disk is
//!    never beyond it, and lags behind while data is not down. Else it is the length on disk.
//! 2. What lies behind `size` in a dirty block is zero.
//! 3. A block whose backing is [`Backing::Reserved`] holds one block of the volume's reservation;
//!    `tree` blocks besides are for what the file's extent tree, and conversions, may take.
//! 4. Whoever writes back, and whoever unmaps blocks, holds the file's [`WritebackBlock`] meanwhile: no block
//!    is given away while data is on its way to it. Readers and writers do not need it.
//!
//! Locks: the content's, the hold (of several files in ascending order), a transaction's, the
//! inode's, `pages`, the order by age.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RawMutex;
use parking_lot::lock_api::ArcMutexGuard;
use uxfs_format::Ino;

use super::page::{Backing, Content, Memory, Page};
use crate::inode::InodeRef;
use crate::rank::Rank;
use crate::sync::{self, Mutex, MutexGuard};

/// A file with changes in memory.
pub(crate) struct File {
    pub(super) ino: Ino,
    /// Its inode, which stays in memory by this.
    pub(super) cell: InodeRef,
    writeback: Arc<parking_lot::Mutex<()>>,
    memory: Arc<Memory>,
    pages: Mutex<Pages>,
}

/// What of a file is in memory only.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) map: BTreeMap<u64, Page>,
    pub(super) size: u64,
    /// Dirty blocks that hold a reserved block each.
    pub(super) reserved: u64,
    /// Dirty blocks that bring about a change of the extent map.
    pub(super) changes: u64,
    /// Blocks reserved for the extent tree.
    pub(super) tree: u64,
    /// The file's place in the order by age; `None` while nothing is dirty.
    pub(super) turn: Option<u64>,
    /// The file was taken off the register.
    pub(super) gone: bool,
}

/// What is to be written of a file, as it was at one moment.
pub(super) struct Snapshot {
    /// Dirty blocks in order.
    pub(super) pages: Vec<(u64, Content, Backing)>,
    pub(super) size: u64,
    /// The first dirty block that found no room.
    pub(super) more: Option<u64>,
}

/// What is found at a place of a file.
pub(super) enum Found {
    /// This many bytes were copied.
    Copied(usize),
    /// Nothing is dirty before this offset.
    Clean(u64),
}

impl File {
    pub(super) fn new(ino: Ino, cell: InodeRef, memory: &Arc<Memory>) -> Self {
        Self {
            ino,
            cell,
            writeback: Arc::default(),
            memory: Arc::clone(memory),
            pages: Mutex::ranked(Rank::Pages, Pages::default()),
        }
    }

    /// Its changes.
    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock()
    }

    /// Its length, if that is `on_disk` on disk.
    pub(crate) fn size(&self, on_disk: u64) -> u64 {
        self.pages().size(on_disk)
    }

    /// Waits until nobody else writes it back or unmaps its blocks.
    pub(super) fn hold(&self) -> WritebackBlock {
        let guard = Some(sync::lock_arc(&self.writeback));
        WritebackBlock { guard, memory: Arc::clone(&self.memory) }
    }

    /// The same, without waiting.
    pub(super) fn try_hold(&self) -> Option<WritebackBlock> {
        let guard = Some(self.writeback.try_lock_arc()?);
        Some(WritebackBlock { guard, memory: Arc::clone(&self.memory) })
    }

    /// Copies what is dirty from byte `at` on into `buf`, which ends where the caller wants to.
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

    /// Puts a block among the dirty ones, or in the place of what was there.
    pub(super) fn insert(&mut self, block: u64, content: Content, backing: Backing) {
        self.count(backing, true);
        if let Some(old) = self.map.insert(block, Page { content, backing }) {
            self.count(old.backing, false);
        }
    }

    /// Puts blocks that follow each other among the dirty ones, of which `content` is made up.
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

    /// How many blocks from `first` on, which is clean, are so and lie before `end`.
    pub(super) fn clean_before(&self, first: u64, end: u64) -> usize {
        if end <= first {
            return 0;
        }
        let dirty = self.map.range(first..end).next().map_or(end, |(block, _)| *block);
        (dirty - first) as usize
    }

    /// Takes a block out; it may give back a reserved block.
    pub(super) fn remove(&mut self, block: u64) {
        if let Some(old) = self.map.remove(&block) {
            self.count(old.backing, false);
        }
    }

    /// Notes that there is something else for a block on the device now.
    pub(super) fn set_backing(&mut self, block: u64, backing: Backing) {
        if let Some(page) = self.map.get_mut(&block) {
            let old = core::mem::replace(&mut page.backing, backing);
            self.count(old, false);
            self.count(backing, true);
        }
    }

    fn count(&mut self, backing: Backing, more: bool) {
        let reserved = u64::from(backing == Backing::Reserved);
        let changes = u64::from(backing != Backing::Own);
        if more {
            (self.reserved, self.changes) = (self.reserved + reserved, self.changes + changes);
        } else {
            (self.reserved, self.changes) = (self.reserved - reserved, self.changes - changes);
        }
    }

    /// Takes out all dirty blocks; the number of blocks of the reservation that this sets free.
    pub(super) fn clear(&mut self) -> u64 {
        self.map.clear();
        self.changes = 0;
        core::mem::take(&mut self.reserved) + core::mem::take(&mut self.tree)
    }

    /// What is dirty from block `from` on, at most `most` blocks.
    pub(super) fn snapshot(&self, from: u64, most: usize) -> Snapshot {
        let dirty = self.map.range(from..);
        let shown = |(block, page): (&u64, &Page)| (*block, page.content.clone(), page.backing);
        let pages: Vec<_> = dirty.take(most).map(shown).collect();
        let behind = pages.last().map_or(from, |(block, ..)| block + 1);
        let more = self.map.range(behind..).next().map(|(block, _)| *block);
        Snapshot { pages, size: self.size, more }
    }
}

/// Blocks that the extent tree of a file may take for `changes` dirty blocks.
pub(super) fn tree_blocks(changes: u64) -> u64 {
    if changes == 0 { 0 } else { 5 + changes / 50 }
}

/// Gives up what is reserved for the tree of a file that has nothing dirty.
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
