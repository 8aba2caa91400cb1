//! A batch: pieces of file data that are adjacent on the device and are written in one request.

use core::ops::Range;
use std::fs::File;
use std::io;

use uxfs_disk::{AlignedBuf, DIRECT_ALIGN};
use uxfs_host::FileExt;

/// Bytes in one batch.
pub(crate) const BATCH: usize = 2 << 20;

/// The source of a piece's bytes.
pub(crate) enum Origin {
    /// The source's file, at this offset.
    File(u64),
    /// The bytes are already in the batch's buffer.
    Buffer,
}

struct Piece {
    origin: Origin,
    at: usize,
    len: usize,
}

#[derive(Default)]
pub(crate) struct Batch {
    device: u64,
    pieces: Vec<Piece>,
    len: usize,
    /// Filled by the caller; otherwise the writing thread uses its own buffer.
    pub(crate) buf: Option<AlignedBuf>,
}

impl Batch {
    /// An empty batch for `device`, with the memory of this one.
    pub(crate) fn renewed(mut self, device: u64, buf: Option<AlignedBuf>) -> Self {
        self.pieces.clear();
        Self { device, pieces: self.pieces, len: 0, buf }
    }

    /// Bytes so far, with the zeroes behind each piece.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of the device that it covers.
    pub(crate) fn range(&self) -> Range<u64> {
        self.device..self.device + self.len as u64
    }

    /// Whether data for `device`, in a buffer of the caller or not, belongs to its end.
    pub(crate) fn continues_at(&self, device: u64, with_buf: bool) -> bool {
        self.range().end == device && self.buf.is_some() == with_buf
    }

    /// Whether another block does not fit.
    pub(crate) fn is_full(&self, block: usize) -> bool {
        self.len + block.max(DIRECT_ALIGN) > BATCH
    }

    pub(crate) fn push(&mut self, origin: Origin, len: usize, block: usize) {
        self.pieces.push(Piece { origin, at: self.len, len });
        self.len += len.next_multiple_of(block);
    }

    /// Reads the pieces from the source's file into `buf`, and zeroes the gaps between the pieces.
    pub(crate) fn fill(&self, source: Option<&File>, buf: &mut [u8]) -> io::Result<()> {
        let mut end = 0;
        for piece in &self.pieces {
            buf[end..piece.at].fill(0);
            end = piece.at + piece.len;
            if let Origin::File(at) = piece.origin {
                let file = source.ok_or(io::ErrorKind::Unsupported)?;
                file.read_exact_at(&mut buf[piece.at..end], at)?;
            }
        }
        buf[end..self.len].fill(0);
        Ok(())
    }
}
