//! The log as far as telling whether it is clean: record headers and the unmount operation.

use crate::types::BASIC_BLOCK;

/// First word of a record's header block.
pub const MAGIC: u32 = 0xfeed_babe;
/// Flag of an operation that ends a clean unmount.
const UNMOUNT: u8 = 0x20;
/// Client that writes it.
const CLIENT_LOG: u8 = 0xaa;

/// What of a record's header is needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Cycle in which it was written.
    pub cycle: u32,
    /// Bytes of data behind the header blocks.
    pub len: u32,
    /// Operations in it.
    pub num_ops: u32,
    /// The volume's user-visible UUID.
    pub fs_uuid: [u8; 16],
    /// Size of the writer's buffer, which tells the number of header blocks.
    pub size: u32,
    first_word: [u8; 4],
}

fn be32(block: &[u8; BASIC_BLOCK], at: usize) -> u32 {
    u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Cycle in which a block of the log was written.
pub fn cycle_of(block: &[u8; BASIC_BLOCK]) -> u32 {
    if be32(block, 0) == MAGIC { be32(block, 4) } else { be32(block, 0) }
}

impl RecordHeader {
    /// The header in `block`, if there is one.
    pub fn parse(block: &[u8; BASIC_BLOCK]) -> Option<Self> {
        if be32(block, 0) != MAGIC || be32(block, 8) & !0x3 != 0 {
            return None;
        }
        let mut fs_uuid = [0; 16];
        fs_uuid.copy_from_slice(&block[304..320]);
        Some(Self {
            cycle: be32(block, 4),
            len: be32(block, 12),
            num_ops: be32(block, 40),
            fs_uuid,
            size: be32(block, 320),
            first_word: [block[44], block[45], block[46], block[47]],
        })
    }

    /// Header blocks of the record.
    pub fn header_blocks(&self) -> u32 {
        self.size.div_ceil(32 << 10).clamp(1, 8)
    }

    /// Puts back the first word of the first data block, in whose place its cycle stands on disk.
    pub fn restore_first_word(&self, block: &mut [u8; BASIC_BLOCK]) {
        block[..4].copy_from_slice(&self.first_word);
    }
}

/// Does a data block, its first word put back, start with the operation of a clean unmount?
pub fn is_unmount(block: &[u8; BASIC_BLOCK]) -> bool {
    block[8] == CLIENT_LOG && block[9] & UNMOUNT != 0
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
}
