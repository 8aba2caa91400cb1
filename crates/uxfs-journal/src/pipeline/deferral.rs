//! Deferred commits: callers of fsync that keep what shows their data out of the log until the data is flushed.
//!
//! A checkpoint that shows new data is written only after a flush of that data. If callers with new data and
//! callers without share a checkpoint, all of them wait for that flush and for the flush of the log. A caller
//! that defers its commit writes its data, waits for a flush that other work needs anyway, and then commits.
//! So one flush serves the data of some callers and the log of others.
//!
//! 1. A commit is deferred only while callers without new data come, and only if a flush is in flight or will
//!    begin for a checkpoint. Otherwise deferring saves no flush.
//! 2. A deferred caller is resumed once: by a flush that covers its data, or without one when no flush would
//!    come. In the second case its data counts as data on which commits depend.
//! 3. The policy of fsync sees a deferred caller arrive once, when it is deferred. It starts no work for it.
//! 4. Until the resumed callers have committed, and at most for [`RESUME_MAX`], no checkpoint is cut for
//!    callers of fsync. So their commits are in it.
//! 5. With forced writes (FUA) no commit is deferred: a checkpoint needs no flush of its own then.

use std::collections::VecDeque;
use std::time::Duration;

use uxfs_sync::Time;

use super::{Action, Failure, Generation, Pipeline, Seq};

/// Longest time that a checkpoint waits for the commits of resumed callers.
const RESUME_MAX: Duration = Duration::from_millis(2);

/// Number of checkpoints for which a caller without new data counts as recent.
const RECENT: u64 = 2;

/// The callers whose commit is deferred.
#[derive(Debug)]
pub(super) struct DeferredCommits<W> {
    /// Those that wait for a flush, and the write that it must cover, in ascending order.
    waiting: VecDeque<(Generation, W)>,
    /// Callers were resumed up to this write.
    resumed: Generation,
    /// Number of resumed callers that have not committed.
    committing: u32,
    /// Time until which a cut waits for them.
    until: Time,
    /// The last open checkpoint for which a caller without new data waited.
    without_data: Option<Seq>,
}

impl<W> Default for DeferredCommits<W> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            resumed: Generation(0),
            committing: 0,
            until: Time(0),
            without_data: None,
        }
    }
}

impl<W> DeferredCommits<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.committing == 0
    }

    /// The time at which a cut waits no longer, if it waits.
    pub(super) fn alarm(&self) -> Option<Time> {
        (self.committing > 0).then_some(self.until)
    }

    /// Takes all waiters, and forgets the resumed callers.
    pub(super) fn take(&mut self) -> impl Iterator<Item = W> + use<W> {
        self.committing = 0;
        core::mem::take(&mut self.waiting).into_iter().map(|(_, waiter)| waiter)
    }
}

impl<W> Pipeline<W> {
    /// Reports that a caller of fsync has no data, as with a directory, and waits for checkpoint `seq`.
    pub fn sync_without_data(&mut self, seq: Seq) {
        if seq == self.open_seq {
            self.deferred.without_data = Some(seq);
        }
    }

    /// Should a caller of fsync with new data defer its commit?
    pub fn defers_commits(&self) -> bool {
        let recent = |seq: Seq| seq.0 + RECENT >= self.open_seq.0;
        self.deferred.without_data.is_some_and(recent)
            && !self.options.fua
            && !self.options.epochs
            && self.failed.is_none()
            && self.brings_flush()
    }

    /// Will a flush begin, or end, without a deferred caller asking for it?
    fn brings_flush(&self) -> bool {
        self.checkpoint.is_some()
            || !self.flushing.is_empty()
            || !self.group_commit.is_empty()
            || self.deferred.committing > 0
    }

    /// Defers the commit of a caller of fsync. Its data was reported by [`Pipeline::independent_write`], which
    /// returned `written`. `waiter` is woken when the caller may commit; the caller reports that with
    /// [`Pipeline::deferred_committed`].
    pub fn defer_commit(&mut self, now: Time, written: Generation, caller: u64, waiter: W) {
        if let Some(failure) = &self.failed {
            return self.actions.push_back(Action::Wake(waiter, Err(failure.clone())));
        }
        let waiting = &mut self.deferred.waiting;
        let at = waiting.partition_point(|(other, _)| *other <= written);
        waiting.insert(at, (written, waiter));
        self.group_commit.defer(now, caller);
        self.resume(now, self.flushed);
        self.advance(now);
    }

    /// May the caller with this write commit?
    pub fn is_resumed(&self, written: Generation) -> bool {
        written <= self.deferred.resumed
    }

    /// Reports that a resumed caller has committed, or has failed to.
    pub fn deferred_committed(&mut self, now: Time) {
        self.deferred.committing = self.deferred.committing.saturating_sub(1);
        self.count_deferred();
        self.advance(now);
    }

    /// Must a cut for callers of fsync wait for commits of resumed callers? Forgets those that took too long.
    pub(super) fn awaits_resumed(&mut self, now: Time) -> bool {
        if self.deferred.committing > 0 && now >= self.deferred.until {
            self.deferred.committing = 0;
            self.count_deferred();
        }
        self.deferred.committing > 0
    }

    fn count_deferred(&mut self) {
        let waiting = self.deferred.waiting.len();
        self.group_commit.set_deferred(waiting + self.deferred.committing as usize);
    }

    /// Resumes all callers if no flush would come.
    pub(super) fn resume_unserved(&mut self, now: Time) {
        if self.awaits_resumed(now) || self.brings_flush() {
            return;
        }
        let Some((last, _)) = self.deferred.waiting.back() else { return };
        let last = *last;
        self.data = self.data.max(last);
        self.resume(now, last);
    }

    /// Resumes the callers whose writes end at `until`.
    pub(super) fn resume(&mut self, now: Time, until: Generation) {
        while let Some((written, waiter)) = self.deferred.waiting.pop_front() {
            if written > until {
                return self.deferred.waiting.push_front((written, waiter));
            }
            self.deferred.resumed = self.deferred.resumed.max(written);
            self.deferred.committing += 1;
            self.deferred.until = now + RESUME_MAX;
            self.actions.push_back(Action::Wake(waiter, Ok(())));
        }
    }

    /// Wakes all callers with a failure.
    pub(super) fn fail_deferred(&mut self, failure: &Failure) {
        for waiter in self.deferred.take() {
            self.actions.push_back(Action::Wake(waiter, Err(failure.clone())));
        }
    }
}
