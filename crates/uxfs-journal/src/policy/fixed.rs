//! Policies that do not learn: those of the old discussion of ext4's fsync (2010), and the three that
//! they come down to.
//!
//! What was called *old* there is [`Fixed::Own`]; *jbd2* is [`Fixed::Journal`]; *use avg sync time* is
//! [`Fixed::Average`]; a delay of 1 or 500 microseconds is [`Fixed::Wait`].

use core::time::Duration;

use super::callers::Callers;
use super::contract::{Decision, Ended, Policy, View};
use crate::time::Time;

/// Longest that jbd2's way waits for others.
const JOURNAL_MAX: u64 = 15_000_000;

/// A policy that does not learn what is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// Each caller has a flush of their own, as soon as they come.
    Own,
    /// All through the log's commit, as jbd2 does: one flush at a time, and whoever is not the one
    /// who came last waits for as long as a flush takes on average, at most 15 ms.
    Journal,
    /// One flush at a time; the first of a group waits for as long as a flush takes on average.
    Average,
    /// One flush at a time; the first of a group waits for so long.
    Wait(Duration),
    /// One flush at a time, and no wait: who comes meanwhile goes with the next.
    Greedy,
    /// One flush at a time; the first of a group waits until all who are expected have come, at most
    /// so many eighths of a flush. Expected is who came in the last eight flush times.
    Gather(u32),
    /// So many flushes at a time, and no wait.
    Overlap(u32),
}

/// What is known besides what is in view.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Nanoseconds that a flush takes.
    pub(super) flush: u64,
    /// How many are expected to come again soon, those who wait included.
    pub(super) expected: u32,
    /// Whoever began the group is not the one who came last before it.
    pub(super) other: bool,
}

impl Fixed {
    /// The policy, with nothing seen yet.
    pub fn start(self) -> Works {
        let callers = matches!(self, Self::Gather(_)).then(Callers::new);
        Works { policy: self, flush: 0.0, flushes: 0, callers, before: None, other: false }
    }

    /// What is to be done now.
    pub(super) fn decide(self, view: &View, facts: Facts) -> Decision {
        let most = match self {
            Self::Own => u32::MAX,
            Self::Overlap(most) => most,
            _ => 1,
        };
        if view.waiting == 0 || view.in_flight >= most {
            return Decision::Rest;
        }
        let span = match self {
            Self::Own | Self::Greedy | Self::Overlap(_) => 0,
            Self::Journal if !facts.other => 0,
            Self::Journal => facts.flush.min(JOURNAL_MAX),
            Self::Average => facts.flush,
            Self::Wait(span) => u64::try_from(span.as_nanos()).unwrap_or(u64::MAX),
            Self::Gather(_) if view.waiting >= facts.expected => 0,
            Self::Gather(eighths) => facts.flush.saturating_mul(eighths.into()) / 8,
        };
        let until = Time(view.since.0.saturating_add(span));
        if view.now >= until { Decision::Flush } else { Decision::Until(until) }
    }
}

/// A policy of [`Fixed`] at work.
#[derive(Clone, Debug)]
pub struct Works {
    policy: Fixed,
    /// Nanoseconds that a flush takes, on average of the last ones.
    flush: f64,
    flushes: u64,
    callers: Option<Callers>,
    /// Who came last.
    before: Option<u64>,
    other: bool,
}

impl Policy for Works {
    fn arrived(&mut self, view: &View, caller: u64) {
        if view.waiting == 1 {
            self.other = self.before.is_some_and(|before| before != caller);
        }
        self.before = Some(caller);
        if let Some(callers) = &mut self.callers {
            callers.arrived(view.now, caller, self.flush as u64);
        }
    }

    fn begun(&mut self, _: &View) {}

    fn completed(&mut self, now: Time, caller: u64) {
        if let Some(callers) = &mut self.callers {
            callers.completed(now, caller);
        }
    }

    fn ended(&mut self, view: &View, flush: Ended) {
        let took = view.now.0.saturating_sub(flush.begun.0) as f64;
        self.flushes += 1;
        self.flush += (took - self.flush) / self.flushes.min(10) as f64;
    }

    fn decide(&mut self, view: &View) -> Decision {
        let flush = self.flush as u64;
        let expected = self.callers.as_mut().map_or(0, |callers| {
            callers.epochs.pass(view.now.0, flush);
            callers.epochs.expected()
        });
        self.policy.decide(view, Facts { flush, expected, other: self.other })
    }
}
