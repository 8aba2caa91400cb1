//! Ends the process when a test stands still: that is a deadlock, or a walk without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// For how long nothing may move.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(250);

#[derive(Default)]
struct State {
    steps: AtomicU64,
    at: AtomicU64,
    over: AtomicBool,
}

/// Watches until it goes, by a panic as well.
pub(crate) struct Watchdog(Arc<State>);

impl Watchdog {
    /// Watches `what`.
    pub(crate) fn new(what: String) -> Self {
        let state = Arc::new(State::default());
        let watched = Arc::clone(&state);
        std::thread::spawn(move || watched.watch(&what));
        Self(state)
    }

    /// Something has moved: step `at`.
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
        let (mut last, mut still) = (0, Duration::ZERO);
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let steps = self.steps.load(Ordering::Relaxed);
            still = if steps == last { still + LOOK } else { Duration::ZERO };
            last = steps;
            if still > PATIENCE {
                let at = self.at.load(Ordering::Relaxed);
                eprintln!("{what}: stands still after {steps} steps, the last of them {at}");
                std::process::abort();
            }
        }
    }
}
