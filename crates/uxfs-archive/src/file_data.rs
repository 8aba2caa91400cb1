//! The data of one file of the host, without its holes.
//!
//! 1. A file is as long as it was when it was looked at: what is missing at the end reads as
//!    zeros, which is noted.
//!
//! Made by the sources that read files of the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::Statx;
use rustix::io::Errno;

use crate::entry::SparseMap;
use crate::sparse::SEGMENTS_MAX;

/// An open file that is read from its beginning, segment by segment.
pub(crate) struct FileData {
    pub(crate) file: File,
    /// Where it has data.
    pub(crate) map: SparseMap,
    /// The segment to read next, and how far in it.
    segment: usize,
    within: u64,
    /// It is shorter than it was.
    pub(crate) shrunk: bool,
}

impl FileData {
    /// The data of `file`, which looked like `stat`.
    pub(crate) fn new(file: File, stat: &Statx) -> io::Result<Self> {
        let size = stat.stx_size;
        let map = if stat.stx_blocks.saturating_mul(512) < size {
            sparse_map(file.as_fd(), size)?
        } else {
            SparseMap::whole(size)
        };
        Ok(Self { file, map, segment: 0, within: 0, shrunk: false })
    }

    /// Where to read next and how much at most; `None` at the end.
    fn here(&self) -> Option<(u64, u64)> {
        let (offset, length) = self.map.segments().get(self.segment)?;
        Some((offset + self.within, length - self.within))
    }

    /// Reads from one segment; 0 at the end of the last.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some((at, left)) = self.here() else { return Ok(0) };
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let count = match self.file.read_at(&mut buf[..want], at) {
            Ok(0) => {
                // Cut short meanwhile (invariant 1).
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

    /// Where all of it lies in the file, if it lies in one piece.
    pub(crate) fn position(&self) -> Option<u64> {
        match self.map.segments() {
            [(offset, _)] => Some(*offset),
            _ => None,
        }
    }
}

/// Where a file of `size` bytes has data, as its file system tells.
fn sparse_map(fd: BorrowedFd<'_>, size: u64) -> io::Result<SparseMap> {
    use rustix::fs::SeekFrom::{Data, Hole};
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(fd, Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // This file system knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(SparseMap::whole(size)),
            Err(errno) => return Err(errno.into()),
        };
        at = match rustix::fs::seek(fd, Hole(start)) {
            // So fragmented a file keeps its last holes as zeros.
            Ok(_) if segments.len() + 1 >= SEGMENTS_MAX => size,
            Ok(end) => end.min(size),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        segments.push((start, at.saturating_sub(start)));
    }
    SparseMap::from_segments(size, segments).map_err(io::Error::other)
}
