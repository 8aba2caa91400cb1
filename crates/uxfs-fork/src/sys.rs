//! What the host does for a file that grows at its end and is outdated at its beginning. Where it cannot, the
//! file only takes more room.

use std::fs::File;
use std::io;

/// Sets room aside behind the file's end, without changing its length.
///
/// # Errors
/// If the host has no room.
#[cfg(target_os = "linux")]
pub(crate) fn reserve(file: &File, from: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::KEEP_SIZE, from, len) {
        Err(error) if [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT].contains(&error) => {
            Err(error.into())
        }
        // The file system cannot set room aside.
        _ => Ok(()),
    }
}

/// Gives the room of a range back.
#[cfg(target_os = "linux")]
pub(crate) fn punch(file: &File, from: u64, len: u64) {
    use rustix::fs::{FallocateFlags, fallocate};
    // A file system without holes keeps the bytes, which nothing reads.
    let _ = fallocate(file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, from, len);
}

/// The first byte from here on that lies in no hole; `None` if only holes follow.
#[cfg(target_os = "linux")]
pub(crate) fn data_from(file: &File, from: u64) -> Option<u64> {
    use rustix::fs::{SeekFrom, seek};
    match seek(file, SeekFrom::Data(from)) {
        Ok(data) => Some(data),
        Err(error) if error == rustix::io::Errno::NXIO => None,
        // The file system does not say.
        Err(_) => Some(from),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn data_from(_: &File, from: u64) -> Option<u64> {
    Some(from)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn reserve(_: &File, _from: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn punch(_: &File, _from: u64, _len: u64) {}
