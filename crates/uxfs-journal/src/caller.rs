//! The identity of a caller of fsync, for the policy.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that identifies the calling thread.
pub fn caller() -> u64 {
    thread_local! {
        static CALLER: u64 = {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
    }
    match uxfs_sync::current() {
        Some(scheduler) => scheduler.thread(),
        None => CALLER.with(|caller| *caller),
    }
}
