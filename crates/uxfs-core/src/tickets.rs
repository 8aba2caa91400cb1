//! Tickets: durability of what was done so far, to be asked about, waited for, or notified of.
//!
//! A ticket costs nothing. Waiting for it forces the log, under the volume's policy of fsync.

use crate::engine::Engine;
use crate::error::Result;
use crate::journal::{Failure, LogLoad, Op, Ticket, caller};

impl Engine {
    /// How full the log is; nothing without a journal.
    pub fn log_load(&self) -> LogLoad {
        self.journal.as_ref().map_or_else(LogLoad::default, |journal| journal.log_load())
    }

    /// Everything done so far, as something to wait for; of data that was not written back yet
    /// ([`crate::OpenOptions::writeback`]), see [`crate::Fs::begin_sync`].
    pub fn ticket(&self) -> Ticket {
        self.journal.as_ref().map_or_else(Ticket::default, |journal| journal.ticket())
    }

    /// Checkpoint `seq` and all data written so far, as something to wait for.
    pub(crate) fn ticket_of(&self, seq: u64) -> Ticket {
        self.journal.as_ref().map_or_else(Ticket::default, |journal| journal.ticket_of(seq))
    }

    /// Is everything that the ticket stands for on stable storage?
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_ticket_durable(ticket))
    }

    /// Waits until everything that the ticket stands for is on stable storage.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`] if that can no longer be.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        match &self.journal {
            Some(journal) => self.wait_with_others(journal, ticket),
            None => Ok(()),
        }
    }

    /// Calls `notify` once everything that the ticket stands for is on stable storage, or cannot be
    /// any more: from this call if that is known already, else from the [`crate::LogWorker`], or from
    /// a thread that waits for something itself. It must not wait.
    pub fn when_durable(
        &self,
        ticket: Ticket,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        self.when_durable_for(caller(), ticket, notify);
    }

    /// As [`Engine::when_durable`], on behalf of a caller: a number that tells apart those who ask
    /// again and again, where one thread asks for many of them. The policy of fsync goes by it.
    pub fn when_durable_for(
        &self,
        caller: u64,
        ticket: Ticket,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        match &self.journal {
            Some(journal) => {
                if journal.notify_when(caller, ticket, Box::new(notify)) {
                    journal.nudge_worker();
                }
            }
            None => notify(Ok(())),
        }
    }

    /// As [`Engine::when_durable_for`], but this call itself does what there is to do, unless another
    /// thread does it: for a thread that has nothing else to do, and need not wake the
    /// [`crate::LogWorker`]. What is left when it returns is the log worker's.
    pub fn make_durable_for(
        &self,
        caller: u64,
        ticket: Ticket,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        match &self.journal {
            Some(journal) => {
                if journal.notify_when(caller, ticket, Box::new(notify)) {
                    // A failure reaches all waiters through their own notification.
                    let _reported = self.drive_on(journal);
                }
            }
            None => notify(Ok(())),
        }
    }

    /// Reserves log space for a transaction of this kind, waiting for it if need be. The bytes granted.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`]; [`crate::Error::Io`] if the host has no room for what is to make
    /// room in the log.
    pub(crate) fn reserve_log(&self, op: Op) -> Result<u64> {
        match &self.journal {
            Some(journal) => self.reserve_log_bytes(journal, journal.reserve.link(op)),
            None => Ok(0),
        }
    }
}
