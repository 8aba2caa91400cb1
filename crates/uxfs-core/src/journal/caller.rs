//! Who asks for durability, for the policy of fsync.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync;

/// Tells the calling thread from others, to the policy of fsync.
pub(crate) fn caller() -> u64 {
    thread_local! {
        static CALLER: u64 = {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
    }
    match sync::current() {
        Some(scheduler) => scheduler.thread(),
        None => CALLER.with(|caller| *caller),
    }
}
