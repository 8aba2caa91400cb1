//! A device that counts what goes to it, and how much of that to the log.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs::Fs;
use uxfs::disk::{BlockDev, FileDev};

use crate::traffic::Traffic;

/// The device. Reads are not counted.
pub(crate) struct Counted {
    below: FileDev,
    log_start: AtomicU64,
    log_end: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    log_writes: AtomicU64,
    log_bytes: AtomicU64,
    flushes: AtomicU64,
}

impl Counted {
    pub(crate) fn new(below: FileDev) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            below,
            log_start: zero(),
            log_end: zero(),
            writes: zero(),
            bytes: zero(),
            log_writes: zero(),
            log_bytes: zero(),
            flushes: zero(),
        }
    }

    /// Tells where the log lies.
    pub(crate) fn watch_log(&self, fs: &Fs) {
        let start = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
        let len = u64::from(fs.geo.log_blocks) * u64::from(fs.geo.block_size);
        self.log_start.store(start, Ordering::Relaxed);
        self.log_end.store(start + len, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub(crate) fn traffic(&self) -> Traffic {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Traffic {
            writes: get(&self.writes),
            bytes: get(&self.bytes),
            log_writes: get(&self.log_writes),
            log_bytes: get(&self.log_bytes),
            flushes: get(&self.flushes),
        }
    }

    fn count(&self, offset: u64, len: usize) {
        let len = len as u64;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        let log = self.log_start.load(Ordering::Relaxed)..self.log_end.load(Ordering::Relaxed);
        if log.contains(&offset) {
            self.log_writes.fetch_add(1, Ordering::Relaxed);
            self.log_bytes.fetch_add(len, Ordering::Relaxed);
        }
    }
}

impl BlockDev for Counted {
    uxfs::disk::forward!(self => self.below; len, read_at, has_fua, discard, zero, allocate, check_present, warning, read_only, sector_size, as_file);

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(offset, data.len());
        self.below.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.count(offset, pieces.iter().map(|p| p.len()).sum());
        self.below.write_vectored_at(offset, pieces)
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(offset, data.len());
        self.below.write_bulk_at(offset, data)
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(offset, data.len());
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.below.write_fua_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.below.flush()
    }
}
