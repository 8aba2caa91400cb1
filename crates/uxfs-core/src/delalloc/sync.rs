//! Durability on demand: fsync and its kin, and write-back ticks.
//!
//! Each call has two forms. One begins: it writes the data back and returns the [`Ticket`] of the change
//! that shows it. The other also waits for the ticket.

use uxfs_format::Ino;
use uxfs_journal::Time;

use super::errors::ErrorCursor;
use super::flush::How;
use super::register::Delalloc;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Ticket;

/// What of a file is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// All of it: fsync, `O_SYNC`.
    All,
    /// Its content and what it takes to read it back, not times: fdatasync, `O_DSYNC`.
    Data,
}

/// Files looked at in one tick.
const FILES: usize = 1 << 16;

impl Fs {
    /// Brings a file to stable storage: its data, and all that it takes to find it.
    ///
    /// # Errors
    /// Of writing its data, also such as nobody was told of before; as [`Fs::sync`].
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        self.fsync_of(ino, SyncKind::All)
    }

    /// Brings a file's content to stable storage; if only its times changed, the log is left alone.
    ///
    /// # Errors
    /// As [`Fs::fsync`].
    pub fn fdatasync(&self, ino: Ino) -> Result<()> {
        self.fsync_of(ino, SyncKind::Data)
    }

    fn fsync_of(&self, ino: Ino, kind: SyncKind) -> Result<()> {
        let ticket = self.write_for_sync(ino, kind);
        if let Some(dirty) = &self.delalloc {
            dirty.errors.lock().check_own(ino)?;
        }
        self.wait(ticket?)
    }

    /// As [`Fs::fsync`] or [`Fs::fdatasync`] for whoever holds `cursor`, made by
    /// [`Fs::error_cursor`] when the file was opened; but durability is not waited for: the ticket
    /// stands for it.
    ///
    /// # Errors
    /// Of writing the file's data, once to each cursor; as [`Fs::sync`].
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

    /// Writes into a file as [`Fs::write_at`] does, and begins to make that durable, as a
    /// descriptor with `O_SYNC` or `O_DSYNC` would; the ticket stands for it.
    ///
    /// # Errors
    /// As [`Fs::write_at`], and of writing the data back.
    pub fn write_sync(&self, ino: Ino, offset: u64, data: &[u8], kind: SyncKind) -> Result<Ticket> {
        self.write_at(ino, offset, data)?;
        self.write_for_sync(ino, kind)
    }

    /// As [`Fs::sync`], without waiting for durability: the ticket stands for it.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn begin_sync(&self) -> Result<Ticket> {
        self.check_device()?;
        if self.journal.is_none() {
            self.sync()?;
        }
        self.write_back_all()?;
        Ok(self.ticket())
    }

    /// What somebody who opens a file now is to be told of errors of its data.
    pub fn error_cursor(&self, ino: Ino) -> ErrorCursor {
        self.delalloc.as_ref().map_or_else(ErrorCursor::default, |d| d.errors.lock().cursor(ino))
    }

    /// The error of writing a file's data that the holder of `cursor` was not told of yet, as
    /// close(2) may tell it.
    ///
    /// # Errors
    /// That one.
    pub fn check_data_errors(&self, ino: Ino, cursor: &mut ErrorCursor) -> Result<()> {
        match &self.delalloc {
            Some(dirty) => dirty.errors.lock().check(ino, cursor),
            None => Ok(()),
        }
    }

    /// Writes a file back; what then has to become durable.
    fn write_for_sync(&self, ino: Ino, kind: SyncKind) -> Result<Ticket> {
        self.check_device()?;
        if self.journal.is_none() {
            self.sync()?;
            return Ok(self.ticket());
        }
        let how = if kind == SyncKind::All { How::FULL } else { How::PLAIN };
        self.write_back_one(ino, how)?;
        let seq = self.with_inode(ino, |inode| {
            let log = &inode.log;
            Ok(if kind == SyncKind::All { log.changed } else { log.needed })
        })?;
        Ok(self.ticket_of(seq))
    }

    /// Writes back everything, into the device and the gathering checkpoint.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        match &self.delalloc {
            Some(dirty) => self.write_back_all_of(dirty, How::FULL),
            None => Ok(()),
        }
    }

    /// Time has passed: writes back what has been dirty for long, and what is too much, by
    /// [`crate::OpenOptions::writeback`]. To be called by a thread of the volume's owner, when
    /// [`Fs::writeback_alarm`] says so; `now` counts from any moment, the same each time.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; errors of data are kept for those who sync their file.
    pub fn writeback_tick(&self, now: Time) -> Result<()> {
        let Some(dirty) = &self.delalloc else { return Ok(()) };
        self.check_running()?;
        let turn = dirty.order.lock().next;
        let due = dirty.policy.lock().tick(now, turn, dirty.memory.used());
        let old = dirty.oldest(due.below, FILES);
        let mut done = self.write_back(dirty, &old, How::OTHERS, u64::MAX);
        let used = dirty.memory.used();
        let over = used.saturating_sub(dirty.options.dirty_background_bytes).min(due.bytes);
        if over > 0 {
            let files = dirty.oldest(u64::MAX, FILES);
            done = done.and(self.write_back(dirty, &files, How::OTHERS, over));
        }
        match done {
            Err(error @ Error::Shutdown(_)) => Err(error),
            _ => self.balance(),
        }
    }

    /// Writes back what is oldest, if more is dirty than `dirty_background_bytes`, down to half of that.
    /// A tick does so too, but whoever has a thread for it need not leave writers to fill the memory
    /// until then, and to write back themselves.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; errors of data are kept for those who sync their file.
    pub fn writeback_excess(&self) -> Result<()> {
        let Some(dirty) = self.delalloc.as_ref().filter(|_| self.has_writeback_excess()) else {
            return Ok(());
        };
        self.check_running()?;
        let enough = dirty.options.background() / 2;
        let files = dirty.oldest(u64::MAX, FILES);
        let over = dirty.memory.used().saturating_sub(enough);
        match self.write_back(dirty, &files, How::OTHERS, over) {
            Err(error @ Error::Shutdown(_)) => Err(error),
            _ => self.balance(),
        }
    }

    /// Is there something for [`Fs::writeback_excess`] to do?
    pub fn has_writeback_excess(&self) -> bool {
        let over = |d: &Delalloc| d.memory.used() > d.options.background();
        self.delalloc.as_ref().is_some_and(over)
    }

    /// When [`Fs::writeback_tick`] is due next; `None` while nothing is dirty. Before the time
    /// of the last tick: at once.
    pub fn writeback_alarm(&self) -> Option<Time> {
        let dirty = self.delalloc.as_ref()?;
        let some = !dirty.order.lock().files.is_empty();
        dirty.policy.lock().alarm(some, dirty.memory.used())
    }

    /// How often somebody is to look whether data is due, if data gathers at all.
    pub(crate) fn writeback_interval(&self) -> Option<core::time::Duration> {
        let span = self.delalloc.as_ref()?.options.dirty_writeback_centisecs;
        (span > 0).then(|| core::time::Duration::from_millis(u64::from(span) * 10))
    }

    /// Bytes of a file's data that are in memory only.
    pub fn dirty_bytes_of(&self, ino: Ino) -> u64 {
        let blocks = self.delayed(ino).map_or(0, |file| file.pages().map.len() as u64);
        blocks << self.geo.block_log
    }

    /// Bytes of data in memory that are not on the device, what is on its way included.
    pub fn dirty_bytes(&self) -> u64 {
        self.delalloc.as_ref().map_or(0, |dirty| dirty.memory.used())
    }
}
