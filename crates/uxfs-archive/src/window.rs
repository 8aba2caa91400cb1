//! Buffers a file's bytes for [`Source::chunk`].
//!
//! Used by the sources that read files of the host.
//!
//! [`Source::chunk`]: crate::Source::chunk

use crate::error::ArchiveError;

/// Bytes to read at a time.
pub(crate) const WINDOW: usize = 256 << 10;

/// Buffered bytes, and how many of them were consumed.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    pos: usize,
    len: usize,
}

impl Window {
    /// Drops the buffered bytes.
    pub(crate) fn clear(&mut self) {
        (self.pos, self.len) = (0, 0);
    }

    /// The bytes not consumed yet.
    pub(crate) fn chunk(&self) -> &[u8] {
        &self.bytes[self.pos..self.len]
    }

    /// Refills the buffer with `read`, which returns the number of bytes read.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        self.clear();
        self.bytes.resize(WINDOW, 0);
        self.len = read(&mut self.bytes)?;
        Ok(())
    }

    /// Consumes `count` bytes, at most as many as are buffered.
    pub(crate) fn consume(&mut self, count: usize) {
        self.pos = self.len.min(self.pos + count);
    }

    /// Copies as many buffered bytes as `buf` can hold and consumes them.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> usize {
        let chunk = self.chunk();
        let count = chunk.len().min(buf.len());
        buf[..count].copy_from_slice(&chunk[..count]);
        self.consume(count);
        count
    }
}
