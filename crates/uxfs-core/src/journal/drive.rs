//! Carrying out what the commit pipeline decides.
//!
//! The journal needs no thread of its own. A thread that waits for durability, or for log space, drives the
//! pipeline until it has what it wants. It wakes the waiters whose checkpoints become durable meanwhile, and
//! one of the others takes over when it leaves ([`uxfs_journal::leader`]).
//!
//! 1. One thread drives at a time. It holds no other lock while it writes or flushes. Where the policy of
//!    fsync lets flushes overlap, threads that would sleep carry out the other flushes ([`JournalWait`]).
//! 2. A failed write or flush stops the journal and the volume for good. A write that the host has no room
//!    for is tried again first ([`crate::full`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::verify::{self, BufKind};
use uxfs_journal::leader::{self, LeaderElection};
use uxfs_journal::{Action, Failure, Iclog, Need, Records, Seq};
use uxfs_sync::{self as sync, MutexGuard};

use super::caller::caller;
use super::checkpoint::{CutCheckpoint, Driver};
use super::item::{Cil, Handle};
use super::state::{Journal, State, Ticket, Waiter};
use super::waiters::{WaitSlot, WaitSlots};
use crate::buf::Run;
use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::mount::Mount;

/// Most bytes of the log written without a flush. Recovery finds holes only within the last 2 MiB
/// before the head.
const PART_MAX: usize = 1 << 20;

/// What fails, as a [`Cause`] names it.
const WRITING: &str = "writing the log";
const FLUSHING: &str = "flushing the device";

/// Most slabs kept for the copies of later checkpoints.
const SLABS_MAX: usize = 64;

/// The leader election of a volume's journal.
struct JournalWait<'a> {
    fs: &'a Mount,
    journal: &'a Journal,
    place: WaitSlot,
}

impl LeaderElection for JournalWait<'_> {
    type State = State;
    type Driver = Driver;
    type StateGuard<'b>
        = MutexGuard<'b, State>
    where
        Self: 'b;
    type DriverGuard<'b>
        = MutexGuard<'b, Driver>
    where
        Self: 'b;

    fn state(&self) -> MutexGuard<'_, State> {
        self.journal.state.lock()
    }

    fn try_drive(&self) -> Option<MutexGuard<'_, Driver>> {
        self.journal.driver.try_lock()
    }

    fn sleep<'b>(&'b self, mut state: MutexGuard<'b, State>) -> MutexGuard<'b, State> {
        let Some(id) = state.pipeline.take_flush() else {
            self.journal.waiters.at(self.place).wait(&mut state);
            return state;
        };
        drop(state);
        let flushed = self.fs.dev.flush().map_err(|e| Cause::device(FLUSHING, &e));
        let failed = flushed.clone().err();
        let flushed = flushed.map_err(|cause| failure(&cause));
        self.journal.state.lock().pipeline.flushed(self.journal.now(), id, flushed);
        // Waiters find the failure in the journal's state.
        let _told = self.fs.stop_if(self.journal, failed);
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

impl Mount {
    /// Waits until `need` is durable, and drives the pipeline if no other thread does.
    pub(crate) fn wait_for(&self, journal: &Journal, need: Need) -> Result<()> {
        let state = journal.state.lock();
        self.wait_in(journal, state, need, None)
    }

    /// As [`Self::wait_for`], for a caller of fsync, which the policy may let wait for others.
    pub(crate) fn wait_with_others(&self, journal: &Journal, ticket: Ticket) -> Result<()> {
        let mut state = journal.state.lock();
        let need = state.pipeline.due(ticket.0);
        self.wait_in(journal, state, need, Some(caller()))
    }

    fn wait_in(
        &self,
        journal: &Journal,
        mut state: MutexGuard<'_, State>,
        need: Need,
        who: Option<u64>,
    ) -> Result<()> {
        let begun = sync::now();
        self.counts.log_force.one();
        if state.pipeline.failure().is_none() && !journal.met(&state, need) {
            let place = WaitSlot::of(need, state.pipeline.durable());
            state.pipeline.force(journal.now(), need, who, Waiter::Thread(place));
            journal.group_commit_wakeup.notify_one();
            drop(state);
            let waited = self.sleep_for(journal, need, place);
            self.counts.log_force_sleep.one();
            self.counts.force_wait.add(sync::since(begun));
            return waited;
        }
        match state.pipeline.failure() {
            Some(failure) => Err(Error::Shutdown(failure.0.to_string())),
            None => Ok(()),
        }
    }

    fn sleep_for(&self, journal: &Journal, need: Need, place: WaitSlot) -> Result<()> {
        let done = |state: &State| match state.pipeline.failure() {
            Some(failure) => Some(Err(Error::Shutdown(failure.0.to_string()))),
            None => journal.met(state, need).then_some(Ok(())),
        };
        let enough = |journal: &Journal| {
            let state = journal.state.lock();
            journal.met(&state, need) || state.pipeline.failure().is_some()
        };
        let wait = JournalWait { fs: self, journal, place };
        let drive = |driver: &mut Driver| -> Result<()> {
            self.drive(journal, driver, enough)?;
            while !enough(journal) && journal.await_others() {
                self.drive(journal, driver, enough)?;
            }
            Ok(())
        };
        leader::wait_for(&wait, done, drive)?
    }

    /// Carries out the due actions, unless another thread drives.
    pub(crate) fn drive_on(&self, journal: &Journal) -> Result<()> {
        let wait = JournalWait { fs: self, journal, place: WaitSlot::DATA };
        leader::drive_on(&wait, |driver| self.drive(journal, driver, |_| false))
    }

    /// Carries out actions until `enough` or until there are none, and wakes the waiters that are
    /// due by then.
    fn drive(
        &self,
        journal: &Journal,
        driver: &mut Driver,
        enough: impl Fn(&Journal) -> bool,
    ) -> Result<()> {
        // Threads are woken together, and before anything that takes long: each wake-up costs as
        // many context switches as there are threads.
        let mut told = WaitSlots::default();
        loop {
            let enough = enough(journal);
            let action = {
                let pipeline = &mut journal.state.lock().pipeline;
                if enough { pipeline.next_wake() } else { pipeline.next_action() }
            };
            let Some(action) = action else { break };
            if !matches!(action, Action::Wake(Waiter::Thread(_), _)) {
                journal.waiters.wake(&mut told);
            }
            match action {
                Action::Cut(seq) => {
                    if let Err(error) = self.cut(journal, driver, seq) {
                        return Err(journal.fail(self, Cause::of("cutting a checkpoint", &error)));
                    }
                }
                Action::Write { part, fua, .. } => {
                    let write = || self.write_part(journal, driver, part, fua);
                    let written = self.write_with_patience(journal.options.patience, write);
                    let written = written.map_err(|error| Cause::of(WRITING, &error));
                    let failed = written.clone().err();
                    let told = written.map_err(|cause| failure(&cause));
                    journal.state.lock().pipeline.written(journal.now(), told);
                    self.stop_if(journal, failed)?;
                }
                Action::Flush(id) => {
                    let left_out = !driver.checkpoints.is_empty() && planted(Fault::FlushAfterLog);
                    let flushed = if left_out { Ok(()) } else { self.dev.flush() };
                    let flushed = flushed.map_err(|e| Cause::device(FLUSHING, &e));
                    let failed = flushed.clone().err();
                    let flushed = flushed.map_err(|cause| failure(&cause));
                    journal.state.lock().pipeline.flushed(journal.now(), id, flushed);
                    self.stop_if(journal, failed)?;
                }
                Action::Durable(seq) => self.activate(journal, driver, seq),
                Action::Wake(Waiter::Thread(place), _) => told.add(place),
                Action::Wake(Waiter::Call(told), result) => told(result),
            }
        }
        journal.waiters.wake(&mut told);
        Ok(())
    }

    fn stop_if(&self, journal: &Journal, failed: Option<Cause>) -> Result<()> {
        match failed {
            Some(cause) => Err(journal.fail(self, cause)),
            None => Ok(()),
        }
    }

    /// Takes the open checkpoint and builds its log records.
    fn cut(&self, journal: &Journal, driver: &mut Driver, seq: Seq) -> Result<()> {
        let (cil, records) = self.take(journal, driver, seq)?;
        let mut data = !cil.values.is_empty() && !planted(Fault::ValueUnflushed);
        let write = || self.write_values(&cil, journal.immediate());
        self.write_with_patience(journal.options.patience, write)?;
        data |= self.await_pending_data()? && !planted(Fault::DataUnflushed);
        let (head, tail) = {
            let state = journal.state.lock();
            (state.space.head(), state.space.tail())
        };
        let sealed = records.seal(head, tail, driver.last);
        let single = u64::from(sealed.count() > 0);
        let (count, items) = match &cil.iclog {
            Some(iclog) => (iclog.count, iclog.items),
            None => (single, cil.objects.len() as u64),
        };
        self.counts.checkpoints.add(count);
        self.counts.items.add(items);
        self.counts.items_relogged.add(cil.relogged.0);
        self.counts.bytes_relogged.add(cil.relogged.1);
        let parts = sealed.parts(journal.options.buffers, PART_MAX);
        driver.last = (sealed.count() > 0).then_some(sealed.last).or(driver.last);
        let mut state = journal.state.lock();
        state.space.write(sealed.bytes.len() as u64, cil.granted);
        if data {
            state.pipeline.data();
        }
        state.pipeline.cut(journal.now(), parts.len() as u32);
        drop(state);
        let Cil { objects, gone, intents, dones, told, .. } = cil;
        let intents = told.0.into_iter().chain(intents.into_keys()).collect();
        let dones = told.1.into_iter().chain(dones.into_iter().map(|done| done.id)).collect();
        let sealed = Some(sealed);
        let checkpoint = CutCheckpoint { seq, objects, gone, intents, dones, sealed, parts, head };
        driver.checkpoints.push_back(checkpoint);
        Ok(())
    }

    /// Takes the open checkpoint and its records.
    fn take(&self, journal: &Journal, driver: &mut Driver, seq: Seq) -> Result<(Cil, Records)> {
        let mut spare = driver.spares.pop().unwrap_or_default();
        let mut iclog = || Iclog::new(journal.geometry, core::mem::take(&mut spare));
        let iclog = journal.immediate().then(&mut iclog);
        let next = Cil::new(Seq(seq.0 + 1), iclog, core::mem::take(&mut driver.slabs));
        let mut cil = core::mem::replace(&mut *journal.cil.lock(), next);
        debug_assert_eq!(cil.seq, seq, "the pipeline and the engine count alike");
        if let Some(error) = cil.failed.take() {
            return Err(error);
        }
        let mut records = Records::new(journal.geometry, spare);
        if let Some(iclog) = &mut cil.iclog {
            core::mem::swap(&mut iclog.records, &mut records);
        } else if !cil.is_empty() {
            cil.write(&mut records, journal.tid());
        }
        driver.slabs = cil.take_slabs();
        driver.slabs.truncate(SLABS_MAX);
        Ok((cil, records))
    }

    /// Writes remote attribute values in place, before the checkpoint that refers to them.
    fn write_values(&self, cil: &Cil, dead_too: bool) -> Result<()> {
        let mut run = Run::default();
        let values = || {
            cil.values.iter().filter_map(|value| match value {
                Handle::Buf(buf) => Some(buf),
                _ => None,
            })
        };
        for buf in values() {
            let mut content = buf.content.write();
            // This checkpoint still refers to a value that a later checkpoint freed.
            let shown = content.log.died == 0 || content.log.died > cil.seq.0;
            if content.kind == BufKind::AttrRemote && (dead_too || shown) {
                let kind = content.kind;
                verify::check(&content.bytes, kind, buf.daddr(), &self.geo)?;
                verify::stamp_checksum(&mut content.bytes, kind);
                let mut at = 0;
                for piece in buf.pieces() {
                    let end = at + piece.len as usize;
                    run.add(&*self.dev, piece.daddr, &content.bytes[at..end])?;
                    at = end;
                }
            }
        }
        run.put(&*self.dev)?;
        values().for_each(|buf| self.bufs.clean(buf));
        Ok(())
    }

    /// Writes a part of the checkpoint's records.
    fn write_part(&self, journal: &Journal, driver: &Driver, part: u32, fua: bool) -> Result<()> {
        let Some((checkpoint, sealed)) =
            driver.checkpoints.front().and_then(|f| Some((f, f.sealed.as_ref()?)))
        else {
            return Err(Error::Invalid("no checkpoint is being written"));
        };
        let range = checkpoint.parts[part as usize].clone();
        let at = checkpoint.head + range.start as u64;
        let bytes = &sealed.bytes[range];
        let lost = if planted(Fault::CommitLost) { 512 } else { 0 };
        self.write_log(journal, at, &bytes[..bytes.len() - lost], fua)
    }

    /// Writes records at a position of the log, across its end.
    pub(super) fn write_log(
        &self,
        journal: &Journal,
        position: u64,
        bytes: &[u8],
        fua: bool,
    ) -> Result<()> {
        let at = position % journal.geometry.length;
        let to_end = usize::try_from(journal.geometry.length - at).unwrap_or(usize::MAX);
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        for (at, bytes) in [(at, first), (0, rest)] {
            if bytes.is_empty() {
                continue;
            }
            let daddr = uxfs_format::Daddr(journal.start.0 + at / 512);
            let written = match fua {
                true => self.log_dev.write_fua_at(daddr.bytes(), bytes),
                false => self.log_dev.write_at(daddr.bytes(), bytes),
            };
            written.map_err(|source| Error::Io { what: WRITING, daddr, source })?;
        }
        Ok(())
    }

    /// Moves the objects of a durable checkpoint to the AIL.
    fn activate(&self, journal: &Journal, driver: &mut Driver, seq: Seq) {
        let Some(mut checkpoint) = driver.checkpoints.pop_front() else { return };
        debug_assert_eq!(checkpoint.seq, seq);
        if let Some(sealed) = checkpoint.sealed.take() {
            driver.spares.push(sealed.bytes);
        }
        let mut ail = journal.ail.lock();
        // Freed objects are removed. A new object in the same place came after them.
        for object in checkpoint.objects {
            ail.insert(checkpoint.head, object);
        }
        for object in &checkpoint.gone {
            ail.remove(object);
        }
        for id in checkpoint.intents {
            ail.insert(checkpoint.head, Handle::Intent(id));
        }
        for id in checkpoint.dones {
            ail.remove(&Handle::Intent(id));
        }
        let lowest = ail.lowest().filter(|_| !planted(Fault::TailEarly));
        let next = driver.checkpoints.front().map(|checkpoint| checkpoint.head);
        let mut state = journal.state.lock();
        let tail = lowest.or(next).unwrap_or(state.space.head());
        self.move_tail(&mut state, tail);
        // Under both locks, so that a thread that finds an empty AIL knows from this whether
        // anything is in flight.
        journal.durable.store(seq.0, Ordering::Release);
        journal.note_event(&mut state);
    }

    /// Moves the tail: everything before `position` is written in place.
    pub(super) fn move_tail(&self, state: &mut State, position: u64) {
        self.counts.tail_pushes.add(u64::from(position > state.space.tail()));
        state.space.move_tail(position);
    }
}

fn failure(cause: &Cause) -> Failure {
    Failure(cause.message.as_str().into())
}

impl Journal {
    /// Sleeps until another thread's flush ends, a caller comes, or the policy's waiting time is
    /// over, because the driver has no action but not its own result. Returns false if none of
    /// these can happen.
    fn await_others(&self) -> bool {
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
