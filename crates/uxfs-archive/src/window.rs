//! Buffers a file's bytes for [`Source::chunk`] and [`Source::read`].
//!
//! Used by the sources that read files of the host.
//!
//! [`Source::chunk`]: crate::Source::chunk
//! [`Source::read`]: crate::Source::read

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

/// A source that buffers its data in a window.
pub(crate) trait Windowed {
    /// The buffer.
    fn window(&mut self) -> &mut Window;

    /// Reads data of the current file from where it lies; 0 at the end.
    ///
    /// # Errors
    /// Those of the host, with the file's name.
    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError>;
}

/// The methods of [`Source`](crate::Source) that return data, for a [`Windowed`] one.
macro_rules! data_methods {
    () => {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, $crate::ArchiveError> {
            $crate::window::read(self, buf)
        }

        fn chunk(&mut self) -> Result<&[u8], $crate::ArchiveError> {
            $crate::window::chunk(self)
        }

        fn consume(&mut self, count: usize) {
            $crate::window::Windowed::window(self).consume(count);
        }
    };
}
pub(crate) use data_methods;

/// [`Source::read`](crate::Source::read): buffered bytes first.
pub(crate) fn read(source: &mut impl Windowed, buf: &mut [u8]) -> Result<usize, ArchiveError> {
    match source.window().chunk().is_empty() {
        true => source.read_data(buf),
        false => Ok(source.window().read(buf)),
    }
}

/// [`Source::chunk`](crate::Source::chunk): refills an empty buffer.
pub(crate) fn chunk(source: &mut impl Windowed) -> Result<&[u8], ArchiveError> {
    if source.window().chunk().is_empty() {
        // Taken out to release the borrow of `source`.
        let mut window = std::mem::take(source.window());
        let filled = window.fill(|bytes| source.read_data(bytes));
        *source.window() = window;
        filled?;
    }
    Ok(source.window().chunk())
}
