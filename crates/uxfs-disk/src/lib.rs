//! Devices that hold a volume: files, block devices and memory, behind one trait.
//!
//! This crate is the one door to I/O. What its callers may rely on:
//!
//! 1. [`BlockDev::flush`] is the only promise of durability; a finished write alone promises that
//!    later reads see it.
//! 2. Reads and writes are whole: they transfer all bytes or fail.
//! 3. A device that was cut short or replaced fails, and goes on failing ([`host::is_lost`]); it never
//!    reads as zeroes for that.
//! 4. A device is `Sync`; calls from many threads may overlap, and overlapping writes to the same
//!    bytes leave either.

mod aligned;
#[doc(hidden)]
pub mod fault;
mod file;
mod holder;
mod holes;
pub mod host;
mod lock;
mod memory;
pub mod partition;
mod presence;
mod qcow2;
mod slice;
mod storage;

use std::io::{self, IoSlice};

pub use aligned::AlignedBuf;
pub use file::{FileDev, OpenMode};
pub use memory::MemDev;
pub use qcow2::{Qcow2Dev, create_qcow2, is_qcow2};
pub use slice::Slice;

/// Alignment, in memory and on the device, at which direct I/O works everywhere.
pub const DIRECT_ALIGN: usize = 4096;

/// A device that holds a volume, addressed by bytes.
pub trait BlockDev: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Is it of length 0?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// Whatever the device reports; reading past the end is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Writes several pieces one behind the other, in one go where the device can.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for piece in pieces {
            self.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes a large piece of data that nobody will read soon: past the host's page cache where
    /// the device can and `data` and `offset` are multiples of [`DIRECT_ALIGN`].
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)
    }

    /// Does [`BlockDev::write_fua_at`] cost less than a write and a flush?
    fn has_fua(&self) -> bool {
        false
    }

    /// Writes `data` and returns once it is on stable storage, by force-unit-access where the
    /// device has it. Says nothing about what was written before.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`] and [`BlockDev::flush`].
    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)?;
        self.flush()
    }

    /// Brings everything written before this call to stable storage.
    ///
    /// # Errors
    /// Whatever the device reports; what was written before may then be lost.
    fn flush(&self) -> io::Result<()>;

    /// Tells the device that a range is not in use; it reads as anything afterwards, but where
    /// [`BlockDev::zero`] is wanted that must be called. A hint.
    fn discard(&self, _offset: u64, _len: u64) {}

    /// Makes a range read as zeroes, without writing them where the device can.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeroes.len() as u64) as usize;
            self.write_at(offset + done, &zeroes[..piece])?;
            done += piece as u64;
        }
        Ok(())
    }

    /// Sets room aside on the host for a range, so that a write there does not fail for want of it.
    /// The content stays as it is. Where there is nothing to set aside, as on a block device, or no
    /// way to do it, this does nothing.
    ///
    /// # Errors
    /// If the host has no room ([`host::is_full`]), or fails.
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Is the device still the one that was opened?
    ///
    /// # Errors
    /// [`host::is_lost`] if it is not.
    fn check_present(&self) -> io::Result<()> {
        Ok(())
    }

    /// What its user should know of the device although it works: its file has no name any more.
    fn warning(&self) -> Option<String> {
        None
    }

    /// May it be written to?
    fn read_only(&self) -> bool;

    /// Bytes in a sector, in which an MBR counts.
    fn sector_size(&self) -> u32 {
        512
    }

    /// The file below, if there is one, for copying without passing through user space.
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}
