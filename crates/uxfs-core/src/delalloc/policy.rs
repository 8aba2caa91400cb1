//! When data is written back without a sync: a state machine without clock, thread or I/O.
//!
//! Its caller gives it the number of dirty bytes and the time; it answers which files are due. A
//! file gets a *turn* when it becomes dirty, in ascending order. A tick notes which turns had been
//! given by then: when the expiry age has passed since that tick, all of them are due.
//!
//! 1. A turn is due no earlier than the expiry age after it was given, and no later than that plus
//!    the time between ticks, if ticks come when [`Policy::alarm`] asks for them.
//! 2. Its memory is bounded by the expiry age over the time between ticks.

use std::collections::VecDeque;
use std::time::Duration;

use uxfs_journal::Time;

use super::options::WritebackOptions;

/// What a tick writes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// All files with a turn below this one.
    pub(super) below: u64,
    /// After that, this many bytes of the oldest data.
    pub(super) bytes: u64,
}

/// Decides which files are due.
#[derive(Debug)]
pub(super) struct Policy {
    options: WritebackOptions,
    /// Times of ticks, with the next turn at each tick.
    ticks: VecDeque<(Time, u64)>,
}

impl Policy {
    pub(super) fn new(options: WritebackOptions) -> Self {
        Self { options, ticks: VecDeque::new() }
    }

    fn span(centisecs: u32) -> Duration {
        Duration::from_millis(u64::from(centisecs) * 10)
    }

    /// Handles a tick: `turn` is the next turn, `used` bytes are dirty. Returns what is due.
    pub(super) fn tick(&mut self, now: Time, turn: u64, used: u64) -> Due {
        let age = Self::span(self.options.dirty_expire_centisecs);
        let mut below = 0;
        while let Some((at, first)) = self.ticks.front().copied()
            && at + age <= now
        {
            below = first;
            self.ticks.pop_front();
        }
        let between = Self::span(self.options.dirty_writeback_centisecs);
        // Do not remember each of the ticks that come more often than asked for.
        if self.ticks.back().is_none_or(|(at, _)| *at + between <= now || age.is_zero()) {
            self.ticks.push_back((now, turn));
        }
        Due { below, bytes: used.saturating_sub(self.options.dirty_background_bytes) }
    }

    /// When the next tick is due; the time of the last one if a tick is overdue.
    pub(super) fn alarm(&self, dirty: bool, used: u64) -> Option<Time> {
        if !dirty {
            return None;
        }
        let last = self.ticks.back().map_or(Time(0), |(at, _)| *at);
        if used > self.options.dirty_background_bytes {
            return Some(last);
        }
        Some(last + Self::span(self.options.dirty_writeback_centisecs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Time {
        Time(n * 1_000_000_000)
    }

    #[test]
    fn turns_expire_in_order_and_not_early() {
        let mut policy = Policy::new(WritebackOptions::default());
        // Give turns 0..10 before the first tick, and ten more before each further tick.
        for tick in 0..20 {
            let due = policy.tick(secs(5 * tick), 10 * (tick + 1), 0);
            let expected = if tick < 6 { 0 } else { 10 * (tick - 5) };
            assert_eq!(due.below, expected, "tick {tick}");
            assert!(policy.ticks.len() <= 7);
        }
    }

    #[test]
    fn frequent_ticks_are_not_all_stored() {
        let mut policy = Policy::new(WritebackOptions::default());
        for at in 0..100_000 {
            policy.tick(Time(at * 1_000_000), at, 0);
        }
        assert!(policy.ticks.len() <= 8, "{}", policy.ticks.len());
    }

    #[test]
    fn a_tick_is_due_immediately_above_the_background_limit() {
        let options = WritebackOptions { dirty_background_bytes: 100, ..Default::default() };
        let mut policy = Policy::new(options);
        assert_eq!(policy.alarm(false, 1000), None);
        assert_eq!(policy.alarm(true, 100), Some(secs(5)));
        assert_eq!(policy.tick(secs(7), 1, 150), Due { below: 0, bytes: 50 });
        assert_eq!(policy.alarm(true, 101), Some(secs(7)));
        assert_eq!(policy.alarm(true, 100), Some(secs(12)));
        assert_eq!(policy.tick(secs(9), 1, 90), Due { below: 0, bytes: 0 });
    }
}
