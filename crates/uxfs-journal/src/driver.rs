//! The driver: carries out what the commit pipeline decides.
//!
//! A thread that waits for durability, or for log space, drives the pipeline until it has what it wants. It
//! wakes the waiters whose checkpoints become durable meanwhile, and one of the others takes over when it
//! leaves ([`crate::leader`]).
//!
//! 1. One thread drives at a time. It holds no other lock while it writes or flushes. Where the policy of
//!    fsync lets flushes overlap, threads that would sleep carry out the other flushes ([`JournalWait`]).
//! 2. A failed write or flush stops the journal and the volume for good. A write that the host has no room
//!    for is tried again first ([`Volume::retry_write`]).
//!
//! Called by [`crate::force`].

use std::time::Duration;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Daddr;
use uxfs_sync::MutexGuard;

use crate::checkpoint::Driver;
use crate::journal::{Journal, State, Waiter};
use crate::leader::LeaderElection;
use crate::log_pos::LogPos;
use crate::pipeline::{Action, Failure};
use crate::volume::Volume;
use crate::waiters::{WaitSlot, WaitSlots};

/// What fails, as a cause names it.
const WRITING: &str = "writing the log";

/// The leader election of a volume's journal.
pub(crate) struct JournalWait<'a, V: Volume> {
    pub(crate) volume: &'a V,
    pub(crate) journal: &'a Journal<V>,
    pub(crate) slot: WaitSlot,
}

impl<V: Volume> LeaderElection for JournalWait<'_, V> {
    type State = State;
    type Driver = Driver<V::Item>;
    type StateGuard<'b>
        = MutexGuard<'b, State>
    where
        Self: 'b;
    type DriverGuard<'b>
        = MutexGuard<'b, Driver<V::Item>>
    where
        Self: 'b;

    fn state(&self) -> MutexGuard<'_, State> {
        self.journal.state.lock()
    }

    fn try_drive(&self) -> Option<MutexGuard<'_, Driver<V::Item>>> {
        self.journal.driver.try_lock()
    }

    fn sleep<'b>(&'b self, mut state: MutexGuard<'b, State>) -> MutexGuard<'b, State> {
        let Some(id) = state.pipeline.take_flush() else {
            self.journal.waiters.at(self.slot).wait(&mut state);
            return state;
        };
        drop(state);
        let flushed = self.volume.flush();
        let result = flushed.as_ref().copied().map_err(failure);
        self.journal.state.lock().pipeline.flushed(self.journal.now(), id, result);
        // Waiters find the failure in the journal's state.
        let _reported = self.journal.stop_if_failed(self.volume, flushed);
        let state = self.journal.state.lock();
        self.journal.group_commit_wakeup.notify_all();
        self.wake_one();
        state
    }

    fn wake_one(&self) {
        self.journal.waiters.wake_one_each();
        self.journal.nudge.notify_one();
    }

    fn has_work(&self, state: &State) -> bool {
        let left = state.pipeline.has_actions() || state.pipeline.is_under_way();
        left && self.journal.driver.try_lock().is_some()
    }
}

fn failure(cause: &impl std::fmt::Display) -> Failure {
    Failure(cause.to_string().into())
}

impl<V: Volume> Journal<V> {
    /// Carries out actions until `enough` or until there are none, and wakes the waiters that are
    /// due by then.
    pub(crate) fn drive(
        &self,
        volume: &V,
        driver: &mut Driver<V::Item>,
        enough: impl Fn() -> bool,
    ) -> Result<(), V::Error> {
        // Threads are woken together, and before anything that takes long: each wake-up costs as
        // many context switches as there are threads.
        let mut woken = WaitSlots::default();
        loop {
            let enough = enough();
            let action = {
                let pipeline = &mut self.state.lock().pipeline;
                if enough { pipeline.next_wake() } else { pipeline.next_action() }
            };
            let Some(action) = action else { break };
            if !matches!(action, Action::Wake(Waiter::Thread(_), _)) {
                self.waiters.wake(&mut woken);
            }
            match action {
                Action::Cut(seq) => {
                    if let Err(error) = self.cut(volume, driver, seq) {
                        let cause = V::cause("cutting a checkpoint", &error);
                        return Err(self.fail(volume, cause));
                    }
                }
                Action::Write { part, fua, .. } => {
                    let mut write = || self.write_part(volume, driver, part, fua);
                    let written = volume.retry_write(&self.options, &mut write);
                    let written = written.map_err(|error| V::cause(WRITING, &error));
                    let result = written.as_ref().copied().map_err(failure);
                    self.state.lock().pipeline.written(self.now(), result);
                    self.stop_if_failed(volume, written)?;
                }
                Action::Flush(id) => {
                    let left_out = !driver.checkpoints.is_empty() && planted(Fault::FlushAfterLog);
                    let flushed = if left_out { Ok(()) } else { volume.flush() };
                    let result = flushed.as_ref().copied().map_err(failure);
                    self.state.lock().pipeline.flushed(self.now(), id, result);
                    self.stop_if_failed(volume, flushed)?;
                }
                Action::Durable(seq) => self.activate(volume, driver, seq),
                Action::Wake(Waiter::Thread(slot), _) => woken.add(slot),
                Action::Wake(Waiter::Call(notify), result) => notify(result),
            }
        }
        self.waiters.wake(&mut woken);
        Ok(())
    }

    fn stop_if_failed(&self, volume: &V, result: Result<(), V::Cause>) -> Result<(), V::Error> {
        result.map_err(|cause| self.fail(volume, cause))
    }

    /// Writes a part of the checkpoint's records.
    fn write_part(
        &self,
        volume: &V,
        driver: &Driver<V::Item>,
        part: u32,
        fua: bool,
    ) -> Result<(), V::Error> {
        let Some((checkpoint, sealed)) =
            driver.checkpoints.front().and_then(|front| Some((front, front.sealed.as_ref()?)))
        else {
            return Err(V::stopped("no checkpoint is being written"));
        };
        let range = checkpoint.parts[part as usize].clone();
        let at = checkpoint.head + range.start as u64;
        let bytes = &sealed.bytes[range];
        let lost = if planted(Fault::CommitLost) { 512 } else { 0 };
        self.write_log(volume, at, &bytes[..bytes.len() - lost], fua)
    }

    /// Writes records at a position of the log, across its end.
    pub(crate) fn write_log(
        &self,
        volume: &V,
        position: LogPos,
        bytes: &[u8],
        fua: bool,
    ) -> Result<(), V::Error> {
        let at = position.0 % self.geometry.length;
        let to_end = usize::try_from(self.geometry.length - at).unwrap_or(usize::MAX);
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        for (at, bytes) in [(at, first), (0, rest)] {
            if !bytes.is_empty() {
                volume.write_log(Daddr(self.start.0 + at / 512), bytes, fua)?;
            }
        }
        Ok(())
    }

    /// Sleeps until another thread's flush ends, a caller comes, or the policy's waiting time is
    /// over, because the driver has no action but not its own result. Returns false if none of
    /// these can happen.
    pub(crate) fn await_others(&self) -> bool {
        let mut state = self.state.lock();
        if state.pipeline.has_actions() {
            return true;
        }
        if !state.pipeline.is_under_way() {
            return false;
        }
        match state.pipeline.next_decision() {
            Some(until) => {
                let span = Duration::from_nanos(until.0.saturating_sub(self.now().0));
                self.group_commit_wakeup.wait_for(&mut state, span);
            }
            None => self.group_commit_wakeup.wait(&mut state),
        }
        state.pipeline.tick(self.now());
        true
    }
}
