//! Where the holes of a sparse file are.
//!
//! 1. Only Linux is asked. On other systems a file counts as data from its start to its end, so its
//!    holes are read as zeroes.

use std::fs::File;
use std::io;

/// Where data, or a hole, begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this offset.
    At(u64),
    /// Nowhere before the end of the file.
    Nowhere,
    /// The host does not know.
    Unknown,
}

/// The first data at or behind `at`.
///
/// # Errors
/// The host's.
#[cfg(target_os = "linux")]
pub fn next_data(file: &File, at: u64) -> io::Result<Next> {
    seek(file, rustix::fs::SeekFrom::Data(at))
}

/// The first hole at or behind `at`. The end of the file counts as one.
///
/// # Errors
/// The host's.
#[cfg(target_os = "linux")]
pub fn next_hole(file: &File, at: u64) -> io::Result<Next> {
    seek(file, rustix::fs::SeekFrom::Hole(at))
}

#[cfg(target_os = "linux")]
fn seek(file: &File, to: rustix::fs::SeekFrom) -> io::Result<Next> {
    use rustix::io::Errno;
    match rustix::fs::seek(file, to) {
        Ok(at) => Ok(Next::At(at)),
        Err(Errno::NXIO) => Ok(Next::Nowhere),
        // This file system does not report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Next::Unknown),
        Err(errno) => Err(errno.into()),
    }
}

/// The first data at or behind `at`: unknown on this system.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn next_data(_: &File, _: u64) -> io::Result<Next> {
    Ok(Next::Unknown)
}

/// The first hole at or behind `at`: unknown on this system.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn next_hole(_: &File, _: u64) -> io::Result<Next> {
    Ok(Next::Unknown)
}
