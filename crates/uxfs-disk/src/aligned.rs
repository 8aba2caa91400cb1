//! Memory for direct I/O.

use crate::DIRECT_ALIGN;

/// Bytes that start at a multiple of [`DIRECT_ALIGN`] in memory.
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
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
    fn starts_where_it_says() {
        for len in [0, 1, 4096, 10_000] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % DIRECT_ALIGN, 0);
        }
    }
}
