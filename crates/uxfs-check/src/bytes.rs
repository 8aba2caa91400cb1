//! Byte order: numbers in byte slices, big-endian except where the name says otherwise. A read beyond
//! the end of the slice returns 0. This crate keeps its own functions, so that it does not repeat a
//! mistake of the engine.

pub(crate) fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

pub(crate) fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

/// A little-endian number: a log record's checksum.
pub(crate) fn le32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Stores a number; the caller ensures that it fits.
pub(crate) fn put32(b: &mut [u8], at: usize, number: u32) {
    b[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

/// Stores a number; the caller ensures that it fits.
pub(crate) fn put64(b: &mut [u8], at: usize, number: u64) {
    b[at..at + 8].copy_from_slice(&number.to_be_bytes());
}
