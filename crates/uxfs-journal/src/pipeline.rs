//! The commit pipeline: a state machine that decides when the open checkpoint is cut, what is written and
//! flushed in which order, and when waiters are woken.
//!
//! The driver reports events (`commit`, `force`, `cut`, `written`, `flushed`, `tick`). The pipeline answers
//! with [`Action`]s, which the driver takes with [`Pipeline::next_action`] and carries out.
//!
//! 1. Checkpoints are written one at a time; the next one collects commits meanwhile. No record of a
//!    checkpoint is written before the checkpoint before it is durable. The next checkpoint may be cut just
//!    before the last flush of the current one. That flush then also covers the data that the next one
//!    depends on, so in a row of checkpoints each costs one flush instead of two.
//! 2. Data written before the cut is flushed before the first record of the checkpoint is written. So data is
//!    durable before the commit that refers to it.
//! 3. At most one part of a checkpoint is written between two flushes. A part holds no more than the search
//!    for the head looks back over ([`Sealed::parts`](crate::Sealed::parts)).
//! 4. A waiter is woken once. It is woken with success only after its checkpoint is durable and a flush that
//!    began after its request covers what was written before.
//! 5. A flush covers what was written before it began.
//! 6. After a failure no waiter is woken with success, and nothing more is written.
//! 7. While a waiter exists, some action is in flight whose end the driver reports, or
//!    [`Pipeline::next_decision`] names a time at which the driver calls `tick`.
//! 8. The fsync policy ([`crate::policy`]) decides whether a caller waits for other callers, so that they
//!    share a flush. It can delay the start of work, but never end a wait early. It has no say in work that
//!    serves no caller of fsync: a full log, an AIL push.
//! 9. Flushes overlap if the policy starts one while another is in flight. Each covers what rule 5 says.
//!
//! 10. With [`Options::epochs`] no rule above cuts the open checkpoint: [`Pipeline::is_epoch_due`] says that
//!     it is due, and [`Pipeline::cut_epoch`] cuts it.
//! 11. A caller of fsync may defer the commit that shows its data until a flush has covered the data
//!     ([`deferral`]).
//!
//! Called by [`crate::Journal`], by the lab's simulator and by tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::group_commit::{GroupCommit, Round};
use crate::policy::{Decision, FsyncPolicy};
use deferral::DeferredCommits;
use uxfs_sync::Time;

mod deferral;

/// Number of a checkpoint. The first after a mount is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// Number of writes outside the log that have completed. A flush that begins at a generation covers
/// all writes up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Need {
    /// The checkpoint that must be durable.
    pub seq: Seq,
    /// The writes that must be flushed.
    pub data: Generation,
}

/// Why the journal stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Arc<str>);

/// Number of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlushId(pub u64);

/// A task for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<W> {
    /// Take the items of the open checkpoint, and report with [`Pipeline::cut`]. Later commits belong
    /// to the next checkpoint.
    Cut(Seq),
    /// Write one part of the checkpoint's records, and report with [`Pipeline::written`].
    Write {
        /// The checkpoint.
        seq: Seq,
        /// Number of the part, from 0.
        part: u32,
        /// Use a forced write, which is durable when it completes.
        fua: bool,
    },
    /// Flush the device, and report with [`Pipeline::flushed`].
    Flush(FlushId),
    /// The checkpoint is durable. Its objects may be written in place.
    Durable(Seq),
    /// Wake the waiter with the result.
    Wake(W, Result<(), Failure>),
}

/// The settings of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size in bytes at which the open checkpoint is cut.
    pub size_max: u64,
    /// Age of the oldest commit at which the open checkpoint is cut.
    pub age_max: Duration,
    /// The device has forced writes (FUA) that cost less than a write and a flush.
    pub fua: bool,
    /// How calls of fsync at about the same time share a flush.
    pub fsync: FsyncPolicy,
    /// Complete a request at once if an earlier flush covers all it asks for. Otherwise such a request
    /// gets a flush of its own, unless [`Options::elide_clean`] makes it unnecessary.
    pub elide_covered: bool,
    /// Complete a request at once if nothing was written since the last flush began.
    pub elide_clean: bool,
    /// The open checkpoint is cut by [`Pipeline::cut_epoch`] only. The volume's owner calls it when
    /// [`Pipeline::is_epoch_due`], with all file data of that moment written.
    pub epochs: bool,
}

/// Most bytes of an open checkpoint that is cut before the waiters of the one before are woken. They wait
/// for the cut, but while they sleep they hold no transaction open that would delay it.
const CUT_FIRST: u64 = 1 << 20;

impl Default for Options {
    /// 32 MiB, 30 s, no FUA, no unnecessary flushes.
    fn default() -> Self {
        Self {
            size_max: 32 << 20,
            age_max: Duration::from_secs(30),
            fua: false,
            fsync: FsyncPolicy::default(),
            elide_covered: true,
            elide_clean: true,
            epochs: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The driver takes the checkpoint's items.
    Cutting,
    /// Writes up to `until` must be flushed before `part` is written. After the last part: before the
    /// checkpoint is durable.
    Barrier { until: Generation, part: u32 },
    /// A part is being written.
    Writing { part: u32 },
}

/// A waiter, and the caller of fsync it stands for.
#[derive(Debug)]
struct Waiting<W> {
    caller: Option<u64>,
    waiter: W,
}

/// A flush in flight, and the writes that it covers.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    id: FlushId,
    covers: Generation,
}

#[derive(Clone, Copy, Debug)]
struct CutCheckpoint {
    seq: Seq,
    parts: u32,
    stage: Stage,
}

/// The state machine. `W` is the driver's handle of a waiter.
#[derive(Debug)]
pub struct Pipeline<W> {
    options: Options,
    open_seq: Seq,
    open_bytes: u64,
    /// Time of the oldest commit in the open checkpoint; `None` if it is empty.
    since: Option<Time>,
    /// All checkpoints up to this one are to become durable without delay.
    wanted: Seq,
    checkpoint: Option<CutCheckpoint>,
    /// The checkpoint after it, if it is cut already.
    next: Option<CutCheckpoint>,
    durable: Seq,
    written: Generation,
    /// The last write on which commits depend.
    data: Generation,
    flushed: Generation,
    /// Flushes in flight, in the order in which they began.
    flushing: VecDeque<Flushing>,
    next_flush: u64,
    /// Writes to be flushed without asking the policy.
    urgent: Generation,
    waiters: BTreeMap<(Seq, u64), (Generation, Waiting<W>)>,
    data_waiters: BTreeMap<(Generation, u64), Waiting<W>>,
    deferred: DeferredCommits<W>,
    group_commit: GroupCommit,
    next_waiter: u64,
    failed: Option<Failure>,
    actions: VecDeque<Action<W>>,
}

impl<W> Pipeline<W> {
    /// An empty pipeline.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            open_seq: Seq(1),
            open_bytes: 0,
            since: None,
            wanted: Seq(0),
            checkpoint: None,
            next: None,
            durable: Seq(0),
            written: Generation(0),
            data: Generation(0),
            flushed: Generation(0),
            flushing: VecDeque::new(),
            next_flush: 0,
            urgent: Generation(0),
            group_commit: GroupCommit::new(options.fsync),
            waiters: BTreeMap::new(),
            data_waiters: BTreeMap::new(),
            deferred: DeferredCommits::default(),
            next_waiter: 0,
            failed: None,
            actions: VecDeque::new(),
        }
    }

    /// The next action, if any.
    pub fn next_action(&mut self) -> Option<Action<W>> {
        self.actions.pop_front()
    }

    /// The next action, if it is [`Action::Wake`].
    pub fn next_wake(&mut self) -> Option<Action<W>> {
        match self.actions.front() {
            Some(Action::Wake(..)) => self.actions.pop_front(),
            _ => None,
        }
    }

    /// Takes a flush that overlaps another one, for a second thread beside the driver. That thread
    /// reports with [`Pipeline::flushed`].
    pub fn take_flush(&mut self) -> Option<FlushId> {
        if self.flushing.len() < 2 {
            return None;
        }
        let at = self.actions.iter().position(|action| matches!(action, Action::Flush(_)))?;
        match self.actions.remove(at) {
            Some(Action::Flush(id)) => Some(id),
            _ => None,
        }
    }

    /// Is an action in flight whose end will be reported, or is a decision due later
    /// ([`Pipeline::next_decision`])? Otherwise a driver without actions has nothing to wait for.
    pub fn is_under_way(&self) -> bool {
        !self.flushing.is_empty() || self.next_decision().is_some()
    }

    /// Are there actions?
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Is the open checkpoint empty, and nothing in flight?
    pub fn is_quiet(&self) -> bool {
        self.since.is_none()
            && self.checkpoint.is_none()
            && self.flushing.is_empty()
            && self.group_commit.is_empty()
            && self.deferred.is_empty()
            && self.actions.is_empty()
    }

    /// The open checkpoint, which collects commits.
    pub fn open_seq(&self) -> Seq {
        self.open_seq
    }

    /// The last checkpoint that is not empty. If it is durable, everything is.
    pub fn last(&self) -> Seq {
        if self.since.is_some() { self.open_seq } else { Seq(self.open_seq.0 - 1) }
    }

    /// Upper bound of the bytes in the open checkpoint.
    pub fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The last durable checkpoint.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// The writes outside the log that have completed.
    pub fn data_written(&self) -> Generation {
        self.written
    }

    /// The writes outside the log that are flushed.
    pub fn data_flushed(&self) -> Generation {
        self.flushed
    }

    /// The failure that stopped the pipeline, if any.
    pub fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Is everything in `need` durable?
    pub fn met(&self, need: Need) -> bool {
        self.durable >= need.seq && self.flushed >= need.data
    }

    /// Is the open checkpoint empty?
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// The latest time at which the driver must call [`Pipeline::tick`].
    pub fn alarm(&self) -> Option<Time> {
        if self.failed.is_some() {
            return None;
        }
        let old = self.since.filter(|_| self.checkpoint.is_none());
        let old = old.map(|since| since + self.options.age_max);
        old.into_iter().chain(self.next_decision()).min()
    }

    /// The time at which it is decided again about callers that wait for others now.
    pub fn next_decision(&self) -> Option<Time> {
        let decision = self.group_commit.next_decision().into_iter();
        decision.chain(self.deferred.alarm()).min()
    }

    /// What a request for `need` has to wait for. It is more than `need` where flushes must not be
    /// elided ([`Options::elide_covered`]).
    pub fn due(&mut self, need: Need) -> Need {
        let covered = self.flushed >= need.data && self.durable >= need.seq;
        let clean = self.flushed >= self.written;
        if !covered || self.options.elide_covered || self.options.elide_clean && clean {
            return need;
        }
        Need { data: self.independent_write(), ..need }
    }

    /// Reports a commit, which adds at most `bytes` to the open checkpoint. Returns the checkpoint
    /// that holds it.
    pub fn commit(&mut self, now: Time, bytes: u64) -> Seq {
        let seq = self.open_seq;
        self.since.get_or_insert(now);
        self.open_bytes += bytes;
        self.advance(now);
        seq
    }

    /// Reports a completed write of data on which later commits may depend. Flushes from now on cover
    /// it.
    pub fn data(&mut self) -> Generation {
        self.written.0 += 1;
        self.data = self.written;
        self.written
    }

    /// Reports a completed write on which no commit depends: metadata in place, or data in blocks that
    /// were written before. Flushes from now on cover it.
    pub fn independent_write(&mut self) -> Generation {
        self.written.0 += 1;
        self.written
    }

    /// Adds a waiter that waits until `need` is durable. `caller` identifies a caller of fsync, which
    /// the policy may let wait for other callers; with `None` the work begins without asking it.
    pub fn force(&mut self, now: Time, need: Need, caller: Option<u64>, waiter: W) {
        debug_assert!(need.seq <= self.open_seq && need.data <= self.written);
        if let Some(failure) = &self.failed {
            return self.actions.push_back(Action::Wake(waiter, Err(failure.clone())));
        }
        // The owner of the volume cuts epochs, so the policy has nothing to decide about them.
        let caller = caller.filter(|_| !self.options.epochs || need.seq < self.open_seq);
        let order = self.next_waiter;
        self.next_waiter += 1;
        let waiting = Waiting { caller, waiter };
        if self.durable < need.seq {
            self.waiters.insert((need.seq, order), (need.data, waiting));
            match caller {
                // The checkpoint is cut already, so there is no start for the policy to delay.
                Some(caller) if need.seq < self.open_seq => self.group_commit.join(now, caller),
                Some(caller) => self.group_commit.enqueue(now, caller, true),
                None => self.wanted = self.wanted.max(need.seq),
            }
        } else if self.flushed < need.data {
            self.data_waiters.insert((need.data, order), waiting);
            let covered = self.flushing.iter().any(|flush| flush.covers >= need.data);
            match caller {
                Some(caller) if covered => self.group_commit.join(now, caller),
                Some(caller) => self.group_commit.enqueue(now, caller, false),
                None => self.urgent = self.urgent.max(need.data),
            }
        } else {
            return self.actions.push_back(Action::Wake(waiting.waiter, Ok(())));
        }
        self.advance(now);
    }

    /// Makes everything up to `seq` durable without a waiter: the log runs short, or an AIL push meets
    /// a pinned object.
    pub fn want(&mut self, now: Time, seq: Seq) {
        self.wanted = self.wanted.max(seq);
        self.advance(now);
    }

    /// Reports the time.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
    }

    /// Reports that the driver took the items of the checkpoint being cut and made `parts` parts of
    /// records: 0 if the checkpoint turned out to be empty.
    pub fn cut(&mut self, now: Time, parts: u32) {
        let mut checkpoint = self.checkpoint.iter_mut().chain(&mut self.next);
        let Some(checkpoint) = checkpoint.find(|checkpoint| checkpoint.stage == Stage::Cutting)
        else {
            debug_assert!(self.failed.is_some(), "no checkpoint is being cut");
            return;
        };
        checkpoint.parts = parts;
        checkpoint.stage = Stage::Barrier { until: self.data, part: 0 };
        self.advance(now);
    }

    /// Reports that a part was written, or that writing failed.
    pub fn written(&mut self, now: Time, result: Result<(), Failure>) {
        if let Err(failure) = result {
            return self.fail(failure);
        }
        let fua = self.options.fua;
        let Some(checkpoint) = &mut self.checkpoint else {
            debug_assert!(self.failed.is_some(), "nothing is being written");
            return;
        };
        let Stage::Writing { part } = checkpoint.stage else {
            debug_assert!(self.failed.is_some(), "nothing is being written");
            return;
        };
        let part = part + 1;
        if part == checkpoint.parts && fua {
            checkpoint.stage = Stage::Barrier { until: Generation(0), part };
        } else {
            self.written.0 += 1;
            checkpoint.stage = Stage::Barrier { until: self.written, part };
        }
        self.advance(now);
    }

    /// Reports that a flush completed, or failed.
    pub fn flushed(&mut self, now: Time, id: FlushId, result: Result<(), Failure>) {
        if let Err(failure) = result {
            return self.fail(failure);
        }
        let Some(at) = self.flushing.iter().position(|flush| flush.id == id) else {
            debug_assert!(self.failed.is_some(), "this flush is not in flight");
            return;
        };
        let covers = self.flushing.remove(at).map_or(Generation(0), |flush| flush.covers);
        self.flushed = self.flushed.max(covers);
        self.group_commit.end(now, Round::Flush(id));
        while let Some(entry) = self.data_waiters.first_entry() {
            if entry.key().0 > self.flushed {
                break;
            }
            let waiting = entry.remove();
            self.wake(now, waiting);
        }
        self.resume(now, self.flushed);
        self.advance(now);
    }

    /// Wakes a waiter with success.
    fn wake(&mut self, now: Time, waiting: Waiting<W>) {
        if let Some(caller) = waiting.caller {
            self.group_commit.completed(now, caller);
        }
        self.actions.push_back(Action::Wake(waiting.waiter, Ok(())));
    }

    /// Stops the pipeline: wakes all waiters with the failure and writes nothing more.
    pub fn fail(&mut self, failure: Failure) {
        let failure = self.failed.get_or_insert(failure).clone();
        (self.checkpoint, self.next) = (None, None);
        self.flushing.clear();
        self.group_commit.clear();
        self.actions.retain(|action| matches!(action, Action::Wake(..)));
        let waiting = core::mem::take(&mut self.waiters).into_values().map(|(_, w)| w);
        let waiting = waiting.chain(core::mem::take(&mut self.data_waiters).into_values());
        for Waiting { waiter, .. } in waiting {
            self.actions.push_back(Action::Wake(waiter, Err(failure.clone())));
        }
        self.fail_deferred(&failure);
    }

    /// Is there room for one more checkpoint that is cut?
    pub fn has_room_for_cut(&self) -> bool {
        self.next.is_none()
    }

    /// Should the owner of the volume call [`Pipeline::cut_epoch`]?
    pub fn is_epoch_due(&self, now: Time) -> bool {
        self.options.epochs && self.failed.is_none() && self.is_cut_due(now)
    }

    /// Cuts the open checkpoint, whose items the caller takes at once. Returns its number, or `None` if
    /// it is empty. The caller has made sure of [`Pipeline::has_room_for_cut`].
    pub fn cut_epoch(&mut self, now: Time) -> Option<Seq> {
        debug_assert!(self.has_room_for_cut());
        self.since?;
        if self.failed.is_some() {
            return None;
        }
        let seq = self.open_seq;
        match self.checkpoint {
            None => self.begin_cut(now),
            Some(_) => self.cut_behind(),
        }
        Some(seq)
    }

    fn must_cut(&self, now: Time) -> bool {
        !self.options.epochs && self.is_cut_due(now)
    }

    fn is_cut_due(&self, now: Time) -> bool {
        let Some(since) = self.since else { return false };
        self.wanted >= self.open_seq
            || self.open_bytes >= self.options.size_max
            || now >= since + self.options.age_max
    }

    /// Advances as far as possible without a report from the driver.
    fn advance(&mut self, now: Time) {
        if self.failed.is_some() {
            return;
        }
        self.awaits_resumed(now);
        loop {
            let Some(checkpoint) = self.checkpoint else {
                if !self.cut_next(now) {
                    break;
                }
                continue;
            };
            match checkpoint.stage {
                Stage::Barrier { until, part } if self.flushed >= until => {
                    self.pass(now, checkpoint, part);
                }
                _ if self.coordinate(now) => {}
                _ => break,
            }
        }
        self.flush_if_needed(now);
        self.resume_unserved(now);
    }

    /// Cuts the open checkpoint if it is due, or starts what the policy wants. Returns true if anything
    /// was started.
    fn cut_next(&mut self, now: Time) -> bool {
        if self.checkpoint.is_none() && self.must_cut(now) {
            self.begin_cut(now);
            return true;
        }
        self.coordinate(now)
    }

    /// Starts what the policy wants and what can start now. Returns true if anything was started. A
    /// checkpoint cannot start while another one is being written; the policy is asked again when that
    /// one is durable.
    fn coordinate(&mut self, now: Time) -> bool {
        let flushing = self.flushing.len();
        if self.group_commit.decide(now, flushing) != Decision::Flush {
            return false;
        }
        let mut begun = false;
        if self.group_commit.waits_for_data() {
            self.begin_flush(now);
            begun = true;
        }
        let waiting = self.group_commit.waits_for_checkpoint() && !self.options.epochs;
        if waiting && self.checkpoint.is_none() && !self.awaits_resumed(now) {
            self.begin_cut(now);
            begun = true;
        }
        begun
    }

    fn begin_cut(&mut self, now: Time) {
        let seq = self.cut_open();
        self.group_commit.begin(now, self.flushing.len(), Round::Checkpoint(seq));
        self.checkpoint = Some(CutCheckpoint { seq, parts: 0, stage: Stage::Cutting });
    }

    /// Cuts the open checkpoint while another one awaits its last flush, if that saves a flush: the open
    /// one depends on data that is not flushed, and it is wanted now.
    fn cut_along(&mut self, now: Time) -> bool {
        if self.next.is_some() || self.flushed >= self.data || self.options.epochs {
            return false;
        }
        let wanted = |pipeline: &mut Self| {
            !pipeline.awaits_resumed(now) && pipeline.group_commit.would_flush(now)
        };
        if !self.must_cut(now) && !wanted(self) {
            return false;
        }
        self.cut_behind();
        true
    }

    /// Cuts the open checkpoint while another one is being written.
    fn cut_behind(&mut self) {
        let seq = self.cut_open();
        self.group_commit.cut_early();
        self.next = Some(CutCheckpoint { seq, parts: 0, stage: Stage::Cutting });
    }

    fn cut_open(&mut self) -> Seq {
        let seq = self.open_seq;
        self.open_seq.0 += 1;
        self.open_bytes = 0;
        self.since = None;
        self.actions.push_back(Action::Cut(seq));
        seq
    }

    /// Begins a flush, which serves all that wait for one.
    fn begin_flush(&mut self, now: Time) {
        let id = FlushId(self.next_flush);
        self.next_flush += 1;
        self.group_commit.begin(now, self.flushing.len(), Round::Flush(id));
        self.flushing.push_back(Flushing { id, covers: self.written });
        self.actions.push_back(Action::Flush(id));
    }

    /// Continues after a barrier: writes `part`, or, after the last one, declares the checkpoint
    /// durable.
    fn pass(&mut self, now: Time, checkpoint: CutCheckpoint, part: u32) {
        let CutCheckpoint { seq, parts, .. } = checkpoint;
        if part < parts {
            if part == 0 {
                self.group_commit.under_way(now, Round::Checkpoint(seq));
            }
            self.checkpoint = Some(CutCheckpoint { stage: Stage::Writing { part }, ..checkpoint });
            let fua = self.options.fua && part + 1 == parts;
            return self.actions.push_back(Action::Write { seq, part, fua });
        }
        self.checkpoint = self.next.take();
        debug_assert_eq!(seq.0, self.durable.0 + 1, "checkpoints become durable in order");
        self.durable = seq;
        self.actions.push_back(Action::Durable(seq));
        self.group_commit.end(now, Round::Checkpoint(seq));
        if let Some(next) = self.checkpoint {
            self.group_commit.submit(now, self.flushing.len(), Round::Checkpoint(next.seq));
        }
        if self.open_bytes <= CUT_FIRST {
            self.cut_next(now);
        }
        while let Some(entry) = self.waiters.first_entry() {
            if entry.key().0 > seq {
                break;
            }
            let ((_, order), (data, waiting)) = entry.remove_entry();
            if self.flushed >= data {
                self.wake(now, waiting);
            } else {
                self.urgent = self.urgent.max(data);
                self.data_waiters.insert((data, order), waiting);
            }
        }
    }

    /// Begins a flush if the current checkpoint or an urgent write needs one and none is in flight.
    fn flush_if_needed(&mut self, now: Time) {
        let (barrier, last) = match self.checkpoint {
            Some(CutCheckpoint { stage: Stage::Barrier { until, part }, parts, .. }) => {
                (until, part == parts)
            }
            _ => (Generation(0), false),
        };
        let until = barrier.max(self.urgent);
        if self.flushed >= until || !self.flushing.is_empty() {
            return;
        }
        let cutting = self.next.is_some_and(|next| next.stage == Stage::Cutting);
        if cutting || last && self.cut_along(now) {
            // The flush begins when that checkpoint is cut.
            return;
        }
        self.begin_flush(now);
    }
}

#[cfg(test)]
mod tests;
