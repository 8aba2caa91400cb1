//! Durability on demand: fsync and its kin, and write-back ticks.
//!
//! In ordered mode ([`crate::epoch`]) they promise order, and there is nothing to wait for.
//!
//! Each call has two forms. One begins: it writes the data back and returns the [`Ticket`] of the change
//! that shows it. The other also waits for the ticket.

use uxfs_format::Ino;
use uxfs_journal::{Generation, Time};

use super::errors::ErrorCursor;
use super::flush::How;
use super::fsync::{Commit, ForFsync};
use super::register::Delalloc;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Ticket;

/// The part of a file that becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// All of it: fsync, `O_SYNC`.
    All,
    /// Its data and the metadata needed to read it, but not times: fdatasync, `O_DSYNC`.
    Data,
}

/// Files examined in one tick.
const FILES: usize = 1 << 16;

impl Fs {
    /// Makes a file durable: its data, and all metadata needed to find it.
    ///
    /// # Errors
    /// Those of writing its data, including earlier ones that were reported to no one; as
    /// [`Fs::sync`].
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        self.fsync_of(ino, SyncKind::All)
    }

    /// Makes a file's data durable. If only its times changed, nothing is logged.
    ///
    /// # Errors
    /// As [`Fs::fsync`].
    pub fn fdatasync(&self, ino: Ino) -> Result<()> {
        self.fsync_of(ino, SyncKind::Data)
    }

    fn fsync_of(&self, ino: Ino, kind: SyncKind) -> Result<()> {
        let ticket = self.write_for_fsync(ino, kind);
        if let Some(dirty) = &self.delalloc {
            dirty.errors.lock().check_own(ino)?;
        }
        self.wait(ticket?)
    }

    /// As [`Fs::fsync`] or [`Fs::fdatasync`], for a handle with the cursor that
    /// [`Fs::error_cursor`] made when it was opened. Does not wait for durability, which the ticket
    /// stands for.
    ///
    /// # Errors
    /// Those of writing the file's data, once for each cursor; as [`Fs::sync`].
    pub fn begin_fsync(
        &self,
        ino: Ino,
        kind: SyncKind,
        cursor: &mut ErrorCursor,
    ) -> Result<Ticket> {
        let ticket = self.write_for_sync(ino, kind);
        if let Some(dirty) = &self.delalloc {
            dirty.errors.lock().check(ino, cursor)?;
        }
        ticket
    }

    /// As [`Fs::write_at`], and begins to make the write durable, as for a descriptor with `O_SYNC`
    /// or `O_DSYNC`. The ticket stands for its durability.
    ///
    /// # Errors
    /// As [`Fs::write_at`], and those of writing the data back.
    pub fn write_sync(&self, ino: Ino, offset: u64, data: &[u8], kind: SyncKind) -> Result<Ticket> {
        self.write_at(ino, offset, data)?;
        self.write_for_sync(ino, kind)
    }

    /// As [`Fs::sync`], without waiting. The ticket stands for the durability.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn begin_sync(&self) -> Result<Ticket> {
        self.check_device()?;
        let Some(_inside) = self.background() else { return Ok(Ticket::default()) };
        if self.journal.is_none() {
            self.sync()?;
        }
        if self.ordered {
            return Ok(Ticket::default());
        }
        self.write_back_all()?;
        Ok(self.ticket())
    }

    /// The error cursor of a handle that is opened now.
    pub fn error_cursor(&self, ino: Ino) -> ErrorCursor {
        self.delalloc.as_ref().map_or_else(ErrorCursor::default, |d| d.errors.lock().cursor(ino))
    }

    /// Reports the error of writing a file's data that was not reported to this cursor yet, as
    /// close(2) may do.
    ///
    /// # Errors
    /// That error.
    pub fn check_data_errors(&self, ino: Ino, cursor: &mut ErrorCursor) -> Result<()> {
        match &self.delalloc {
            Some(dirty) => dirty.errors.lock().check(ino, cursor),
            None => Ok(()),
        }
    }

    /// Writes a file back for a caller that will wait for the ticket at once. May wait until the data is
    /// flushed, so that its commit delays no caller without new data. The error of the data is kept for
    /// [`Fs::check_data_errors`], too.
    ///
    /// # Errors
    /// Those of writing the file's data; as [`Fs::sync`].
    pub fn write_for_fsync(&self, ino: Ino, kind: SyncKind) -> Result<Ticket> {
        self.write_for(ino, kind, |how| {
            let wrote = || match &self.journal {
                Some(journal) => {
                    let (written, committing) = journal.data_written_for_fsync(self)?;
                    Ok(Commit::Now(written, committing))
                }
                None => Ok(Commit::Now(Generation::default(), None)),
            };
            match self.write_back_for_fsync(ino, how, wrote)? {
                ForFsync::Done(written) => Ok(written),
                ForFsync::Deferred(_, written) => Ok(Some(written)),
            }
        })
    }

    /// Writes a file back. Returns what then has to become durable.
    fn write_for_sync(&self, ino: Ino, kind: SyncKind) -> Result<Ticket> {
        self.write_for(ino, kind, |how| {
            let dirty = self.dirty_bytes_of(ino) > 0;
            self.write_back_one(ino, how)?;
            Ok(dirty.then(|| self.last_written()))
        })
    }

    /// Writes a file back by `write`, which returns the last write if there was any.
    pub(super) fn write_for(
        &self,
        ino: Ino,
        kind: SyncKind,
        write: impl FnOnce(How) -> Result<Option<Generation>>,
    ) -> Result<Ticket> {
        self.check_device()?;
        let Some(_inside) = self.background() else { return Ok(Ticket::default()) };
        if self.journal.is_none() {
            self.sync()?;
            return Ok(self.ticket());
        }
        if self.ordered {
            // The order of epochs is that of the calls.
            return Ok(Ticket::default());
        }
        let how = if kind == SyncKind::All { How::FULL } else { How::PLAIN };
        let written = write(how)?;
        self.fsync_ticket(ino, kind, written)
    }

    /// The ticket of a caller of fsync that has committed, with the last write of the file's data, if it
    /// has written some.
    pub(super) fn fsync_ticket(
        &self,
        ino: Ino,
        kind: SyncKind,
        written: Option<Generation>,
    ) -> Result<Ticket> {
        let (seq, is_file) = self.with_inode(ino, |inode| {
            let log = &inode.log;
            let seq = if kind == SyncKind::All { log.changed } else { log.needed };
            Ok((seq, inode.core.is_reg()))
        })?;
        Ok(match written {
            Some(data) => self.ticket_for(seq, data),
            // Another thread may have written its data.
            None if is_file => self.ticket_for(seq, self.last_written()),
            None => self.ticket_without_data(seq),
        })
    }

    /// Writes back all data, to the device and into the open checkpoint.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        match &self.delalloc {
            Some(dirty) => self.write_back_all_of(dirty, How::FULL),
            None => Ok(()),
        }
    }

    /// Writes back data that has been dirty for long, and data above the limit, according to
    /// [`crate::OpenOptions::writeback`]. A thread of the volume's owner calls this when
    /// [`Fs::writeback_alarm`] is due. `now` counts from any fixed point in time.
    ///
    /// # Errors
    /// [`Error::Shutdown`]. Errors of data are kept for callers of fsync.
    pub fn writeback_tick(&self, now: Time) -> Result<()> {
        let Some(dirty) = &self.delalloc else { return Ok(()) };
        self.check_running()?;
        let turn = dirty.order.lock().next;
        let due = dirty.policy.lock().tick(now, turn, dirty.memory.used());
        let old = dirty.oldest(due.below, FILES);
        if self.ordered && !old.is_empty() {
            return self.cut_epoch().map(|_| ());
        }
        let mut done = self.write_back(dirty, &old, How::OTHERS, u64::MAX);
        let used = dirty.memory.used();
        let over = used.saturating_sub(dirty.options.dirty_background_bytes).min(due.bytes);
        let over = if self.ordered && over > 0 { used } else { over };
        if over > 0 {
            let files = dirty.oldest(u64::MAX, FILES);
            done = done.and(self.write_back(dirty, &files, How::OTHERS, over));
        }
        match done {
            Err(error @ Error::Shutdown(_)) => Err(error),
            _ => self.balance(),
        }
    }

    /// Writes back the oldest data if more than `dirty_background_bytes` are dirty, down to half of
    /// that, in ordered mode all of it. [`Fs::writeback_tick`] does so too; a thread of its own does
    /// it earlier, so that writers do not fill the memory and write back themselves.
    ///
    /// # Errors
    /// [`Error::Shutdown`]. Errors of data are kept for callers of fsync.
    pub fn writeback_excess(&self) -> Result<()> {
        let Some(dirty) = self.delalloc.as_ref().filter(|_| self.has_writeback_excess()) else {
            return Ok(());
        };
        let Some(_inside) = self.background() else { return Ok(()) };
        self.check_running()?;
        let enough = if self.ordered { 0 } else { dirty.options.background() / 2 };
        let files = dirty.oldest(u64::MAX, FILES);
        let over = dirty.memory.used().saturating_sub(enough);
        match self.write_back(dirty, &files, How::OTHERS, over) {
            Err(error @ Error::Shutdown(_)) => Err(error),
            _ => self.balance(),
        }
    }

    /// Is there work for [`Fs::writeback_excess`]?
    pub fn has_writeback_excess(&self) -> bool {
        let over = |d: &Delalloc| d.memory.used() > d.options.background();
        self.delalloc.as_ref().is_some_and(over)
    }

    /// The time at which [`Fs::writeback_tick`] is due; `None` while nothing is dirty. A time
    /// before the last tick means at once.
    pub fn writeback_alarm(&self) -> Option<Time> {
        let dirty = self.delalloc.as_ref()?;
        let some = !dirty.order.lock().files.is_empty();
        dirty.policy.lock().alarm(some, dirty.memory.used())
    }

    /// How often to check for due data, if data is kept in memory at all.
    pub(crate) fn writeback_interval(&self) -> Option<core::time::Duration> {
        let span = self.delalloc.as_ref()?.options.dirty_writeback_centisecs;
        (span > 0).then(|| core::time::Duration::from_millis(u64::from(span) * 10))
    }

    /// Bytes of a file's data that are not on the device.
    pub fn dirty_bytes_of(&self, ino: Ino) -> u64 {
        let blocks = self.delayed(ino).map_or(0, |file| file.pages().map.len() as u64);
        blocks << self.geo.block_log
    }

    /// Bytes of data that are not on the device, including those being written.
    pub fn dirty_bytes(&self) -> u64 {
        self.delalloc.as_ref().map_or(0, |dirty| dirty.memory.used())
    }
}
