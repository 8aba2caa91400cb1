//! The write-back of one file for a caller of fsync, whose commit may be deferred until the data is flushed.
//!
//! 1. Only the last batch of a file's data is deferred. The commits of the batches before it are in the log
//!    already. If other callers fsync the same file, nothing is deferred: they would wait for its blocks.
//! 2. The file's blocks stay held until the commit, so that none is freed and no other thread shows the data.
//! 3. A resumed fsync reports the end of its commit to the journal, also if the commit fails. Data that no
//!    commit shows stays dirty.
//!
//! [`uxfs_journal::Pipeline`] says when deferring pays. Called by [`super::sync`].

use uxfs_format::Ino;
use uxfs_journal::Generation;

use super::flush::{BATCH, How, WritebackBatch};
use super::register::Delalloc;
use super::sync::SyncKind;
use crate::error::Result;
use crate::fs::Fs;
use crate::full::Stuck;
use crate::journal::{Failure, Ticket};
use crate::tickets::Drive;

/// An fsync whose data is written, and whose commit waits until the data is flushed.
#[must_use = "the data is dirty until it is committed"]
pub struct DeferredFsync {
    batch: WritebackBatch,
    how: How,
    kind: SyncKind,
    written: Generation,
}

/// An fsync that has begun.
#[must_use = "it is not durable yet"]
pub enum BegunFsync {
    /// It is durable when the ticket is.
    Committed(Ticket),
    /// It is to be committed when its data is flushed.
    Deferred(Box<DeferredFsync>),
}

/// What a caller of fsync does once its data is written.
pub(super) enum Commit<T> {
    /// Commit at once.
    Now(Generation, T),
    /// Return, to commit later.
    Later(Generation),
}

/// A write-back for fsync.
pub(super) enum ForFsync {
    /// It is committed. The last write, if there was any.
    Done(Option<Generation>),
    /// It is to be committed later.
    Deferred(WritebackBatch, Generation),
}

impl Fs {
    /// Writes a file's data to the device, and commits what shows it. `wrote` reports the last write to the
    /// journal, and says when to commit what shows it.
    pub(super) fn write_back_for_fsync<T>(
        &self,
        ino: Ino,
        how: How,
        wrote: impl Fn() -> Result<Commit<T>>,
    ) -> Result<ForFsync> {
        let (Some(dirty), Some(file)) = (&self.delalloc, self.delayed(ino)) else {
            return Ok(ForFsync::Done(None));
        };
        let syncing = file.sync();
        let mut written = None;
        let mut from = 0;
        loop {
            let hold = Some(file.hold());
            let (mut batch, more) = self.prepare(dirty, &file, hold, from..u64::MAX, BATCH);
            let mut _committing = None;
            if self.submit(core::slice::from_mut(&mut batch))
                && let Some(journal) = &self.journal
            {
                batch.noted = self.must_be_shown(&batch);
                let whole = more.is_none() && batch.failed.is_none();
                match batch.noted {
                    false => written = Some(journal.data_overwritten()),
                    true if !whole || syncing.has_others() => {
                        written = Some(journal.data_written())
                    }
                    true => match wrote() {
                        Ok(Commit::Now(data, committing)) => {
                            (written, _committing) = (Some(data), Some(committing));
                        }
                        Ok(Commit::Later(data)) => return Ok(ForFsync::Deferred(batch, data)),
                        Err(error) => batch.failed = Some(error),
                    },
                }
            }
            self.complete_for_fsync(dirty, batch, how)?;
            let Some(next) = more else { return Ok(ForFsync::Done(written)) };
            from = next;
        }
    }

    fn complete_for_fsync(&self, dirty: &Delalloc, batch: WritebackBatch, how: How) -> Result<()> {
        let done = self.complete(dirty, batch, how);
        let is_full = done.as_ref().is_err_and(|error| self.note_stuck(Stuck::Data, error));
        if !is_full {
            self.unstick(Stuck::Data);
        }
        done
    }

    /// As [`Fs::begin_fsync`] without the report of errors, which [`Fs::check_data_errors`] makes. The commit
    /// may be deferred, so that it delays no caller of fsync without new data; then [`Fs::when_flushed`] says
    /// when to commit, by [`Fs::commit_fsync`].
    ///
    /// # Errors
    /// Those of writing the file's data; as [`Fs::sync`].
    pub fn begin_fsync_deferred(&self, ino: Ino, kind: SyncKind) -> Result<BegunFsync> {
        let mut deferred = None;
        let ticket = self.write_for(ino, kind, |how| {
            let wrote = || {
                let deferred = self.journal.as_ref().and_then(|journal| journal.try_defer(self));
                Ok(match deferred {
                    Some(written) => Commit::Later(written),
                    None => Commit::Now(self.data_written(), ()),
                })
            };
            match self.write_back_for_fsync(ino, how, wrote)? {
                ForFsync::Done(written) => Ok(written),
                ForFsync::Deferred(batch, written) => {
                    deferred = Some(Box::new(DeferredFsync { batch, how, kind, written }));
                    Ok(Some(written))
                }
            }
        })?;
        Ok(deferred.map_or(BegunFsync::Committed(ticket), BegunFsync::Deferred))
    }

    /// Calls `notify` once a deferred fsync may be committed, or once that has become impossible: from this
    /// call, from the [`crate::LogWorker`], or from a thread that waits for something itself. `notify` must
    /// not wait. `caller` identifies the caller for the fsync policy; `drive` names the thread that drives the
    /// journal.
    pub fn when_flushed(
        &self,
        caller: u64,
        deferred: Box<DeferredFsync>,
        drive: Drive,
        notify: impl FnOnce(Box<DeferredFsync>, core::result::Result<(), Failure>) + Send + 'static,
    ) {
        let written = deferred.written;
        self.when_resumed(caller, written, drive, move |result| notify(deferred, result));
    }

    /// Commits what shows the data of a deferred fsync. The ticket stands for its durability.
    ///
    /// # Errors
    /// As [`Fs::begin_fsync_deferred`].
    pub fn commit_fsync(&self, deferred: DeferredFsync) -> Result<Ticket> {
        let DeferredFsync { batch, how, kind, written } = deferred;
        let (Some(dirty), Some(journal)) = (&self.delalloc, &self.journal) else {
            return Ok(Ticket::default());
        };
        let _committing = journal.committing();
        // The freezer waits for the file's blocks before it closes this.
        let Some(_inside) = self.background() else { return Ok(Ticket::default()) };
        let ino = batch.ino();
        self.complete_for_fsync(dirty, batch, how)?;
        self.fsync_ticket(ino, kind, Some(written))
    }
}
