//! The header of a remote symbolic link: one per contiguous extent of the target.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "XSLM".
pub const MAGIC: u32 = 0x5853_4c4d;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 12;
/// Length of the header; the target's bytes follow.
pub const HEADER_LEN: usize = 56;
/// Maximum length of a link target in bytes.
pub const MAX_TARGET: usize = 1023;

/// `struct xfs_dsymlink_hdr`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without sl_")]
pub struct SymlinkHeader {
    pub magic: U32,
    pub offset: U32,
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub blkno: U64,
    pub lsn: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SymlinkHeader>() == HEADER_LEN);
    assert!(offset_of!(SymlinkHeader, crc) == CRC_OFFSET);
    assert!(offset_of!(SymlinkHeader, blkno) == 40);
};

impl SymlinkHeader {
    /// The header at the head of `block`.
    ///
    /// # Panics
    /// If `block` is shorter than 56 bytes, which no block is.
    pub fn view(block: &[u8]) -> &Self {
        Self::ref_from_prefix(block).expect("a block holds a symlink header").0
    }

    /// A mutable view of the header at the head of `block`.
    ///
    /// # Panics
    /// If `block` is shorter than 56 bytes, which no block is.
    pub fn view_mut(block: &mut [u8]) -> &mut Self {
        Self::mut_from_prefix(block).expect("a block holds a symlink header").0
    }
}
