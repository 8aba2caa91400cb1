//! Rolls a transaction: commits what it did so far, and continues with its pending operations.
//!
//! 1. Between two rolls a transaction is outside the gate and holds no group. A checkpoint may be
//!    cut there, and other transactions may use the groups. Its inodes stay locked, and it leaves
//!    copies of them ([`crate::journal`], invariant 5).
//! 2. The operations that are pending then are announced by intents, in the checkpoint of its last
//!    commit or an earlier one.
//! 3. After each roll it has a log grant of the same size as the first.

use std::time::Duration;

use uxfs_sync as sync;

use super::Tx;
use super::owed::Owed;
use crate::cause::Cause;
use crate::deferred::Deferred;
use crate::error::Result;
use uxfs_journal::{Grant, GrantTicket};

use crate::journal::{self, ImmediateWriter, Journal, RollPolicy, dquot_item, reserve};

/// Time between two attempts to get log space from a full host.
const MOMENT: Duration = Duration::from_millis(100);

impl<'fs> Tx<'fs> {
    /// The next pending operation.
    pub(crate) fn next_step(&mut self) -> Option<Deferred> {
        self.take_steps();
        self.rolling.owed.front().map(|owed| owed.step)
    }

    fn take_steps(&mut self) {
        let steps = self.deferred.drain(..).map(|step| Owed { step, intent: None });
        self.rolling.owed.extend(steps);
    }

    /// Marks the first pending operation as done, but for `rest`.
    pub(crate) fn step_done(&mut self, rest: Option<Deferred>) {
        if let Some(Owed { step, intent: Some(id) }) = self.rolling.owed.pop_front() {
            self.rolling.done.push((step, id));
        }
        if let Some(step) = rest {
            self.rolling.owed.push_front(Owed { step, intent: None });
        }
        self.take_steps();
    }

    /// Should the transaction roll before its next operation?
    pub(crate) fn should_roll(&self) -> bool {
        let Some(journal) = &self.fs.journal else { return false };
        if self.bufs.is_empty() && self.rolling.is_logged() {
            return false;
        }
        journal.roll_policy() != RollPolicy::WhenFull || !self.has_room()
    }

    /// Does the grant cover one more deferred operation?
    pub(crate) fn has_room(&self) -> bool {
        self.fs.journal.is_none() || self.logged_most() + self.fs.log_step() <= self.granted
    }

    /// Upper bound of the log space that the changes since the last roll need.
    fn logged_most(&self) -> u64 {
        let Some(journal) = &self.fs.journal else { return 0 };
        let bufs: u64 = self.bufs.iter().map(|entry| reserve::buffer(entry.buf.len() as u64)).sum();
        let changed = self.inodes.iter().filter(|entry| !entry.changed.is_empty()).count();
        let inodes = changed as u64 * reserve::inode(&self.fs.geo);
        let steps = (self.rolling.owed.len() + self.rolling.done.len()) as u64;
        let dquots =
            if self.fs.quota.is_some() { 6 * changed as u64 * dquot_item::MOST } else { 0 };
        bufs + inodes + dquots + reserve::intents(journal.geometry(), steps)
    }

    /// Commits the changes so far and continues as the next transaction: without groups, with the
    /// inodes still locked, after other threads had a chance to cut a checkpoint. A later cancel
    /// cannot undo what was committed; it shuts the volume down.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`].
    pub(crate) fn roll(&mut self) -> Result<()> {
        self.account()?;
        self.commit_items(true);
        self.ags.clear();
        self.rolled = true;
        let Some(journal) = &self.fs.journal else { return Ok(()) };
        for entry in &self.inodes {
            let copy = entry.guard.copy();
            self.fs.rolled_inodes.put(copy.ino, &entry.cell, copy);
        }
        self.gate = None;
        let ready = self.between_links(journal);
        // Bypasses a thread that waits to close the gate: it may be waiting for a thread that waits
        // for an inode of this transaction.
        self.gate = Some(self.fs.gate.read_recursive());
        for entry in &mut self.inodes {
            if self.fs.rolled_inodes.take(entry.guard.ino) {
                self.fs.inodes.mark_clean(&mut entry.guard);
            }
        }
        ready
    }

    fn between_links(&mut self, journal: &Journal) -> Result<()> {
        match journal.roll_policy() {
            RollPolicy::WhenFull => {}
            RollPolicy::Always => journal.drive_on(self.fs)?,
            // A transaction keeps epochs off.
            RollPolicy::AlwaysDurable if journal.has_epochs() => journal.drive_on(self.fs)?,
            RollPolicy::AlwaysDurable => self.fs.wait(self.fs.ticket())?,
        }
        let more = self.link.saturating_sub(self.granted);
        if more == 0 {
            return Ok(());
        }
        if let Grant::Granted = journal.try_grant(None, more)? {
            self.granted += more;
            return Ok(());
        }
        // Other threads may be waiting for the space that is not needed to log the intents again.
        let keep = reserve::intents(journal.geometry(), self.rolling.owed.len() as u64);
        journal.release(self.granted.saturating_sub(keep));
        self.granted = self.granted.min(keep);
        let ticket = journal.enqueue();
        let granted = self.await_grant(journal, &ticket);
        journal.dequeue(&ticket);
        granted
    }

    fn await_grant(&mut self, journal: &Journal, ticket: &GrantTicket) -> Result<()> {
        let begun = sync::now();
        loop {
            let more = self.link.saturating_sub(self.granted);
            match journal.try_grant(Some(ticket), more)? {
                Grant::Granted => {
                    self.granted += more;
                    return Ok(());
                }
                Grant::Wait(events) => {
                    self.announce_again(journal);
                    match journal.await_log_room(self.fs, events) {
                        // A transaction that began must be completed. The host may have space
                        // later.
                        Err(error) if error.is_host_full() => {
                            if sync::since(begun) >= journal.host_full_timeout() {
                                let cause = Cause::of("waiting for log space", &error);
                                return Err(journal.fail(self.fs, cause));
                            }
                            sync::pause(MOMENT);
                        }
                        other => other?,
                    }
                }
            }
        }
    }

    /// Adds the done items of this part to the open checkpoint, and, if the transaction continues,
    /// the intents of its pending operations.
    pub(super) fn log_steps(&mut self, cil: &mut journal::Cil, goes_on: bool) {
        let geo = &self.fs.geo;
        for (step, id) in self.rolling.done.drain(..) {
            cil.done(step.done(geo, id));
        }
        let Some(journal) = self.fs.journal.as_ref().filter(|_| goes_on) else { return };
        if self.rolling.owed.iter().all(|owed| owed.intent.is_none()) {
            self.rolling.fresh = cil.seq.0;
        }
        for owed in self.rolling.owed.iter_mut().filter(|owed| owed.intent.is_none()) {
            let id = journal.new_intent();
            cil.announce(owed.step.intent(geo, id));
            owed.intent = Some(id);
        }
    }

    /// Logs the intents of pending operations again in the open checkpoint, if they are in a
    /// checkpoint that was cut and the log is not nearly empty: then they no longer hold the log's
    /// tail.
    fn announce_again(&mut self, journal: &Journal) {
        if self.rolling.fresh >= journal.open_seq() || journal.is_all_but_empty() {
            return;
        }
        let steps = self.rolling.owed.len() as u64;
        let needed = reserve::intents(journal.geometry(), steps);
        if self.granted < needed {
            if !journal.grant_small(needed - self.granted) {
                return;
            }
            self.granted = needed;
        }
        let _inside = self.fs.gate.read_recursive();
        let mut cil = journal.cil();
        for owed in &mut self.rolling.owed {
            if let Some(id) = owed.intent.take() {
                cil.done(owed.step.done(&self.fs.geo, id));
            }
        }
        self.log_steps(&mut cil, true);
        // That checkpoint holds only intents, unless other threads add to it.
        self.rolling.fresh = cil.seq.0 + 1;
        if let Some(writer) = ImmediateWriter::begin(journal, &mut cil) {
            writer.end();
        }
        let added = journal.taken_in(&mut cil, &mut self.granted);
        drop(cil);
        if !journal.committed(added, 0) {
            self.fs.counts.logspace_overruns.one();
        }
    }
}
