//! The record: header blocks, data with cycle numbers stamped into it, and the checksum over both.
//!
//! 1. The first word of every block of the log tells the cycle in which it was written (in a
//!    header's first block the magic number stands there, the cycle behind it). The words whose
//!    place the cycle takes in data blocks are kept in the header blocks, 64 to each.
//! 2. A record may run over the end of the log and go on at its start; the blocks there are of the
//!    next cycle, while header and LSN tell the cycle of its start.
//! 3. The number of header blocks follows from the writer's buffer size, not from the data's length.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::op::{CLIENT_LOG, OpFlags};
use crate::types::{BASIC_BLOCK, Lsn};

/// First word of a record's header block.
pub const MAGIC: u32 = 0xfeed_babe;
/// Bytes of data whose first words one header block keeps.
pub const HEADER_SPAN: u32 = 32 << 10;
/// Longest record, headers included.
pub const RECORD_SIZE_MAX: u32 = 256 << 10;
/// `h_fmt` of little-endian Linux.
pub const FORMAT_LINUX_LE: u32 = 1;
/// Versions that may be told: 1 and 2, as bits.
const VERSION_BITS: u32 = 0x3;
/// Blocks whose first words one header block keeps.
const SLOTS: usize = HEADER_SPAN as usize / BASIC_BLOCK;
/// Bytes of the first header block that the checksum covers.
const CRC_LEN: usize = 328;
/// Bytes of a further header block that it covers.
const MORE_CRC_LEN: usize = 260;
/// Where the checksum lies.
const CRC_OFFSET: usize = 32;

/// `struct xlog_rec_header`, in place.
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

/// `struct xlog_rec_ext_header`, in place.
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

/// A record's header, without the words it keeps for the data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Cycle in which its first block was written.
    pub cycle: u32,
    /// 2, for all writers of today.
    pub version: u32,
    /// Bytes of data behind the header blocks, padding included.
    pub len: u32,
    /// Where it lies: cycle and block.
    pub lsn: Lsn,
    /// The oldest record that recovery needed when this one was written.
    pub tail_lsn: Lsn,
    /// Checksum as stored; [`seal`] computes it.
    pub crc: u32,
    /// Block at which the record before starts, all ones for none.
    pub prev_block: u32,
    /// Operations in it.
    pub num_ops: u32,
    /// Byte order of items, [`FORMAT_LINUX_LE`].
    pub format: u32,
    /// The volume's user-visible UUID.
    pub fs_uuid: [u8; 16],
    /// Size of the writer's buffer, which tells the number of header blocks.
    pub size: u32,
    first_word: [u8; 4],
}

/// Cycle in which a block of the log was written.
pub fn cycle_of(block: &[u8; BASIC_BLOCK]) -> u32 {
    let word =
        |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    if word(0) == MAGIC { word(4) } else { word(0) }
}

/// The cycle after `cycle`; the magic number is never one.
pub const fn bump(cycle: u32) -> u32 {
    let next = cycle.wrapping_add(1);
    if next == MAGIC { next + 1 } else { next }
}

impl RecordHeader {
    /// A header to be built; [`seal`] fills in what follows from the data.
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

    /// The header in `block`, if there is one.
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

    /// Writes the header's fields into its first block; the words kept there stay.
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

    /// Header blocks of the record, 1 to 8.
    pub fn header_blocks(&self) -> u32 {
        if self.version & 2 == 0 {
            return 1;
        }
        self.size.div_ceil(HEADER_SPAN).clamp(1, RECORD_SIZE_MAX / HEADER_SPAN)
    }

    /// Blocks of the whole record, headers included.
    pub fn blocks(&self) -> u64 {
        u64::from(self.header_blocks()) + u64::from(self.len).div_ceil(BASIC_BLOCK as u64)
    }

    /// Puts back the first word of the first data block, in whose place its cycle stands on disk.
    pub fn restore_first_word(&self, block: &mut [u8; BASIC_BLOCK]) {
        block[..4].copy_from_slice(&self.first_word);
    }
}

/// Does a data block, its first word put back, start with the operation of a clean unmount?
pub fn is_unmount(block: &[u8; BASIC_BLOCK]) -> bool {
    block[8] == CLIENT_LOG && block[9] & OpFlags::UNMOUNT.bits() != 0
}

/// Where the header blocks keep the first word of data block `index`.
fn slot(index: usize) -> usize {
    let (block, slot) = (index / SLOTS, index % SLOTS);
    block * BASIC_BLOCK + if block == 0 { 44 } else { 4 } + slot * 4
}

/// Puts back the first words of all data blocks, in whose place their cycles stand on disk. Blocks
/// for which the header blocks have no word stay as they are.
pub fn restore_words(headers: &[u8], data: &mut [u8]) {
    for (index, block) in data.chunks_mut(BASIC_BLOCK).enumerate() {
        let at = slot(index);
        if let (Some(word), Some(place)) = (headers.get(at..at + 4), block.get_mut(..4)) {
            place.copy_from_slice(word);
        }
    }
}

/// The checksum of a record as it lies on disk: its header blocks, and `data`, cycles stamped.
pub fn checksum(headers: &[u8], data: &[u8]) -> u32 {
    let first = &headers[..CRC_LEN.min(headers.len())];
    let (before, after) = first.split_at(CRC_OFFSET.min(first.len()));
    let mut crc = crc32c::crc32c(before);
    crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc = crc32c::crc32c_append(crc, after.get(4..).unwrap_or_default());
    // Of the further header blocks, those that the length of the data needs count.
    let needed = data.len().div_ceil(HEADER_SPAN as usize);
    for block in headers.chunks_exact(BASIC_BLOCK).take(needed).skip(1) {
        crc = crc32c::crc32c_append(crc, &block[..MORE_CRC_LEN]);
    }
    crc32c::crc32c_append(crc, data)
}

/// Finishes a record in place. `record` has room for the header blocks, then the data, whole
/// blocks of it with zeroes behind the last operation; `before_end` is the number of blocks from
/// the record's start to the end of the log. Stamps cycles, sets length and checksum, and gives
/// the header as written.
///
/// # Panics
/// If `record` does not consist of whole blocks, at least one of them data, or has more data than
/// the header blocks can keep words for: mistakes of the writer.
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
    // What lies behind the end of the log is of the next cycle.
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

    /// Sealed, wrapped, read back: the data is what it was, and every block tells its cycle.
    #[test]
    fn sealed_records_come_back() {
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
