//! Deferred commits of fsync: a caller waits for a flush of its data before it commits what shows the data.
//!
//! [`crate::Pipeline`] decides whether a commit is deferred, and which flush resumes it.
//!
//! 1. Each resumed caller reports that it has committed or failed, by [`Committing`].
//!
//! Called by the engine's fsync, after it has written a file's data.

use uxfs_disk::fault::{Fault, planted};

use crate::caller::caller;
use crate::journal::{Journal, Notify, State, Waiter};
use crate::pipeline::Generation;
use crate::volume::{Counter, Volume};
use crate::waiters::WaitSlot;

/// A caller that was resumed and is about to commit. Reports the commit when it is dropped.
#[must_use = "the commit must come before this is dropped"]
pub struct Committing<'a, V: Volume>(&'a Journal<V>);

impl<V: Volume> Drop for Committing<'_, V> {
    fn drop(&mut self) {
        self.0.deferred_committed();
    }
}

impl<V: Volume> Journal<V> {
    /// Reports data that a caller of fsync has written and is about to show by a commit. If the commit is
    /// deferred, waits until the data is flushed, and drives the pipeline if no other thread does. Returns
    /// the write's generation; the commit must come before the other value is dropped.
    ///
    /// # Errors
    /// [`Volume::stopped`].
    pub fn data_written_for_fsync(
        &self,
        volume: &V,
    ) -> Result<(Generation, Option<Committing<'_, V>>), V::Error> {
        let slot = WaitSlot::DATA;
        let written = {
            let mut state = self.state.lock();
            if !state.pipeline.defers_commits() {
                return Ok((state.pipeline.data(), None));
            }
            let written = state.pipeline.independent_write();
            if planted(Fault::CommittedEarly) {
                return Ok((written, None));
            }
            let waiter = Waiter::Thread(slot);
            state.pipeline.defer_commit(self.now(), written, caller(), waiter);
            written
        };
        volume.count(Counter::CommitsDeferred, 1);
        self.group_commit_wakeup.notify_one();
        let done = |state: &State| match state.pipeline.failure() {
            Some(failure) => Some(Err(V::stopped(&failure.0))),
            None => state.pipeline.is_resumed(written).then_some(Ok(())),
        };
        self.sleep_until_done(volume, slot, done)?;
        Ok((written, Some(Committing(self))))
    }

    /// Reports data that a caller of fsync has written, if its commit is to be deferred. Returns the write's
    /// generation, for [`Self::notify_when_resumed`]; `None` if nothing was reported.
    pub fn try_defer(&self, volume: &V) -> Option<Generation> {
        let mut state = self.state.lock();
        if !state.pipeline.defers_commits() {
            return None;
        }
        volume.count(Counter::CommitsDeferred, 1);
        Some(state.pipeline.independent_write())
    }

    /// Calls `notify` when the caller with this write may commit, from a thread that drives the pipeline.
    /// `caller` identifies the caller for the fsync policy.
    pub fn notify_when_resumed(&self, caller: u64, written: Generation, notify: Notify) {
        let mut state = self.state.lock();
        state.pipeline.defer_commit(self.now(), written, caller, Waiter::Call(notify));
        drop(state);
        self.group_commit_wakeup.notify_one();
    }

    /// For a caller that was resumed: it commits before it drops this.
    pub fn committing(&self) -> Committing<'_, V> {
        Committing(self)
    }

    fn deferred_committed(&self) {
        let mut state = self.state.lock();
        state.pipeline.deferred_committed(self.now());
        let due = state.pipeline.has_actions();
        self.note_event(&mut state);
        drop(state);
        if due {
            self.group_commit_wakeup.notify_one();
            self.nudge.notify_one();
        }
    }

    /// Reports a completed write of data on which no commit depends: of blocks that were written before.
    pub fn data_overwritten(&self) -> Generation {
        self.state.lock().pipeline.independent_write()
    }
}
