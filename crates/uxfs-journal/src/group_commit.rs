//! Those whom the policy may let wait for each other, as it sees them.
//!
//! Some need the gathering checkpoint to be durable, others only what was written to be flushed. To the
//! policy they are one crowd: what makes durable what those wait for who are served together is *a
//! flush* to it, a whole checkpoint or a single flush of the device.
//!
//! 1. Who is counted waits for something that has not begun.
//! 2. A round is begun and ended once, and only if it serves somebody.
//! 3. Of two checkpoints whose flushes are shared, the round of the later begins when the earlier's
//!    ends: so rounds last as long as one makes others wait.

use std::collections::VecDeque;

use crate::pipeline::{FlushId, Seq};
use crate::policy::{Decision, Ended, FsyncPolicy, Policy, View};
use crate::time::Time;

/// What serves some of the crowd together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A checkpoint, from its cut until it is durable.
    Checkpoint(Seq),
    /// A flush of the device.
    Flush(FlushId),
}

/// How many wait, and since when the first of them does.
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
    /// Those whose checkpoint is cut, and whose round has not begun.
    cut: Group,
    /// Rounds under way that serve somebody: their numbers to the policy, and when they began.
    rounds: VecDeque<(Round, u64, Time)>,
    next: u64,
    next_decision: Option<Time>,
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
        }
    }

    /// Does nobody wait for something that has not begun?
    pub(crate) fn is_empty(&self) -> bool {
        self.checkpoint.count == 0 && self.data.count == 0
    }

    pub(crate) fn waits_for_data(&self) -> bool {
        self.data.count > 0
    }

    pub(crate) fn waits_for_checkpoint(&self) -> bool {
        self.checkpoint.count > 0
    }

    /// When the policy is to be asked again at the latest.
    pub(crate) fn next_decision(&self) -> Option<Time> {
        self.next_decision
    }

    fn view(&self, now: Time, flushing: usize) -> View {
        let groups = [self.checkpoint, self.data];
        let since = groups.iter().filter(|group| group.count > 0).map(|group| group.since).min();
        let in_flight = self.rounds.len().max(flushing);
        View {
            now,
            waiting: self.checkpoint.count + self.data.count,
            since: since.unwrap_or(now),
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
        }
    }

    /// Somebody comes who needs the gathering checkpoint, or a flush.
    pub(crate) fn enqueue(&mut self, now: Time, caller: u64, checkpoint: bool) {
        let group = if checkpoint { &mut self.checkpoint } else { &mut self.data };
        group.add(now);
        let view = self.view(now, 0);
        self.policy.arrived(&view, caller);
    }

    /// Somebody comes who will be served by what has begun.
    pub(crate) fn join(&mut self, now: Time, caller: u64) {
        let view = self.view(now, 0);
        self.policy.arrived(&view, caller);
    }

    /// Somebody has what they waited for.
    pub(crate) fn completed(&mut self, now: Time, caller: u64) {
        self.policy.completed(now, caller);
    }

    /// What is to be done for those who wait, while so many flushes of the device are under way.
    pub(crate) fn decide(&mut self, now: Time, flushing: usize) -> Decision {
        self.next_decision = None;
        if self.is_empty() {
            return Decision::Rest;
        }
        let view = self.view(now, flushing);
        let decision = match self.policy.decide(&view) {
            // Nothing would come that ends the rest.
            Decision::Rest if view.in_flight == 0 => Decision::Flush,
            decision => decision,
        };
        if let Decision::Until(until) = decision {
            self.next_decision = Some(until);
        }
        decision
    }

    /// Would those be let go now who wait for a checkpoint, if nothing were under way?
    pub(crate) fn would_flush(&mut self, now: Time) -> bool {
        let view = View { in_flight: 0, ..self.view(now, 0) };
        self.checkpoint.count > 0 && self.policy.decide(&view) == Decision::Flush
    }

    /// The checkpoint that those wait for who are here now is cut; its round begins later.
    pub(crate) fn cut_early(&mut self) {
        self.cut = core::mem::take(&mut self.checkpoint);
    }

    /// Something begins that serves those who wait for its like.
    pub(crate) fn begin(&mut self, now: Time, flushing: usize, round: Round) {
        let view = self.view(now, flushing);
        let group = match round {
            Round::Checkpoint(_) => core::mem::take(&mut self.checkpoint),
            Round::Flush(_) => core::mem::take(&mut self.data),
        };
        self.start(view, group, round);
    }

    /// The checkpoint that was cut for those who ride is on its way now.
    pub(crate) fn submit(&mut self, now: Time, flushing: usize, round: Round) {
        let view = self.view(now, flushing);
        let group = core::mem::take(&mut self.cut);
        self.start(view, group, round);
    }

    fn start(&mut self, view: View, group: Group, round: Round) {
        if group.count > 0 {
            self.policy.begun(&view);
            self.rounds.push_back((round, self.next, view.now));
            self.next += 1;
        }
    }

    /// What it had to wait for first has ended. It is measured from here on, so that one whose data had
    /// a flush of their own does not seem to take twice as long as one that shared it.
    pub(crate) fn under_way(&mut self, now: Time, round: Round) {
        if let Some((.., begun)) = self.rounds.iter_mut().find(|(other, ..)| *other == round) {
            *begun = now;
        }
    }

    /// It has ended.
    pub(crate) fn end(&mut self, now: Time, round: Round) {
        let Some(at) = self.rounds.iter().position(|(other, ..)| *other == round) else { return };
        let Some((_, number, begun)) = self.rounds.remove(at) else { return };
        let view = self.view(now, 0);
        self.policy.ended(&view, Ended { number, begun });
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        self.checkpoint = Group::default();
        self.data = Group::default();
        self.cut = Group::default();
        self.rounds.clear();
        self.next_decision = None;
    }
}
