//! The calls of Linux.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use uxfs_host::FileExt;

use crate::host;

/// Does a forced write cost less than a write and a flush?
pub(crate) const HAS_FUA: bool = true;

/// The same file, opened for direct I/O if it can be.
pub(crate) fn direct(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::DIRECT.bits() as i32;
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
}

/// The same file, opened once more: with an open file description of its own, which has seen no error yet.
pub(crate) fn described_anew(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).open(path).ok()
}

/// Writes to stable storage.
pub(crate) fn write_forced(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let (mut rest, mut at) = (data, offset);
    while !rest.is_empty() {
        let slices = [IoSlice::new(rest)];
        match rustix::io::pwritev2(file, &slices, at, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                rest = &rest[done..];
                at += done as u64;
            }
            Err(Errno::INTR) => {}
            // The host does not support RWF_DSYNC.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                file.write_all_at(rest, at)?;
                return file.sync_data();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes all earlier writes durable.
pub(crate) fn flush(file: &File, _read_only: bool) -> io::Result<()> {
    file.sync_data()
}

/// Writes pieces one behind the other.
pub(crate) fn write_pieces(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
    const MOST: usize = 512;
    let mut at = offset;
    for group in pieces.chunks(MOST) {
        let total: usize = group.iter().map(|p| p.len()).sum();
        let mut done = rustix::io::pwritev(file, group, at)?;
        // A short write is rare; finish it piece by piece.
        let mut start = 0;
        for piece in group {
            if done < start + piece.len() {
                let skip = done.saturating_sub(start);
                file.write_all_at(&piece[skip..], at + (start + skip) as u64)?;
                done = start + piece.len();
            }
            start += piece.len();
        }
        at += total as u64;
    }
    Ok(())
}

/// Makes a range a hole. The file keeps its length.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}

/// Reserves room for a range; false if the host has no call for it.
///
/// # Errors
/// The host has no room, or fails.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) if host::is_full(&errno.into()) || errno == Errno::IO => {
                return Err(errno.into());
            }
            Err(_) => return Ok(false),
        }
    }
}

/// Bytes in a sector of a block device.
pub(crate) fn sector_size(file: &File) -> u32 {
    rustix::fs::ioctl_blksszget(file).unwrap_or(512)
}

/// The file's size, and nothing else: since Linux 6.13 a query of the times makes the next write
/// store a new time in the inode, at a quarter of the cost of a small synchronous write.
pub(crate) fn size(file: &File) -> io::Result<u64> {
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
        Ok(statx) => Ok(statx.stx_size),
        // Not there, or forbidden in this container.
        Err(_) => Ok(rustix::fs::fstat(file)?.st_size.unsigned_abs()),
    }
}

/// Has the file lost its last name?
pub(crate) fn is_deleted(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Fails if the process's file size limit forbids a write up to `end`.
pub(crate) fn check_limit(end: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if limit < end => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}
