//! The AGFL: a ring of reserved free blocks in sector 3 of an allocation group. The free-space and
//! reverse-mapping btrees take blocks from it to grow and return blocks to it when they shrink.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::Field;
use crate::types::AgBlock;

/// "XAFL".
pub const MAGIC: u32 = 0x5841_464c;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 32;
/// Sector of the allocation group that holds the AGFL.
pub const SECTOR: u32 = 3;
/// Length of the header before the slots.
pub const HEADER_LEN: usize = 36;

/// `struct xfs_agfl` without its slots, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without agfl_")]
pub struct AgflHeader {
    pub magicnum: U32,
    pub seqno: U32,
    pub uuid: [u8; 16],
    pub lsn: U64,
    pub crc: [u8; 4],
}

const _: () = assert!(size_of::<AgflHeader>() == HEADER_LEN);

impl AgflHeader {
    /// A mutable view of the header at the head of `sector`.
    ///
    /// # Panics
    /// If `sector` is shorter than 36 bytes, which no sector is.
    pub fn view_mut(sector: &mut [u8]) -> &mut Self {
        Self::mut_from_prefix(sector).expect("a sector holds an AGFL header").0
    }
}

/// Number of slots in a sector of this size.
pub const fn slots(sectsize: usize) -> u32 {
    ((sectsize - HEADER_LEN) / 4) as u32
}

/// Place of slot `index`.
pub const fn slot_at(index: u32) -> Field<AgBlock> {
    Field::at(HEADER_LEN + 4 * index as usize)
}

/// Block in slot `index`; null if the sector has no such slot.
pub fn slot(sector: &[u8], index: u32) -> AgBlock {
    slot_at(index).try_get(sector).unwrap_or(AgBlock::NULL)
}
