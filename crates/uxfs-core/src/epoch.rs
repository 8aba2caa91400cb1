//! Ordered mode: epochs. Each checkpoint is the volume at one moment, file contents included.
//!
//! fsync returns at once. Instead, a checkpoint is cut only together with all file data that was written
//! before it: writers and transactions are kept out, dirty data is written, what it changes in metadata goes
//! into the open checkpoint, and that is cut. The data is flushed before the checkpoint's records are
//! written, as with every checkpoint. So a crash takes the volume back to an earlier moment, and never
//! leaves a mixture of two.
//!
//! 1. No block that is mapped and written is overwritten: new content goes to other blocks
//!    ([`crate::cow`]), which the next checkpoint maps. The old blocks are busy until it is durable.
//! 2. Transactions and writers of file data hold `freeze` shared from their first change to their last. An
//!    operation of several transactions may be cut between two of them.
//! 3. Nothing that holds `freeze` waits for an epoch. Inside it, log space comes from AIL pushes alone; the
//!    open checkpoint is cut before it can fill the log ([`uxfs_journal::Journal::cut_epoch`]).
//! 4. One thread writes back at a time, and it is the one that may cut an epoch. So no write-back that waits
//!    for log space delays an epoch. A thread that blocks the write-back of a file has written the file's
//!    data back first.
//! 5. Write-back before the cut lets other threads go on. What they write meanwhile is written with `freeze`
//!    held exclusively. A page that is written again then has its block already: no epoch shows it yet.
//! 6. Reservations do not count on blocks that are busy ([`crate::unsettled`]), so write-back in an epoch
//!    finds the space that its writers reserved.
//!
//! Called by writers, by the log worker, and by threads that wait for durability.

use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};
use uxfs_journal::{Need, Seq};

use crate::cause::Cause;
use crate::delalloc::Delalloc;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::full::Stuck;
use crate::journal::{Journal, Op, Ticket};

/// The log must hold the reservations of this many operations.
const LEAST_OPERATIONS: u64 = 4;

impl Fs {
    /// A ticket for the order of everything done so far: no later change survives a crash that this does
    /// not survive. In ordered mode ([`crate::SyncMode`]) it is met at once; otherwise it stands for
    /// durability.
    ///
    /// # Errors
    /// As [`Fs::begin_sync`].
    pub fn order(&self) -> Result<Ticket> {
        self.begin_sync()
    }

    /// A ticket for the durability of everything done so far, in every mode.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn durable(&self) -> Result<Ticket> {
        let Some(_inside) = self.background() else { return Ok(Ticket::default()) };
        match self.ordered {
            true if planted(Fault::DurableAtOnce) => Ok(Ticket::default()),
            true => self.cut_epoch(),
            false => self.begin_sync(),
        }
    }

    /// As [`crate::engine::Engine::ticket`]. In ordered mode it covers data in memory, too.
    pub fn ticket(&self) -> Ticket {
        let Some(journal) = self.journal.as_ref().filter(|_| self.ordered) else {
            return self.engine().ticket();
        };
        let dirty = self.delalloc.as_ref().is_some_and(Delalloc::is_dirty);
        let seq = Seq(journal.open_seq() - u64::from(!dirty && journal.open_bytes() == 0));
        Ticket(Need { seq, ..Need::default() })
    }

    /// As [`crate::engine::Engine::wait`]. In ordered mode, cuts the epoch that the ticket waits for.
    ///
    /// # Errors
    /// As [`crate::engine::Engine::wait`], and those of writing data.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if let Some(journal) = self.journal.as_ref().filter(|_| self.ordered)
            && ticket.0.seq.0 >= journal.open_seq()
        {
            let ticket = self.cut_epoch()?;
            return self.engine().wait(ticket);
        }
        self.engine().wait(ticket)
    }

    /// Cuts an epoch, unless nothing changed. Returns the ticket of the last one.
    ///
    /// # Errors
    /// [`Error::Shutdown`]: data that cannot be written stops the volume, on a full host after
    /// [`uxfs_journal::JournalOptions::host_full_timeout`].
    pub(crate) fn cut_epoch(&self) -> Result<Ticket> {
        self.cut_epoch_if(|| true)
    }

    /// The same, unless another thread has cut one while this waited, and it is not `needed` any more. Then
    /// there is no ticket.
    fn cut_epoch_if(&self, needed: impl FnOnce() -> bool) -> Result<Ticket> {
        let (Some(journal), Some(dirty)) = (&self.journal, &self.delalloc) else {
            return Ok(Ticket::default());
        };
        let seq = {
            let _one = self.epochs.lock();
            if !needed() {
                return Ok(Ticket::default());
            }
            journal.await_room_for_cut(self)?;
            self.unsettled.settle(journal.durable(), journal.batches_ended());
            let before = journal.open_bytes();
            if self.options.ahead {
                let ahead = self.write_back_ahead(dirty);
                ahead.map_err(|error| self.stop_after(journal, error))?;
            }
            let _alone = self.freeze.write();
            let begun = uxfs_sync::now();
            let early = planted(Fault::EpochWithoutData).then(|| journal.cut_epoch());
            let written = self.write_back_epoch(dirty);
            self.measure_runs(dirty, journal.open_bytes().saturating_sub(before));
            written.map_err(|error| self.stop_after(journal, error))?;
            let cut = early.unwrap_or_else(|| journal.cut_epoch());
            self.counts.freeze_time.add(uxfs_sync::since(begun));
            self.counts.epochs.one();
            cut
        };
        if journal.is_served() {
            journal.nudge_worker();
        } else {
            journal.drive_on(self)?;
        }
        Ok(Ticket(Need { seq, ..Need::default() }))
    }

    /// The same in ordered mode.
    pub(crate) fn cut_epoch_if_ordered(&self) -> Result<()> {
        if self.ordered { self.cut_epoch().map(|_| ()) } else { Ok(()) }
    }

    /// Takes the measure of the log space that runs of dirty blocks need: an epoch took `bytes`, also for
    /// what other threads logged while it was written.
    fn measure_runs(&self, dirty: &Delalloc, bytes: u64) {
        let runs = dirty.runs.swap(0, Ordering::AcqRel);
        self.counts.epoch_runs.add(runs);
        // Twice as much, because extent maps and trees become worse.
        if let Some(each) = (2 * bytes).checked_div(runs) {
            dirty.run_log_bytes.store(each.clamp(1 << 10, 24 << 10), Ordering::Relaxed);
        }
    }

    /// Data that cannot be written keeps every later change from stable storage. So the volume stops.
    pub(crate) fn stop_after(&self, journal: &Journal, error: Error) -> Error {
        match error {
            Error::Shutdown(_) => error,
            error => journal.fail(self, Cause::of("writing the data of an epoch", &error)),
        }
    }

    /// Cuts an epoch if there is so much dirty data that its metadata might fill the log.
    pub(crate) fn relieve_epoch(&self, dirty: &Delalloc) -> Result<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| self.ordered) else { return Ok(()) };
        let needed = || {
            let each = dirty.run_log_bytes.load(Ordering::Relaxed);
            let most = dirty.runs.load(Ordering::Acquire) * each + journal.open_bytes();
            most >= journal.geometry().length / 6
        };
        if !needed() {
            return Ok(());
        }
        self.cut_epoch_if(needed).map(|_| ())
    }

    /// Makes the blocks that were freed so far available to data. Waits for an epoch, and for AIL pushes.
    pub(crate) fn settle_freed(&self) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let ticket = self.cut_epoch()?;
        self.wait(ticket)?;
        journal.await_pushes();
        self.unsettled.settle(journal.durable(), journal.batches_ended());
        Ok(())
    }

    /// What is due in the journal at the end of an operation, in ordered mode.
    pub(crate) fn balance_epochs(&self, journal: &Journal) -> Result<()> {
        let load = journal.look(self.much_dirty(1));
        let late = journal.open_bytes() > journal.geometry().length / 6;
        if load.due && (!load.served || late) {
            if journal.is_epoch_due() {
                self.cut_epoch_if(|| journal.is_epoch_due())?;
            } else {
                journal.drive_on(self)?;
            }
        }
        if self.stuck_lately(Stuck::Metadata) {
            return Ok(());
        }
        let much = match load.served {
            true => self.much_dirty(crate::device_io::SERVED),
            false => self.much_dirty(1),
        };
        if !much && load.live <= journal.comfortable() {
            return Ok(());
        }
        let ticket = self.cut_epoch()?;
        self.wait(ticket)?;
        match journal.force_and_push(self) {
            Err(error) if error.is_host_full() => Ok(()),
            done => done,
        }
    }

    /// Refuses a log that is too small for epochs.
    pub(crate) fn check_log_for_epochs(&self) -> Result<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| self.ordered) else { return Ok(()) };
        let needed = LEAST_OPERATIONS * self.log_link(Op::Extents);
        match journal.geometry().length < needed {
            true => Err(Error::Unsupported(format!(
                "sync=ordered: the log has {} bytes, and this mode needs {} (mkfs -l size=)",
                journal.geometry().length,
                needed
            ))),
            false => Ok(()),
        }
    }
}
