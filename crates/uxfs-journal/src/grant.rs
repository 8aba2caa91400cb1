//! Log space: granted to a transaction before it begins, and to a rolling transaction before each roll.
//!
//! 1. Nothing waits for log space inside the gate, or with a group locked, or with an inode locked of which
//!    the engine has no copy (`uxfs-core/src/rolled_inodes.rs`). So a waiter here keeps nothing from closing the gate,
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
//! (`uxfs-core/src/journal/reserve.rs`). A transaction rolls finitely often, so each waiter gets its turn.
//!
//! A full host keeps the tail where it is. Then new transactions fail before they begin, and a rolling one
//! waits until [`crate::JournalOptions::host_full_timeout`] is over.

use std::time::Duration;

use crate::grant_queue::{Grant, GrantTicket};
use crate::journal::{Journal, State};
use crate::pipeline::{Generation, Need};
use crate::volume::{Counter, Volume};

/// Longest sleep without a wake-up.
const MOMENT: Duration = Duration::from_millis(10);

impl<V: Volume> Journal<V> {
    /// Notes an event that may have freed log space, or may allow it to be freed.
    pub(crate) fn note_event(&self, state: &mut State) {
        state.queue.events += 1;
        if state.queue.asleep > 0 {
            self.grant_event.notify_all();
        }
    }

    /// Releases a part of a grant.
    pub fn release(&self, granted: u64) {
        if granted > 0 {
            let mut state = self.state.lock();
            state.space.release(granted);
            self.note_event(&mut state);
        }
    }

    /// Enters the queue.
    pub fn enqueue(&self) -> GrantTicket {
        let mut state = self.state.lock();
        let ticket = state.queue.next;
        state.queue.next += 1;
        state.queue.rolling.push_back(ticket);
        GrantTicket(ticket)
    }

    /// Leaves the queue.
    pub fn dequeue(&self, ticket: &GrantTicket) {
        let mut state = self.state.lock();
        state.queue.rolling.retain(|other| *other != ticket.0);
        self.note_event(&mut state);
    }

    /// Grants `bytes` of log space if they are free and it is the caller's turn. A transaction
    /// without a ticket has its turn if no rolling one waits.
    ///
    /// # Errors
    /// [`Volume::stopped`].
    pub fn try_grant(&self, ticket: Option<&GrantTicket>, bytes: u64) -> Result<Grant, V::Error> {
        let mut state = self.state.lock();
        if let Some(failure) = state.pipeline.failure() {
            return Err(V::stopped(&failure.0));
        }
        let mine = state.queue.rolling.front().copied() == ticket.map(|ticket| ticket.0);
        if mine && state.space.grant(bytes) {
            return Ok(Grant::Granted);
        }
        Ok(Grant::Wait(state.queue.events))
    }

    /// Grants a few bytes of log space if they are free, out of turn: too few to delay another
    /// transaction.
    pub fn grant_small(&self, bytes: u64) -> bool {
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
    pub fn await_pushes(&self) {
        drop(self.push_lock.lock());
    }

    /// Is the log so nearly empty that its tail holds up no waiter?
    pub fn is_all_but_empty(&self) -> bool {
        self.load().0 <= self.geometry.length / 64
    }

    /// The number of the open checkpoint.
    pub fn open_seq(&self) -> u64 {
        self.cil().seq.0
    }
}

impl<V: Volume> Journal<V> {
    /// Reserves `bytes` bytes of log space, and waits for them if necessary.
    ///
    /// # Errors
    /// [`Volume::stopped`]; those of [`Volume::check_room`], and of the writes that would free log
    /// space.
    pub fn reserve(&self, volume: &V, bytes: u64) -> Result<u64, V::Error> {
        volume.count(Counter::TryLogspace, 1);
        self.await_release();
        self.await_buffers(volume)?;
        volume.check_room(self)?;
        loop {
            match self.try_grant(None, bytes)? {
                Grant::Granted => return Ok(bytes),
                Grant::Wait(events) => self.await_log_room(volume, events)?,
            }
        }
    }

    /// With immediate logging, waits until a log buffer is free.
    fn await_buffers(&self, volume: &V) -> Result<(), V::Error> {
        if !self.immediate() {
            return Ok(());
        }
        let last = {
            let state = self.state.lock();
            if state.pipeline.open_bytes() < self.iclog_max {
                return Ok(());
            }
            state.pipeline.last()
        };
        volume.count(Counter::LogNoiclogs, 1);
        self.wait_for(volume, Need { seq: last, data: Generation(0) })
    }

    /// Forces the open checkpoint and pushes the oldest objects. If there was no event since the
    /// count was `events`, sleeps until one.
    ///
    /// # Errors
    /// As [`Self::push_ail`].
    pub fn await_log_room(&self, volume: &V, events: u64) -> Result<(), V::Error> {
        volume.count(Counter::SleepLogspace, 1);
        let last = self.last_forced(&self.state.lock());
        self.wait_for(volume, Need { seq: last, data: Generation(0) })?;
        let until = {
            let state = self.state.lock();
            state.space.tail() + state.space.length() / 2
        };
        self.push_ail(volume, until)?;
        // Objects that could not be written are locked by other threads.
        uxfs_sync::yield_now();
        self.sleep(events);
        Ok(())
    }
}
