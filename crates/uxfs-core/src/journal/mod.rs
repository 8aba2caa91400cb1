//! The journal: what makes every committed change survive, in XFS' own log.
//!
//! A committed transaction's objects go into the gathering checkpoint ([`cil`]), with copies of
//! what is to be logged of them ([`copies`], [`items`]). When it is cut, these become log records;
//! once these are on stable storage the objects are *active* ([`ail`]): they may be written in place
//! ([`push_lock`]), and while any is not, the log's tail stays before its record.
//! [`uxfs_journal::Pipeline`] decides when; threads that wait for something carry out what it decides
//! ([`drive`]).
//!
//! 1. An object is written in place only when all that it shows is in durable checkpoints, with the
//!    LSN of the last of them.
//! 2. A checkpoint holds whole transactions, of which nothing changes between its last commit and its
//!    being written: it holds copies. Of a chain that it cuts apart it holds an intent for every step
//!    still owed ([`intents`]).
//! 3. File data, and remote attribute values, are written before the checkpoint that shows them is,
//!    into blocks whose last owner's loss of them is durable ([`busy`]).
//! 4. Log space is promised before a transaction enters the gate, and before a chain enters it again
//!    ([`room`]): inside, nobody waits for log space.
//! 5. Inside the gate nobody waits for an inode's lock; outside it only chains keep one, of which
//!    they leave a copy ([`rolled_inodes`]). So whoever shuts transactions out waits for none of them.
//!
//! Locks: the gate, the gathering checkpoint, an object, the active list, the journal's state; `driver`
//! and `push_lock` are held across I/O, and taken before all of these.

mod ail;
mod busy;
mod cil;
mod copies;
mod drive;
mod freed_inodes;
mod grant;
mod immediate;
mod intents;
mod items;
mod log_worker;
mod options;
mod push;
mod quiesce;
pub(crate) mod reserve;
mod rolled_inodes;
#[cfg(test)]
mod tests;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::{Daddr, Geometry};
use uxfs_journal::{Action, Generation, LogGeometry, LogSpace, Need, Options, Pipeline, Seq, Time};

pub(crate) use busy::Busy;
pub(crate) use cil::Cil;
pub(crate) use grant::{Grant, GrantTicket};
pub(crate) use immediate::ImmediateWriter;
pub use intents::RollPolicy;
pub(crate) use intents::{done, intent};
pub use log_worker::LogWorker;
pub use options::{JournalOptions, LogMode};
pub(crate) use reserve::Op;
pub use uxfs_journal::{Failure, LogWorkOptions, Options as PipelineOptions};

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::sync::{self, Condvar, Mutex};
use ail::Ail;
use drive::Driver;
use freed_inodes::FreedInodes;
use grant::GrantQueue;
use immediate::Iclog;
use reserve::Reserve;
use rolled_inodes::RolledInodes;
use waiters::{WaitSlot, Waiters};

/// Durability of everything up to some moment, to be waited for or asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(Need);

/// Who is told when something is durable.
pub(crate) enum Waiter {
    /// Threads that sleep here, and look for themselves.
    Thread(WaitSlot),
    /// This is called.
    Call(Box<dyn FnOnce(core::result::Result<(), Failure>) + Send>),
}

pub(crate) struct State {
    pipeline: Pipeline<Waiter>,
    space: LogSpace,
    queue: GrantQueue,
    /// Somebody wants no transaction to begin.
    held_back: u32,
    /// When the service looks what there is to do though nobody tells it; the beginning of time while
    /// it is awake.
    sleeps_until: Time,
}

/// What a clean log tells the next writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    /// Where the log lies.
    pub(crate) start: Daddr,
    /// Cycle of the next record.
    pub(crate) cycle: u32,
    /// Block of the next record.
    pub(crate) block: u32,
}

/// What a transaction added to the gathering checkpoint.
#[must_use = "the journal is to be told"]
pub(crate) struct Added {
    bytes: u64,
    /// No more than had been promised.
    enough: bool,
}

/// The journal of an open volume.
pub(crate) struct Journal {
    geometry: LogGeometry,
    options: JournalOptions,
    /// Bytes that may gather, where log buffers are limited, until those on their way are down.
    iclog_max: u64,
    start: Daddr,
    begun: Time,
    cil: Mutex<Cil>,
    ail: Mutex<Ail>,
    state: Mutex<State>,
    waiters: Waiters,
    /// Where those wait who would begin a transaction while that is not wanted.
    released: Condvar,
    /// Wakes the driver, when it lets those who wait wait for others.
    group_commit_wakeup: Condvar,
    /// Wakes the service.
    nudge: Condvar,
    /// Is there a service?
    served: AtomicBool,
    driver: Mutex<Driver>,
    push_lock: Mutex<()>,
    durable: AtomicU64,
    batches_begun: AtomicU64,
    batches_ended: AtomicU64,
    next_tid: AtomicU64,
    next_intent: AtomicU64,
    roll_policy: RollPolicy,
    pub(crate) reserve: Reserve,
    grant_event: Condvar,
    pub(crate) rolled_inodes: RolledInodes,
    pub(crate) freed_inodes: FreedInodes,
}

impl Journal {
    /// A journal over a clean log.
    pub(crate) fn new(
        geo: &Geometry,
        place: LogPlace,
        geometry: LogGeometry,
        options: JournalOptions,
        seed: u64,
    ) -> Self {
        // A checkpoint may be cut a transaction late, and must fit the log together with one that
        // is on its way and those transactions that are open.
        let immediate = options.mode == LogMode::Immediate;
        let wanted = match immediate {
            true => immediate::half(options.buffers, geometry.buffer),
            false => options.pipeline.size_max,
        };
        let size_max = wanted.min(geometry.length / 8);
        let pipeline = Pipeline::new(Options { size_max, ..options.pipeline });
        let iclog = immediate.then(|| Iclog::new(geometry, Vec::new()));
        let head = u64::from(place.cycle) * geometry.length + u64::from(place.block) * 512;
        let space = LogSpace::new(geometry.length, head);
        Self {
            cil: Mutex::new(Cil::new(pipeline.open_seq(), iclog, Vec::new())),
            ail: Mutex::default(),
            state: Mutex::new(State {
                pipeline,
                space,
                queue: GrantQueue::default(),
                held_back: 0,
                sleeps_until: Time(0),
            }),
            waiters: Waiters::default(),
            released: Condvar::new(),
            group_commit_wakeup: Condvar::new(),
            nudge: Condvar::new(),
            served: AtomicBool::new(false),
            driver: Mutex::default(),
            push_lock: Mutex::default(),
            durable: AtomicU64::new(0),
            batches_begun: AtomicU64::new(0),
            batches_ended: AtomicU64::new(0),
            next_tid: AtomicU64::new(seed | 1),
            next_intent: AtomicU64::new(seed | 1),
            roll_policy: options.roll_policy,
            reserve: Reserve::new(geo, geometry),
            grant_event: Condvar::new(),
            rolled_inodes: RolledInodes::default(),
            freed_inodes: FreedInodes::default(),
            begun: sync::now(),
            start: place.start,
            geometry,
            options,
            iclog_max: 2 * size_max,
        }
    }

    /// Is each transaction logged by itself?
    fn immediate(&self) -> bool {
        self.options.mode == LogMode::Immediate
    }

    /// How long a host without room is waited for, before the volume stops.
    pub(crate) fn patience(&self) -> std::time::Duration {
        self.options.patience
    }

    /// Is every change to be durable before its call returns?
    pub(crate) fn wsync(&self) -> bool {
        self.options.wsync
    }

    /// The number of the next transaction of the log.
    pub(crate) fn tid(&self) -> u32 {
        self.next_tid.fetch_add(0x9e37_79b9, Ordering::Relaxed) as u32
    }

    fn now(&self) -> Time {
        Time(sync::now().0.saturating_sub(self.begun.0))
    }

    /// When chains are cut apart.
    pub(crate) fn roll_policy(&self) -> RollPolicy {
        self.roll_policy
    }

    /// What all records have in common.
    pub(crate) fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// Number of a new intent.
    pub(crate) fn new_intent(&self) -> u64 {
        self.next_intent.fetch_add(1, Ordering::Relaxed)
    }

    /// The gathering checkpoint, to take in what a transaction changed.
    pub(crate) fn cil(&self) -> parking_lot::MutexGuard<'_, Cil> {
        self.cil.lock()
    }

    /// A transaction's objects were taken into `cil`, for which `granted` bytes of the log had
    /// been promised before; what is left of that is left in it.
    pub(crate) fn taken_in(&self, cil: &mut Cil, granted: &mut u64) -> Added {
        let needed = cil.most_bytes(&self.geometry);
        let added = needed.saturating_sub(cil.granted);
        debug_assert!(added <= *granted, "{added} bytes logged of {granted} granted");
        let enough = added <= *granted;
        if !enough {
            // The account must not fall short: what is written must have been promised.
            self.state.lock().space.overrun(added - *granted);
            *granted = added;
        }
        *granted -= added;
        cil.granted += added;
        Added { bytes: added, enough }
    }

    /// A transaction was committed, and the gathering checkpoint let go of: those who commit wait for
    /// each other there. `left` of what was promised to it is taken back. `false` if that had been too
    /// little.
    #[must_use = "an overrun is to be counted"]
    pub(crate) fn committed(&self, added: Added, left: u64) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let first = state.pipeline.is_empty();
        state.pipeline.commit(now, added.bytes);
        state.space.release(left);
        let (nudged, due) = (self.has_chores(&state, first), state.pipeline.has_actions());
        self.note_event(&mut state);
        drop(state);
        // Who is woken may take the processor at once.
        if nudged {
            self.nudge.notify_one();
        }
        if due {
            self.group_commit_wakeup.notify_one();
        }
        added.enough
    }

    /// A write of data has ended, on which what commits from now on may depend.
    pub(crate) fn data_written(&self) -> Generation {
        self.state.lock().pipeline.data()
    }

    /// Is the checkpoint durable?
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= seq
    }
}

/// How full the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLoad {
    /// Bytes of the log.
    pub bytes: u64,
    /// Bytes between its tail and its head: what recovery would read.
    pub live: u64,
    /// Objects in it that are not home.
    pub objects: u64,
}

impl Fs {
    /// How full the log is; nothing without a journal.
    pub fn log_load(&self) -> LogLoad {
        self.journal.as_ref().map_or_else(LogLoad::default, |journal| {
            let (live, objects) = journal.load();
            LogLoad { bytes: journal.geometry.length, live, objects: objects as u64 }
        })
    }

    /// Everything done so far, as something to wait for; of data that was not written back yet
    /// ([`crate::OpenOptions::writeback`]), see [`Fs::begin_sync`].
    pub fn ticket(&self) -> Ticket {
        let Some(journal) = &self.journal else { return Ticket(Need::default()) };
        let state = journal.state.lock();
        Ticket(Need { seq: state.pipeline.last(), data: state.pipeline.data_written() })
    }

    /// Does what `call` does, and gives a ticket for it besides its result.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn ticketed<R>(&self, call: impl FnOnce(&Self) -> Result<R>) -> Result<(R, Ticket)> {
        let result = call(self)?;
        Ok((result, self.ticket()))
    }

    /// Is everything that the ticket stands for on stable storage?
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        planted(Fault::WokenEarly)
            || self.journal.as_ref().is_none_or(|j| j.met(&j.state.lock(), ticket.0))
    }

    /// Waits until everything that the ticket stands for is on stable storage.
    ///
    /// # Errors
    /// [`Error::Shutdown`] if that can no longer be.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        match &self.journal {
            Some(journal) => self.wait_with_others(journal, ticket.0),
            None => Ok(()),
        }
    }

    /// Calls `told` once everything that the ticket stands for is on stable storage, or cannot be
    /// any more: by this call if that is known already, else by the [`LogWorker`], or by a thread that
    /// waits for something itself. It must not wait.
    pub fn when_durable(
        &self,
        ticket: Ticket,
        told: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        self.when_durable_for(drive::caller(), ticket, told);
    }

    /// As [`Fs::when_durable`], on behalf of `who`: a number that tells apart those who come again and
    /// again, where one thread asks for many of them. The policy of fsync goes by it.
    pub fn when_durable_for(
        &self,
        who: u64,
        ticket: Ticket,
        told: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        if let Some(journal) = self.tell_when(who, ticket, told) {
            journal.nudge.notify_one();
        }
    }

    /// As [`Fs::when_durable_for`]; but what there is to do for it is done by this call, unless another
    /// thread does it: for who has nothing else to do, and need not wake the [`LogWorker`] for it. What is
    /// left when it returns is the service's.
    pub fn make_durable_for(
        &self,
        who: u64,
        ticket: Ticket,
        told: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        if let Some(journal) = self.tell_when(who, ticket, told) {
            // A failure is told to all who wait.
            let _told = self.drive_on(journal);
        }
    }

    /// Has somebody told when the ticket's time has come; now, if it has. The journal, if there is
    /// something to be done first.
    fn tell_when(
        &self,
        who: u64,
        ticket: Ticket,
        told: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) -> Option<&Journal> {
        let Some(journal) = &self.journal else {
            told(Ok(()));
            return None;
        };
        let mut state = journal.state.lock();
        let need = state.pipeline.due(ticket.0);
        let known = match state.pipeline.failure() {
            Some(failure) => Some(Err(failure.clone())),
            None => journal.met(&state, need).then_some(Ok(())),
        };
        if let Some(result) = known {
            drop(state);
            told(result);
            return None;
        }
        let waiter = Waiter::Call(Box::new(told));
        state.pipeline.force(journal.now(), need, Some(who), waiter);
        journal.group_commit_wakeup.notify_one();
        Some(journal)
    }

    /// Checkpoint `seq` and all data written so far, as something to wait for.
    pub(crate) fn ticket_of(&self, seq: u64) -> Ticket {
        let Some(journal) = &self.journal else { return Ticket(Need::default()) };
        let data = journal.state.lock().pipeline.data_written();
        Ticket(Need { seq: Seq(seq), data })
    }
}

impl Journal {
    /// Bytes of the log between head and tail, and objects that are not home.
    pub(crate) fn load(&self) -> (u64, usize) {
        let active = self.ail.lock().len();
        (self.state.lock().space.live(), active)
    }

    /// Bytes of the log in which a writer may run ahead before it sends objects home itself.
    pub(crate) fn comfortable(&self) -> u64 {
        match self.served.load(Ordering::Relaxed) {
            true => self.geometry.length / 4 * 3,
            false => self.geometry.length / 2,
        }
    }

    /// Is what `need` names durable, and its objects active?
    fn met(&self, state: &State, need: Need) -> bool {
        state.pipeline.met(need) && self.is_durable(need.seq.0)
    }

    pub(crate) fn fail(&self, fs: &Fs, cause: impl Into<Cause>) -> Error {
        let cause = cause.into();
        let now_told = Error::Shutdown(cause.to_string());
        self.state.lock().pipeline.fail(Failure(Arc::from(cause.message.as_str())));
        fs.shut_down(cause);
        self.waiters.wake_all();
        self.released.notify_all();
        self.group_commit_wakeup.notify_all();
        self.note_event(&mut self.state.lock());
        self.nudge.notify_all();
        // There may be nobody any more who would drive.
        loop {
            let action = self.state.lock().pipeline.next_wake();
            match action {
                Some(Action::Wake(Waiter::Call(told), result)) => told(result),
                Some(_) => {}
                None => break,
            }
        }
        now_told
    }
}
