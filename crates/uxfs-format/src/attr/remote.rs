//! Values that do not fit beside their name: in blocks of the attribute fork, each file system
//! block with a header of its own.
//!
//! They are written past the log, so their LSN is all ones ([`LSN`]).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::MAX_VALUE;

/// "XARM".
pub const MAGIC: u32 = 0x5841_524d;
/// Where the checksum lies.
pub const CRC_OFFSET: usize = 12;
/// Length of the header; the value's bytes follow.
pub const HEADER_LEN: usize = 56;
/// LSN of what the log never holds.
pub const LSN: u64 = u64::MAX;

/// `struct xfs_attr3_rmt_hdr`, in place.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without rm_")]
pub struct RemoteHeader {
    pub magic: U32,
    /// Where in the value this block's bytes belong.
    pub offset: U32,
    /// Bytes of the value in this block.
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub blkno: U64,
    pub lsn: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RemoteHeader>() == HEADER_LEN);
    assert!(offset_of!(RemoteHeader, crc) == CRC_OFFSET);
    assert!(offset_of!(RemoteHeader, lsn) == 48);
};

impl RemoteHeader {
    /// The header at the head of `block`.
    ///
    /// # Panics
    /// If `block` is shorter than 56 bytes, which no block is.
    pub fn view(block: &[u8]) -> &Self {
        Self::ref_from_prefix(block).expect("a block holds a remote attribute header").0
    }

    /// The same, to be changed in place.
    ///
    /// # Panics
    /// If `block` is shorter than 56 bytes, which no block is.
    pub fn view_mut(block: &mut [u8]) -> &mut Self {
        Self::mut_from_prefix(block).expect("a block holds a remote attribute header").0
    }
}

/// Bytes of a value that one block holds.
pub const fn payload(block_size: usize) -> usize {
    block_size - HEADER_LEN
}

/// Blocks that a value takes.
pub const fn blocks(value_len: usize, block_size: usize) -> u64 {
    value_len.div_ceil(payload(block_size)) as u64
}

/// Checks a block by itself; whether it is the right part of the right value, its reader checks.
///
/// # Errors
/// The rule that does not hold, in words.
pub fn verify(block: &[u8]) -> Result<(), String> {
    let header = RemoteHeader::view(block);
    let (offset, bytes) = (u64::from(header.offset.get()), u64::from(header.bytes.get()));
    if bytes > payload(block.len()) as u64 || offset + bytes > MAX_VALUE as u64 {
        return Err(format!("bytes {offset} to {} of a value", offset + bytes));
    }
    if header.owner.get() == 0 {
        return Err("belongs to no inode".into());
    }
    Ok(())
}
