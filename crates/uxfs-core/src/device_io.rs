//! The I/O of a mount: data, metadata written in place, flushes, and writes for which the host is
//! full.
//!
//! 1. Without a journal, an interrupted write-back leaves a mixture of old and new blocks. So a
//!    consistent volume is marked as needing repair before its first block is overwritten
//!    ([`Mount::mark_in_danger`]), and unmarked when everything is written and flushed.
//! 2. After a failed write or flush the content of the device is unknown: the volume is shut down
//!    and keeps its mark. Writes that fail because the host is full are retried instead
//!    ([`crate::full`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use uxfs_format::Daddr;
use uxfs_format::features::Incompat;
use uxfs_sync as sync;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::full::{BETWEEN, Stuck};
use crate::mount::Mount;

/// Bytes of the smallest cache. With less, nearly every operation would write.
const CACHE_MIN: usize = 4 << 20;
/// Bytes of the cache for each inode that may be dirty.
const INODE: usize = 1 << 10;
/// Factor on the limit of dirty metadata while a log worker writes it back in the background. The
/// worker starts at the limit itself.
pub(crate) const SERVED: usize = 2;

/// Metadata in memory; see [`crate::OpenOptions::cache_bytes`] for what bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Bytes of buffers.
    pub buffer_bytes: u64,
    /// Bytes of dirty buffers.
    pub dirty_buffer_bytes: u64,
    /// Number of inodes, of some 700 bytes each.
    pub inodes: u64,
    /// Number of dirty inodes.
    pub dirty_inodes: u64,
}

impl Mount {
    /// Waits for the bulk data that commits so far refer to. Returns whether there was any.
    pub(crate) fn await_bulk_data(&self) -> Result<bool> {
        let Some(data) = self.bulk_data.lock().clone() else { return Ok(false) };
        let daddr = Daddr(0);
        data.wait().map_err(|source| Error::Io { what: "writing data", daddr, source })
    }

    pub(crate) fn read_device(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let daddr = Daddr(at >> 9);
        let read = self.dev.read_at(at, buf);
        read.map_err(|source| Error::Io { what: "reading data", daddr, source })
    }

    /// Writes the superblock in place.
    pub(crate) fn write_superblock_in_place(&self) -> Result<()> {
        self.put_superblock(false)
    }

    /// Flushes the device.
    pub(crate) fn flush_device(&self) -> Result<()> {
        self.flush()
    }

    /// Is so much metadata dirty, relative to the size of the cache, that some of it must be
    /// written? Buffers may take half as much again, and inodes.
    pub(crate) fn much_dirty(&self, times: usize) -> bool {
        let cache = self.options.cache_bytes.max(CACHE_MIN);
        self.bufs.dirty_bytes() > times.saturating_mul(self.most_dirty())
            || self.inodes.dirty_count() > times.saturating_mul(cache / INODE)
    }

    /// Bytes of buffers that may be dirty, unless so much is written at a time that more may be.
    pub(crate) fn most_dirty(&self) -> usize {
        self.options.cache_bytes.max(CACHE_MIN) / 2 * 3
    }

    /// The metadata in memory.
    pub fn cached(&self) -> Cached {
        Cached {
            buffer_bytes: self.bufs.bytes() as u64,
            dirty_buffer_bytes: self.bufs.dirty_bytes() as u64,
            inodes: self.inodes.count() as u64,
            dirty_inodes: self.inodes.dirty_count() as u64,
        }
    }

    /// Writes everything dirty. Returns whether there was anything.
    pub(crate) fn write_all(&self) -> Result<bool> {
        self.check_running()?;
        let clean = self.bufs.dirty_bytes() == 0 && self.inodes.dirty_count() == 0;
        if clean {
            return Ok(false);
        }
        self.mark_in_danger()?;
        let done = self.write_inodes_and_buffers();
        if let Err(error) = &done {
            self.shut_down(Cause::of("writing back", error));
        }
        self.freed.store(false, Ordering::Release);
        done.map(|()| true)
    }

    /// Each inode may dirty a cluster of its own, so memory is bounded by turns: some inodes go into their
    /// clusters, then all dirty buffers are written.
    fn write_inodes_and_buffers(&self) -> Result<()> {
        while self.inodes.flush(self, self.most_dirty())? {
            self.bufs.write_back()?;
        }
        self.bufs.write_back()?;
        self.bufs.shrink();
        self.inodes.shrink();
        Ok(())
    }

    pub(crate) fn mark_in_danger(&self) -> Result<()> {
        let mut marked = self.marked.lock();
        if !*marked && !self.options.unfinished {
            self.put_superblock(true)?;
            self.flush()?;
        }
        *marked = true;
        Ok(())
    }

    /// Must be called before data is written into blocks. Blocks freed since the last write-back
    /// may still belong to a file on the device.
    pub(crate) fn before_data(&self) -> Result<()> {
        if self.logged {
            return Ok(());
        }
        if self.freed.load(Ordering::Acquire) { self.mark_in_danger() } else { Ok(()) }
    }

    /// Writes the primary superblock, with or without the mark that it needs repair.
    pub(crate) fn put_superblock(&self, in_danger: bool) -> Result<()> {
        let in_danger = in_danger && !self.options.unfinished;
        let sector = self.edit_superblock(|sb| {
            let mut incompat = sb.incompat();
            incompat.set(Incompat::NEEDSREPAIR, in_danger);
            sb.features_incompat.set(incompat.bits());
        });
        self.write_superblock(&sector)?;
        if !in_danger {
            *self.marked.lock() = false;
        }
        Ok(())
    }

    pub(crate) fn write_superblock(&self, sector: &[u8]) -> Result<()> {
        self.meta_dev.write_at(0, sector).map_err(|source| {
            let error = Error::Io { what: "writing the superblock", daddr: Daddr(0), source };
            if !self.logged || !error.is_host_full() {
                self.shut_down(Cause::of("writing the superblock", &error));
            }
            error
        })
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.dev.flush().map_err(|source| {
            self.shut_down(Cause::device("flushing the device", &source));
            Error::Io { what: "flushing", daddr: Daddr(0), source }
        })
    }

    /// The kinds of writes that fail now because the host is full, and are retried; `None` if there
    /// are none.
    pub fn retrying(&self) -> Option<Cause> {
        self.full.cause()
    }

    /// Notes from the result of a write whether its kind is stuck. Returns `result`.
    pub(crate) fn tried<T>(&self, stuck: Stuck, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.unstick(stuck),
            Err(error) => drop(self.note_stuck(stuck, error)),
        }
        result
    }

    /// Notes that writes of this kind are stuck if the error says that the host is full. Returns
    /// whether it does.
    pub(crate) fn note_stuck(&self, stuck: Stuck, error: &Error) -> bool {
        let full = error.is_host_full();
        if full {
            self.full.note(stuck, error);
        }
        full
    }

    /// Notes that writes of this kind succeed.
    pub(crate) fn unstick(&self, stuck: Stuck) {
        self.full.over(stuck);
    }

    /// Are writes of this kind stuck?
    pub(crate) fn is_stuck(&self, stuck: Stuck) -> bool {
        self.full.is(stuck)
    }

    /// Were writes of this kind stuck a moment ago?
    pub(crate) fn stuck_lately(&self, stuck: Stuck) -> bool {
        self.full.lately(stuck)
    }

    /// Is anything stuck?
    pub(crate) fn is_anything_stuck(&self) -> bool {
        self.full.any()
    }

    /// Repeats a necessary `write` while the host is full, until it succeeds or `host_full_timeout` is over.
    pub(crate) fn retry_while_host_full(
        &self,
        host_full_timeout: Duration,
        mut write: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let begun = sync::now();
        loop {
            let done = self.tried(Stuck::Log, write());
            let full = done.as_ref().is_err_and(Error::is_host_full);
            if !full || sync::since(begun) >= host_full_timeout || self.check_running().is_err() {
                return done;
            }
            sync::pause(BETWEEN);
        }
    }
}
