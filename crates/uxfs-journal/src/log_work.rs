//! What is to be done about the log though nobody asks: a state machine that says when commits are
//! too old to stay in memory, when objects go home so that the log does not fill, and when an idle
//! log is covered.
//!
//! It is shown the log as it is ([`LogView`]) and answers with the next [`LogWork`]; whoever carries it
//! out shows it the log again. Without a clock, threads or I/O, like [`crate::Pipeline`].
//!
//! Covering: a log that went idle still names an old tail in its last record, from which recovery
//! would begin. So a dummy transaction (the superblock) is written whose record names itself as the
//! tail, and after it has come home another one, as XFS does. Then the log is left alone.
//!
//! 1. A commit is sent down when it is as old as the pipeline allows.
//! 2. While more than half of the log is live, what is oldest goes home; what is logged for longer
//!    than [`LogWorkOptions::old`] goes home anyway.
//! 3. The log is covered only when nothing gathers, is on its way or is active, and nothing but a
//!    cover was written for [`LogWorkOptions::idle`]. After two covers nothing is done until something
//!    else is.
//! 4. What could not be done is tried again after [`LogWorkOptions::retry`], not at once.

use std::time::Duration;

use crate::time::Time;

/// When things are done though nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWorkOptions {
    /// How long an object may be logged and not home.
    pub old: Duration,
    /// How long nothing may have happened before the log is covered.
    pub idle: Duration,
    /// How long to wait when objects cannot go home yet.
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

/// The log as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogView {
    /// Bytes of the log.
    pub length: u64,
    /// Where the next record goes.
    pub head: u64,
    /// From where recovery would begin.
    pub tail: u64,
    /// The lowest position of an object that is not home.
    pub active: Option<u64>,
    /// Does nothing gather, and is nothing on its way?
    pub quiet: bool,
    /// When the pipeline is to be told the time.
    pub alarm: Option<Time>,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogWork {
    /// Tell the pipeline the time, and carry out what it says.
    Tick,
    /// Send objects below this position home.
    Push(u64),
    /// Write a dummy transaction, bring it down, and send it home; then tell [`LogWorkPlanner::covered`].
    Cover,
    /// Nothing before this moment; `None` for nothing until something happens.
    Sleep(Option<Time>),
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct LogWorkPlanner {
    log_work: LogWorkOptions,
    /// Where the head was at some moment: what lies before is old some time after.
    mark: Option<(Time, u64)>,
    /// The head as it was seen last, and since when.
    head: Option<(Time, u64)>,
    /// Covers that are still to be written.
    due: u8,
    /// What lies before this is logged for too long.
    overdue: u64,
    /// The last push and when, by what was active and how far it was to go: the same is not tried
    /// again at once.
    pushed: Option<(Time, (u64, u64))>,
}

impl LogWorkPlanner {
    /// A keeper of a log that was just opened: clean, so that it need not be covered.
    pub fn new(log_work: LogWorkOptions) -> Self {
        Self { log_work, mark: None, head: None, due: 0, overdue: 0, pushed: None }
    }

    /// What is to be done now.
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

    /// Is something to go home?
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
            // Far enough that it need not be done again at once.
            until = until.max(seen.tail + live * 3 / 4);
        }
        if active >= until {
            return None;
        }
        // What stays behind must not keep back what comes after it, nor be tried all the time.
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

    /// The log was covered at `now`; its head is here now.
    pub fn covered(&mut self, now: Time, head: u64) {
        self.due = self.due.saturating_sub(1);
        self.head = Some((now, head));
    }
}

fn earlier(one: Option<Time>, other: Time) -> Option<Time> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests;
