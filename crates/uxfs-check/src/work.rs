//! Distributes pieces of work among threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::options::{Phase, Progress};

/// Runs pieces `0..count` on `threads` threads, each with its own state; returns the states. Pieces
/// start in order.
pub(crate) fn share<T: Default + Send>(
    threads: usize,
    count: usize,
    phase: Phase,
    progress: &(dyn Fn(Progress) + Sync),
    work: &(dyn Fn(usize, &mut T) + Sync),
) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let report = |done: usize| progress(Progress { phase, done: done as u64, total: count as u64 });
    report(0);
    let run = || {
        let mut state = T::default();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= count {
                return state;
            }
            work(piece, &mut state);
            report(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let helpers = threads.clamp(1, count.max(1)) - 1;
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..helpers).map(|_| scope.spawn(run)).collect();
        let mut states = vec![run()];
        for handle in handles {
            match handle.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}
