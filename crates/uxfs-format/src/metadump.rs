//! Dumps of a volume's metadata, as xfs_metadump writes them: the headers of both versions.
//!
//! Version 1 is a sequence of groups: an index of 512 bytes, then as many sectors of 512 bytes as the
//! index has addresses. The last group is not full, and may be empty. Version 2 is a header, then
//! extents: each an address, a length and the bytes, up to the end of the file. The first sector of
//! both is the primary superblock.
//!
//! Addresses count sectors of 512 bytes, whatever the sectors of the volume.

use crate::bytes::Field;
use crate::types::{BASIC_BLOCK, Daddr};

/// "XFSM", at the head of each index of version 1.
pub const MAGIC_1: u32 = 0x5846_534d;
/// "XMD2", at the head of a dump of version 2.
pub const MAGIC_2: u32 = 0x584d_4432;
/// Place of the magic number of both versions.
pub const MAGIC: Field<u32> = Field::at(0);
/// Length of an index of version 1.
pub const INDEX_LEN: usize = BASIC_BLOCK;
/// Most addresses in an index of version 1.
pub const INDEX_MAX: usize = (INDEX_LEN - INDEX_HEAD) / 8;
/// Length of the header of version 2.
pub const HEADER_LEN: usize = 24;
/// Length of what precedes the bytes of an extent in version 2.
pub const EXTENT_HEAD_LEN: usize = 12;

const INDEX_HEAD: usize = 8;
const COUNT: Field<u16> = Field::at(4);
const BLOCK_LOG: usize = 6;
const INFO: usize = 7;
/// Bit of the version 1 information: the others are known.
const INFO_KNOWN: u8 = 1;

const VERSION: Field<u32> = Field::at(4);
const COMPAT: Field<u32> = Field::at(8);
const INCOMPAT: Field<u32> = Field::at(12);

const ADDRESS: Field<u64> = Field::at(0);
const SECTORS: Field<u32> = Field::at(8);
const DEVICE_SHIFT: u32 = 54;

bitflags::bitflags! {
    /// What a dump holds, as its header says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Content: u32 {
        /// Names are replaced by others.
        const OBFUSCATED = 0x1;
        /// Unused bytes of metadata blocks are as they were.
        const WHOLE_BLOCKS = 0x2;
        /// The log holds changes that are not in place.
        const DIRTY_LOG = 0x4;
        /// The external log is in the dump; version 2 only.
        const EXTERNAL_LOG = 0x8;
    }

    /// What a reader of version 2 has to know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Needs: u32 {
        /// Extents of the realtime device.
        const REALTIME = 0x1;
    }
}

/// Address of sector `at` in an index of version 1.
const fn address_at(at: usize) -> Field<Daddr> {
    Field::at(INDEX_HEAD + 8 * at)
}

/// An index of version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// What the dump holds; `None` if an old xfs_metadump wrote it, which did not say.
    pub content: Option<Content>,
    /// Base-2 logarithm of the bytes in a sector; 9.
    pub block_log: u8,
    /// Number of addresses as stored, which may exceed what an index holds.
    pub count: usize,
    addresses: Vec<Daddr>,
}

impl Index {
    /// An index of these sectors, at most [`INDEX_MAX`].
    pub fn new(content: Content, addresses: &[Daddr]) -> Self {
        debug_assert!(addresses.len() <= INDEX_MAX, "the caller keeps to the index's maximum");
        let content = Some(content);
        Self { content, block_log: 9, count: addresses.len(), addresses: addresses.to_vec() }
    }

    /// Parses an index; `None` if the magic number is missing.
    pub fn parse(raw: &[u8; INDEX_LEN]) -> Option<Self> {
        if MAGIC.get(raw) != MAGIC_1 {
            return None;
        }
        let info = raw[INFO];
        let known = info & INFO_KNOWN != 0;
        let content = known.then(|| Content::from_bits_retain(u32::from(info >> 1)));
        let count = usize::from(COUNT.get(raw));
        let addresses = (0..count.min(INDEX_MAX)).map(|at| address_at(at).get(raw)).collect();
        Some(Self { content, block_log: raw[BLOCK_LOG], count, addresses })
    }

    /// The addresses that it holds.
    pub fn addresses(&self) -> &[Daddr] {
        &self.addresses
    }

    /// The index as it is stored.
    pub fn encode(&self) -> [u8; INDEX_LEN] {
        let mut raw = [0; INDEX_LEN];
        MAGIC.set(&mut raw, MAGIC_1);
        COUNT.set(&mut raw, self.count as u16);
        raw[BLOCK_LOG] = self.block_log;
        raw[INFO] = self.content.map_or(0, |content| (content.bits() as u8) << 1 | INFO_KNOWN);
        for (at, address) in self.addresses.iter().enumerate() {
            address_at(at).set(&mut raw, *address);
        }
        raw
    }
}

/// The header of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version: 2.
    pub version: u32,
    /// What the dump holds.
    pub content: Content,
    /// What a reader has to know.
    pub needs: Needs,
}

impl Header {
    /// The header of a dump of this content.
    pub const fn new(content: Content) -> Self {
        Self { version: 2, content, needs: Needs::empty() }
    }

    /// Parses the header; `None` if the magic number is missing.
    pub fn parse(raw: &[u8; HEADER_LEN]) -> Option<Self> {
        (MAGIC.get(raw) == MAGIC_2).then(|| Self {
            version: VERSION.get(raw),
            content: Content::from_bits_retain(COMPAT.get(raw)),
            needs: Needs::from_bits_retain(INCOMPAT.get(raw)),
        })
    }

    /// The header as it is stored.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut raw = [0; HEADER_LEN];
        MAGIC.set(&mut raw, MAGIC_2);
        VERSION.set(&mut raw, self.version);
        COMPAT.set(&mut raw, self.content.bits());
        INCOMPAT.set(&mut raw, self.needs.bits());
        raw
    }
}

/// The device that an extent of version 2 lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The volume's own.
    Data,
    /// The external log.
    Log,
    /// The realtime device.
    Realtime,
    /// A number that has no meaning.
    Unknown(u16),
}

/// What precedes the bytes of an extent in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHead {
    /// The device.
    pub device: Device,
    /// First sector.
    pub daddr: Daddr,
    /// Number of sectors.
    pub sectors: u32,
}

impl ExtentHead {
    /// Parses it.
    pub fn parse(raw: &[u8; EXTENT_HEAD_LEN]) -> Self {
        let address = ADDRESS.get(raw);
        let device = match address >> DEVICE_SHIFT {
            0 => Device::Data,
            1 => Device::Log,
            2 => Device::Realtime,
            other => Device::Unknown(other as u16),
        };
        let daddr = Daddr(address & ((1 << DEVICE_SHIFT) - 1));
        Self { device, daddr, sectors: SECTORS.get(raw) }
    }

    /// The bytes as they are stored.
    pub fn encode(&self) -> [u8; EXTENT_HEAD_LEN] {
        let mut raw = [0; EXTENT_HEAD_LEN];
        let device: u64 = match self.device {
            Device::Data => 0,
            Device::Log => 1,
            Device::Realtime => 2,
            Device::Unknown(other) => other.into(),
        };
        ADDRESS.set(&mut raw, device << DEVICE_SHIFT | self.daddr.0);
        SECTORS.set(&mut raw, self.sectors);
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_reads_as_it_was_written() {
        let addresses: Vec<Daddr> = (0..INDEX_MAX as u64).map(|at| Daddr(at * 77)).collect();
        let index = Index::new(Content::OBFUSCATED | Content::DIRTY_LOG, &addresses);
        let raw = index.encode();
        // As observed: "XFSM", 63 addresses, sectors of 2^9 bytes, known | obfuscated | dirty.
        assert_eq!(raw[..8], [0x58, 0x46, 0x53, 0x4d, 0, 63, 9, 0x0b]);
        assert_eq!(Index::parse(&raw), Some(index));
        let mut old = raw;
        old[INFO] = 0;
        assert_eq!(Index::parse(&old).and_then(|index| index.content), None);
        old[0] = 0;
        assert_eq!(Index::parse(&old), None);
        // A count that an index does not hold.
        old[0] = raw[0];
        old[4] = 0xff;
        let index = Index::parse(&old).unwrap();
        assert_eq!((index.count, index.addresses().len()), (0xff3f, INDEX_MAX));
    }

    #[test]
    fn version_2_reads_as_it_was_written() {
        let header = Header::new(Content::OBFUSCATED | Content::WHOLE_BLOCKS);
        let raw = header.encode();
        assert_eq!(raw[..12], [0x58, 0x4d, 0x44, 0x32, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(Header::parse(&raw), Some(header));
        for device in [Device::Data, Device::Log, Device::Realtime, Device::Unknown(700)] {
            let head = ExtentHead { device, daddr: Daddr(0x12_3456_789a), sectors: 8 };
            assert_eq!(ExtentHead::parse(&head.encode()), head);
        }
    }
}
