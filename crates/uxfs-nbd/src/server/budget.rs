//! The memory that all clients' requests may take together.
//!
//! A request larger than the whole budget would wait for ever; the protocol's limit on requests is below it.

use parking_lot::{Condvar, Mutex};

pub(crate) struct Budget {
    left: Mutex<usize>,
    given_back: Condvar,
}

/// A part of the budget, given back when dropped.
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: Mutex::new(bytes), given_back: Condvar::new() }
    }

    /// Waits until so many bytes are free, and takes them.
    pub(crate) fn take(&self, bytes: usize) -> Share<'_> {
        let mut left = self.left.lock();
        while *left < bytes {
            self.given_back.wait(&mut left);
        }
        *left -= bytes;
        Share { budget: self, bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.left.lock() += self.bytes;
        self.budget.given_back.notify_all();
    }
}
