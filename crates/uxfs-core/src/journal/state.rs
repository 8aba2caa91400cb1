//! The journal of an open volume: its parts, and the account of what a commit adds.
//!
//! Locks are in the order that [`super`] gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::{Daddr, Geometry};
use uxfs_journal::{
    Action, Failure, Generation, LogGeometry, LogSpace, Need, Options, Pipeline, Seq, Time,
};

use super::ail::Ail;
use super::checkpoint::Driver;
use super::cil::Cil;
use super::freed_inodes::FreedInodes;
use super::grant_queue::GrantQueue;
use super::iclog::{self, Iclog};
use super::options::{JournalOptions, LogMode, RollPolicy};
use super::reserve::Reserve;
use super::rolled_inodes::RolledInodes;
use super::waiters::{WaitSlot, Waiters};
use crate::cause::Cause;
use crate::error::Error;
use crate::mount::Mount;
use crate::rank::Rank;
use crate::sync::{self, Condvar, Mutex, MutexGuard};

/// Durability of everything up to some moment, to be waited for or asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub(super) Need);

/// Who is told when something is durable.
pub(crate) enum Waiter {
    /// Threads that sleep here, and look for themselves.
    Thread(WaitSlot),
    /// This is called.
    Call(Notify),
}

pub(crate) struct State {
    pub(super) pipeline: Pipeline<Waiter>,
    pub(super) space: LogSpace,
    pub(super) queue: GrantQueue,
    /// Somebody wants no transaction to begin.
    pub(super) held_back: u32,
    /// When the service looks what there is to do though nobody tells it; the beginning of time while
    /// it is awake.
    pub(super) sleeps_until: Time,
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
    pub(super) bytes: u64,
    /// No more than had been promised.
    pub(super) enough: bool,
}

/// The journal of an open volume.
pub(crate) struct Journal {
    pub(super) geometry: LogGeometry,
    pub(super) options: JournalOptions,
    /// Bytes that may gather, where log buffers are limited, until those on their way are down.
    pub(super) iclog_max: u64,
    pub(super) start: Daddr,
    pub(super) begun: Time,
    pub(super) cil: Mutex<Cil>,
    pub(super) ail: Mutex<Ail>,
    pub(super) state: Mutex<State>,
    pub(super) waiters: Waiters,
    /// Where those wait who would begin a transaction while that is not wanted.
    pub(super) released: Condvar,
    /// Wakes the driver, when it lets those who wait wait for others.
    pub(super) group_commit_wakeup: Condvar,
    /// Wakes the service.
    pub(super) nudge: Condvar,
    /// Is there a service?
    pub(super) served: AtomicBool,
    pub(super) driver: Mutex<Driver>,
    pub(super) push_lock: Mutex<()>,
    pub(super) durable: AtomicU64,
    pub(super) batches_begun: AtomicU64,
    pub(super) batches_ended: AtomicU64,
    pub(super) next_tid: AtomicU64,
    pub(super) next_intent: AtomicU64,
    pub(super) roll_policy: RollPolicy,
    pub(crate) reserve: Reserve,
    pub(super) grant_event: Condvar,
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
            true => iclog::half(options.buffers, geometry.buffer),
            false => options.pipeline.size_max,
        };
        let size_max = wanted.min(geometry.length / 8);
        let pipeline = Pipeline::new(Options { size_max, ..options.pipeline });
        let iclog = immediate.then(|| Iclog::new(geometry, Vec::new()));
        let head = u64::from(place.cycle) * geometry.length + u64::from(place.block) * 512;
        let space = LogSpace::new(geometry.length, head);
        Self {
            cil: Mutex::ranked(Rank::Cil, Cil::new(pipeline.open_seq(), iclog, Vec::new())),
            ail: Mutex::ranked(Rank::Ail, Ail::default()),
            state: Mutex::ranked(
                Rank::Journal,
                State {
                    pipeline,
                    space,
                    queue: GrantQueue::default(),
                    held_back: 0,
                    sleeps_until: Time(0),
                },
            ),
            waiters: Waiters::default(),
            released: Condvar::new(),
            group_commit_wakeup: Condvar::new(),
            nudge: Condvar::new(),
            served: AtomicBool::new(false),
            driver: Mutex::ranked(Rank::Driver, Driver::default()),
            push_lock: Mutex::ranked(Rank::Push, ()),
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
    pub(super) fn immediate(&self) -> bool {
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

    pub(crate) fn now(&self) -> Time {
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
    pub(crate) fn cil(&self) -> MutexGuard<'_, Cil> {
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

    /// The last checkpoint that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// How many batches of writes in place have begun.
    pub(crate) fn batches_begun(&self) -> u64 {
        self.batches_begun.load(Ordering::Acquire)
    }

    /// How many batches of writes in place have ended.
    pub(crate) fn batches_ended(&self) -> u64 {
        self.batches_ended.load(Ordering::Acquire)
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
    /// Objects in it that are not written in place.
    pub objects: u64,
}

/// Called when what a ticket stands for is durable, or cannot be any more.
pub(crate) type Notify = Box<dyn FnOnce(core::result::Result<(), Failure>) + Send>;

impl Journal {
    /// How full the log is.
    pub(crate) fn log_load(&self) -> LogLoad {
        let (live, objects) = self.load();
        LogLoad { bytes: self.geometry.length, live, objects: objects as u64 }
    }

    /// Everything committed and written so far, as something to wait for.
    pub(crate) fn ticket(&self) -> Ticket {
        let state = self.state.lock();
        Ticket(Need { seq: state.pipeline.last(), data: state.pipeline.data_written() })
    }

    /// Checkpoint `seq` and all data written so far, as something to wait for.
    pub(crate) fn ticket_of(&self, seq: u64) -> Ticket {
        let data = self.state.lock().pipeline.data_written();
        Ticket(Need { seq: Seq(seq), data })
    }

    /// Is everything that the ticket stands for on stable storage?
    pub(crate) fn is_ticket_durable(&self, ticket: Ticket) -> bool {
        planted(Fault::WokenEarly) || self.met(&self.state.lock(), ticket.0)
    }

    /// Calls `notify` when what the ticket stands for is durable; now, if it is. Says whether there is
    /// something to be done first. `caller` tells the policy of fsync who asks.
    pub(crate) fn notify_when(&self, caller: u64, ticket: Ticket, notify: Notify) -> bool {
        let mut state = self.state.lock();
        let need = state.pipeline.due(ticket.0);
        let known = match state.pipeline.failure() {
            Some(failure) => Some(Err(failure.clone())),
            None => self.met(&state, need).then_some(Ok(())),
        };
        if let Some(result) = known {
            drop(state);
            notify(result);
            return false;
        }
        state.pipeline.force(self.now(), need, Some(caller), Waiter::Call(notify));
        self.group_commit_wakeup.notify_one();
        true
    }

    /// Wakes the log worker.
    pub(crate) fn nudge_worker(&self) {
        self.nudge.notify_one();
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
    pub(super) fn met(&self, state: &State, need: Need) -> bool {
        state.pipeline.met(need) && self.is_durable(need.seq.0)
    }

    pub(crate) fn fail(&self, fs: &Mount, cause: impl Into<Cause>) -> Error {
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
