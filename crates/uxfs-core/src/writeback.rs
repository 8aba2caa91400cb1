//! Bringing changes home: from memory to the device, at a sync, at the close, and when too much
//! has gathered.
//!
//! 1. What is written is a state between two operations: transactions are shut out meanwhile.
//! 2. Without a journal a write-back that is cut off leaves a mixture; so a volume that was whole
//!    is marked as needing repair before the first block of it is overwritten, be it by new data
//!    in a block that is freed in memory only, and unmarked when all is home and flushed. (A
//!    volume being made is marked unfinished all along.)
//! 3. After a failed write or flush nobody can tell what is on the device: the volume is shut
//!    down, and stays marked.

use std::sync::atomic::Ordering;
use std::time::Duration;

use uxfs_format::Daddr;
use uxfs_format::features::Incompat;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::full::{BETWEEN, Stuck};
use crate::journal::Journal;
use crate::sync;
use crate::tx::Tx;
use crate::unwritten::{NAMED, Unwritten};

/// What there is room for in the smallest cache, in bytes: below that, nothing but writing would be
/// done.
const CACHE_MIN: usize = 4 << 20;
/// Bytes of the cache for each inode that may be dirty.
const INODE: usize = 1 << 10;
/// So many times as much may be dirty while the journal's service sends it home in the background,
/// which it does from the same limit on that holds without it.
const SERVED: usize = 2;

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

impl Fs {
    /// Brings all changes to stable storage: into the log, or home if there is no journal; then the
    /// volume on the device is whole afterwards.
    ///
    /// # Errors
    /// Of the device, or a structure that fails its check before it is written.
    pub fn sync(&self) -> Result<()> {
        self.check_running()?;
        if self.options.read_only {
            return Ok(());
        }
        self.check_device()?;
        if self.journal.is_some() {
            let written = self.write_back_all();
            return self.wait(self.ticket()).and(written);
        }
        let _alone = self.gate.write();
        self.sync_alone()
    }

    /// As [`Fs::sync`], with transactions shut out already.
    pub(crate) fn sync_alone(&self) -> Result<()> {
        let wrote = self.write_all()?;
        if !wrote && !*self.marked.lock() {
            return Ok(());
        }
        self.flush()?;
        self.put_superblock(false)?;
        self.flush()
    }

    /// Syncs, and on a volume that is being made removes the mark that it is unfinished.
    ///
    /// # Errors
    /// As [`Fs::sync`]; [`Error::Unwritten`] tells what is not written, if that is known.
    pub fn close(self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.finish().map_err(|source| {
            let unwritten = self.unwritten();
            if unwritten.is_empty() && !source.is_host_full() {
                return source;
            }
            Error::Unwritten { unwritten: Box::new(unwritten), source: Box::new(source) }
        })
    }

    fn finish(&self) -> Result<()> {
        self.check_device()?;
        if let Err(error) = self.release_all() {
            // What has no name is freed by recovery: so the log stays dirty, with all else in it.
            return self.sync().and(Err(error));
        }
        if let Some(journal) = &self.journal {
            let written = self.write_back_all();
            // Who changed nothing leaves the device alone.
            return if journal.is_untouched() { written } else { self.quiesce().and(written) };
        }
        self.sync()?;
        if self.options.unfinished {
            let _alone = self.gate.write();
            let sector = self.edit_superblock(|sb| sb.inprogress = 0);
            self.write_superblock(&sector)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Writes changes if too many have gathered in memory. Called after each operation, when its
    /// locks are gone.
    pub(crate) fn balance(&self) -> Result<()> {
        if let Some(journal) = &self.journal {
            return self.balance_journal(journal);
        }
        if !self.much_dirty(1) {
            return Ok(());
        }
        let _alone = self.gate.write();
        // Another thread may have seen to it while this one waited.
        if !self.much_dirty(1) {
            return Ok(());
        }
        self.write_all().map(|_| ())
    }

    /// Drives the journal if something is due, and sends objects home if too much is not. Both is
    /// left to the service if there is one, as long as it keeps up.
    fn balance_journal(&self, journal: &Journal) -> Result<()> {
        if journal.wsync() {
            self.wait(self.ticket())?;
        }
        let load = journal.look(self.much_dirty(1));
        if load.due && !load.served {
            self.drive_on(journal)?;
        }
        if self.stuck_lately(Stuck::Metadata) {
            return Ok(());
        }
        let much = match load.served {
            true => self.much_dirty(SERVED) || load.live > journal.comfortable() / 4 * 7,
            false => self.much_dirty(1) || load.live > journal.comfortable(),
        };
        match if much { self.push_whole_ail(journal) } else { Ok(()) } {
            // The operation is done. Those that would begin are told (`refuse_if_stuck`).
            Err(error) if error.is_host_full() => Ok(()),
            done => done,
        }
    }

    /// Is so much metadata not in place that no more may come while it cannot be written?
    pub(crate) fn has_too_much_dirty_metadata(&self, journal: &Journal) -> bool {
        journal.load().0 > journal.geometry().length / 2 || self.much_dirty(SERVED)
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

    /// To be called before data is written into blocks: if any were freed since the last
    /// write-back, these may still belong to something on the device.
    pub(crate) fn before_data(&self) -> Result<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        if self.freed.load(Ordering::Acquire) { self.mark_in_danger() } else { Ok(()) }
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

    /// Writes the primary superblock, with or without the mark that a repair is needed.
    fn put_superblock(&self, in_danger: bool) -> Result<()> {
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
            if self.journal.is_none() || !error.is_host_full() {
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

    /// Gives the volume a label of at most 12 bytes, in all copies of the superblock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is too long, or what the device says.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > 12 || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 12 bytes"));
        }
        self.check_writable()?;
        let mut fname = [0; 12];
        fname[..label.len()].copy_from_slice(label);
        if self.journal.is_some() {
            // Through the log: replay would bring back what an earlier record says of the
            // superblock.
            self.change_superblock(|sb| sb.fname = fname);
            Tx::begin(self, 0)?.commit()?;
            self.wait(self.ticket())?;
            let _alone = self.gate.write();
            self.edit_copies(|sb| sb.fname = fname)?;
            return self.flush();
        }
        let _alone = self.gate.write();
        // The superblock's counters go along with the label, so all they count goes first.
        self.sync_alone()?;
        self.edit_copies(|sb| sb.fname = fname)?;
        let sector = self.edit_superblock(|sb| sb.fname = fname);
        self.write_superblock(&sector)?;
        self.flush()
    }

    fn edit_copies(&self, change: impl Fn(&mut uxfs_format::superblock::Superblock)) -> Result<()> {
        use uxfs_format::superblock::{CRC_OFFSET, Superblock};
        for ag in 1..self.geo.ag_count {
            let daddr = self.geo.ag_sector_daddr(uxfs_format::AgNo(ag), 0);
            let mut sector = vec![0; self.geo.sector_size as usize];
            let io = |what| move |source| Error::Io { what, daddr, source };
            self.dev.read_at(daddr.bytes(), &mut sector).map_err(io("reading"))?;
            let Some(sb) = Superblock::view_mut(&mut sector) else { continue };
            if sb.magicnum.get() != uxfs_format::superblock::MAGIC {
                let place = uxfs_format::Place::Device(daddr);
                return Err(Error::corrupt("superblock copy", place, "wrong magic number"));
            }
            change(sb);
            uxfs_format::crc::stamp(&mut sector, CRC_OFFSET);
            self.meta_dev.write_at(daddr.bytes(), &sector).map_err(io("writing"))?;
        }
        Ok(())
    }
}

impl Fs {
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

    /// Tries again what was not tried for a while.
    pub(crate) fn retry_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Metadata) && !self.stuck_lately(Stuck::Metadata) {
            self.push_ail_below(journal)?;
        }
        if self.is_stuck(Stuck::Data)
            && !self.stuck_lately(Stuck::Data)
            && let Some(dirty) = &self.delalloc
        {
            self.retry_data(dirty)?;
        }
        Ok(())
    }

    /// Fails before a change begins, if metadata is stuck and there is much of it.
    pub(crate) fn refuse_if_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Metadata) && self.has_too_much_dirty_metadata(journal) {
            return self.push_ail_below(journal);
        }
        Ok(())
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

    /// What is not written at this moment: on a volume in use, what waits its turn; after an
    /// [`Fs::settle`] that failed, or on a volume that stopped, what could not be written.
    pub fn unwritten(&self) -> Unwritten {
        let mut sum = Unwritten {
            logged: self.journal.as_ref().map_or(0, |journal| journal.load().1 as u64),
            ..Unwritten::default()
        };
        for (ino, blocks) in self.delalloc.iter().flat_map(|dirty| dirty.by_file()) {
            sum.files += 1;
            sum.bytes += blocks << self.geo.block_log;
            if sum.first.len() < NAMED {
                sum.first.push(ino);
            }
        }
        sum
    }
}
