//! A block of a file in memory, and the account of all of them.
//!
//! 1. Every byte of content is counted from when it is allocated to when nobody refers to it any
//!    more, wherever from: what is being written while a writer has a newer version counts too.
//! 2. Content that is being written does not change: whoever wants to change it gets a copy.
//! 3. What one write brings is one allocation, of which its blocks are parts: it is counted, whole,
//!    until the last of them is gone. Whoever changes such a block gets it as one of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{Condvar, Mutex};

/// Bytes of the allocations that are kept to be used again, and how many at most: what a large
/// write brings. Memory that the host has taken back costs as much to get again as copying into it.
const SPARE_BYTES: usize = 1 << 20;
const SPARES: usize = 16;

/// The account of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Allocations to be used again; none when nothing is dirty.
    spares: parking_lot::Mutex<Vec<Box<[u8]>>>,
    /// Bytes there are, and bytes promised to writers.
    used: AtomicU64,
    /// Most that there were.
    #[cfg(test)]
    peak: AtomicU64,
    /// When some may have come free.
    pub(super) completions: Completions,
}

/// Tells those who wait for memory that some may have come free.
#[derive(Debug, Default)]
pub(super) struct Completions {
    count: Mutex<u64>,
    wakeup: Condvar,
}

impl Completions {
    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Waits until there were more than `count`.
    pub(super) fn wait_beyond(&self, count: u64) {
        let mut now = self.count.lock();
        while *now <= count {
            self.wakeup.wait(&mut now);
        }
    }

    pub(super) fn notify(&self) {
        *self.count.lock() += 1;
        self.wakeup.notify_all();
    }
}

impl Memory {
    /// Bytes in use or promised.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    fn add(&self, bytes: u64) {
        let _before = self.used.fetch_add(bytes, Ordering::AcqRel);
        #[cfg(test)]
        self.peak.fetch_max(_before + bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
        if before == bytes && bytes > 0 {
            self.spares.lock().clear();
        }
    }

    /// Keeps an allocation that nobody refers to any more, if it is worth it.
    fn keep(&self, data: Box<[u8]>) {
        let mut spares = self.spares.lock();
        if data.len() == SPARE_BYTES && spares.len() < SPARES {
            spares.push(data);
        }
    }

    #[cfg(test)]
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Memory that a writer may use.
pub(super) struct MemoryReservation {
    memory: Arc<Memory>,
    left: u64,
}

impl MemoryReservation {
    /// Room for `bytes` more below `limit`; if there is nothing else, beyond it too.
    pub(super) fn new(memory: &Arc<Memory>, bytes: u64, limit: u64) -> Option<Self> {
        let fits = |used: u64| {
            let sum = used.saturating_add(bytes);
            (sum <= limit || used == 0).then_some(sum)
        };
        memory.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        #[cfg(test)]
        memory.peak.fetch_max(memory.used(), Ordering::Relaxed);
        Some(Self { memory: Arc::clone(memory), left: bytes })
    }

    /// Content of `len` bytes, out of what is promised.
    fn spend(&mut self, len: usize) {
        let spent = self.left.min(len as u64);
        self.left -= spent;
        self.memory.add(len as u64 - spent);
    }

    /// New content.
    pub(super) fn fill(&mut self, data: Box<[u8]>) -> Content {
        self.spend(data.len());
        let range = 0..data.len();
        let memory = Arc::clone(&self.memory);
        Content { buffer: Arc::new(Buffer { data, memory }), range }
    }

    /// New content, a copy of `data`.
    pub(super) fn fill_from(&mut self, data: &[u8]) -> Content {
        let spare = (data.len() == SPARE_BYTES).then(|| self.memory.spares.lock().pop()).flatten();
        self.fill(match spare {
            Some(mut spare) => {
                spare.copy_from_slice(data);
                spare
            }
            None => data.into(),
        })
    }

    /// Content that may be changed: a copy, if somebody else refers to it, or to what it is a part
    /// of.
    pub(super) fn unshare<'a>(&mut self, content: &'a mut Content) -> &'a mut [u8] {
        if Arc::get_mut(&mut content.buffer).is_none() {
            *content = self.fill(content.bytes().into());
        }
        match Arc::get_mut(&mut content.buffer) {
            Some(buffer) => &mut buffer.data[content.range.clone()],
            // Nobody can have got at the copy.
            None => &mut [],
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.sub(self.left);
        self.memory.completions.notify();
    }
}

/// Content of a block, or of several; of clones, all refer to the same bytes.
#[derive(Clone, Debug)]
pub(super) struct Content {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

/// An allocation.
#[derive(Debug)]
struct Buffer {
    data: Box<[u8]>,
    memory: Arc<Memory>,
}

impl Content {
    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer.data[self.range.clone()]
    }

    /// A part of it; what lies behind its end is no part of anything.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        let end = self.range.end;
        let at = |at: usize| self.range.start.saturating_add(at).min(end);
        Self { buffer: Arc::clone(&self.buffer), range: at(range.start)..at(range.end) }
    }

    /// Are these the same bytes, not only equal ones?
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.range == other.range
    }

    /// Adds `next`, if it lies behind this one in memory.
    pub(super) fn join(&mut self, next: &Self) -> bool {
        let adjacent =
            Arc::ptr_eq(&self.buffer, &next.buffer) && self.range.end == next.range.start;
        if adjacent {
            self.range.end = next.range.end;
        }
        adjacent
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.data.len() as u64;
        self.memory.keep(core::mem::take(&mut self.data));
        self.memory.sub(bytes);
    }
}

/// What there is for a block on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// A written block of the file's own, to be overwritten.
    Own,
    /// An unwritten block.
    Unwritten,
    /// Nothing that it could be written to; a block is reserved.
    Reserved,
}

/// A dirty block.
#[derive(Debug)]
pub(super) struct Page {
    /// What it holds.
    pub(super) content: Content,
    /// Where it goes.
    pub(super) backing: Backing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_to_the_last_reference() {
        let memory = Arc::new(Memory::default());
        assert!(MemoryReservation::new(&memory, 300, 100).is_some(), "alone it may be more");
        assert_eq!(memory.used(), 0);
        let mut reservation = MemoryReservation::new(&memory, 100, 100).unwrap();
        assert!(MemoryReservation::new(&memory, 1, 100).is_none());
        let mut content = reservation.fill(vec![1; 60].into());
        assert_eq!(memory.used(), 100);
        drop(reservation);
        assert_eq!(memory.used(), 60);
        let flying = content.clone();
        let mut reservation = MemoryReservation::new(&memory, 60, 200).unwrap();
        reservation.unshare(&mut content)[0] = 2;
        drop(reservation);
        assert_eq!((flying.bytes()[0], content.bytes()[0], memory.used()), (1, 2, 120));
        drop(flying);
        drop(content);
        assert_eq!((memory.used(), memory.peak()), (0, 300));
    }

    #[test]
    fn parts_are_counted_together_and_changed_apart() {
        let memory = Arc::new(Memory::default());
        let mut reservation = MemoryReservation::new(&memory, 100, 100).unwrap();
        let whole = reservation.fill((0..80).collect());
        let (mut one, two, last) = (whole.part(0..30), whole.part(30..60), whole.part(60..90));
        assert_eq!((last.bytes().len(), memory.used()), (20, 100));
        let mut all = one.clone();
        assert!(!all.join(&last) && all.join(&two) && !all.join(&one));
        assert_eq!(all.bytes(), &whole.bytes()[..60]);
        assert!(all.join(&last) && all.is(&whole) && !all.is(&one));
        drop((whole, all, last));
        assert_eq!(memory.used(), 100);
        reservation.unshare(&mut one)[0] = 99;
        assert_eq!(
            (one.bytes()[..2].to_vec(), two.bytes()[0], memory.used()),
            (vec![99, 1], 30, 110)
        );
        assert!(!one.join(&two));
        drop(two);
        reservation.unshare(&mut one)[1] = 98;
        drop(reservation);
        assert_eq!((one.bytes()[..3].to_vec(), memory.used()), (vec![99, 98, 2], 30));
    }
}
