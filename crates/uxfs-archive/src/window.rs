//! Bytes of a file between its source and whoever reads it by [`Source::chunk`].
//!
//! Called by the sources that read files of the host.
//!
//! [`Source::chunk`]: crate::Source::chunk

use crate::error::ArchiveError;

/// Bytes that are read at a time.
pub(crate) const WINDOW: usize = 256 << 10;

/// What was read ahead, and how much of it was taken.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    pos: usize,
    len: usize,
}

impl Window {
    /// Forgets what it holds.
    pub(crate) fn clear(&mut self) {
        (self.pos, self.len) = (0, 0);
    }

    /// Bytes that were not taken yet.
    pub(crate) fn chunk(&self) -> &[u8] {
        &self.bytes[self.pos..self.len]
    }

    /// Fills it anew by `read`, which gives how many bytes it put there.
    pub(crate) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        self.clear();
        self.bytes.resize(WINDOW, 0);
        self.len = read(&mut self.bytes)?;
        Ok(())
    }

    /// Takes `count` bytes, at most as many as there are.
    pub(crate) fn consume(&mut self, count: usize) {
        self.pos = self.len.min(self.pos + count);
    }

    /// Takes as many bytes as there are and `buf` has room for.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> usize {
        let chunk = self.chunk();
        let count = chunk.len().min(buf.len());
        buf[..count].copy_from_slice(&chunk[..count]);
        self.consume(count);
        count
    }
}
