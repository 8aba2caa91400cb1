//! The commit pipeline: a state machine that says when the gathering checkpoint is cut, what is
//! written and flushed in which order, and who is told.
//!
//! It is told what happened (`commit`, `force`, `cut`, `written`, `flushed`, `tick`) and answers
//! with [`Action`]s, which its driver takes with [`Pipeline::next_action`] and carries out.
//!
//! 1. One checkpoint is on its way at a time, the next one gathers meanwhile: of two checkpoints
//!    the later is not begun to be written before the earlier is durable. The next may be cut before
//!    that, in the moment before the flush that ends the one on its way: then that flush is also the
//!    one that its own data need, and each checkpoint of a row costs one flush, not two.
//! 2. Before the first record of a checkpoint goes down, all data written before the cut has been
//!    flushed: it is durable before the commit that shows it.
//! 3. Of the log, no more is written without a flush than one part; who splits a checkpoint into
//!    parts keeps each within what recovery's search for the head can see through.
//! 4. A waiter is woken once; with success only after its checkpoint is durable and what was
//!    written before it asked has been flushed, by a flush that began after.
//! 5. A flush counts for what was written before it *began*.
//! 6. After a failure nobody is woken with success, and nothing more is written.
//! 7. While anyone waits, something is under way whose end will be reported, or there is a moment at
//!    which the time is to be told ([`Pipeline::next_decision`]).
//! 8. Whether somebody who asks for durability is let wait for others who ask is for the [`policy::Policy`](crate::policy::Policy) to
//!    say ([`crate::policy`]); it can let something begin later, never end earlier. What does not wait
//!    for durability's sake (the log runs short, something goes home) is not its affair.
//! 9. Flushes may overlap, if the policy begins one while another is under way; each counts by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::group_commit::{GroupCommit, Round};
use crate::policy::{Decision, FsyncPolicy};
use crate::time::Time;

/// Number of a checkpoint; the first since the volume was opened is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// How many writes outside the log had ended at some moment: a flush that began at or after it
/// covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Need {
    /// This checkpoint is durable.
    pub seq: Seq,
    /// These writes are flushed.
    pub data: Generation,
}

/// Why the journal stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Arc<str>);

/// Number of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlushId(pub u64);

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<W> {
    /// Take what the gathering checkpoint holds, and answer with [`Pipeline::cut`]. Commits from
    /// here on belong to the next.
    Cut(Seq),
    /// Write this part of the checkpoint's records, and answer with [`Pipeline::written`].
    Write {
        /// The checkpoint.
        seq: Seq,
        /// Which of its parts, from 0.
        part: u32,
        /// Return only when it is on stable storage.
        fua: bool,
    },
    /// Flush the device, and answer with [`Pipeline::flushed`].
    Flush(FlushId),
    /// The checkpoint is durable: its objects may be written in place.
    Durable(Seq),
    /// Tell this waiter.
    Wake(W, Result<(), Failure>),
}

/// When a checkpoint is cut though nobody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that may gather.
    pub size_max: u64,
    /// How long a commit may stay in memory.
    pub age_max: Duration,
    /// Writes that are durable when they return cost less than a write and a flush.
    pub fua: bool,
    /// How those who ask for durability at about the same time are brought together.
    pub fsync: FsyncPolicy,
    /// Who asks for what a flush that began after it was written has covered is told at once. Else
    /// there is a flush for them, unless [`Options::elide_clean`] spares it.
    pub elide_covered: bool,
    /// Who asks when nothing has been written since the last flush began is told at once.
    pub elide_clean: bool,
}

/// Most bytes of a checkpoint that is cut before those are told who waited for the one before: they have
/// to wait that long, but nobody is in the midst of a change as long as they sleep.
const CUT_FIRST: u64 = 1 << 20;

impl Default for Options {
    /// 32 MiB, 30 s, without force-unit-access; no flush that is not needed.
    fn default() -> Self {
        Self {
            size_max: 32 << 20,
            age_max: Duration::from_secs(30),
            fua: false,
            fsync: FsyncPolicy::default(),
            elide_covered: true,
            elide_clean: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The driver takes what was gathered.
    Cutting,
    /// What was written up to here is to be flushed before `part` is written; behind the last part,
    /// before the checkpoint is durable.
    Barrier { until: Generation, part: u32 },
    /// A part is being written.
    Writing { part: u32 },
}

/// Somebody who waits, and who it is.
#[derive(Debug)]
struct Waiting<W> {
    caller: Option<u64>,
    waiter: W,
}

/// A flush under way, and what was written when it began.
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

/// The state machine. `W` is whatever the driver knows a waiter by.
#[derive(Debug)]
pub struct Pipeline<W> {
    options: Options,
    open_seq: Seq,
    open_bytes: u64,
    /// When the oldest commit that gathers was made; `None` if there is none.
    since: Option<Time>,
    /// Somebody wants all up to this checkpoint to be durable.
    wanted: Seq,
    checkpoint: Option<CutCheckpoint>,
    /// The checkpoint behind it, if it is cut already.
    next: Option<CutCheckpoint>,
    durable: Seq,
    written: Generation,
    /// The last write of them that commits depend on.
    data: Generation,
    flushed: Generation,
    /// Flushes under way, in the order in which they began.
    flushing: VecDeque<Flushing>,
    next_flush: u64,
    /// What is to be flushed whatever the policy says.
    urgent: Generation,
    waiters: BTreeMap<(Seq, u64), (Generation, Waiting<W>)>,
    data_waiters: BTreeMap<(Generation, u64), Waiting<W>>,
    group_commit: GroupCommit,
    next_waiter: u64,
    failed: Option<Failure>,
    actions: VecDeque<Action<W>>,
}

impl<W> Pipeline<W> {
    /// A pipeline in which nothing has happened.
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
            next_waiter: 0,
            failed: None,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do, if there is one now.
    pub fn next_action(&mut self) -> Option<Action<W>> {
        self.actions.pop_front()
    }

    /// The next thing to do, if that is to tell somebody.
    pub fn next_wake(&mut self) -> Option<Action<W>> {
        match self.actions.front() {
            Some(Action::Wake(..)) => self.actions.pop_front(),
            _ => None,
        }
    }

    /// A flush that overlaps another, for somebody beside the driver to carry out, who answers with
    /// [`Pipeline::flushed`].
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

    /// Is something under way that somebody will report, or is there a moment to be awaited
    /// ([`Pipeline::next_decision`])? Else whoever finds nothing to do has nothing to wait for.
    pub fn is_under_way(&self) -> bool {
        !self.flushing.is_empty() || self.next_decision().is_some()
    }

    /// Is there something to do?
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Does nothing gather, and is nothing on its way?
    pub fn is_quiet(&self) -> bool {
        self.since.is_none()
            && self.checkpoint.is_none()
            && self.flushing.is_empty()
            && self.group_commit.is_empty()
            && self.actions.is_empty()
    }

    /// The checkpoint that gathers.
    pub fn open_seq(&self) -> Seq {
        self.open_seq
    }

    /// The last checkpoint with anything in it: what must be durable for everything to be.
    pub fn last(&self) -> Seq {
        if self.since.is_some() { self.open_seq } else { Seq(self.open_seq.0 - 1) }
    }

    /// Bytes in the checkpoint that gathers, at most.
    pub fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The last durable checkpoint.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// The writes outside the log that have ended.
    pub fn data_written(&self) -> Generation {
        self.written
    }

    /// The writes among them that are flushed.
    pub fn data_flushed(&self) -> Generation {
        self.flushed
    }

    /// Why it stopped, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Is what `need` names durable?
    pub fn met(&self, need: Need) -> bool {
        self.durable >= need.seq && self.flushed >= need.data
    }

    /// Does nothing gather?
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// When [`Pipeline::tick`] is to be called at the latest.
    pub fn alarm(&self) -> Option<Time> {
        if self.failed.is_some() {
            return None;
        }
        let old = self.since.filter(|_| self.checkpoint.is_none());
        let old = old.map(|since| since + self.options.age_max);
        old.into_iter().chain(self.next_decision()).min()
    }

    /// Until when those who wait are let wait for others, though something could be done for them.
    pub fn next_decision(&self) -> Option<Time> {
        self.group_commit.next_decision()
    }

    /// What somebody has to wait for who needs `need`: more than that where flushes are not to be
    /// spared ([`Options::elide_covered`]).
    pub fn due(&mut self, need: Need) -> Need {
        let covered = self.flushed >= need.data && self.durable >= need.seq;
        let clean = self.flushed >= self.written;
        if !covered || self.options.elide_covered || self.options.elide_clean && clean {
            return need;
        }
        Need { data: self.metadata_written(), ..need }
    }

    /// A transaction was committed, which adds at most `bytes` to the gathering checkpoint. The
    /// number of the checkpoint that it is in.
    pub fn commit(&mut self, now: Time, bytes: u64) -> Seq {
        let seq = self.open_seq;
        self.since.get_or_insert(now);
        self.open_bytes += bytes;
        self.advance(now);
        seq
    }

    /// A write of data has ended, on which later commits may depend. A flush from now on covers it.
    pub fn data(&mut self) -> Generation {
        self.written.0 += 1;
        self.data = self.written;
        self.written
    }

    /// Metadata has been written in place, on which no commit depends. A flush from now on covers
    /// it; what its being home allows waits for that.
    pub fn metadata_written(&mut self) -> Generation {
        self.written.0 += 1;
        self.written
    }

    /// Somebody waits until what `need` names is durable. `caller` tells those apart whom the policy may
    /// let wait for each other; `None` for somebody whom it may not.
    pub fn force(&mut self, now: Time, need: Need, caller: Option<u64>, waiter: W) {
        debug_assert!(need.seq <= self.open_seq && need.data <= self.written);
        if let Some(failure) = &self.failed {
            return self.actions.push_back(Action::Wake(waiter, Err(failure.clone())));
        }
        let order = self.next_waiter;
        self.next_waiter += 1;
        let waiting = Waiting { caller, waiter };
        if self.durable < need.seq {
            self.waiters.insert((need.seq, order), (need.data, waiting));
            match caller {
                // What is on its way is not begun again for those who come now.
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

    /// Everything up to `seq` is to become durable, though nobody waits: the log runs short, or
    /// something is pinned that has to go home.
    pub fn want(&mut self, now: Time, seq: Seq) {
        self.wanted = self.wanted.max(seq);
        self.advance(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
    }

    /// The driver has taken what gathered in the checkpoint being cut, and made `parts` parts of
    /// it; 0 if there was nothing in it after all.
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

    /// A part has been written, or has not.
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

    /// The device has been flushed, or has not.
    pub fn flushed(&mut self, now: Time, id: FlushId, result: Result<(), Failure>) {
        if let Err(failure) = result {
            return self.fail(failure);
        }
        let Some(at) = self.flushing.iter().position(|flush| flush.id == id) else {
            debug_assert!(self.failed.is_some(), "this flush is not under way");
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
        self.advance(now);
    }

    /// Somebody has what they waited for.
    fn wake(&mut self, now: Time, waiting: Waiting<W>) {
        if let Some(caller) = waiting.caller {
            self.group_commit.completed(now, caller);
        }
        self.actions.push_back(Action::Wake(waiting.waiter, Ok(())));
    }

    /// Something failed for good: everybody who waits is told, and nothing more is written.
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
    }

    fn must_cut(&self, now: Time) -> bool {
        let Some(since) = self.since else { return false };
        self.wanted >= self.open_seq
            || self.open_bytes >= self.options.size_max
            || now >= since + self.options.age_max
    }

    /// Goes on as far as can be gone without an answer from the driver.
    fn advance(&mut self, now: Time) {
        if self.failed.is_some() {
            return;
        }
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
    }

    /// Begins the next checkpoint if it is time for that, or what else the policy wants; true if that is
    /// something.
    fn cut_next(&mut self, now: Time) -> bool {
        if self.checkpoint.is_none() && self.must_cut(now) {
            self.begin_cut(now);
            return true;
        }
        self.coordinate(now)
    }

    /// Begins what the policy wants and what can be begun now; true if that is something. A checkpoint
    /// cannot while one is on its way: it is asked about again when that is durable.
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
        if self.group_commit.waits_for_checkpoint() && self.checkpoint.is_none() {
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

    /// Cuts the checkpoint behind the one on its way, if a flush is spared by that: it depends on data
    /// that is not flushed, and somebody wants it whom the policy would not let wait for others.
    fn cut_along(&mut self, now: Time) -> bool {
        if self.next.is_some() || self.flushed >= self.data {
            return false;
        }
        if !self.must_cut(now) && !self.group_commit.would_flush(now) {
            return false;
        }
        let seq = self.cut_open();
        self.group_commit.cut_early();
        self.next = Some(CutCheckpoint { seq, parts: 0, stage: Stage::Cutting });
        true
    }

    fn cut_open(&mut self) -> Seq {
        let seq = self.open_seq;
        self.open_seq.0 += 1;
        self.open_bytes = 0;
        self.since = None;
        self.actions.push_back(Action::Cut(seq));
        seq
    }

    /// Begins a flush; whoever waits for one is served by it.
    fn begin_flush(&mut self, now: Time) {
        let id = FlushId(self.next_flush);
        self.next_flush += 1;
        self.group_commit.begin(now, self.flushing.len(), Round::Flush(id));
        self.flushing.push_back(Flushing { id, covers: self.written });
        self.actions.push_back(Action::Flush(id));
    }

    /// A barrier was passed, before `part` or behind the last one.
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

    /// Flushes for the checkpoint on its way, and for what is urgent: one flush at a time, unless one
    /// that covers it is under way.
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
            // It begins when that is cut.
            return;
        }
        self.begin_flush(now);
    }
}

#[cfg(test)]
mod tests;
