//! Reads the data of one file of the host, without its holes.
//!
//! 1. A file has the length that it had at `stat`. If it has become shorter since, the missing end
//!    reads as zeros, and `shrunk` is set.
//!
//! Used by the sources that read files of the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::Statx;
use rustix::io::Errno;

use crate::entry::SparseMap;
use crate::sparse::SEGMENTS_MAX;

/// An open file, read segment by segment from the start.
pub(crate) struct FileData {
    pub(crate) file: File,
    /// The ranges that hold data.
    pub(crate) map: SparseMap,
    /// The segment to read next, and the offset in it.
    segment: usize,
    within: u64,
    /// The file has become shorter since `stat`.
    pub(crate) shrunk: bool,
}

impl FileData {
    /// Opens the data of `file`, which had the metadata `stat`.
    pub(crate) fn new(file: File, stat: &Statx) -> io::Result<Self> {
        let size = stat.stx_size;
        let map = if stat.stx_blocks.saturating_mul(512) < size {
            sparse_map(file.as_fd(), size)?
        } else {
            SparseMap::whole(size)
        };
        Ok(Self { file, map, segment: 0, within: 0, shrunk: false })
    }

    /// Offset and maximum length of the next read; `None` at the end.
    fn here(&self) -> Option<(u64, u64)> {
        let (offset, length) = self.map.segments().get(self.segment)?;
        Some((offset + self.within, length - self.within))
    }

    /// Reads from one segment; returns 0 at the end of the last.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some((at, left)) = self.here() else { return Ok(0) };
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let count = match self.file.read_at(&mut buf[..want], at) {
            Ok(0) => {
                // The file was truncated (invariant 1).
                self.shrunk |= want > 0;
                buf[..want].fill(0);
                want
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.read(buf),
            other => other?,
        };
        self.within += count as u64;
        if count as u64 == left {
            self.segment += 1;
            self.within = 0;
        }
        Ok(count)
    }
}

/// Asks the file system which ranges of a file of `size` bytes hold data.
fn sparse_map(fd: BorrowedFd<'_>, size: u64) -> io::Result<SparseMap> {
    use rustix::fs::SeekFrom::{Data, Hole};
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(fd, Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // This file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(SparseMap::whole(size)),
            Err(errno) => return Err(errno.into()),
        };
        at = match rustix::fs::seek(fd, Hole(start)) {
            // Too many segments: the remaining holes are read as zeros.
            Ok(_) if segments.len() + 1 >= SEGMENTS_MAX => size,
            Ok(end) => end.min(size),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        segments.push((start, at.saturating_sub(start)));
    }
    SparseMap::from_segments(size, segments).map_err(io::Error::other)
}
