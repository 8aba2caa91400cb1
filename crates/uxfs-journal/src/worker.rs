//! The log worker's view of the journal: is there work, and until when can it sleep?

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs_sync::Time;

use crate::ail::Ail;
use crate::journal::{Journal, State};
use crate::log_pos::LogPos;
use crate::log_work::LogView;
use crate::volume::Volume;

/// How long the log worker rests while the host is full.
const RETRY: Duration = Duration::from_secs(1);

/// The load of the journal at the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Background work is due.
    pub due: bool,
    /// Bytes of the log between tail and head.
    pub live: u64,
    /// There is a log worker that does it.
    pub served: bool,
}

impl<V: Volume> Journal<V> {
    /// The load, for a thread that ends an operation. Wakes the log worker if work is due, or if so
    /// `much` is dirty that some of it must be written in place.
    pub fn look(&self, much: bool) -> Load {
        let served = self.served.load(Ordering::Acquire);
        let state = self.state.lock();
        let due = state.pipeline.has_actions() || self.sees_epoch_due(&state);
        let live = state.space.live();
        if served && (due || much) {
            self.nudge.notify_one();
        }
        Load { due, live, served }
    }

    /// Is there a log worker?
    pub fn is_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// Registers the one log worker. Returns `false` if there is one already.
    pub fn take_worker_place(&self) -> bool {
        !self.served.swap(true, Ordering::AcqRel)
    }

    /// Unregisters the log worker.
    pub fn leave_worker_place(&self) {
        self.served.store(false, Ordering::Release);
    }

    /// Wakes the log worker so that it sees that it must stop. Takes the lock, so that a worker
    /// about to sleep does not miss it.
    pub fn wake_worker_to_stop(&self) {
        let _state = self.state.lock();
        self.nudge.notify_all();
    }

    /// Reports the time to the pipeline.
    pub fn tick(&self) {
        self.state.lock().pipeline.tick(self.now());
    }

    /// The position of the next record.
    pub fn head(&self) -> LogPos {
        self.state.lock().space.head()
    }

    /// Sleeps until there may be work, or until `until`. Does not sleep if the log differs from
    /// `seen`, or if the worker must stop.
    pub fn sleep_until(&self, until: Option<Time>, seen: &LogView, stop: &AtomicBool) {
        let ail = self.ail.lock();
        let mut state = self.state.lock();
        let undriven = state.pipeline.has_actions() && self.driver.try_lock().is_some();
        let changed = self.see(&ail, &state) != *seen || self.sees_epoch_due(&state);
        if undriven || changed || stop.load(Ordering::Acquire) {
            return;
        }
        drop(ail);
        state.sleeps_until = until.unwrap_or(Time(u64::MAX));
        match until {
            Some(until) => {
                let span = Duration::from_nanos(until.0.saturating_sub(self.now().0));
                self.nudge.wait_for(&mut state, span);
            }
            None => self.nudge.wait(&mut state),
        }
        state.sleeps_until = Time(0);
    }

    /// Are there actions, and no thread that drives?
    pub fn left_undriven(&self) -> bool {
        self.state.lock().pipeline.has_actions() && self.driver.try_lock().is_some()
    }

    /// Sleeps for a while because the host is full, unless there are actions.
    pub fn rest(&self, stop: &AtomicBool) {
        let mut state = self.state.lock();
        if !stop.load(Ordering::Acquire) && !state.pipeline.has_actions() {
            state.sleeps_until = self.now() + RETRY;
            self.nudge.wait_for(&mut state, RETRY);
            state.sleeps_until = Time(0);
        }
    }

    /// The log as [`crate::LogWorkPlanner`] sees it.
    pub fn seen(&self) -> LogView {
        let ail = self.ail.lock();
        self.see(&ail, &self.state.lock())
    }

    fn see(&self, ail: &Ail<V::Item>, state: &State) -> LogView {
        LogView {
            length: state.space.length(),
            head: state.space.head(),
            tail: state.space.tail(),
            active: ail.lowest(),
            quiet: state.pipeline.is_quiet(),
            alarm: state.pipeline.alarm(),
        }
    }

    /// May there be work for the log worker? The `first` change of a checkpoint needs it later,
    /// because it must not grow too old, unless the worker checks by then anyway. It is not woken
    /// for each change that its caller makes durable itself.
    pub(crate) fn has_chores(&self, state: &State, first: bool) -> bool {
        let oversleeps = || state.pipeline.alarm().is_some_and(|due| due < state.sleeps_until);
        first && oversleeps()
            || self.sees_epoch_due(state)
            || state.space.live() > self.geometry.length / 2
    }
}
