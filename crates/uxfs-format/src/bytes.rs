//! Byte order: read and write numbers in metadata and log regions.
//!
//! 1. A read beyond the end of `b` returns 0; a short read never panics. Where 0 could be mistaken
//!    for a value, the caller checks the length first.
//! 2. A write beyond the end panics: the caller sizes the buffer, so a short one is a bug.

/// A big-endian 16-bit number.
pub fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// A big-endian 32-bit number.
pub fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// A big-endian 64-bit number.
pub fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

/// A little-endian 16-bit number.
pub fn le16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// A little-endian 32-bit number.
pub fn le32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A little-endian 64-bit number.
pub fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at + 4)) << 32 | u64::from(le32(b, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_and_short_reads() {
        let b = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((be16(&b, 0), le16(&b, 0)), (0x0102, 0x0201));
        assert_eq!((be32(&b, 4), le32(&b, 4)), (0x0506_0708, 0x0807_0605));
        assert_eq!((be64(&b, 0), le64(&b, 0)), (0x0102_0304_0506_0708, 0x0807_0605_0403_0201));
        assert_eq!((be16(&b, 7), be32(&b, 5), le16(&b, 7), le32(&b, 5)), (0, 0, 0, 0));
    }
}
