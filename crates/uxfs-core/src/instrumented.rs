//! A device wrapper that counts I/O and, if barriers are off, leaves out flushes.
//!
//! 1. Every write, flush and FUA write of an open volume passes through this wrapper.
//! 2. Without barriers a flush does nothing and is counted as left out.
//! 3. An error that means that the device is lost shuts the volume down.

use std::io::{self, IoSlice};
use std::sync::Arc;

use uxfs_disk::{BlockDev, host};
use uxfs_format::BASIC_BLOCK;
use uxfs_sync as sync;

use crate::cause::{Cause, Stop};
use crate::stats::Counts;

/// What is written through the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DevRole {
    /// Log records.
    Log,
    /// Metadata in place.
    Metadata,
    /// File data.
    Data,
}

/// A device that counts I/O.
pub(crate) struct InstrumentedDev {
    dev: Arc<dyn BlockDev>,
    counts: Arc<Counts>,
    stop: Arc<Stop>,
    what: DevRole,
    barrier: bool,
}

impl InstrumentedDev {
    /// Wraps `dev` for writing `what`.
    pub(crate) fn over(
        dev: &Arc<dyn BlockDev>,
        counts: &Arc<Counts>,
        stop: &Arc<Stop>,
        what: DevRole,
        barrier: bool,
    ) -> Arc<dyn BlockDev> {
        let (dev, counts, stop) = (Arc::clone(dev), Arc::clone(counts), Arc::clone(stop));
        Arc::new(Self { dev, counts, stop, what, barrier })
    }

    /// Shuts the volume down if the device is lost. Returns `result`.
    fn heed(&self, what: &str, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result
            && host::is_lost(error)
        {
            self.stop.stop(Cause::device(what, error));
        }
        result
    }

    fn writing(&self) -> &'static str {
        match self.what {
            DevRole::Log => "writing the log",
            DevRole::Metadata => "writing metadata in place",
            DevRole::Data => "writing data",
        }
    }

    fn count(&self, bytes: u64) {
        let counts = &self.counts;
        let (writes, sum) = match self.what {
            DevRole::Log => (&counts.log_writes, &counts.log_bytes),
            DevRole::Metadata => (&counts.metadata_writes, &counts.metadata_bytes),
            DevRole::Data => (&counts.data_writes, &counts.data_bytes),
        };
        writes.one();
        sum.add(bytes);
        if self.what == DevRole::Log {
            counts.log_blocks.add(bytes.div_ceil(BASIC_BLOCK as u64));
        }
    }
}

impl BlockDev for InstrumentedDev {
    uxfs_disk::forward!(self => *self.dev; len, lengthen, has_fua, discard, will_read, will_write_bulk, allocate,
        check_present, warning, read_only, sector_size, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.heed("reading", self.dev.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(data.len() as u64);
        self.heed(self.writing(), self.dev.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.count(pieces.iter().map(|p| p.len() as u64).sum());
        self.heed(self.writing(), self.dev.write_vectored_at(offset, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(data.len() as u64);
        self.heed(self.writing(), self.dev.write_bulk_at(offset, data))
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.barrier {
            self.counts.flushes_left_out.one();
            return self.write_at(offset, data);
        }
        self.count(data.len() as u64);
        self.counts.fua_writes.one();
        let begun = sync::now();
        let written = self.dev.write_fua_at(offset, data);
        self.counts.flush_time.add(sync::since(begun));
        self.heed(self.writing(), written)
    }

    fn flush(&self) -> io::Result<()> {
        if !self.barrier {
            self.counts.flushes_left_out.one();
            return Ok(());
        }
        self.counts.flushes.one();
        let begun = sync::now();
        let flushed = self.dev.flush();
        self.counts.flush_time.add(sync::since(begun));
        self.heed("flushing the device", flushed)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.heed(self.writing(), self.dev.zero(offset, len))
    }
}
