//! Devices that hold a volume: files, block devices, disk images and memory, behind the trait
//! [`BlockDev`].
//!
//! All I/O to volumes goes through this crate. Callers may rely on these rules:
//!
//! 1. Only [`BlockDev::flush`] (or [`BlockDev::write_fua_at`]) makes a write durable. A completed
//!    write alone is only visible to later reads.
//! 2. Reads and writes are whole: they transfer all bytes or fail.
//! 3. An access to a device that was truncated or replaced fails, and so do all later ones
//!    ([`host::is_lost`]). Missing bytes never read as zeroes.
//! 4. A device is `Sync`. Calls from several threads may overlap; overlapping writes to the same
//!    bytes leave the data of either.

#![warn(missing_docs)]

mod aligned;
mod bulk;
pub mod explicit;
#[doc(hidden)]
pub mod fault;
mod file;
mod flusher;
mod foreign;
#[cfg(feature = "vm-images")]
mod foreign_dev;
#[cfg(target_os = "linux")]
mod holder;
#[cfg(not(target_os = "linux"))]
#[path = "unknown_holder.rs"]
mod holder;
mod holes;
pub mod host;
mod joined;
mod lock;
mod memory;
mod overlay;
pub mod partition;
mod presence;
#[cfg(feature = "qcow2")]
mod qcow2;
mod qcow2_magic;
mod slice;
mod storage;
mod sys;
mod vhd;
#[cfg(feature = "vm-images")]
mod vhd_dynamic;

use std::io::{self, IoSlice};
use std::sync::Arc;

pub use aligned::AlignedBuf;
pub use file::{FileDev, OpenMode};
pub use foreign::{Foreign, not_built};
#[cfg(feature = "vm-images")]
pub use foreign_dev::ForeignDev;
pub use joined::JoinedDev;
pub use memory::MemDev;
pub use overlay::Overlay;
#[cfg(feature = "qcow2")]
pub use qcow2::{Qcow2Dev, create_qcow2};
pub use qcow2_magic::is_qcow2;
pub use slice::Slice;
pub use vhd::{set_vhd_len, vhd_checksum, vhd_geometry, vhd_len};

/// Alignment in bytes, in memory and on the device, that direct I/O accepts on all hosts.
pub const DIRECT_ALIGN: usize = 4096;

/// A device that holds a volume, addressed by bytes.
pub trait BlockDev: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Is the length 0?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over the length that the file or device below has now, and lengthens a file that is shorter
    /// than `least` bytes; the new bytes read as zeroes. Never shortens. Returns the length.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a device that keeps its length while it is open;
    /// [`io::ErrorKind::InvalidInput`] for one that is shorter and no file; the device's errors.
    fn lengthen(&self, least: u64) -> io::Result<u64>;

    /// Reads `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// The device's errors; a read past the end is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The device's errors.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Writes several pieces contiguously from `offset` on, in one request if the device can.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()>;

    /// Writes a large piece of data that will not be read soon: it does not stay in the host's page cache if
    /// the device can avoid that. A block device needs `data` and `offset` to be multiples of
    /// [`DIRECT_ALIGN`] for it.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Does [`BlockDev::write_fua_at`] cost less than a write and a flush?
    fn has_fua(&self) -> bool;

    /// Writes `data` and returns when it is on stable storage, with force unit access (FUA) if the
    /// device has it. Does not make earlier writes durable.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`] and [`BlockDev::flush`].
    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes all writes that completed before this call durable.
    ///
    /// # Errors
    /// The device's errors; earlier writes may then be lost.
    fn flush(&self) -> io::Result<()>;

    /// Tells the device that a range is unused. The content of the range is undefined afterwards;
    /// use [`BlockDev::zero`] to get zeroes. A hint: the device may ignore it.
    fn discard(&self, offset: u64, len: u64);

    /// Tells the device that a range is read soon, so that it can begin now. A hint: the device may
    /// ignore it.
    fn will_read(&self, offset: u64, len: u64);

    /// Tells the device that [`BlockDev::write_bulk_at`] will write all of a range soon. A device that lays
    /// out its blocks in the order in which they are written takes the order of these calls instead, so that
    /// threads may write in any order and the layout is the same again. A hint: the device may ignore it,
    /// and the write reports what fails.
    fn will_write_bulk(&self, offset: u64, len: u64);

    /// Makes a range read as zeroes; avoids writing them if the device can.
    ///
    /// # Errors
    /// As [`BlockDev::write_at`].
    fn zero(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Reserves space on the host for a range, so that a later write there does not fail for lack
    /// of space. The content does not change. Does nothing where there is nothing to reserve (a
    /// block device) or no way to do it.
    ///
    /// # Errors
    /// If the host has no space ([`host::is_full`]), or fails.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Checks that the device is still the one that was opened.
    ///
    /// # Errors
    /// An error for which [`host::is_lost`] is true, if it is not.
    fn check_present(&self) -> io::Result<()>;

    /// A warning about a device that still works, for example that its file was deleted.
    fn warning(&self) -> Option<String>;

    /// Is the device opened for reading only?
    fn read_only(&self) -> bool;

    /// Bytes in a sector; the unit of addresses in a partition table.
    fn sector_size(&self) -> u32;

    /// The underlying file, if there is one. It allows copies that bypass user space.
    fn as_file(&self) -> Option<&std::fs::File>;
}

/// A shared device, so that a device that wraps another one can own or share it.
impl<D: BlockDev + ?Sized> BlockDev for Arc<D> {
    forward!(self => **self; len, lengthen, read_at, write_at, write_vectored_at, write_bulk_at, has_fua,
        write_fua_at, flush, discard, will_read, will_write_bulk, zero, allocate, check_present, warning, read_only,
        sector_size, as_file);
}
