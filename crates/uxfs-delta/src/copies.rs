//! Copies of tables, behind a delta in its object. A reader that reads the end of the object has the tables of the
//! deltas below it, too.
//!
//! 1. The delta's length does not count them, so a reader that does not know them does not see them.
//! 2. No hash covers them. A copy is checked like the table that it is a copy of, by the hash of its trailer.
//!    Copies that are damaged are as good as none.
//!
//! Written and read by `uxfs-remote`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Hash;

const MAGIC: [u8; 8] = *b"uxfscopy";
const VERSION: u32 = 1;

/// Most bytes of the copies behind a delta.
pub const COPIES_MAX: u64 = 1 << 20;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCopies {
    magic: [u8; 8],
    version: U32,
    count: U32,
    rest: [u8; 32],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCopy {
    id: [u8; 32],
    len: U64,
}

const _: () = assert!(size_of::<RawCopies>() == Copies::HEAD_LEN);
const _: () = assert!(size_of::<RawCopy>() == Copies::ENTRY_LEN);

/// Copies of the ends of deltas: a table and a trailer each, as they are in the delta's own object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies<'a> {
    /// The delta below whose object has copies of the others; `None` if none has.
    pub rest: Option<Hash>,
    /// The hash of each delta's trailer, and the delta's end.
    pub ends: Vec<(Hash, &'a [u8])>,
}

impl<'a> Copies<'a> {
    /// Bytes before the copies.
    pub const HEAD_LEN: usize = 48;
    /// Bytes of a copy beside its own.
    pub const ENTRY_LEN: usize = 40;

    /// The bytes that follow the delta.
    pub fn build(&self) -> Vec<u8> {
        let head = RawCopies {
            magic: MAGIC,
            version: VERSION.into(),
            count: u32::try_from(self.ends.len()).unwrap_or(u32::MAX).into(),
            rest: self.rest.unwrap_or_default().0,
        };
        let mut bytes = head.as_bytes().to_vec();
        for (id, end) in &self.ends {
            let entry = RawCopy { id: id.0, len: (end.len() as u64).into() };
            bytes.extend_from_slice(entry.as_bytes());
        }
        self.ends.iter().for_each(|(_, end)| bytes.extend_from_slice(end));
        bytes
    }

    /// Parses what follows a delta. Returns `None` if these are no copies.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = RawCopies::ref_from_prefix(bytes).ok()?;
        if head.magic != MAGIC || head.version.get() != VERSION {
            return None;
        }
        let count = head.count.get() as usize;
        let (entries, mut rest) = <[RawCopy]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let mut ends = Vec::with_capacity(count);
        for entry in entries {
            let (end, behind) = rest.split_at_checked(usize::try_from(entry.len.get()).ok()?)?;
            ends.push((Hash(entry.id), end));
            rest = behind;
        }
        Some(Self { rest: Some(Hash(head.rest)).filter(|hash| !hash.is_none()), ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_read_as_they_were_written_or_not_at_all() {
        let (one, two) = (Hash::of(b"one"), Hash::of(b"two"));
        let copies = Copies {
            rest: Some(two),
            ends: vec![(one, b"table".as_slice()), (two, b"".as_slice())],
        };
        let bytes = copies.build();
        assert_eq!(bytes.len(), Copies::HEAD_LEN + 2 * Copies::ENTRY_LEN + 5);
        assert_eq!(Copies::parse(&bytes), Some(copies));
        assert!((0..bytes.len()).all(|len| Copies::parse(&bytes[..len]).is_none()));
        let mut huge = bytes;
        huge[12..16].fill(0xff);
        assert_eq!(Copies::parse(&huge), None);
        let none = Copies::default();
        assert_eq!(Copies::parse(&none.build()), Some(none));
    }
}
