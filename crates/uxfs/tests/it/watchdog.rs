//! Ends the process when a test makes no progress, because of a deadlock or an endless loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use uxfs_oracle::{HangLimits, Watch};

/// Longest time without progress: elapsed time while the process is idle, otherwise processor time, which
/// other tests of this process use too.
const HANG_LIMITS: HangLimits =
    HangLimits { idle: Duration::from_secs(120), work: Duration::from_secs(1200) };
const LOOK: Duration = Duration::from_millis(250);

#[derive(Default)]
struct State {
    steps: AtomicU64,
    at: AtomicU64,
    over: AtomicBool,
}

/// Watches until it is dropped, also by a panic.
pub(crate) struct Watchdog(Arc<State>);

impl Watchdog {
    /// Watches `what`.
    pub(crate) fn new(what: String) -> Self {
        let state = Arc::new(State::default());
        let watched = Arc::clone(&state);
        std::thread::spawn(move || watched.watch(&what));
        Self(state)
    }

    /// Reports progress: step `at`.
    pub(crate) fn step(&self, at: u64) {
        self.0.at.store(at, Ordering::Relaxed);
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

impl State {
    fn watch(&self, what: &str) {
        let mut watch = Watch::new(std::process::id(), HANG_LIMITS);
        let mut last = 0;
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let steps = self.steps.load(Ordering::Relaxed);
            if steps != last {
                watch.begin_again();
                last = steps;
            }
            if let Some(hang) = watch.look(|| steps) {
                let at = self.at.load(Ordering::Relaxed);
                eprintln!("{what}: {hang} after {steps} steps, the last of them {at}");
                std::process::abort();
            }
        }
    }
}
