//! The uncompressed bytes of an archive, in order.
//!
//! There are two inputs: a regular file, which is read in place and can skip data without reading
//! it, and a stream of chunks from a thread that reads or decompresses ahead
//! ([`decode`](crate::decode)).
//!
//! Invariants:
//! 1. `offset` counts uncompressed bytes from the archive's start.
//! 2. Bytes are not copied between the file or decompressor and `chunk`.
//! 3. A skip beyond the end of the input is reported as a truncation.
//! 4. A stream is read at most to the limit plus one chunk.
//!
//! Used by the tar reader.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

use crate::decode::Decoder;
use crate::error::{ArchiveError, Warnings};
use crate::header::{BLOCK, BLOCK_U64, Block};

/// Bytes to read after a skip: a header, often with a small file and the next header.
const WINDOW_MIN: usize = 4 << 10;
/// Bytes to read when the input is read sequentially.
const WINDOW_MAX: usize = 1 << 20;

/// Source of the archive's bytes.
pub(crate) enum Input {
    /// A plain archive in a regular file.
    File(FileInput),
    /// Anything else.
    Stream(StreamInput),
}

/// A plain archive in a regular file.
pub(crate) struct FileInput {
    file: File,
    name: String,
    /// Offset of the archive in the file; not 0 if standard input was read before.
    base: u64,
    /// Offset of the file's end.
    end: u64,
    window: Vec<u8>,
    /// Offset of the first unread byte in `window`.
    pos: usize,
    len: usize,
    /// File offset of the byte behind `window[..len]`.
    next: u64,
    /// Bytes to read next time.
    ahead: usize,
}

/// An archive that arrives in chunks.
pub(crate) struct StreamInput {
    decoder: Decoder,
    chunk: Vec<u8>,
    pos: usize,
    offset: u64,
    /// Maximum value of `offset`.
    limit: u64,
}

impl FileInput {
    pub(crate) fn new(file: File, name: String, base: u64, end: u64) -> Self {
        let (window, ahead) = (vec![0; WINDOW_MAX], 16 * WINDOW_MIN);
        Self { file, name, base, end, window, pos: 0, len: 0, next: base, ahead }
    }

    /// The same archive from a block behind its middle on; `None` if it has fewer bytes than `least`.
    pub(crate) fn behind_middle(&self, least: u64) -> Option<Self> {
        let len = self.end - self.base;
        if len < least {
            return None;
        }
        let file = self.file.try_clone().ok()?;
        let mut half = Self::new(file, self.name.clone(), self.base, self.end);
        half.next = self.base + (len / 2).next_multiple_of(BLOCK_U64);
        Some(half)
    }

    fn position(&self) -> u64 {
        self.next - (self.len - self.pos) as u64
    }

    /// Reads the next window, starting at the first unread byte.
    fn refill(&mut self) -> Result<(), ArchiveError> {
        self.next = self.position();
        (self.pos, self.len) = (0, 0);
        while self.len < self.ahead {
            let at = self.next + self.len as u64;
            match self.file.read_at(&mut self.window[self.len..self.ahead], at) {
                Ok(0) => break,
                Ok(count) => self.len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(ArchiveError::io(format!("reading {} at {at}", self.name), error));
                }
            }
        }
        self.next += self.len as u64;
        self.ahead = (self.ahead * 4).min(WINDOW_MAX);
        Ok(())
    }

    fn skip(&mut self, count: u64) -> bool {
        let buffered = (self.len - self.pos) as u64;
        if let Some(rest) = count.checked_sub(buffered) {
            // Skipped padding does not end sequential reading.
            if rest >= BLOCK_U64 {
                self.ahead = WINDOW_MIN;
            }
            (self.pos, self.len) = (0, 0);
            match self.next.checked_add(rest) {
                Some(next) if next <= self.end => self.next = next,
                _ => {
                    self.next = self.end;
                    return false;
                }
            }
        } else {
            // `count` is at most `buffered`, so it fits.
            self.pos += usize::try_from(count).unwrap_or(0);
        }
        true
    }
}

impl StreamInput {
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self { decoder, chunk: Vec::new(), pos: 0, offset: 0, limit: u64::MAX }
    }

    fn fill(&mut self, warnings: &mut Warnings) -> Result<(), ArchiveError> {
        while self.pos == self.chunk.len() {
            if self.offset > self.limit {
                let what = format!(
                    "it unpacks to more than {} bytes, far more than there is space for",
                    self.limit
                );
                return Err(ArchiveError::refused(self.decoder.name().as_bytes(), what));
            }
            self.decoder.recycle(std::mem::take(&mut self.chunk));
            self.pos = 0;
            match self.decoder.next(self.offset, warnings)? {
                Some(chunk) => self.chunk = chunk,
                None => break,
            }
        }
        Ok(())
    }
}

impl Input {
    /// Limits how many bytes of a stream are read.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        if let Self::Stream(input) = self {
            input.limit = bytes;
        }
    }

    /// Uncompressed bytes consumed so far.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::File(input) => input.position() - input.base,
            Self::Stream(input) => input.offset,
        }
    }

    /// The next bytes that are in memory; empty only at the end of the input.
    pub(crate) fn chunk(&mut self, warnings: &mut Warnings) -> Result<&[u8], ArchiveError> {
        match self {
            Self::File(input) => {
                if input.pos == input.len {
                    input.refill()?;
                }
                Ok(&input.window[input.pos..input.len])
            }
            Self::Stream(input) => {
                input.fill(warnings)?;
                Ok(&input.chunk[input.pos..])
            }
        }
    }

    /// Consumes bytes that `chunk` returned.
    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::File(input) => input.pos = input.len.min(input.pos + count),
            Self::Stream(input) => {
                let count = count.min(input.chunk.len() - input.pos);
                input.pos += count;
                input.offset += count as u64;
            }
        }
    }

    /// Reads into a buffer; returns 0 only at the end of the input. Large reads from a file bypass
    /// the window.
    pub(crate) fn read(
        &mut self,
        buf: &mut [u8],
        warnings: &mut Warnings,
    ) -> Result<usize, ArchiveError> {
        if let Self::File(input) = self
            && input.pos == input.len
            && buf.len() >= WINDOW_MIN
        {
            let count = read_at(&input.file, &input.name, buf, input.next)?;
            input.next += count as u64;
            return Ok(count);
        }
        let chunk = self.chunk(warnings)?;
        let count = chunk.len().min(buf.len());
        buf[..count].copy_from_slice(&chunk[..count]);
        self.consume(count);
        Ok(count)
    }

    /// Reads the next block; returns the bytes read, fewer than 512 only at the end of the input.
    pub(crate) fn block(
        &mut self,
        block: &mut Block,
        warnings: &mut Warnings,
    ) -> Result<usize, ArchiveError> {
        if let Self::File(input) = self
            && input.len - input.pos < BLOCK
        {
            input.refill()?;
        }
        let mut filled = 0;
        while filled < BLOCK {
            let chunk = self.chunk(warnings)?;
            let count = chunk.len().min(BLOCK - filled);
            if count == 0 {
                break;
            }
            block[filled..filled + count].copy_from_slice(&chunk[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(filled)
    }

    /// The next block without consuming it, if it is contiguous in memory.
    pub(crate) fn peek_block(
        &mut self,
        warnings: &mut Warnings,
    ) -> Result<Option<Block>, ArchiveError> {
        if let Self::File(input) = self
            && input.len - input.pos < BLOCK
        {
            input.refill()?;
        }
        Ok(self.chunk(warnings)?.first_chunk::<BLOCK>().copied())
    }

    /// Skips bytes. False if the input ends before.
    pub(crate) fn skip(
        &mut self,
        mut count: u64,
        warnings: &mut Warnings,
    ) -> Result<bool, ArchiveError> {
        if let Self::File(input) = self {
            return Ok(input.skip(count));
        }
        while count > 0 {
            let available = self.chunk(warnings)?.len();
            if available == 0 {
                return Ok(false);
            }
            let step = usize::try_from(count).unwrap_or(usize::MAX).min(available);
            self.consume(step);
            count -= step as u64;
        }
        Ok(true)
    }

    /// The regular file, and the file offset of the byte at `offset`.
    pub(crate) fn in_file(&self, offset: u64) -> Option<(&File, u64)> {
        match self {
            Self::File(input) => Some((&input.file, input.base + offset)),
            Self::Stream(_) => None,
        }
    }

    /// Bytes of the input (as stored, possibly compressed) read so far, and in total if known.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        match self {
            Self::File(input) => (self.offset(), Some(input.end - input.base)),
            Self::Stream(input) => input.decoder.progress(),
        }
    }
}

fn read_at(file: &File, name: &str, buf: &mut [u8], at: u64) -> Result<usize, ArchiveError> {
    loop {
        match file.read_at(buf, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => {
                return result
                    .map_err(|error| ArchiveError::io(format!("reading {name} at {at}"), error));
            }
        }
    }
}
