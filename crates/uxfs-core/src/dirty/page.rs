//! A block of a file in memory, and the account of all of them.
//!
//! 1. Every byte of content is counted from when it is allocated to when it is freed, wherever it
//!    is referred to from: what is being written while a writer has a newer version counts too.
//! 2. Content that is being written does not change: whoever wants to change it gets a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::turns::{Condvar, Mutex};

/// The account of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes there are, and bytes promised to writers.
    used: AtomicU64,
    /// Most that there were.
    #[cfg(test)]
    peak: AtomicU64,
    /// When some may have come free.
    pub(super) landings: Landings,
}

/// Tells those who wait for memory that some may have come free.
#[derive(Debug, Default)]
pub(super) struct Landings {
    count: Mutex<u64>,
    told: Condvar,
}

impl Landings {
    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Waits until there were more than `count`.
    pub(super) fn wait_beyond(&self, count: u64) {
        let mut now = self.count.lock();
        while *now <= count {
            self.told.wait(&mut now);
        }
    }

    pub(super) fn tell(&self) {
        *self.count.lock() += 1;
        self.told.notify_all();
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
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    #[cfg(test)]
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Memory that a writer may use.
pub(super) struct Promise {
    memory: Arc<Memory>,
    left: u64,
}

impl Promise {
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
    pub(super) fn fill(&mut self, data: Box<[u8]>) -> Arc<Content> {
        self.spend(data.len());
        Arc::new(Content { data, memory: Arc::clone(&self.memory) })
    }

    /// Content that may be changed: a copy, if somebody else refers to it.
    pub(super) fn unshare<'a>(&mut self, content: &'a mut Arc<Content>) -> &'a mut [u8] {
        if Arc::get_mut(content).is_none() {
            *content = self.fill(content.data.clone());
        }
        match Arc::get_mut(content) {
            Some(content) => &mut content.data,
            // Nobody can have got at the copy.
            None => &mut [],
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.memory.sub(self.left);
        self.memory.landings.tell();
    }
}

/// Content of a block.
#[derive(Debug)]
pub(super) struct Content {
    data: Box<[u8]>,
    memory: Arc<Memory>,
}

impl Content {
    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.memory.sub(self.data.len() as u64);
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
    pub(super) content: Arc<Content>,
    /// Where it goes.
    pub(super) backing: Backing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_to_the_last_reference() {
        let memory = Arc::new(Memory::default());
        assert!(Promise::new(&memory, 300, 100).is_some(), "alone it may be more");
        assert_eq!(memory.used(), 0);
        let mut promise = Promise::new(&memory, 100, 100).unwrap();
        assert!(Promise::new(&memory, 1, 100).is_none());
        let mut content = promise.fill(vec![1; 60].into());
        assert_eq!(memory.used(), 100);
        drop(promise);
        assert_eq!(memory.used(), 60);
        let flying = Arc::clone(&content);
        let mut promise = Promise::new(&memory, 60, 200).unwrap();
        promise.unshare(&mut content)[0] = 2;
        drop(promise);
        assert_eq!((flying.bytes()[0], content.bytes()[0], memory.used()), (1, 2, 120));
        drop(flying);
        drop(content);
        assert_eq!((memory.used(), memory.peak()), (0, 300));
    }
}
