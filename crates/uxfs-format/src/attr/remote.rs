//! Remote attribute values: values that are too long for the leaf block. They are stored in blocks
//! of the attribute fork; each file system block has a header of its own.
//!
//! Remote values are written in place without the log, so their LSN is all ones ([`LSN`]).

use crate::error::{Check, Problem};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::MAX_VALUE;

/// "XARM".
pub const MAGIC: u32 = 0x5841_524d;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 12;
/// Length of the header; the value's bytes follow.
pub const HEADER_LEN: usize = 56;
/// LSN of blocks that are never logged.
pub const LSN: u64 = u64::MAX;

/// `struct xfs_attr3_rmt_hdr`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without rm_")]
pub struct RemoteHeader {
    pub magic: U32,
    /// Offset in the value of this block's bytes.
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

    /// A mutable view of the header at the head of `block`.
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

/// Number of blocks that a value takes.
pub const fn blocks(value_len: usize, block_size: usize) -> u64 {
    value_len.div_ceil(payload(block_size)) as u64
}

/// Checks the rules that hold inside a block. The reader checks that the block is the right part
/// of the right value.
///
/// # Errors
/// A description of the first violated rule.
pub fn verify(block: &[u8]) -> Result<(), Problem> {
    let header = RemoteHeader::view(block);
    let (offset, bytes) = (u64::from(header.offset.get()), u64::from(header.bytes.get()));
    if bytes > payload(block.len()) as u64 || offset + bytes > MAX_VALUE as u64 {
        return Err(Check::Range.failed(format!("bytes {offset} to {} of a value", offset + bytes)));
    }
    if header.owner.get() == 0 {
        return Err(Check::Owner.failed("belongs to no inode"));
    }
    Ok(())
}
