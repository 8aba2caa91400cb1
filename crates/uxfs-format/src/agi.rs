//! The AGI: the inode header of an allocation group, in sector 2 of the group.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "XAGI".
pub const MAGIC: u32 = 0x5841_4749;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 312;
/// Sector of the allocation group that holds the AGI.
pub const SECTOR: u32 = 2;
/// Hash buckets of the unlinked list.
pub const UNLINKED_BUCKETS: usize = 64;

/// `struct xfs_agi`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without agi_")]
pub struct Agi {
    pub magicnum: U32,
    pub versionnum: U32,
    pub seqno: U32,
    pub length: U32,
    pub count: U32,
    pub root: U32,
    pub level: U32,
    pub freecount: U32,
    pub newino: U32,
    pub dirino: U32,
    pub unlinked: [U32; UNLINKED_BUCKETS],
    pub uuid: [u8; 16],
    pub crc: [u8; 4],
    pub pad: U32,
    pub lsn: U64,
    pub free_root: U32,
    pub free_level: U32,
    pub iblocks: U32,
    pub fblocks: U32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Agi>() == 344);
    assert!(offset_of!(Agi, unlinked) == 40);
    assert!(offset_of!(Agi, uuid) == 296);
    assert!(offset_of!(Agi, crc) == CRC_OFFSET);
    assert!(offset_of!(Agi, free_root) == 328);
};

impl Agi {
    /// The AGI at the head of `sector`.
    ///
    /// # Panics
    /// If `sector` is shorter than 344 bytes, which no sector is.
    pub fn view(sector: &[u8]) -> &Self {
        Self::ref_from_prefix(sector).expect("a sector holds an AGI").0
    }

    /// A mutable view of the AGI at the head of `sector`.
    ///
    /// # Panics
    /// If `sector` is shorter than 344 bytes, which no sector is.
    pub fn view_mut(sector: &mut [u8]) -> &mut Self {
        Self::mut_from_prefix(sector).expect("a sector holds an AGI").0
    }
}
