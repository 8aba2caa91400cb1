//! Byte order: read and write numbers in metadata and log regions.
//!
//! A structure names its numbers as constants of type [`Field`]: a place in the structure together
//! with the type of the number there. Code outside this crate reads and writes through them, or
//! through `zerocopy` views. The functions here serve records that have no names for their fields.
//!
//! 1. A read beyond the end of `b` returns 0; a short read never panics. Where 0 could be mistaken
//!    for a value, the caller checks the length first, or calls [`Field::try_get`].
//! 2. A write beyond the end panics: the caller sizes the buffer, so a short one is a bug.

use core::marker::PhantomData;
use core::ops::Range;

/// A number as metadata stores it: big-endian.
pub trait Number: Copy + Default {
    /// Its length in bytes.
    const LEN: usize;

    /// The number at byte `at` of `b`; `None` if `b` ends before it does.
    fn read(b: &[u8], at: usize) -> Option<Self>;

    /// Stores the number at byte `at` of `b`.
    ///
    /// # Panics
    /// If `b` ends before the number does.
    fn write(self, b: &mut [u8], at: usize);
}

macro_rules! numbers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            const LEN: usize = size_of::<Self>();

            #[inline]
            fn read(b: &[u8], at: usize) -> Option<Self> {
                b.get(at..)?.first_chunk().map(|raw| Self::from_be_bytes(*raw))
            }

            #[inline]
            fn write(self, b: &mut [u8], at: usize) {
                b[at..at + Self::LEN].copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

numbers!(u16, u32, u64);

/// The place of a number of type `T` in a structure.
#[derive(Debug)]
pub struct Field<T> {
    offset: usize,
    number: PhantomData<T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T: Number> Field<T> {
    /// The number at byte `offset` of the structure.
    pub const fn at(offset: usize) -> Self {
        Self { offset, number: PhantomData }
    }

    /// Byte offset in the structure.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// The bytes that the number takes.
    pub const fn range(self) -> Range<usize> {
        self.offset..self.offset + T::LEN
    }

    /// The same field of a structure that starts at byte `start` of the bytes at hand.
    #[must_use]
    pub const fn behind(self, start: usize) -> Self {
        Self::at(start + self.offset)
    }

    /// Reads the number; 0 if the structure is too short.
    #[inline]
    pub fn get(self, structure: &[u8]) -> T {
        T::read(structure, self.offset).unwrap_or_default()
    }

    /// Reads the number; `None` if the structure is too short.
    #[inline]
    pub fn try_get(self, structure: &[u8]) -> Option<T> {
        T::read(structure, self.offset)
    }

    /// Stores the number.
    ///
    /// # Panics
    /// If the structure is too short.
    #[inline]
    pub fn set(self, structure: &mut [u8], number: T) {
        number.write(structure, self.offset);
    }
}

/// A big-endian 16-bit number.
#[inline]
pub fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// A big-endian 32-bit number.
#[inline]
pub fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// A big-endian 64-bit number.
#[inline]
pub fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

/// A little-endian 16-bit number.
#[inline]
pub fn le16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// A little-endian 32-bit number.
#[inline]
pub fn le32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A little-endian 64-bit number.
#[inline]
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

    #[test]
    fn fields_read_and_write_their_bytes_only() {
        let mut b = [0xee; 8];
        let field: Field<u32> = Field::at(1).behind(2);
        field.set(&mut b, 0x0102_0304);
        assert_eq!(b, [0xee, 0xee, 0xee, 1, 2, 3, 4, 0xee]);
        assert_eq!((field.offset(), field.range(), field.get(&b)), (3, 3..7, 0x0102_0304));
        assert_eq!((field.try_get(&b), field.try_get(&b[..6])), (Some(0x0102_0304), None));
        for start in 5..20 {
            assert_eq!(Field::<u32>::at(start).get(&b), 0);
        }
    }
}
