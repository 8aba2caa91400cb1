//! The extent record: maps a run of a file's blocks to disk blocks, in 128 bits.

use crate::types::{FileBlock, FsBlock};

/// Longest run one record can describe, in blocks.
pub const MAX_EXTENT_LEN: u64 = (1 << 21) - 1;
/// Size of a packed record in bytes.
pub const RECORD_LEN: usize = 16;

/// `struct xfs_bmbt_irec`: one run of a fork's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Offset of the first block in the fork.
    pub offset: FileBlock,
    /// First block on the volume.
    pub start: FsBlock,
    /// Number of blocks, 1 to [`MAX_EXTENT_LEN`].
    pub len: u64,
    /// Allocated but not written: reads as zeroes.
    pub unwritten: bool,
}

impl Extent {
    /// Offset just behind the run.
    pub fn end(&self) -> FileBlock {
        self.offset.plus(self.len)
    }

    /// Decodes a packed record.
    pub fn unpack(raw: &[u8; RECORD_LEN]) -> Self {
        let bits = u128::from_be_bytes(*raw);
        Self {
            unwritten: bits >> 127 != 0,
            offset: FileBlock((bits >> 73) as u64 & ((1 << 54) - 1)),
            start: FsBlock((bits >> 21) as u64 & ((1 << 52) - 1)),
            len: bits as u64 & MAX_EXTENT_LEN,
        }
    }

    /// Encodes the record.
    pub fn pack(&self) -> [u8; RECORD_LEN] {
        debug_assert!(self.len > 0 && self.len <= MAX_EXTENT_LEN);
        debug_assert!(self.offset.0 < 1 << 54 && self.start.0 < 1 << 52);
        (u128::from(self.unwritten) << 127
            | u128::from(self.offset.0) << 73
            | u128::from(self.start.0) << 21
            | u128::from(self.len))
        .to_be_bytes()
    }

    /// Does `next` continue this run in the file and on disk, with the same unwritten flag?
    pub fn joins(&self, next: &Self) -> bool {
        self.end() == next.offset
            && self.start.0 + self.len == next.start.0
            && self.unwritten == next.unwritten
            && self.len + next.len <= MAX_EXTENT_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_every_field_in_its_bits() {
        let e = Extent {
            offset: FileBlock((1 << 54) - 1),
            start: FsBlock((1 << 52) - 2),
            len: MAX_EXTENT_LEN,
            unwritten: false,
        };
        assert_eq!(Extent::unpack(&e.pack()), e);
        let u = Extent { unwritten: true, offset: FileBlock(0), start: FsBlock(0), len: 1 };
        assert_eq!(u.pack()[0], 0x80);
        assert_eq!(u.pack()[15], 1);
        assert_eq!(Extent::unpack(&u.pack()), u);
    }
}
