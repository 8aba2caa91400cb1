//! The callers of fsync that the policy may let wait for each other, as the policy sees them.
//!
//! Some need the open checkpoint to be durable, others only need earlier writes to be flushed. The
//! policy makes no difference between them: for it, *a flush* is whatever makes a group of callers
//! durable together, a whole checkpoint or a single flush of the device.
//!
//! 1. A caller counts as waiting only while the work that serves it has not begun.
//! 2. A round begins once and ends once, and exists only if it serves a caller.
//! 3. If two checkpoints share a flush, the round of the later one begins when that of the earlier
//!    one ends. So the length of a round is the time for which it makes others wait.
//!
//! Called by [`crate::Pipeline`] alone.

use std::collections::{BTreeSet, VecDeque};

use crate::pipeline::{FlushId, Seq};
use crate::policy::{Decision, Ended, FsyncPolicy, Policy, View};
use uxfs_sync::Time;

/// Work that serves a group of callers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A checkpoint, from its cut until it is durable.
    Checkpoint(Seq),
    /// A flush of the device.
    Flush(FlushId),
}

/// A number of waiting callers, and when the first of them came.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    count: u32,
    since: Time,
}

impl Group {
    fn add(&mut self, now: Time) {
        if self.count == 0 {
            self.since = now;
        }
        self.count += 1;
    }
}

#[derive(Debug)]
pub(crate) struct GroupCommit {
    policy: Box<dyn Policy>,
    checkpoint: Group,
    data: Group,
    /// Callers whose checkpoint is cut and whose round has not begun.
    cut: Group,
    /// Rounds in progress: their numbers for the policy, and when they began.
    rounds: VecDeque<(Round, u64, Time)>,
    next: u64,
    next_decision: Option<Time>,
    /// Callers whose commit is deferred, or who were resumed and have not committed. They wait, but for no
    /// work that a decision could begin.
    deferred: u32,
    /// Callers whose arrival the policy knows, although they wait for nothing yet.
    arrived: BTreeSet<u64>,
}

impl GroupCommit {
    pub(crate) fn new(policy: FsyncPolicy) -> Self {
        Self {
            policy: policy.start(),
            checkpoint: Group::default(),
            data: Group::default(),
            cut: Group::default(),
            rounds: VecDeque::new(),
            next: 0,
            next_decision: None,
            deferred: 0,
            arrived: BTreeSet::new(),
        }
    }

    /// Adds a caller whose commit is deferred. It is added again when it has committed.
    pub(crate) fn defer(&mut self, now: Time, caller: u64) {
        self.deferred += 1;
        self.arrive(now, caller);
        self.arrived.insert(caller);
    }

    /// Sets the number of callers whose commit is deferred, or who were resumed and have not committed.
    pub(crate) fn set_deferred(&mut self, count: usize) {
        self.deferred = u32::try_from(count).unwrap_or(u32::MAX);
    }

    fn arrive(&mut self, now: Time, caller: u64) {
        if !self.arrived.remove(&caller) {
            let view = self.view(now, 0);
            self.policy.arrived(&view, caller);
        }
    }

    /// Does no caller wait for work that has not begun?
    pub(crate) fn is_empty(&self) -> bool {
        self.checkpoint.count == 0 && self.data.count == 0
    }

    pub(crate) fn waits_for_data(&self) -> bool {
        self.data.count > 0
    }

    pub(crate) fn waits_for_checkpoint(&self) -> bool {
        self.checkpoint.count > 0
    }

    /// The latest time at which the policy must be asked again.
    pub(crate) fn next_decision(&self) -> Option<Time> {
        self.next_decision
    }

    fn view(&self, now: Time, flushing: usize) -> View {
        let groups = [self.checkpoint, self.data];
        let since = groups.iter().filter(|group| group.count > 0).map(|group| group.since).min();
        let in_flight = self.rounds.len().max(flushing);
        View {
            now,
            waiting: self.checkpoint.count + self.data.count + self.deferred,
            since: since.unwrap_or(now),
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
        }
    }

    /// Adds a caller that needs the open checkpoint, or a flush.
    pub(crate) fn enqueue(&mut self, now: Time, caller: u64, checkpoint: bool) {
        let group = if checkpoint { &mut self.checkpoint } else { &mut self.data };
        group.add(now);
        self.arrive(now, caller);
    }

    /// Adds a caller that work in progress will serve.
    pub(crate) fn join(&mut self, now: Time, caller: u64) {
        self.arrive(now, caller);
    }

    /// Reports that a caller's request completed.
    pub(crate) fn completed(&mut self, now: Time, caller: u64) {
        self.policy.completed(now, caller);
    }

    /// Decides about the waiting callers while `flushing` flushes of the device are in flight.
    pub(crate) fn decide(&mut self, now: Time, flushing: usize) -> Decision {
        self.next_decision = None;
        if self.is_empty() {
            return Decision::Rest;
        }
        let view = self.view(now, flushing);
        let decision = match self.policy.decide(&view) {
            // No event would ever end the rest.
            Decision::Rest if view.in_flight == 0 => Decision::Flush,
            decision => decision,
        };
        if let Decision::Until(until) = decision {
            self.next_decision = Some(until);
        }
        decision
    }

    /// Would the policy start a checkpoint for its waiting callers if nothing were in flight?
    pub(crate) fn would_flush(&mut self, now: Time) -> bool {
        let view = View { in_flight: 0, ..self.view(now, 0) };
        self.checkpoint.count > 0 && self.policy.decide(&view) == Decision::Flush
    }

    /// Notes that the open checkpoint was cut for its callers. Their round begins later.
    pub(crate) fn cut_early(&mut self) {
        self.cut = core::mem::take(&mut self.checkpoint);
    }

    /// Begins a round for all callers that wait for its kind of work.
    pub(crate) fn begin(&mut self, now: Time, flushing: usize, round: Round) {
        let view = self.view(now, flushing);
        let group = match round {
            Round::Checkpoint(_) => core::mem::take(&mut self.checkpoint),
            Round::Flush(_) => core::mem::take(&mut self.data),
        };
        self.start(view, group, round);
    }

    /// Begins the round of a checkpoint that was cut early.
    pub(crate) fn submit(&mut self, now: Time, flushing: usize, round: Round) {
        let view = self.view(now, flushing);
        let group = core::mem::take(&mut self.cut);
        self.start(view, group, round);
    }

    fn start(&mut self, view: View, group: Group, round: Round) {
        if group.count > 0 {
            let view = View { waiting: group.count, since: group.since, ..view };
            self.policy.begun(&view);
            self.rounds.push_back((round, self.next, view.now));
            self.next += 1;
        }
    }

    /// Restarts the clock of a round when its own writes begin. Otherwise a round whose data needed
    /// a flush of its own would look twice as long as one that shared it.
    pub(crate) fn under_way(&mut self, now: Time, round: Round) {
        if let Some((.., begun)) = self.rounds.iter_mut().find(|(other, ..)| *other == round) {
            *begun = now;
        }
    }

    /// Ends a round.
    pub(crate) fn end(&mut self, now: Time, round: Round) {
        let Some(at) = self.rounds.iter().position(|(other, ..)| *other == round) else { return };
        let Some((_, number, begun)) = self.rounds.remove(at) else { return };
        let view = self.view(now, 0);
        self.policy.ended(&view, Ended { number, begun });
    }

    /// Removes all callers.
    pub(crate) fn clear(&mut self) {
        self.checkpoint = Group::default();
        self.data = Group::default();
        self.cut = Group::default();
        self.rounds.clear();
        self.next_decision = None;
        self.deferred = 0;
        self.arrived.clear();
    }
}
