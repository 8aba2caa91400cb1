//! Blocks of file data in memory, and the accounting of their memory.
//!
//! 1. Every byte of contents counts from its allocation until its last reference is dropped. Data
//!    in flight counts too, even if a writer has replaced it.
//! 2. Contents in flight do not change: a change is made to a copy.
//! 3. The data of one write is one allocation, which its blocks share. It counts as a whole until
//!    its last block is gone. A change of one of its blocks copies that block.
//! 4. No wakeup is lost: a writer registers as a waiter before it finds too little memory, and whatever
//!    frees memory from then on wakes it, be it write-back or a reader that drops the last reference.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs_sync::{Condvar, Mutex};

/// Size of the allocations that are kept for reuse (that of a large write), and their maximum
/// number. Getting memory back from the host costs as much as copying into it.
const SPARE_BYTES: usize = 1 << 20;
const SPARES: usize = 16;

/// The accounting of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Allocations for reuse; none when nothing is dirty.
    spares: parking_lot::Mutex<Vec<Box<[u8]>>>,
    /// Bytes in use or reserved by writers.
    used: AtomicU64,
    /// The maximum so far.
    #[cfg(test)]
    peak: AtomicU64,
    /// Wakes writers when memory may have been freed.
    pub(super) completions: Completions,
}

/// Wakes threads that wait for memory when some may have been freed.
#[derive(Debug, Default)]
pub(super) struct Completions {
    count: Mutex<u64>,
    wakeup: Condvar,
    /// Threads that wait, or are about to.
    waiters: AtomicU64,
}

impl Completions {
    /// Registers the caller as a waiter. It looks for memory after this, and waits if there is none.
    pub(super) fn begin_waiting(&self) -> MemoryWaiter<'_> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        MemoryWaiter { completions: self, count: *self.count.lock() }
    }

    /// Wakes all waiters: write-back of a file has ended.
    pub(super) fn notify(&self) {
        *self.count.lock() += 1;
        self.wakeup.notify_all();
    }

    /// Wakes all waiters, if there are any: memory was freed.
    fn released(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.notify();
        }
    }
}

/// A registered waiter for memory.
pub(super) struct MemoryWaiter<'a> {
    completions: &'a Completions,
    /// Completions when it registered.
    count: u64,
}

impl MemoryWaiter<'_> {
    /// Waits until memory has been freed, or write-back has ended, since the waiter registered.
    pub(super) fn wait(self) {
        let mut now = self.completions.count.lock();
        while *now <= self.count {
            self.completions.wakeup.wait(&mut now);
        }
    }
}

impl Drop for MemoryWaiter<'_> {
    fn drop(&mut self) {
        self.completions.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Memory {
    /// Bytes in use or reserved.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    fn add(&self, bytes: u64) {
        let _before = self.used.fetch_add(bytes, Ordering::AcqRel);
        #[cfg(test)]
        self.peak.fetch_max(_before + bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        if before == bytes && bytes > 0 {
            self.spares.lock().clear();
        }
        self.completions.released();
    }

    /// Keeps a free allocation for reuse, if it has the right size.
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

/// Memory reserved by a writer.
pub(super) struct MemoryReservation {
    memory: Arc<Memory>,
    left: u64,
}

impl MemoryReservation {
    /// Reserves `bytes` if the sum stays below `limit`, or if nothing else is in use.
    pub(super) fn new(memory: &Arc<Memory>, bytes: u64, limit: u64) -> Option<Self> {
        let fits = |used: u64| {
            let sum = used.saturating_add(bytes);
            (sum <= limit || used == 0).then_some(sum)
        };
        memory.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).ok()?;
        #[cfg(test)]
        memory.peak.fetch_max(memory.used(), Ordering::Relaxed);
        Some(Self { memory: Arc::clone(memory), left: bytes })
    }

    /// Uses `len` bytes of the reservation.
    fn spend(&mut self, len: usize) {
        let spent = self.left.min(len as u64);
        self.left -= spent;
        self.memory.add(len as u64 - spent);
    }

    /// Creates contents from `data`.
    pub(super) fn fill(&mut self, data: Box<[u8]>) -> Content {
        self.spend(data.len());
        let range = 0..data.len();
        let memory = Arc::clone(&self.memory);
        Content { buffer: Arc::new(Buffer { data, memory }), range }
    }

    /// Creates contents as a copy of `data`.
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

    /// Returns contents for a change: a copy, if there are other references to them or to their
    /// allocation.
    pub(super) fn unshare<'a>(&mut self, content: &'a mut Content) -> &'a mut [u8] {
        if Arc::get_mut(&mut content.buffer).is_none() {
            *content = self.fill(content.bytes().into());
        }
        match Arc::get_mut(&mut content.buffer) {
            Some(buffer) => &mut buffer.data[content.range.clone()],
            // The copy has no other references, so this does not happen.
            None => &mut [],
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.sub(self.left);
    }
}

/// Contents of one or several blocks. Clones refer to the same bytes.
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

    /// A part of the contents, cut at their end.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        let end = self.range.end;
        let at = |at: usize| self.range.start.saturating_add(at).min(end);
        Self { buffer: Arc::clone(&self.buffer), range: at(range.start)..at(range.end) }
    }

    /// Are these the same bytes in memory?
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.range == other.range
    }

    /// Appends `next` if it directly follows in memory.
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

/// What a dirty block has on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// A written block of the file's own, which is overwritten.
    Own,
    /// An unwritten block.
    Unwritten,
    /// No block to write to; one is reserved.
    Reserved,
}

/// A dirty block.
#[derive(Debug)]
pub(super) struct Page {
    /// Its contents.
    pub(super) content: Content,
    /// What it has on the device.
    pub(super) backing: Backing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_until_the_last_reference_is_dropped() {
        let memory = Arc::new(Memory::default());
        assert!(
            MemoryReservation::new(&memory, 300, 100).is_some(),
            "a single reservation may exceed the limit"
        );
        assert_eq!(memory.used(), 0);
        let mut reservation = MemoryReservation::new(&memory, 100, 100).unwrap();
        assert!(MemoryReservation::new(&memory, 1, 100).is_none());
        let mut content = reservation.fill(vec![1; 60].into());
        assert_eq!(memory.used(), 100);
        drop(reservation);
        assert_eq!(memory.used(), 60);
        let clone = content.clone();
        let mut reservation = MemoryReservation::new(&memory, 60, 200).unwrap();
        reservation.unshare(&mut content)[0] = 2;
        drop(reservation);
        assert_eq!((clone.bytes()[0], content.bytes()[0], memory.used()), (1, 2, 120));
        drop(clone);
        drop(content);
        assert_eq!((memory.used(), memory.peak()), (0, 300));
    }

    #[test]
    fn the_last_reference_wakes_a_writer() {
        let memory = Arc::new(Memory::default());
        let content = MemoryReservation::new(&memory, 80, 100).unwrap().fill(vec![1; 80].into());
        let reader = content.part(0..10);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                loop {
                    let waiter = memory.completions.begin_waiting();
                    match MemoryReservation::new(&memory, 80, 100) {
                        Some(_) => break,
                        None => waiter.wait(),
                    }
                }
            });
            while memory.completions.waiters.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Write-back of the file ends, while a reader still has a part of its data.
            drop(content);
            memory.completions.notify();
            drop(reader);
            writer.join().unwrap();
        });
        assert_eq!((memory.used(), memory.completions.waiters.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn parts_share_an_allocation_until_one_changes() {
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
