//! Reads the data of one file of the host, without its holes.
//!
//! 1. A file has the length that it had at `stat`. If it has become shorter since, the missing end
//!    reads as zeros, and `shrunk` is set.
//!
//! Used by the sources that read files of the host.

use std::fs::File;
use std::io;

use uxfs_host::{FileExt, Next, next_data, next_hole};

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
    /// Opens the data of `file`, which had this size at `stat` and takes `stored` bytes of the disk.
    pub(crate) fn new(file: File, size: u64, stored: u64) -> io::Result<Self> {
        let map = if stored < size { sparse_map(&file, size)? } else { SparseMap::whole(size) };
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
fn sparse_map(file: &File, size: u64) -> io::Result<SparseMap> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match next_data(file, at)? {
            Next::At(start) => start.min(size),
            Next::Nowhere => break,
            Next::Unknown => return Ok(SparseMap::whole(size)),
        };
        at = match next_hole(file, start)? {
            // Too many segments: the remaining holes are read as zeros.
            Next::At(_) if segments.len() + 1 >= SEGMENTS_MAX => size,
            Next::At(end) => end.min(size),
            Next::Nowhere => break,
            Next::Unknown => return Ok(SparseMap::whole(size)),
        };
        segments.push((start, at.saturating_sub(start)));
    }
    SparseMap::from_segments(size, segments).map_err(io::Error::other)
}
