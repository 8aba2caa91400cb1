//! The AGF: the free-space header of an allocation group, in sector 1 of the group.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "XAGF".
pub const MAGIC: u32 = 0x5841_4746;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 216;
/// Sector of the allocation group that holds the AGF.
pub const SECTOR: u32 = 1;

/// `struct xfs_agf`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without agf_")]
pub struct Agf {
    pub magicnum: U32,
    pub versionnum: U32,
    pub seqno: U32,
    pub length: U32,
    pub bno_root: U32,
    pub cnt_root: U32,
    pub rmap_root: U32,
    pub bno_level: U32,
    pub cnt_level: U32,
    pub rmap_level: U32,
    pub flfirst: U32,
    pub fllast: U32,
    pub flcount: U32,
    pub freeblks: U32,
    pub longest: U32,
    pub btreeblks: U32,
    pub uuid: [u8; 16],
    pub rmap_blocks: U32,
    pub refcount_blocks: U32,
    pub refcount_root: U32,
    pub refcount_level: U32,
    pub spare: [u8; 112],
    pub lsn: U64,
    pub crc: [u8; 4],
    pub spare2: U32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Agf>() == 224);
    assert!(offset_of!(Agf, uuid) == 64);
    assert!(offset_of!(Agf, refcount_root) == 88);
    assert!(offset_of!(Agf, lsn) == 208);
    assert!(offset_of!(Agf, crc) == CRC_OFFSET);
};

impl Agf {
    /// The AGF at the head of `sector`.
    ///
    /// # Panics
    /// If `sector` is shorter than 224 bytes, which no sector is.
    pub fn view(sector: &[u8]) -> &Self {
        Self::ref_from_prefix(sector).expect("a sector holds an AGF").0
    }

    /// A mutable view of the AGF at the head of `sector`.
    ///
    /// # Panics
    /// If `sector` is shorter than 224 bytes, which no sector is.
    pub fn view_mut(sector: &mut [u8]) -> &mut Self {
        Self::mut_from_prefix(sector).expect("a sector holds an AGF").0
    }
}
