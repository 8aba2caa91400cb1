//! The floor of block reservations while there is dirty data: available blocks that cannot be used.
//!
//! Delayed allocation ([`crate::delalloc`]) computes and sets the floor. Reservations stop above it.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// What is known of the space that is of no use.
#[derive(Debug)]
pub(crate) struct ReserveFloor {
    /// Files with dirty data: without any, the floor does not count.
    pub(crate) files: AtomicUsize,
    /// Available blocks that are of no use, 0 while there are plenty.
    pub(crate) floor: AtomicI64,
    /// Available blocks below which to look again.
    pub(crate) look_at: AtomicI64,
}

impl Default for ReserveFloor {
    fn default() -> Self {
        Self {
            files: AtomicUsize::new(0),
            floor: AtomicI64::new(0),
            look_at: AtomicI64::new(i64::MAX),
        }
    }
}

impl ReserveFloor {
    /// Available blocks that no reservation may take.
    pub(crate) fn blocks(&self) -> i64 {
        match self.files.load(Ordering::Acquire) {
            0 => 0,
            _ => self.floor.load(Ordering::Acquire),
        }
    }
}
