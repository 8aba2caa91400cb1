//! A device that fails at a chosen call of a kind, once or permanently.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs::disk::BlockDev;

#[cfg(test)]
mod tests;

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// [`BlockDev::read_at`].
    Read,
    /// Any kind of write.
    Write,
    /// [`BlockDev::flush`], and the flush of a forced write.
    Flush,
}

/// The failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of calls that fail.
    pub call: Call,
    /// Number of the first call that fails, from 0.
    pub number: u64,
    /// Do all later calls of the kind fail too?
    pub for_good: bool,
    /// The errno: EIO, or ENOSPC of a sparse host.
    pub errno: i32,
}

impl Fault {
    /// One failing call, with EIO.
    pub fn once(call: Call, number: u64) -> Self {
        Self { call, number, for_good: false, errno: 5 }
    }
}

/// The device.
pub struct FailDev {
    inner: Arc<dyn BlockDev>,
    fault: Fault,
    calls: [AtomicU64; 3],
    failed: AtomicBool,
}

impl FailDev {
    /// A device that forwards to `inner`.
    pub fn new(inner: Arc<dyn BlockDev>, fault: Fault) -> Self {
        Self { inner, fault, calls: Default::default(), failed: AtomicBool::new(false) }
    }

    /// Did a call fail?
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Number of calls of a kind so far.
    pub fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Acquire)
    }

    fn count(&self, call: Call) -> io::Result<()> {
        let number = self.calls[call as usize].fetch_add(1, Ordering::AcqRel);
        let fault = &self.fault;
        let due = number == fault.number || fault.for_good && number > fault.number;
        if call != fault.call || !due {
            return Ok(());
        }
        self.failed.store(true, Ordering::Release);
        Err(io::Error::from_raw_os_error(fault.errno))
    }
}

impl BlockDev for FailDev {
    uxfs::disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs::disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.count(Call::Read)?;
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(Call::Write)?;
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.count(Call::Flush)?;
        self.inner.flush()
    }

    fn read_only(&self) -> bool {
        false
    }
}
