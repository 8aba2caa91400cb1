//! I/O of a mount: reads of data, metadata written in place, flushes, and what the host has no room for.
//!
//! 1. Without a journal a write-back that is cut off leaves a mixture; so a volume that was whole is
//!    marked as needing repair before the first block of it is overwritten
//!    ([`Mount::mark_in_danger`]), and unmarked when everything is written and flushed.
//! 2. After a failed write or flush nobody can tell what is on the device: the volume is shut down,
//!    and stays marked. What the host has no room for is tried again instead ([`crate::full`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use uxfs_format::Daddr;
use uxfs_format::features::Incompat;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::full::{BETWEEN, Stuck};
use crate::mount::Mount;
use crate::sync;

/// What there is room for in the smallest cache, in bytes: below that, nothing but writing would be
/// done.
const CACHE_MIN: usize = 4 << 20;
/// Bytes of the cache for each inode that may be dirty.
const INODE: usize = 1 << 10;
/// So many times as much may be dirty while the log worker writes it back in the background, which it
/// does from the same limit on that holds without it.
pub(crate) const SERVED: usize = 2;

/// Metadata in memory; see [`crate::OpenOptions::cache_bytes`] for what bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Bytes of buffers.
    pub buffer_bytes: u64,
    /// Bytes of those that are not home.
    pub dirty_buffer_bytes: u64,
    /// Number of inodes; each takes some 700 bytes.
    pub inodes: u64,
    /// Number of those that are not home.
    pub dirty_inodes: u64,
}

impl Mount {
    /// Waits for data that others bring and that what was committed so far shows. Was there any?
    pub(crate) fn await_pending_data(&self) -> Result<bool> {
        let Some(pending_data) = self.pending_data.lock().clone() else { return Ok(false) };
        let daddr = Daddr(0);
        pending_data.wait().map_err(|source| Error::Io { what: "writing data", daddr, source })
    }

    pub(crate) fn read_device(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let daddr = Daddr(at >> 9);
        let read = self.dev.read_at(at, buf);
        read.map_err(|source| Error::Io { what: "reading data", daddr, source })
    }

    /// Writes the superblock where it lies.
    pub(crate) fn write_superblock_in_place(&self) -> Result<()> {
        self.put_superblock(false)
    }

    /// Flushes the device.
    pub(crate) fn flush_device(&self) -> Result<()> {
        self.flush()
    }

    /// Is so much metadata dirty that some of it is to be written? By the size of the cache:
    /// buffers of half as much again, and inodes.
    pub(crate) fn much_dirty(&self, times: usize) -> bool {
        let cache = self.options.cache_bytes.max(CACHE_MIN);
        self.bufs.dirty_bytes() > times.saturating_mul(cache / 2 * 3)
            || self.inodes.dirty_count() > times.saturating_mul(cache / INODE)
    }

    /// What is held in memory of metadata.
    pub fn cached(&self) -> Cached {
        Cached {
            buffer_bytes: self.bufs.bytes() as u64,
            dirty_buffer_bytes: self.bufs.dirty_bytes() as u64,
            inodes: self.inodes.count() as u64,
            dirty_inodes: self.inodes.dirty_count() as u64,
        }
    }

    /// Writes all that is dirty, and says whether anything was.
    pub(crate) fn write_all(&self) -> Result<bool> {
        self.check_running()?;
        let clean = self.bufs.dirty_bytes() == 0 && self.inodes.dirty_count() == 0;
        if clean {
            return Ok(false);
        }
        self.mark_in_danger()?;
        let done = self.inodes.flush(self).and_then(|()| self.bufs.write_back());
        if let Err(error) = &done {
            self.shut_down(Cause::of("writing back", error));
        }
        self.freed.store(false, Ordering::Release);
        done.map(|()| true)
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

    /// To be called before data is written into blocks: if any were freed since the last
    /// write-back, these may still belong to something on the device.
    pub(crate) fn before_data(&self) -> Result<()> {
        if self.logged {
            return Ok(());
        }
        if self.freed.load(Ordering::Acquire) { self.mark_in_danger() } else { Ok(()) }
    }

    /// Writes the primary superblock, with or without the mark that a repair is needed.
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

    /// What cannot be written at present for want of room on the host, and is tried again; `None`
    /// while all can be written.
    pub fn retrying(&self) -> Option<Cause> {
        self.full.cause()
    }

    /// A write ended with `result`: notes whether its kind is stuck. Gives `result`.
    pub(crate) fn tried<T>(&self, stuck: Stuck, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.unstick(stuck),
            Err(error) => drop(self.note_stuck(stuck, error)),
        }
        result
    }

    /// Notes that such a write found no room, if that is what the error says; does it?
    pub(crate) fn note_stuck(&self, stuck: Stuck, error: &Error) -> bool {
        let full = error.is_host_full();
        if full {
            self.full.note(stuck, error);
        }
        full
    }

    /// Such writes find room.
    pub(crate) fn unstick(&self, stuck: Stuck) {
        self.full.over(stuck);
    }

    /// Does such a write find no room?
    pub(crate) fn is_stuck(&self, stuck: Stuck) -> bool {
        self.full.is(stuck)
    }

    /// Did such a write find no room a moment ago?
    pub(crate) fn stuck_lately(&self, stuck: Stuck) -> bool {
        self.full.lately(stuck)
    }

    /// Is anything stuck?
    pub(crate) fn is_anything_stuck(&self) -> bool {
        self.full.any()
    }

    /// Does `write`, which is needed to go on, again and again while the host has no room, until it
    /// succeeds or patience ends.
    pub(crate) fn write_with_patience(
        &self,
        patience: Duration,
        mut write: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let begun = sync::now();
        loop {
            let done = self.tried(Stuck::Log, write());
            let full = done.as_ref().is_err_and(Error::is_host_full);
            if !full || sync::since(begun) >= patience || self.check_running().is_err() {
                return done;
            }
            sync::pause(BETWEEN);
        }
    }
}
