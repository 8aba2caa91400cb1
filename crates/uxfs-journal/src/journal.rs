//! The journal of an open volume: its parts, and the log space that commits use.
//!
//! 1. [`uxfs_sync::Rank`] gives the order of locks. `driver` and `push_lock` are held across I/O.
//!
//! Called by the engine: transactions, waiters for durability, and the log worker.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::{Daddr, Lsn};
use uxfs_sync::{self as sync, Condvar, Mutex, MutexGuard, Rank, Time};

use crate::ail::Ail;
use crate::checkpoint::Driver;
use crate::grant_queue::GrantQueue;
use crate::iclog::{Iclog, iclog_half};
use crate::options::{JournalOptions, LogMode, RollPolicy};
use crate::pipeline::{Action, Failure, Generation, Need, Options, Pipeline, Seq};
use crate::records::LogGeometry;
use crate::space::LogSpace;
use crate::volume::{Volume, VolumeCil};
use crate::waiters::{WaitSlot, Waiters};

/// The durability of everything up to a point in time, to wait for or to ask about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub Need);

/// A waiter for durability.
pub(crate) enum Waiter {
    /// Threads that sleep in this slot and check for themselves.
    Thread(WaitSlot),
    /// A callback.
    Call(Notify),
}

pub(crate) struct State {
    pub(crate) pipeline: Pipeline<Waiter>,
    pub(crate) space: LogSpace,
    pub(crate) queue: GrantQueue,
    /// Number of callers that hold back new transactions.
    pub(crate) held_back: u32,
    /// Time until which the log worker sleeps; zero while it is awake.
    pub(crate) sleeps_until: Time,
}

/// The position at which the next writer of a clean log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// Device address of the log.
    pub start: Daddr,
    /// LSN of the next record.
    pub head: Lsn,
}

/// What a commit added to the open checkpoint.
#[must_use = "report it to the journal with `committed`"]
#[derive(Debug)]
pub struct Added {
    pub(crate) bytes: u64,
    /// The grant was large enough.
    pub(crate) enough: bool,
}

/// The journal of an open volume.
pub struct Journal<V: Volume> {
    pub(crate) geometry: LogGeometry,
    pub(crate) options: JournalOptions,
    /// Most bytes of the open checkpoint while earlier log writes are in flight, if the number of
    /// log buffers is limited.
    pub(crate) iclog_max: u64,
    pub(crate) start: Daddr,
    pub(crate) begun: Time,
    pub(crate) cil: Mutex<VolumeCil<V>>,
    pub(crate) ail: Mutex<Ail<V::Item>>,
    pub(crate) state: Mutex<State>,
    pub(crate) waiters: Waiters,
    /// Wakes threads that want to begin a transaction while new ones are held back.
    pub(crate) released: Condvar,
    /// Wakes the driver while it lets callers wait for others.
    pub(crate) group_commit_wakeup: Condvar,
    /// Wakes the log worker.
    pub(crate) nudge: Condvar,
    /// Is there a log worker?
    pub(crate) served: AtomicBool,
    pub(crate) driver: Mutex<Driver<V::Item>>,
    /// Epochs that are cut, whose items the driver has not taken yet.
    pub(crate) epochs: Mutex<VecDeque<VolumeCil<V>>>,
    pub(crate) push_lock: Mutex<()>,
    pub(crate) durable: AtomicU64,
    pub(crate) batches_begun: AtomicU64,
    pub(crate) batches_ended: AtomicU64,
    pub(crate) next_tid: AtomicU64,
    pub(crate) next_intent: AtomicU64,
    pub(crate) roll_policy: RollPolicy,
    pub(crate) grant_event: Condvar,
}

impl<V: Volume> fmt::Debug for Journal<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<V: Volume> Journal<V> {
    /// The journal of a volume with a clean log.
    pub fn new(place: LogPlace, geometry: LogGeometry, options: JournalOptions, seed: u64) -> Self {
        // A checkpoint may be cut one transaction late, and must fit in the log together with the
        // checkpoint in flight and all open transactions.
        let immediate = options.mode == LogMode::Immediate;
        let wanted = match immediate {
            true => iclog_half(options.buffers, geometry.buffer),
            false => options.pipeline.size_max,
        };
        let size_max = wanted.min(geometry.length / 8);
        let epochs = options.pipeline.epochs && !planted(Fault::CutByItself);
        let pipeline = Pipeline::new(Options { size_max, epochs, ..options.pipeline });
        let iclog = immediate.then(|| Iclog::new(geometry, Vec::new()));
        let space = LogSpace::new(geometry.length, geometry.position(place.head));
        Self {
            cil: Mutex::ranked(
                Rank::Cil,
                crate::cil::Cil::new(pipeline.open_seq(), iclog, Vec::new()),
            ),
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
            epochs: Mutex::default(),
            push_lock: Mutex::ranked(Rank::Push, ()),
            durable: AtomicU64::new(0),
            batches_begun: AtomicU64::new(0),
            batches_ended: AtomicU64::new(0),
            next_tid: AtomicU64::new(seed | 1),
            next_intent: AtomicU64::new(seed | 1),
            roll_policy: options.roll_policy,
            grant_event: Condvar::new(),
            begun: sync::now(),
            start: place.start,
            geometry,
            options,
            iclog_max: 2 * size_max,
        }
    }

    /// Is each transaction written to the log on its own (`nodelaylog`)?
    pub(crate) fn immediate(&self) -> bool {
        self.options.mode == LogMode::Immediate
    }

    /// How long to wait for a full host before the volume stops.
    pub fn host_full_timeout(&self) -> std::time::Duration {
        self.options.host_full_timeout
    }

    /// Must every change be durable before its call returns?
    pub fn wsync(&self) -> bool {
        self.options.wsync
    }

    /// The id of the next log transaction.
    pub fn tid(&self) -> u32 {
        self.next_tid.fetch_add(0x9e37_79b9, Ordering::Relaxed) as u32
    }

    /// The time since the journal was opened.
    pub fn now(&self) -> Time {
        Time(sync::now().0.saturating_sub(self.begun.0))
    }

    /// When transactions roll.
    pub fn roll_policy(&self) -> RollPolicy {
        self.roll_policy
    }

    /// The geometry of log records.
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// Number of a new intent.
    pub fn new_intent(&self) -> u64 {
        self.next_intent.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks the open checkpoint, to add a transaction's items.
    pub fn cil(&self) -> MutexGuard<'_, VolumeCil<V>> {
        self.cil.lock()
    }

    /// Accounts for a transaction whose items were added to `cil`, with `granted` bytes of log
    /// space. What it did not use stays in `granted`.
    pub fn taken_in(&self, cil: &mut VolumeCil<V>, granted: &mut u64) -> Added {
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
    pub fn committed(&self, added: Added, left: u64) -> bool {
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
    pub fn data_written(&self) -> Generation {
        self.state.lock().pipeline.data()
    }

    /// The last checkpoint that is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Number of batches of writes in place that have begun.
    pub fn batches_begun(&self) -> u64 {
        self.batches_begun.load(Ordering::Acquire)
    }

    /// Number of batches of writes in place that have ended.
    pub fn batches_ended(&self) -> u64 {
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
pub type Notify = Box<dyn FnOnce(core::result::Result<(), Failure>) + Send>;

impl<V: Volume> Journal<V> {
    /// How full the log is.
    pub fn log_load(&self) -> LogLoad {
        let (live, objects) = self.load();
        LogLoad { bytes: self.geometry.length, live, objects: objects as u64 }
    }

    /// A ticket for everything committed and written so far.
    pub fn ticket(&self) -> Ticket {
        let state = self.state.lock();
        Ticket(Need { seq: state.pipeline.last(), data: state.pipeline.data_written() })
    }

    /// A ticket for checkpoint `seq` and the writes of data up to `data`.
    pub fn ticket_for(&self, seq: u64, data: Generation) -> Ticket {
        Ticket(Need { seq: Seq(seq), data })
    }

    /// A ticket for checkpoint `seq`, for a caller of fsync whose file has no data that a flush must cover.
    pub fn ticket_without_data(&self, seq: u64) -> Ticket {
        self.state.lock().pipeline.sync_without_data(Seq(seq));
        self.ticket_for(seq, Generation(0))
    }

    /// Is everything that the ticket covers durable?
    pub fn is_ticket_durable(&self, ticket: Ticket) -> bool {
        planted(Fault::WokenEarly) || self.met(&self.state.lock(), ticket.0)
    }

    /// Calls `notify` when the ticket is durable, at once if it is. Returns whether the journal has
    /// to be driven first. `caller` identifies the caller for the fsync policy.
    pub fn notify_when(&self, caller: u64, ticket: Ticket, notify: Notify) -> bool {
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
    pub fn nudge_worker(&self) {
        self.nudge.notify_one();
    }
}

impl<V: Volume> Journal<V> {
    /// Live bytes of the log, and number of objects in the AIL.
    pub fn load(&self) -> (u64, usize) {
        let active = self.ail.lock().len();
        (self.state.lock().space.live(), active)
    }

    /// Live bytes of the log up to which a writer need not push the AIL itself.
    pub fn comfortable(&self) -> u64 {
        match self.served.load(Ordering::Relaxed) {
            true => self.geometry.length / 4 * 3,
            false => self.geometry.length / 2,
        }
    }

    /// Is everything in `need` durable, and are its objects in the AIL?
    pub(crate) fn met(&self, state: &State, need: Need) -> bool {
        state.pipeline.met(need) && self.is_durable(need.seq.0)
    }

    /// Stops the journal and its volume for good, and wakes all waiters with the error. Returns the
    /// error for the caller.
    pub fn fail(&self, volume: &V, cause: V::Cause) -> V::Error {
        let reason = cause.to_string();
        self.state.lock().pipeline.fail(Failure(Arc::from(reason.as_str())));
        volume.shut_down(cause);
        self.waiters.wake_all();
        self.released.notify_all();
        self.group_commit_wakeup.notify_all();
        self.note_event(&mut self.state.lock());
        self.nudge.notify_all();
        // No other thread may be left to drive.
        loop {
            let action = self.state.lock().pipeline.next_wake();
            match action {
                Some(Action::Wake(Waiter::Call(notify), result)) => notify(result),
                Some(_) => {}
                None => break,
            }
        }
        V::stopped(&reason)
    }
}
