//! The journal of an open volume: its parts, and the log space that commits use.
//!
//! [`uxfs_sync::Rank`] gives the order of locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::{Daddr, Geometry};
use uxfs_journal::{
    Action, Failure, Generation, Iclog, LogGeometry, LogSpace, Need, Options, Pipeline, Seq, Time,
    iclog_half,
};
use uxfs_sync::{self as sync, Condvar, Mutex, MutexGuard, Rank};

use super::checkpoint::Driver;
use super::freed_inodes::FreedInodes;
use super::grant_queue::GrantQueue;
use super::item::{Ail, Cil};
use super::options::{JournalOptions, LogMode, RollPolicy};
use super::reserve::Reserve;
use super::rolled_inodes::RolledInodes;
use super::waiters::{WaitSlot, Waiters};
use crate::cause::Cause;
use crate::error::Error;
use crate::mount::Mount;

/// The durability of everything up to a point in time, to wait for or to ask about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub(super) Need);

/// A waiter for durability.
pub(crate) enum Waiter {
    /// Threads that sleep in this slot and check for themselves.
    Thread(WaitSlot),
    /// A callback.
    Call(Notify),
}

pub(crate) struct State {
    pub(super) pipeline: Pipeline<Waiter>,
    pub(super) space: LogSpace,
    pub(super) queue: GrantQueue,
    /// Number of callers that hold back new transactions.
    pub(super) held_back: u32,
    /// Time until which the log worker sleeps; zero while it is awake.
    pub(super) sleeps_until: Time,
}

/// The position at which the next writer of a clean log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    /// Device address of the log.
    pub(crate) start: Daddr,
    /// Cycle of the next record.
    pub(crate) cycle: u32,
    /// Block of the next record.
    pub(crate) block: u32,
}

/// What a commit added to the open checkpoint.
#[must_use = "the journal is to be told"]
pub(crate) struct Added {
    pub(super) bytes: u64,
    /// The grant was large enough.
    pub(super) enough: bool,
}

/// The journal of an open volume.
pub(crate) struct Journal {
    pub(super) geometry: LogGeometry,
    pub(super) options: JournalOptions,
    /// Most bytes of the open checkpoint while earlier log writes are in flight, if the number of
    /// log buffers is limited.
    pub(super) iclog_max: u64,
    pub(super) start: Daddr,
    pub(super) begun: Time,
    pub(super) cil: Mutex<Cil>,
    pub(super) ail: Mutex<Ail>,
    pub(super) state: Mutex<State>,
    pub(super) waiters: Waiters,
    /// Wakes threads that want to begin a transaction while new ones are held back.
    pub(super) released: Condvar,
    /// Wakes the driver while it lets callers wait for others.
    pub(super) group_commit_wakeup: Condvar,
    /// Wakes the log worker.
    pub(super) nudge: Condvar,
    /// Is there a log worker?
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
    /// The journal of a volume with a clean log.
    pub(crate) fn new(
        geo: &Geometry,
        place: LogPlace,
        geometry: LogGeometry,
        options: JournalOptions,
        seed: u64,
    ) -> Self {
        // A checkpoint may be cut one transaction late, and must fit in the log together with the
        // checkpoint in flight and all open transactions.
        let immediate = options.mode == LogMode::Immediate;
        let wanted = match immediate {
            true => iclog_half(options.buffers, geometry.buffer),
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

    /// Is each transaction written to the log on its own (`nodelaylog`)?
    pub(super) fn immediate(&self) -> bool {
        self.options.mode == LogMode::Immediate
    }

    /// How long to wait for a full host before the volume stops.
    pub(crate) fn patience(&self) -> std::time::Duration {
        self.options.patience
    }

    /// Must every change be durable before its call returns?
    pub(crate) fn wsync(&self) -> bool {
        self.options.wsync
    }

    /// The id of the next log transaction.
    pub(crate) fn tid(&self) -> u32 {
        self.next_tid.fetch_add(0x9e37_79b9, Ordering::Relaxed) as u32
    }

    pub(crate) fn now(&self) -> Time {
        Time(sync::now().0.saturating_sub(self.begun.0))
    }

    /// When transactions roll.
    pub(crate) fn roll_policy(&self) -> RollPolicy {
        self.roll_policy
    }

    /// The geometry of log records.
    pub(crate) fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// Number of a new intent.
    pub(crate) fn new_intent(&self) -> u64 {
        self.next_intent.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks the open checkpoint, to add a transaction's items.
    pub(crate) fn cil(&self) -> MutexGuard<'_, Cil> {
        self.cil.lock()
    }

    /// Accounts for a transaction whose items were added to `cil`, with `granted` bytes of log
    /// space. What it did not use stays in `granted`.
    pub(crate) fn taken_in(&self, cil: &mut Cil, granted: &mut u64) -> Added {
        let needed = cil.most_bytes(&self.geometry);
        let added = needed.saturating_sub(cil.granted);
        debug_assert!(added <= *granted, "{added} bytes logged of {granted} granted");
        let enough = added <= *granted;
        if !enough {
            // The account must cover all that is written.
            self.state.lock().space.overrun(added - *granted);
            *granted = added;
        }
        *granted -= added;
        cil.granted += added;
        Added { bytes: added, enough }
    }

    /// Reports a commit, after the open checkpoint was unlocked: commits wait for each other at
    /// that lock. Releases `left` bytes of its grant. Returns `false` if the grant was too small.
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
        // A woken thread may take the processor at once.
        if nudged {
            self.nudge.notify_one();
        }
        if due {
            self.group_commit_wakeup.notify_one();
        }
        added.enough
    }

    /// Reports a completed write of data, on which later commits may depend.
    pub(crate) fn data_written(&self) -> Generation {
        self.state.lock().pipeline.data()
    }

    /// The last checkpoint that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Number of batches of writes in place that have begun.
    pub(crate) fn batches_begun(&self) -> u64 {
        self.batches_begun.load(Ordering::Acquire)
    }

    /// Number of batches of writes in place that have ended.
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
    /// Bytes between tail and head, which recovery would read.
    pub live: u64,
    /// Objects in the AIL.
    pub objects: u64,
}

/// Called when a ticket's changes are durable, or can no longer become durable.
pub(crate) type Notify = Box<dyn FnOnce(core::result::Result<(), Failure>) + Send>;

impl Journal {
    /// How full the log is.
    pub(crate) fn log_load(&self) -> LogLoad {
        let (live, objects) = self.load();
        LogLoad { bytes: self.geometry.length, live, objects: objects as u64 }
    }

    /// A ticket for everything committed and written so far.
    pub(crate) fn ticket(&self) -> Ticket {
        let state = self.state.lock();
        Ticket(Need { seq: state.pipeline.last(), data: state.pipeline.data_written() })
    }

    /// A ticket for checkpoint `seq` and all data written so far.
    pub(crate) fn ticket_of(&self, seq: u64) -> Ticket {
        let data = self.state.lock().pipeline.data_written();
        Ticket(Need { seq: Seq(seq), data })
    }

    /// Is everything that the ticket covers durable?
    pub(crate) fn is_ticket_durable(&self, ticket: Ticket) -> bool {
        planted(Fault::WokenEarly) || self.met(&self.state.lock(), ticket.0)
    }

    /// Calls `notify` when the ticket is durable, at once if it is. Returns whether the journal has
    /// to be driven first. `caller` identifies the caller for the fsync policy.
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
    /// Live bytes of the log, and number of objects in the AIL.
    pub(crate) fn load(&self) -> (u64, usize) {
        let active = self.ail.lock().len();
        (self.state.lock().space.live(), active)
    }

    /// Live bytes of the log up to which a writer need not push the AIL itself.
    pub(crate) fn comfortable(&self) -> u64 {
        match self.served.load(Ordering::Relaxed) {
            true => self.geometry.length / 4 * 3,
            false => self.geometry.length / 2,
        }
    }

    /// Is everything in `need` durable, and are its objects in the AIL?
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
        // No other thread may be left to drive.
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
