//! What a log worker asks of the journal: is there work, and until when may it sleep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs_journal::{LogView, Time};

use super::ail::Ail;
use super::state::Journal;
use crate::full::RETRY;

/// The journal as an operation finds it at its end.
pub(crate) struct Load {
    /// Something is to be done.
    pub(crate) due: bool,
    /// Bytes of the log between tail and head.
    pub(crate) live: u64,
    /// There is a service that does it.
    pub(crate) served: bool,
}

impl Journal {
    /// What whoever ends an operation has to know; tells the service if something is due, or if so
    /// `much` is dirty that some of it is to go home.
    pub(crate) fn look(&self, much: bool) -> Load {
        let served = self.served.load(Ordering::Acquire);
        let state = self.state.lock();
        let (due, live) = (state.pipeline.has_actions(), state.space.live());
        if served && (due || much) {
            self.nudge.notify_one();
        }
        Load { due, live, served }
    }

    /// Takes the place of the one log worker; `false` if it is taken.
    pub(crate) fn take_worker_place(&self) -> bool {
        !self.served.swap(true, Ordering::AcqRel)
    }

    /// Gives up the place of the log worker.
    pub(crate) fn leave_worker_place(&self) {
        self.served.store(false, Ordering::Release);
    }

    /// Wakes the log worker to see that it is to stop: under the lock, so that one that is about to
    /// sleep does not miss it.
    pub(crate) fn wake_worker_to_stop(&self) {
        let _state = self.state.lock();
        self.nudge.notify_all();
    }

    /// Tells the pipeline the time.
    pub(crate) fn tick(&self) {
        self.state.lock().pipeline.tick(self.now());
    }

    /// Where the next record goes.
    pub(crate) fn head(&self) -> u64 {
        self.state.lock().space.head()
    }

    /// Sleeps until there may be work, or until this moment; not if the log is no longer as `seen`, or
    /// the worker is to stop.
    pub(crate) fn sleep_until(&self, until: Option<Time>, seen: &LogView, stop: &AtomicBool) {
        let ail = self.ail.lock();
        let mut state = self.state.lock();
        let undriven = state.pipeline.has_actions() && self.driver.try_lock().is_some();
        if undriven || self.see(&ail, &state) != *seen || stop.load(Ordering::Acquire) {
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

    /// Is something to be done that nobody is doing?
    pub(crate) fn left_undriven(&self) -> bool {
        self.state.lock().pipeline.has_actions() && self.driver.try_lock().is_some()
    }

    /// Sleeps a while, since the host has no room, unless there is something to do.
    pub(crate) fn rest(&self, stop: &AtomicBool) {
        let mut state = self.state.lock();
        if !stop.load(Ordering::Acquire) && !state.pipeline.has_actions() {
            state.sleeps_until = self.now() + RETRY;
            self.nudge.wait_for(&mut state, RETRY);
            state.sleeps_until = Time(0);
        }
    }

    pub(crate) fn seen(&self) -> LogView {
        let ail = self.ail.lock();
        self.see(&ail, &self.state.lock())
    }

    fn see(&self, ail: &Ail, state: &super::state::State) -> LogView {
        LogView {
            length: state.space.length(),
            head: state.space.head(),
            tail: state.space.tail(),
            active: ail.lowest(),
            quiet: state.pipeline.is_quiet(),
            alarm: state.pipeline.alarm(),
        }
    }

    /// May there be something for the service: the `first` change of a checkpoint, which may not grow
    /// too old, unless the service looks here by then anyway? It need not be woken each time somebody
    /// changes something and makes that durable.
    pub(super) fn has_chores(&self, state: &super::state::State, first: bool) -> bool {
        let oversleeps = || state.pipeline.alarm().is_some_and(|due| due < state.sleeps_until);
        first && oversleeps() || state.space.live() > self.geometry.length / 2
    }
}
