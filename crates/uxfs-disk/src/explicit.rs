//! How a device says, method by method, what it does with the part of [`BlockDev`](crate::BlockDev) that
//! not every device needs.
//!
//! The trait has no defaults: a device that wraps another one and forgets a method would otherwise lose a
//! capability, or miss writes, without a word. Three macros keep the implementations short. Each names the
//! methods, so a reader sees the choice, and a method that none of them names does not compile.
//!
//! | macro | meaning |
//! |---|---|
//! | [`forward!`](crate::forward) | the device below does it |
//! | [`emulate!`](crate::emulate) | it is composed of this device's `write_at` and `flush` |
//! | [`without!`](crate::without) | this device has nothing of the kind |
//!
//! ```
//! use std::io;
//! use uxfs_disk::{BlockDev, MemDev, emulate, forward, without};
//!
//! /// Counts the bytes written.
//! struct Counted(MemDev, std::sync::atomic::AtomicU64);
//!
//! impl BlockDev for Counted {
//!     forward!(self => self.0; len, read_at, flush, read_only, sector_size);
//!     emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
//!     without!(has_fua, discard, will_read, will_write_bulk, allocate, check_present, warning, lengthen, as_file);
//!
//!     fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
//!         self.1.fetch_add(data.len() as u64, std::sync::atomic::Ordering::Relaxed);
//!         self.0.write_at(offset, data)
//!     }
//! }
//!
//! let dev = Counted(MemDev::new(4096), 0.into());
//! dev.zero(0, 4096)?;
//! assert_eq!(dev.1.into_inner(), 4096);
//! # Ok::<(), io::Error>(())
//! ```

use std::io::{self, IoSlice};

use crate::BlockDev;

/// Bytes of zeroes written at once.
const ZEROES: u64 = 1 << 20;

/// Implements the named methods of [`BlockDev`](crate::BlockDev) by those of a device below:
/// `forward!(self => self.below; len, flush)`.
#[macro_export]
macro_rules! forward {
    ($this:ident => $below:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward!(@$method $this, $below);)+
    };
    (@len $this:ident, $below:expr) => {
        fn len(&$this) -> u64 { $crate::BlockDev::len(&$below) }
    };
    (@lengthen $this:ident, $below:expr) => {
        fn lengthen(&$this, least: u64) -> ::std::io::Result<u64> {
            $crate::BlockDev::lengthen(&$below, least)
        }
    };
    (@read_at $this:ident, $below:expr) => {
        fn read_at(&$this, offset: u64, buf: &mut [u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::read_at(&$below, offset, buf)
        }
    };
    (@write_at $this:ident, $below:expr) => {
        fn write_at(&$this, offset: u64, data: &[u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::write_at(&$below, offset, data)
        }
    };
    (@write_vectored_at $this:ident, $below:expr) => {
        fn write_vectored_at(
            &$this,
            offset: u64,
            pieces: &[::std::io::IoSlice<'_>],
        ) -> ::std::io::Result<()> {
            $crate::BlockDev::write_vectored_at(&$below, offset, pieces)
        }
    };
    (@write_bulk_at $this:ident, $below:expr) => {
        fn write_bulk_at(&$this, offset: u64, data: &[u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::write_bulk_at(&$below, offset, data)
        }
    };
    (@has_fua $this:ident, $below:expr) => {
        fn has_fua(&$this) -> bool { $crate::BlockDev::has_fua(&$below) }
    };
    (@write_fua_at $this:ident, $below:expr) => {
        fn write_fua_at(&$this, offset: u64, data: &[u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::write_fua_at(&$below, offset, data)
        }
    };
    (@flush $this:ident, $below:expr) => {
        fn flush(&$this) -> ::std::io::Result<()> { $crate::BlockDev::flush(&$below) }
    };
    (@discard $this:ident, $below:expr) => {
        fn discard(&$this, offset: u64, len: u64) {
            $crate::BlockDev::discard(&$below, offset, len);
        }
    };
    (@will_read $this:ident, $below:expr) => {
        fn will_read(&$this, offset: u64, len: u64) {
            $crate::BlockDev::will_read(&$below, offset, len);
        }
    };
    (@will_write_bulk $this:ident, $below:expr) => {
        fn will_write_bulk(&$this, offset: u64, len: u64) {
            $crate::BlockDev::will_write_bulk(&$below, offset, len);
        }
    };
    (@zero $this:ident, $below:expr) => {
        fn zero(&$this, offset: u64, len: u64) -> ::std::io::Result<()> {
            $crate::BlockDev::zero(&$below, offset, len)
        }
    };
    (@allocate $this:ident, $below:expr) => {
        fn allocate(&$this, offset: u64, len: u64) -> ::std::io::Result<()> {
            $crate::BlockDev::allocate(&$below, offset, len)
        }
    };
    (@check_present $this:ident, $below:expr) => {
        fn check_present(&$this) -> ::std::io::Result<()> {
            $crate::BlockDev::check_present(&$below)
        }
    };
    (@warning $this:ident, $below:expr) => {
        fn warning(&$this) -> Option<String> { $crate::BlockDev::warning(&$below) }
    };
    (@read_only $this:ident, $below:expr) => {
        fn read_only(&$this) -> bool { $crate::BlockDev::read_only(&$below) }
    };
    (@sector_size $this:ident, $below:expr) => {
        fn sector_size(&$this) -> u32 { $crate::BlockDev::sector_size(&$below) }
    };
    (@as_file $this:ident, $below:expr) => {
        fn as_file(&$this) -> Option<&::std::fs::File> { $crate::BlockDev::as_file(&$below) }
    };
}

/// Implements the named methods of [`BlockDev`](crate::BlockDev) by this device's `write_at` and
/// `flush`: `emulate!(write_vectored_at, zero)`.
#[macro_export]
macro_rules! emulate {
    ($($method:ident),+ $(,)?) => { $($crate::emulate!(@$method);)+ };
    (@write_vectored_at) => {
        fn write_vectored_at(
            &self,
            offset: u64,
            pieces: &[::std::io::IoSlice<'_>],
        ) -> ::std::io::Result<()> {
            $crate::explicit::write_pieces(self, offset, pieces)
        }
    };
    (@write_bulk_at) => {
        fn write_bulk_at(&self, offset: u64, data: &[u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::write_at(self, offset, data)
        }
    };
    (@write_fua_at) => {
        fn write_fua_at(&self, offset: u64, data: &[u8]) -> ::std::io::Result<()> {
            $crate::BlockDev::write_at(self, offset, data)?;
            $crate::BlockDev::flush(self)
        }
    };
    (@zero) => {
        fn zero(&self, offset: u64, len: u64) -> ::std::io::Result<()> {
            $crate::explicit::write_zeroes(self, offset, len)
        }
    };
}

/// Implements the named methods of [`BlockDev`](crate::BlockDev) for a device that has nothing of the
/// kind: `without!(discard, warning)`.
///
/// Without `has_fua` a forced write costs what a write and a flush cost; without `allocate` writes
/// never fail for lack of space, or the device cannot reserve any; `sector_size` is then 512 bytes.
#[macro_export]
macro_rules! without {
    ($($method:ident),+ $(,)?) => { $($crate::without!(@$method);)+ };
    (@has_fua) => {
        fn has_fua(&self) -> bool { false }
    };
    (@lengthen) => {
        fn lengthen(&self, _least: u64) -> ::std::io::Result<u64> { $crate::explicit::keeps_length() }
    };
    (@discard) => {
        fn discard(&self, _offset: u64, _len: u64) {}
    };
    (@will_read) => {
        fn will_read(&self, _offset: u64, _len: u64) {}
    };
    (@will_write_bulk) => {
        fn will_write_bulk(&self, _offset: u64, _len: u64) {}
    };
    (@allocate) => {
        fn allocate(&self, _offset: u64, _len: u64) -> ::std::io::Result<()> { Ok(()) }
    };
    (@check_present) => {
        fn check_present(&self) -> ::std::io::Result<()> { Ok(()) }
    };
    (@warning) => {
        fn warning(&self) -> Option<String> { None }
    };
    (@read_only) => {
        fn read_only(&self) -> bool { false }
    };
    (@sector_size) => {
        fn sector_size(&self) -> u32 { 512 }
    };
    (@as_file) => {
        fn as_file(&self) -> Option<&::std::fs::File> { None }
    };
}

/// The answer of a device whose length cannot change while it is in use.
///
/// # Errors
/// Always [`io::ErrorKind::Unsupported`].
pub fn keeps_length() -> io::Result<u64> {
    let text = "a device of this kind keeps its length while it is in use";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Writes several pieces contiguously, each as a write of its own.
///
/// # Errors
/// As [`BlockDev::write_at`].
#[doc(hidden)]
pub fn write_pieces<D: BlockDev + ?Sized>(
    dev: &D,
    offset: u64,
    pieces: &[IoSlice<'_>],
) -> io::Result<()> {
    let mut at = offset;
    for piece in pieces {
        dev.write_at(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Writes zeroes.
///
/// # Errors
/// As [`BlockDev::write_at`].
#[doc(hidden)]
pub fn write_zeroes<D: BlockDev + ?Sized>(dev: &D, offset: u64, len: u64) -> io::Result<()> {
    let zeroes = vec![0; len.min(ZEROES) as usize];
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(ZEROES) as usize;
        dev.write_at(offset + done, &zeroes[..piece])?;
        done += piece as u64;
    }
    Ok(())
}
