//! Log force: waiting until changes are durable.
//!
//! The journal needs no thread of its own. A thread that waits drives the pipeline if no other thread does
//! ([`crate::leader`], [`crate::driver`]).
//!
//! Called by the engine's sync and fsync, and by everything in the journal that needs a checkpoint to be
//! durable.

use uxfs_sync::{self as sync, MutexGuard};

use crate::caller::caller;
use crate::driver::JournalWait;
use crate::journal::{Journal, State, Ticket, Waiter};
use crate::leader;
use crate::pipeline::Need;
use crate::volume::{Counter, Volume};
use crate::waiters::WaitSlot;

impl<V: Volume> Journal<V> {
    /// Waits until `need` is durable, and drives the pipeline if no other thread does.
    ///
    /// # Errors
    /// [`Volume::stopped`].
    pub fn wait_for(&self, volume: &V, need: Need) -> Result<(), V::Error> {
        let state = self.state.lock();
        self.wait_in(volume, state, need, None)
    }

    /// As [`Self::wait_for`], for a caller of fsync, which the policy may let wait for others.
    ///
    /// # Errors
    /// [`Volume::stopped`].
    pub fn wait_with_others(&self, volume: &V, ticket: Ticket) -> Result<(), V::Error> {
        let mut state = self.state.lock();
        let need = state.pipeline.due(ticket.0);
        self.wait_in(volume, state, need, Some(caller()))
    }

    fn wait_in(
        &self,
        volume: &V,
        mut state: MutexGuard<'_, State>,
        need: Need,
        caller: Option<u64>,
    ) -> Result<(), V::Error> {
        let begun = sync::now();
        volume.count(Counter::LogForce, 1);
        if state.pipeline.failure().is_none() && !self.met(&state, need) {
            let slot = WaitSlot::of(need, state.pipeline.durable());
            state.pipeline.force(self.now(), need, caller, Waiter::Thread(slot));
            self.group_commit_wakeup.notify_one();
            drop(state);
            let waited = self.sleep_for(volume, need, slot);
            volume.count(Counter::LogForceSleep, 1);
            volume.count_force(sync::since(begun));
            return waited;
        }
        match state.pipeline.failure() {
            Some(failure) => Err(V::stopped(&failure.0)),
            None => Ok(()),
        }
    }

    fn sleep_for(&self, volume: &V, need: Need, slot: WaitSlot) -> Result<(), V::Error> {
        let done = |state: &State| match state.pipeline.failure() {
            Some(failure) => Some(Err(V::stopped(&failure.0))),
            None => self.met(state, need).then_some(Ok(())),
        };
        self.sleep_until_done(volume, slot, done)
    }

    /// Waits until `done` returns a result, and drives the pipeline if no other thread does.
    pub(crate) fn sleep_until_done(
        &self,
        volume: &V,
        slot: WaitSlot,
        done: impl Fn(&State) -> Option<Result<(), V::Error>>,
    ) -> Result<(), V::Error> {
        let enough = || done(&self.state.lock()).is_some();
        let wait = JournalWait { volume, journal: self, slot };
        leader::wait_for(&wait, &done, |driver| {
            self.drive(volume, driver, enough)?;
            while !enough() && self.await_others() {
                self.drive(volume, driver, enough)?;
            }
            Ok(())
        })?
    }

    /// Carries out the due actions, unless another thread drives.
    ///
    /// # Errors
    /// [`Volume::stopped`], if an action failed.
    pub fn drive_on(&self, volume: &V) -> Result<(), V::Error> {
        let wait = JournalWait { volume, journal: self, slot: WaitSlot::DATA };
        leader::drive_on(&wait, |driver| self.drive(volume, driver, || false))
    }
}
