//! The floor of block reservations while there is dirty data: available blocks that cannot be used.
//!
//! Delayed allocation ([`crate::delalloc`]) computes and sets the floor. Reservations stop above it.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// The state of the reservation floor.
#[derive(Debug)]
pub(crate) struct ReserveFloor {
    /// Number of files with dirty data. If it is 0, the floor is not applied.
    pub(crate) files: AtomicUsize,
    /// Available blocks that cannot be used; 0 while there is plenty of space.
    pub(crate) floor: AtomicI64,
    /// Recompute the floor when fewer blocks than this are available.
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
    /// Available blocks that reservations must leave.
    pub(crate) fn blocks(&self) -> i64 {
        match self.files.load(Ordering::Acquire) {
            0 => 0,
            _ => self.floor.load(Ordering::Acquire),
        }
    }
}
