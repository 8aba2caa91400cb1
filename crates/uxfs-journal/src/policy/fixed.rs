//! Policies that do not adapt to the disk: those of the discussion of ext4's fsync in 2010 (Darrick
//! J. Wong, 27 September 2010, linux-ext4, "Performance testing of various barrier reduction
//! patches"), and three basic ones.
//!
//! | name there | here |
//! |---|---|
//! | old | [`Fixed::Own`] |
//! | jbd2 | [`Fixed::Journal`] |
//! | use avg sync time | [`Fixed::Average`] |
//! | a delay of 1 or 500 µs | [`Fixed::Wait`] |

use core::time::Duration;

use super::contract::{Decision, Ended, Policy, View};
use super::epochs::Epochs;
use uxfs_sync::Time;

/// Longest wait of [`Fixed::Journal`] in nanoseconds.
const JOURNAL_MAX: u64 = 15_000_000;

/// A policy that is the same on every disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// Each caller gets a flush of its own at once.
    Own,
    /// As jbd2: one flush at a time. The first caller of a group waits for the average duration of
    /// a flush, at most 15 ms, unless the same caller was the last one to come before it.
    Journal,
    /// One flush at a time. The first caller of a group waits for the average duration of a flush.
    Average,
    /// One flush at a time. The first caller of a group waits for this long.
    Wait(Duration),
    /// One flush at a time, without waiting. Callers that come meanwhile share the next flush.
    Greedy,
    /// One flush at a time. The first caller of a group waits until all expected callers have come,
    /// at most for this many eighths of a flush. Expected are the callers of the last eight flush
    /// durations.
    Gather(u32),
    /// This many flushes at a time, without waiting.
    Overlap(u32),
}

/// Facts that a decision needs beside the view.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Duration of a flush in nanoseconds.
    pub(super) flush: u64,
    /// Number of callers expected soon, those that wait included.
    pub(super) expected: u32,
    /// The first caller of the group is not the last one that came before it.
    pub(super) other: bool,
}

impl Fixed {
    /// The policy, before any event.
    pub fn start(self) -> Works {
        let epochs = matches!(self, Self::Gather(_)).then(Epochs::new);
        Works { policy: self, flush: 0.0, flushes: 0, epochs, before: None, other: false }
    }

    /// The decision for a view.
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

/// A policy of [`Fixed`] with its state.
#[derive(Clone, Debug)]
pub struct Works {
    policy: Fixed,
    /// Average duration of the last flushes in nanoseconds.
    flush: f64,
    flushes: u64,
    epochs: Option<Epochs>,
    /// The caller that came last.
    before: Option<u64>,
    other: bool,
}

impl Policy for Works {
    fn arrived(&mut self, view: &View, caller: u64) {
        if view.waiting == 1 {
            self.other = self.before.is_some_and(|before| before != caller);
        }
        self.before = Some(caller);
        if let Some(epochs) = &mut self.epochs {
            epochs.arrived(view.now, caller, self.flush as u64);
        }
    }

    fn begun(&mut self, _: &View) {}

    fn completed(&mut self, _: Time, _: u64) {}

    fn ended(&mut self, view: &View, flush: Ended) {
        let took = view.now.0.saturating_sub(flush.begun.0) as f64;
        self.flushes += 1;
        self.flush += (took - self.flush) / self.flushes.min(10) as f64;
    }

    fn decide(&mut self, view: &View) -> Decision {
        let flush = self.flush as u64;
        let expected = self.epochs.as_mut().map_or(0, |epochs| {
            epochs.pass(view.now, flush);
            epochs.expected()
        });
        self.policy.decide(view, Facts { flush, expected, other: self.other })
    }
}
