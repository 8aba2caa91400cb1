//! The log record: header blocks, data stamped with cycle numbers, and a checksum over both.
//!
//! 1. The first word of every log block is the cycle in which the block was written. (In the first
//!    block of a header the magic number comes first, then the cycle.) Cycles overwrite the first
//!    words of data blocks; the header blocks keep the original words, 64 in each header block.
//! 2. A record may wrap around the end of the log. The blocks at the start of the log have the next
//!    cycle; header and LSN have the cycle of the record's start.
//! 3. The number of header blocks depends on the writer's buffer size, not on the data's length.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::op::{CLIENT_LOG, OpFlags};
use crate::bytes::Field;
use crate::types::{BASIC_BLOCK, Lsn};

/// First word of a record's header block.
pub const MAGIC: u32 = 0xfeed_babe;
/// Bytes of data whose first words fit into one header block.
pub const HEADER_SPAN: u32 = 32 << 10;
/// Longest record, headers included.
pub const RECORD_SIZE_MAX: u32 = 256 << 10;
/// `h_fmt` of little-endian Linux.
pub const FORMAT_LINUX_LE: u32 = 1;
/// Valid versions, 1 and 2, as bits.
const VERSION_BITS: u32 = 0x3;
/// Number of blocks whose first words fit into one header block.
const SLOTS: usize = HEADER_SPAN as usize / BASIC_BLOCK;
/// Bytes of the first header block that the checksum covers.
const CRC_LEN: usize = 328;
/// Bytes of each extended header block that the checksum covers.
const MORE_CRC_LEN: usize = 260;
/// Byte offset of the checksum.
const CRC_OFFSET: usize = 32;

/// `struct xlog_rec_header`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magicno: U32,
    cycle: U32,
    version: U32,
    len: U32,
    lsn: U64,
    tail_lsn: U64,
    crc: [u8; 4],
    prev_block: U32,
    num_logops: U32,
    cycle_data: [U32; SLOTS],
    fmt: U32,
    fs_uuid: [u8; 16],
    size: U32,
    pad: [u8; 188],
}

/// `struct xlog_rec_ext_header`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMore {
    cycle: U32,
    cycle_data: [U32; SLOTS],
    pad: [u8; 252],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Raw>() == BASIC_BLOCK);
    assert!(size_of::<RawMore>() == BASIC_BLOCK);
    assert!(offset_of!(Raw, lsn) == 16);
    assert!(offset_of!(Raw, crc) == CRC_OFFSET);
    assert!(offset_of!(Raw, cycle_data) == 44);
    assert!(offset_of!(Raw, fmt) == 300);
    assert!(offset_of!(Raw, fs_uuid) == 304);
    assert!(offset_of!(Raw, size) == 320);
    assert!(offset_of!(Raw, pad) == CRC_LEN - 4);
    assert!(offset_of!(RawMore, pad) == MORE_CRC_LEN);
};

/// A record's header, without the saved first words of the data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Cycle in which its first block was written.
    pub cycle: u32,
    /// Version of the log; current kernels write 2.
    pub version: u32,
    /// Bytes of data behind the header blocks, padding included.
    pub len: u32,
    /// LSN of the record: cycle and block.
    pub lsn: Lsn,
    /// LSN of the log's tail when this record was written: the oldest record that recovery needs.
    pub tail_lsn: Lsn,
    /// Checksum as stored; [`seal`] computes it.
    pub crc: u32,
    /// First block of the previous record; all ones if there is none.
    pub prev_block: u32,
    /// Number of operations in the record.
    pub num_ops: u32,
    /// Byte order of items, [`FORMAT_LINUX_LE`].
    pub format: u32,
    /// The volume's user-visible UUID.
    pub fs_uuid: [u8; 16],
    /// Size of the writer's buffer in bytes, which determines the number of header blocks.
    pub size: u32,
    first_word: [u8; 4],
}

/// Does a log block start with the magic number of a record's header?
pub fn is_header(block: &[u8]) -> bool {
    Field::at(0).try_get(block) == Some(MAGIC)
}

/// The cycle in which a log block was written.
pub fn cycle_of(block: &[u8; BASIC_BLOCK]) -> u32 {
    Field::at(if is_header(block) { 4 } else { 0 }).get(block)
}

/// The cycle after `cycle`. Skips the magic number, which is not a valid cycle.
pub const fn bump(cycle: u32) -> u32 {
    let next = cycle.wrapping_add(1);
    if next == MAGIC { next + 1 } else { next }
}

impl RecordHeader {
    /// A header for a new record; [`seal`] sets the fields that depend on the data.
    pub fn new(lsn: Lsn, tail_lsn: Lsn, fs_uuid: [u8; 16], size: u32) -> Self {
        Self {
            cycle: lsn.cycle(),
            version: 2,
            len: 0,
            lsn,
            tail_lsn,
            crc: 0,
            prev_block: u32::MAX,
            num_ops: 0,
            format: FORMAT_LINUX_LE,
            fs_uuid,
            size,
            first_word: [0; 4],
        }
    }

    /// Parses `block` as a record header; `None` if it is not one.
    pub fn parse(block: &[u8; BASIC_BLOCK]) -> Option<Self> {
        let raw = Raw::ref_from_bytes(block).ok()?;
        if raw.magicno.get() != MAGIC || raw.version.get() & !VERSION_BITS != 0 {
            return None;
        }
        Some(Self {
            cycle: raw.cycle.get(),
            version: raw.version.get(),
            len: raw.len.get(),
            lsn: Lsn(raw.lsn.get()),
            tail_lsn: Lsn(raw.tail_lsn.get()),
            crc: u32::from_le_bytes(raw.crc),
            prev_block: raw.prev_block.get(),
            num_ops: raw.num_logops.get(),
            format: raw.fmt.get(),
            fs_uuid: raw.fs_uuid,
            size: raw.size.get(),
            first_word: block[44..48].try_into().unwrap_or_default(),
        })
    }

    /// Encodes the fields into the first header block; the saved words stay unchanged.
    pub fn put(&self, block: &mut [u8; BASIC_BLOCK]) {
        let Ok(raw) = Raw::mut_from_bytes(block) else { return };
        raw.magicno.set(MAGIC);
        raw.cycle.set(self.cycle);
        raw.version.set(self.version);
        raw.len.set(self.len);
        raw.lsn.set(self.lsn.0);
        raw.tail_lsn.set(self.tail_lsn.0);
        raw.crc = self.crc.to_le_bytes();
        raw.prev_block.set(self.prev_block);
        raw.num_logops.set(self.num_ops);
        raw.fmt.set(self.format);
        raw.fs_uuid = self.fs_uuid;
        raw.size.set(self.size);
        raw.pad.fill(0);
    }

    /// Number of header blocks of the record, 1 to 8.
    pub fn header_blocks(&self) -> u32 {
        if self.version & 2 == 0 {
            return 1;
        }
        self.size.div_ceil(HEADER_SPAN).clamp(1, RECORD_SIZE_MAX / HEADER_SPAN)
    }

    /// Number of blocks of the whole record, headers included.
    pub fn blocks(&self) -> u64 {
        u64::from(self.header_blocks()) + u64::from(self.len).div_ceil(BASIC_BLOCK as u64)
    }

    /// Restores the first word of the first data block, which the cycle number overwrote.
    pub fn restore_first_word(&self, block: &mut [u8; BASIC_BLOCK]) {
        block[..4].copy_from_slice(&self.first_word);
    }
}

/// Does a data block, with its first word restored, start with the operation of a clean unmount?
pub fn is_unmount(block: &[u8; BASIC_BLOCK]) -> bool {
    block[8] == CLIENT_LOG && block[9] & OpFlags::UNMOUNT.bits() != 0
}

/// Byte offset in the header blocks of the saved first word of data block `index`.
fn slot(index: usize) -> usize {
    let (block, slot) = (index / SLOTS, index % SLOTS);
    block * BASIC_BLOCK + if block == 0 { 44 } else { 4 } + slot * 4
}

/// Restores the first words of all data blocks, which cycle numbers overwrote. Blocks without a
/// saved word stay as they are.
pub fn restore_words(headers: &[u8], data: &mut [u8]) {
    for (index, block) in data.chunks_mut(BASIC_BLOCK).enumerate() {
        let at = slot(index);
        if let (Some(word), Some(first)) = (headers.get(at..at + 4), block.get_mut(..4)) {
            first.copy_from_slice(word);
        }
    }
}

/// The checksum of a record as on disk, from its header blocks and `data` with cycles stamped.
pub fn checksum(headers: &[u8], data: &[u8]) -> u32 {
    let first = &headers[..CRC_LEN.min(headers.len())];
    let (before, after) = first.split_at(CRC_OFFSET.min(first.len()));
    let mut crc = crc32c::crc32c(before);
    crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc = crc32c::crc32c_append(crc, after.get(4..).unwrap_or_default());
    // Only the extended header blocks that the data's length needs are covered.
    let needed = data.len().div_ceil(HEADER_SPAN as usize);
    for block in headers.chunks_exact(BASIC_BLOCK).take(needed).skip(1) {
        crc = crc32c::crc32c_append(crc, &block[..MORE_CRC_LEN]);
    }
    crc32c::crc32c_append(crc, data)
}

/// Completes a record in place: stamps cycles, sets length and checksum, and returns the header as
/// written. `record` holds space for the header blocks, then whole blocks of data with zeroes
/// behind the last operation. `before_end` is the number of blocks from the record's start to the
/// end of the log.
///
/// # Panics
/// If `record` is not a multiple of the block size, has no data block, or has more data than the
/// header blocks can save words for. All are bugs of the caller.
pub fn seal(record: &mut [u8], header: &RecordHeader, before_end: u64) -> RecordHeader {
    let head = header.header_blocks() as usize * BASIC_BLOCK;
    assert!(record.len() > head && record.len().is_multiple_of(BASIC_BLOCK), "whole blocks");
    let (headers, data) = record.split_at_mut(head);
    let blocks = data.len() / BASIC_BLOCK;
    assert!(blocks <= SLOTS * header.header_blocks() as usize, "headers keep all words");
    headers.fill(0);
    for (index, block) in data.chunks_exact_mut(BASIC_BLOCK).enumerate() {
        headers[slot(index)..slot(index) + 4].copy_from_slice(&block[..4]);
        block[..4].copy_from_slice(&header.cycle.to_be_bytes());
    }
    for more in headers.chunks_exact_mut(BASIC_BLOCK).skip(1) {
        more[..4].copy_from_slice(&header.cycle.to_be_bytes());
    }
    // Blocks that wrap around the end of the log have the next cycle.
    let wrapped = bump(header.cycle).to_be_bytes();
    let skip = usize::try_from(before_end).unwrap_or(usize::MAX).max(1);
    for block in record.chunks_exact_mut(BASIC_BLOCK).skip(skip) {
        block[..4].copy_from_slice(&wrapped);
    }
    let (headers, data) = record.split_at_mut(head);
    let mut header = *header;
    // A record is at most 256 KiB long.
    header.len = data.len() as u32;
    let Some(first) = headers.first_chunk_mut::<BASIC_BLOCK>() else { return header };
    header.put(first);
    header.crc = checksum(headers, data);
    header.first_word = headers[44..48].try_into().unwrap_or_default();
    headers[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&header.crc.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_and_cycle() {
        let mut block = [0; BASIC_BLOCK];
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
        block[7] = 9;
        block[11] = 2;
        block[320..324].copy_from_slice(&(256u32 << 10).to_be_bytes());
        let header = RecordHeader::parse(&block).unwrap();
        assert_eq!((header.cycle, header.header_blocks()), (9, 8));
        assert_eq!(cycle_of(&block), 9);
        assert_eq!(cycle_of(&[1; BASIC_BLOCK]), 0x0101_0101);
        assert_eq!(RecordHeader::parse(&[1; BASIC_BLOCK]), None);
    }

    #[test]
    fn a_cycle_is_never_the_magic_number() {
        assert_eq!(bump(1), 2);
        assert_eq!(bump(MAGIC - 1), MAGIC + 1);
    }

    /// A record that wraps is sealed and read back: the data is unchanged, and every block has its
    /// cycle.
    #[test]
    fn sealed_records_round_trip() {
        for (size, blocks, before_end) in
            [(32 << 10, 3, 99), (32 << 10, 64, 7), (256 << 10, 504, 3), (256 << 10, 100, 60)]
        {
            let mut header = RecordHeader::new(Lsn::new(7, 40), Lsn::new(6, 2), [5; 16], size);
            header.num_ops = 3;
            let head = header.header_blocks() as usize * BASIC_BLOCK;
            let mut record = vec![0; head + blocks * BASIC_BLOCK];
            for (at, byte) in record[head..].iter_mut().enumerate() {
                *byte = (at * 7 + at / 512) as u8;
            }
            let before = record.clone();
            let sealed = seal(&mut record, &header, before_end);
            let parsed = RecordHeader::parse(record.first_chunk().unwrap()).unwrap();
            assert_eq!(parsed, sealed);
            assert_eq!(parsed.blocks() as usize * BASIC_BLOCK, record.len());
            for (at, block) in record.chunks_exact(BASIC_BLOCK).enumerate() {
                let cycle = cycle_of(block.try_into().unwrap());
                assert_eq!(cycle, if at as u64 >= before_end { 8 } else { 7 });
            }
            let (headers, data) = record.split_at_mut(head);
            assert_eq!(checksum(headers, data), parsed.crc);
            restore_words(headers, data);
            assert_eq!(data, &before[head..]);
            data[17] ^= 1;
            assert_ne!(checksum(headers, data), parsed.crc);
        }
    }
}
