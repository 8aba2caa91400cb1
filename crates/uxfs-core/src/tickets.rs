//! Tickets: a caller can ask about the durability of the changes so far, wait for it, or be
//! notified.
//!
//! A ticket costs nothing. Waiting for it forces the log, under the volume's fsync policy.

use uxfs_journal::{Generation, caller};

use crate::engine::Engine;
use crate::error::Result;
use crate::journal::{Failure, LogLoad, Op, Ticket};

/// The thread that drives the journal for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The [`crate::LogWorker`].
    Worker,
    /// The calling thread, unless another one drives already. For a thread with nothing else to do:
    /// it need not wake the log worker, which does what is left when the call returns.
    Caller,
}

impl Engine {
    /// How full the log is; zero without a journal.
    pub fn log_load(&self) -> LogLoad {
        self.journal.as_ref().map_or_else(LogLoad::default, |journal| journal.log_load())
    }

    /// A ticket for everything done so far. For data that is not written back yet
    /// ([`crate::OpenOptions::writeback`]), see [`crate::Fs::begin_sync`].
    pub fn ticket(&self) -> Ticket {
        self.journal.as_ref().map_or_else(Ticket::default, |journal| journal.ticket())
    }

    /// A ticket for checkpoint `seq` and the writes of data up to `data`.
    pub(crate) fn ticket_for(&self, seq: u64, data: Generation) -> Ticket {
        self.journal.as_ref().map_or_else(Ticket::default, |j| j.ticket_for(seq, data))
    }

    /// A ticket for checkpoint `seq`, for a caller of fsync whose file has no data that a flush must cover.
    pub(crate) fn ticket_without_data(&self, seq: u64) -> Ticket {
        self.journal.as_ref().map_or_else(Ticket::default, |j| j.ticket_without_data(seq))
    }

    /// The last write of data.
    pub(crate) fn last_written(&self) -> Generation {
        self.journal.as_ref().map_or_else(Generation::default, |j| j.ticket().0.data)
    }

    /// Reports a completed write of data, on which later commits may depend.
    pub(crate) fn data_written(&self) -> Generation {
        self.journal.as_ref().map_or_else(Generation::default, |j| j.data_written())
    }

    /// Is everything up to the ticket on stable storage?
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_ticket_durable(ticket))
    }

    /// Waits until everything up to the ticket is on stable storage.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`] if the volume was shut down before that.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        match &self.journal {
            Some(journal) => journal.wait_with_others(self, ticket),
            None => Ok(()),
        }
    }

    /// Calls `notify` once everything up to the ticket is on stable storage, or once that has
    /// become impossible: from this call if that is known already, otherwise from the
    /// [`crate::LogWorker`] or from a thread that waits for something itself. `notify` must not
    /// wait.
    pub fn when_durable(
        &self,
        ticket: Ticket,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        self.when_durable_for(caller(), ticket, Drive::Worker, notify);
    }

    /// As [`Engine::when_durable`], for a thread that acts for many callers. `caller` identifies
    /// the caller for the fsync policy; `drive` names the thread that drives the journal.
    pub fn when_durable_for(
        &self,
        caller: u64,
        ticket: Ticket,
        drive: Drive,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        let Some(journal) = &self.journal else { return notify(Ok(())) };
        if !journal.notify_when(caller, ticket, Box::new(notify)) {
            return;
        }
        match drive {
            Drive::Worker => journal.nudge_worker(),
            Drive::Caller => {
                // Each waiter gets a failure through its own notification.
                let _reported = journal.drive_on(self);
            }
        }
    }

    /// Calls `notify` once a caller whose commit is deferred may commit, as [`Engine::when_durable_for`].
    pub(crate) fn when_resumed(
        &self,
        caller: u64,
        written: Generation,
        drive: Drive,
        notify: impl FnOnce(core::result::Result<(), Failure>) + Send + 'static,
    ) {
        let Some(journal) = &self.journal else { return notify(Ok(())) };
        journal.notify_when_resumed(caller, written, Box::new(notify));
        match drive {
            Drive::Worker => journal.nudge_worker(),
            Drive::Caller => {
                let _reported = journal.drive_on(self);
            }
        }
    }

    /// Reserves log space for an operation, and waits for it if necessary. Returns the granted
    /// bytes.
    ///
    /// # Errors
    /// [`crate::Error::Shutdown`]; [`crate::Error::Io`] if the host is full and log space cannot be
    /// freed.
    pub(crate) fn reserve_log(&self, op: Op) -> Result<u64> {
        match &self.journal {
            Some(journal) => journal.reserve(self, self.log_link(op)),
            None => Ok(0),
        }
    }
}
