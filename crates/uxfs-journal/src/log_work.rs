//! Background work on the log: a state machine that decides when old commits are written, when an
//! AIL push makes room in the log, and when an idle log is covered.
//!
//! The caller shows it the state of the log ([`LogView`]), carries out the [`LogWork`] that it
//! answers with, and shows it the log again. It has no clock, threads or I/O, like
//! [`crate::Pipeline`].
//!
//! Covering: the last record of a log that went idle still names an old tail, from which recovery
//! would start. So a dummy transaction (of the superblock) is written, whose record names itself as
//! the tail, and a second one after the first is written in place, as XFS does. Then the log is
//! left alone.
//!
//! 1. A commit is written when it is as old as the pipeline allows.
//! 2. While more than half of the log is live, the oldest objects are pushed. Objects that were
//!    logged longer than [`LogWorkOptions::old`] ago are pushed in any case.
//! 3. The log is covered only when the open checkpoint is empty, nothing is in flight, the AIL is
//!    empty, and nothing but a cover was written for [`LogWorkOptions::idle`]. After two covers
//!    there is no work until something changes.
//! 4. A push that did not get through is repeated after [`LogWorkOptions::retry`], not at once.
//!
//! Called by the engine's log worker (`uxfs-core/src/log_worker.rs`).

use std::time::Duration;

use uxfs_sync::Time;

use crate::log_pos::LogPos;

/// The intervals of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWorkOptions {
    /// How long an object may stay logged without being written in place.
    pub old: Duration,
    /// How long the log must be idle before it is covered.
    pub idle: Duration,
    /// How long to wait when objects cannot be written in place yet.
    pub retry: Duration,
}

impl Default for LogWorkOptions {
    /// 30 s, 30 s, 50 ms.
    fn default() -> Self {
        Self {
            old: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            retry: Duration::from_millis(50),
        }
    }
}

/// The state of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogView {
    /// Bytes of the log.
    pub length: u64,
    /// The position of the next record.
    pub head: LogPos,
    /// The position from which recovery would start.
    pub tail: LogPos,
    /// The lowest position of an object in the AIL.
    pub active: Option<LogPos>,
    /// Is the open checkpoint empty, and nothing in flight?
    pub quiet: bool,
    /// When [`crate::Pipeline::tick`] must be called.
    pub alarm: Option<Time>,
}

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogWork {
    /// Call [`crate::Pipeline::tick`] and carry out its actions.
    Tick,
    /// Push the objects of the AIL below this position.
    Push(LogPos),
    /// Write a dummy transaction, make it durable and write it in place. Then call
    /// [`LogWorkPlanner::covered`].
    Cover,
    /// Sleep until this time; with `None`, until something changes.
    Sleep(Option<Time>),
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct LogWorkPlanner {
    log_work: LogWorkOptions,
    /// The head at a past time: what lies before it becomes overdue.
    mark: Option<(Time, LogPos)>,
    /// The head as last seen, and since when it is there.
    head: Option<(Time, LogPos)>,
    /// Covers still to be written.
    due: u8,
    /// Objects logged before this position are overdue.
    overdue: LogPos,
    /// Time of the last push, the lowest active position then, and its target: the same push is not
    /// repeated at once.
    pushed: Option<(Time, (LogPos, LogPos))>,
}

impl LogWorkPlanner {
    /// The planner for a log that was just opened. It is clean, so it need not be covered.
    pub fn new(log_work: LogWorkOptions) -> Self {
        Self { log_work, mark: None, head: None, due: 0, overdue: LogPos(0), pushed: None }
    }

    /// The next task.
    pub fn next(&mut self, now: Time, seen: &LogView) -> LogWork {
        match self.head {
            None => self.head = Some((now, seen.head)),
            Some((_, head)) if head != seen.head || !seen.quiet => {
                self.head = Some((now, seen.head));
                self.due = 2;
            }
            Some(_) => {}
        }
        if seen.alarm.is_some_and(|alarm| alarm <= now) {
            return LogWork::Tick;
        }
        let mut wake = seen.alarm;
        if let Some(work) = self.push(now, seen, &mut wake) {
            return work;
        }
        if self.due > 0 && seen.quiet && seen.active.is_none() {
            let since = self.head.map_or(now, |(since, _)| since);
            let when = since + self.log_work.idle;
            if when <= now {
                return LogWork::Cover;
            }
            wake = earlier(wake, when);
        }
        LogWork::Sleep(wake)
    }

    /// Is a push due?
    fn push(&mut self, now: Time, seen: &LogView, wake: &mut Option<Time>) -> Option<LogWork> {
        let Some(active) = seen.active else {
            self.mark = None;
            self.pushed = None;
            return None;
        };
        let live = seen.head - seen.tail;
        let (since, mark) = *self.mark.get_or_insert((now, seen.head));
        let mut next = since + self.log_work.old;
        if next <= now {
            self.overdue = mark;
            self.mark = Some((now, seen.head));
            next = now + self.log_work.old;
        }
        *wake = earlier(*wake, next);
        let mut until = self.overdue;
        if live > seen.length / 2 {
            // Far enough that the next push is not due at once.
            until = until.max(seen.tail + live * 3 / 4);
        }
        if active >= until {
            return None;
        }
        // An object that cannot be written yet must not block those after it, nor be tried all the
        // time.
        if let Some((when, before)) = self.pushed
            && before == (active, until)
            && now < when + self.log_work.retry
        {
            *wake = earlier(*wake, when + self.log_work.retry);
            return None;
        }
        self.pushed = Some((now, (active, until)));
        Some(LogWork::Push(until))
    }

    /// Reports that the log was covered at `now`, and its head after that.
    pub fn covered(&mut self, now: Time, head: LogPos) {
        self.due = self.due.saturating_sub(1);
        self.head = Some((now, head));
    }
}

fn earlier(one: Option<Time>, other: Time) -> Option<Time> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests;
