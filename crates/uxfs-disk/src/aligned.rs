//! Memory buffers with the alignment that direct I/O needs.

use crate::DIRECT_ALIGN;

/// A byte buffer whose address is a multiple of [`DIRECT_ALIGN`].
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    pub fn new(len: usize) -> Self {
        let raw = vec![0; len + DIRECT_ALIGN];
        let misplaced = raw.as_ptr().addr() % DIRECT_ALIGN;
        let start = if misplaced == 0 { 0 } else { DIRECT_ALIGN - misplaced };
        Self { raw, start, len }
    }
}

impl core::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl core::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_starts_at_an_aligned_address() {
        for len in [0, 1, 4096, 10_000] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % DIRECT_ALIGN, 0);
        }
    }
}
