//! Log space: granted to a transaction before it begins, and to a rolling transaction before each roll.
//!
//! 1. Nothing waits for log space inside the gate, or with a group locked, or with an inode locked of which
//!    there is no copy ([`super::rolled_inodes`]). So a waiter here keeps nothing from closing the gate,
//!    and no object from being written in place.
//! 2. Free space goes to rolling transactions first, in the order in which they asked. No transaction
//!    begins while a rolling one waits.
//! 3. A rolling transaction that waits keeps only as much of its grant as it takes to log its intents
//!    again. It does that when the log is more than a little full and its intents are in a checkpoint that
//!    was cut.
//!
//! This cannot deadlock. A transaction inside the gate has what it needs and comes out (1). When all others
//! wait, the first rolling transaction among them forces the open checkpoint and pushes the AIL; what then
//! still holds the tail are intents of rolling transactions that wait. These move to the head of the log (3),
//! in checkpoints that hold nothing else: the log is almost empty, only the small grants of (3) are
//! outstanding, and the first in the queue gets the space for its next roll, which is a fraction of the log
//! ([`super::reserve`]). A transaction rolls finitely often, so each waiter gets its turn.
//!
//! A full host keeps the tail where it is. Then new transactions fail before they begin, and a rolling one
//! waits until [`super::JournalOptions::patience`] is over ([`crate::full`]).

use std::time::Duration;

use uxfs_journal::{Generation, Need};

use super::grant_queue::{Grant, GrantTicket};
use super::state::{Journal, State};
use crate::error::{Error, Result};
use crate::mount::Mount;

/// Longest sleep without a wake-up.
const MOMENT: Duration = Duration::from_millis(10);

impl Journal {
    /// Notes an event that may have freed log space, or may allow it to be freed.
    pub(super) fn note_event(&self, state: &mut State) {
        state.queue.events += 1;
        if state.queue.asleep > 0 {
            self.grant_event.notify_all();
        }
    }

    /// Releases a part of a grant.
    pub(crate) fn release(&self, granted: u64) {
        if granted > 0 {
            let mut state = self.state.lock();
            state.space.release(granted);
            self.note_event(&mut state);
        }
    }

    /// Enters the queue.
    pub(crate) fn enqueue(&self) -> GrantTicket {
        let mut state = self.state.lock();
        let ticket = state.queue.next;
        state.queue.next += 1;
        state.queue.rolling.push_back(ticket);
        GrantTicket(ticket)
    }

    /// Leaves the queue.
    pub(crate) fn dequeue(&self, ticket: &GrantTicket) {
        let mut state = self.state.lock();
        state.queue.rolling.retain(|other| *other != ticket.0);
        self.note_event(&mut state);
    }

    /// Grants `bytes` of log space if they are free and it is the caller's turn. A transaction
    /// without a ticket has its turn if no rolling one waits.
    pub(crate) fn try_grant(&self, ticket: Option<&GrantTicket>, bytes: u64) -> Result<Grant> {
        let mut state = self.state.lock();
        if let Some(failure) = state.pipeline.failure() {
            return Err(Error::Shutdown(failure.0.to_string()));
        }
        let mine = state.queue.rolling.front().copied() == ticket.map(|ticket| ticket.0);
        if mine && state.space.grant(bytes) {
            return Ok(Grant::Granted);
        }
        Ok(Grant::Wait(state.queue.events))
    }

    /// Grants a few bytes of log space if they are free, out of turn: too few to delay another
    /// transaction.
    pub(crate) fn grant_small(&self, bytes: u64) -> bool {
        self.state.lock().space.grant(bytes)
    }

    /// Sleeps until an event, unless there was one since the count was `events`. Also wakes after a
    /// moment: an inode that was locked during a push frees no space, and no event says when it
    /// will.
    fn sleep(&self, events: u64) {
        let mut state = self.state.lock();
        if state.queue.events == events && state.pipeline.failure().is_none() {
            state.queue.asleep += 1;
            self.grant_event.wait_for(&mut state, MOMENT);
            state.queue.asleep -= 1;
        }
    }

    /// Waits until the writes in place that are in flight have ended.
    pub(crate) fn await_pushes(&self) {
        drop(self.push_lock.lock());
    }

    /// Is the log so nearly empty that its tail holds up no waiter?
    pub(crate) fn is_all_but_empty(&self) -> bool {
        self.load().0 <= self.geometry.length / 64
    }

    /// The number of the open checkpoint.
    pub(crate) fn open_seq(&self) -> u64 {
        self.cil().seq.0
    }
}

impl Mount {
    /// Reserves `bytes` bytes of log space, and waits for them if necessary.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; [`Error::Io`] if the host has no space for the writes that would free
    /// log space.
    pub(crate) fn reserve_log_bytes(&self, journal: &Journal, bytes: u64) -> Result<u64> {
        self.counts.try_logspace.one();
        journal.await_release();
        self.await_buffers(journal)?;
        self.refuse_if_stuck(journal)?;
        loop {
            match journal.try_grant(None, bytes)? {
                Grant::Granted => return Ok(bytes),
                Grant::Wait(events) => self.await_log_room(journal, events)?,
            }
        }
    }

    /// With immediate logging, waits until a log buffer is free.
    fn await_buffers(&self, journal: &Journal) -> Result<()> {
        if !journal.immediate() {
            return Ok(());
        }
        let last = {
            let state = journal.state.lock();
            if state.pipeline.open_bytes() < journal.iclog_max {
                return Ok(());
            }
            state.pipeline.last()
        };
        self.counts.log_noiclogs.one();
        self.wait_for(journal, Need { seq: last, data: Generation(0) })
    }

    /// Forces the open checkpoint and pushes the oldest objects. If there was no event since the
    /// count was `events`, sleeps until one.
    pub(crate) fn await_log_room(&self, journal: &Journal, events: u64) -> Result<()> {
        self.counts.sleep_logspace.one();
        let last = journal.state.lock().pipeline.last();
        self.wait_for(journal, Need { seq: last, data: Generation(0) })?;
        let until = {
            let state = journal.state.lock();
            state.space.tail() + state.space.length() / 2
        };
        self.push_ail(journal, until)?;
        // Objects that could not be written are locked by other threads.
        uxfs_sync::yield_now();
        journal.sleep(events);
        Ok(())
    }
}

#[cfg(test)]
impl Journal {
    /// Grants all free log space. Returns its size.
    pub(crate) fn hog(&self) -> u64 {
        let mut state = self.state.lock();
        let free = state.space.free();
        if state.space.grant(free) { free } else { 0 }
    }

    /// Number of intents logged so far, plus the first id.
    pub(crate) fn announced(&self) -> u64 {
        self.next_intent.load(std::sync::atomic::Ordering::Relaxed)
    }
}
