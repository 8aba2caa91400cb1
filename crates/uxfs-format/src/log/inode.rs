//! Inode items: the core, and each changed fork as a whole.
//!
//! 1. The core in an item has the layout of the disk, but numbers are in the writer's byte order. A
//!    legacy timestamp is two numbers, seconds first.
//! 2. Recovery does not replay the core's checksum and `di_next_unlinked`, and replaces its LSN.
//! 3. A fork region is the whole fork as on disk, padded to 4 bytes. The exception is a btree root:
//!    it has its in-memory form, with the header of a whole btree block.

use super::kind::{BadItem, ItemKind, first_word};
use crate::btree::{self, LONG, ROOT_HEADER_LEN as ROOT_HEADER};
use crate::bytes::{le16, le32, le64};
use crate::inode::{self, CORE_LEN, CRC_OFFSET, Flags2, LSN, NEXT_UNLINKED_OFFSET};
use crate::types::{Daddr, Ino, Lsn, Uuid};

/// Bytes of a core in an item.
pub const LOG_CORE_LEN: usize = CORE_LEN;
/// Bytes of the format as it is written.
const LEN: usize = 56;
/// Bytes of the packed format that old 32-bit kernels write.
const LEN_PACKED: usize = 52;

bitflags::bitflags! {
    /// `ilf_fields`: the logged parts of the inode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct InodeFields: u32 {
        /// The core.
        const CORE = 0x001;
        /// A local data fork.
        const DDATA = 0x002;
        /// Extent records of the data fork.
        const DEXT = 0x004;
        /// The data fork's btree root.
        const DBROOT = 0x008;
        /// The device number, in the format itself.
        const DEV = 0x010;
        /// Unused; formerly a UUID.
        const UUID = 0x020;
        /// A local attribute fork.
        const ADATA = 0x040;
        /// Extent records of the attribute fork.
        const AEXT = 0x080;
        /// The attribute fork's btree root.
        const ABROOT = 0x100;
        /// Set this inode as the owner of the data fork's btree blocks.
        const DOWNER = 0x200;
        /// Set this inode as the owner of the attribute fork's btree blocks.
        const AOWNER = 0x400;
        /// The fields that have a data fork region.
        const DFORK = 0x00e;
        /// The fields that have an attribute fork region.
        const AFORK = 0x1c0;
    }
}

/// Format of an inode item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeItem {
    /// Number of regions of the item, this one included.
    pub regions: u16,
    /// The logged parts of the inode.
    pub fields: InodeFields,
    /// Length of the attribute fork's region without padding.
    pub asize: u16,
    /// Length of the data fork's region without padding.
    pub dsize: u16,
    /// The inode.
    pub ino: Ino,
    /// Device number of a device file, in on-disk form.
    pub rdev: u32,
    /// Device address of the inode's cluster buffer.
    pub blkno: Daddr,
    /// The buffer's length in basic blocks.
    pub len: i32,
    /// Offset of the inode in the buffer.
    pub boffset: i32,
}

impl InodeItem {
    /// Reads the format from an item's first region.
    ///
    /// # Errors
    /// If the region has neither of the two valid lengths.
    pub fn parse(region: &[u8]) -> Result<Self, BadItem> {
        let shift = match region.len() {
            LEN => 0,
            LEN_PACKED => 4,
            len => return Err(BadItem::new(ItemKind::Inode, format!("format of {len} bytes"))),
        };
        Ok(Self {
            regions: le16(region, 2),
            fields: InodeFields::from_bits_retain(le32(region, 4)),
            asize: le16(region, 8),
            dsize: le16(region, 10),
            ino: Ino(le64(region, 16 - shift)),
            rdev: le32(region, 24 - shift),
            blkno: Daddr(le64(region, 40 - shift)),
            len: le32(region, 48 - shift) as i32,
            boffset: le32(region, 52 - shift) as i32,
        })
    }

    /// Number of regions of an item with these `fields`.
    pub fn regions_of(fields: InodeFields) -> u16 {
        2 + u16::from(fields.intersects(InodeFields::DFORK))
            + u16::from(fields.intersects(InodeFields::AFORK))
    }

    /// Encodes the first region.
    pub fn encode(&self) -> [u8; LEN] {
        let mut raw = [0; LEN];
        raw[..4].copy_from_slice(&first_word(ItemKind::Inode, usize::from(self.regions)));
        raw[4..8].copy_from_slice(&self.fields.bits().to_le_bytes());
        raw[8..10].copy_from_slice(&self.asize.to_le_bytes());
        raw[10..12].copy_from_slice(&self.dsize.to_le_bytes());
        raw[16..24].copy_from_slice(&self.ino.0.to_le_bytes());
        raw[24..28].copy_from_slice(&self.rdev.to_le_bytes());
        raw[40..48].copy_from_slice(&self.blkno.0.to_le_bytes());
        raw[48..52].copy_from_slice(&self.len.to_le_bytes());
        raw[52..].copy_from_slice(&self.boffset.to_le_bytes());
        raw
    }
}

/// Offset and length of every multi-byte number of a core, timestamps excluded.
const NUMBERS: [(usize, usize); 25] = [
    (0, 2),
    (2, 2),
    (6, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (24, 8),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 2),
    (84, 4),
    (88, 2),
    (90, 2),
    (92, 4),
    (NEXT_UNLINKED_OFFSET, 4),
    (CRC_OFFSET, 4),
    (104, 8),
    (LSN.offset(), 8),
    (120, 8),
    (128, 4),
    (152, 8),
];
/// Offsets of the timestamps.
const TIMES: [usize; 4] = [32, 40, 48, 144];

const _: () = {
    // Every byte that has a byte order belongs to exactly one number or timestamp.
    let mut bytes = 4 * TIMES.len();
    let mut at = 0;
    while at < NUMBERS.len() {
        bytes += NUMBERS[at].1;
        assert!(at == 0 || NUMBERS[at - 1].0 + NUMBERS[at - 1].1 <= NUMBERS[at].0);
        at += 1;
    }
    // Version, format, forkoff, aformat; padding; UUID.
    assert!(bytes + 4 * TIMES.len() + 4 + 12 + 16 == CORE_LEN);
    assert!(size_of::<[u8; LEN]>() == 16 + 8 + 16 + 8 + 4 + 4);
};

fn swap(core: &[u8; LOG_CORE_LEN], bigtime: bool) -> [u8; LOG_CORE_LEN] {
    let mut out = *core;
    for (at, len) in NUMBERS {
        out[at..at + len].reverse();
    }
    for at in TIMES {
        if bigtime {
            out[at..at + 8].reverse();
        } else {
            out[at..at + 4].reverse();
            out[at + 4..at + 8].reverse();
        }
    }
    out
}

/// Does a core in the form of an item start with the magic number?
pub fn core_has_magic(log: &[u8; LOG_CORE_LEN]) -> bool {
    le16(log, 0) == inode::MAGIC
}

/// Converts a core from the form on disk to the form in an item.
pub fn core_to_log(disk: &[u8; LOG_CORE_LEN]) -> [u8; LOG_CORE_LEN] {
    let flags2 = u64::from_be_bytes(disk[120..128].try_into().unwrap_or_default());
    swap(disk, Flags2::from_bits_retain(flags2).contains(Flags2::BIGTIME))
}

/// Converts a core from the form in an item to the form on disk. The result gets `lsn` and keeps
/// `di_next_unlinked` of `old`, the core that is on disk now. The caller computes the checksum.
pub fn core_to_disk(
    log: &[u8; LOG_CORE_LEN],
    old: &[u8; LOG_CORE_LEN],
    lsn: Lsn,
) -> [u8; LOG_CORE_LEN] {
    let flags2 = Flags2::from_bits_retain(le64(log, 120));
    let mut disk = swap(log, flags2.contains(Flags2::BIGTIME));
    let keep = NEXT_UNLINKED_OFFSET..NEXT_UNLINKED_OFFSET + 4;
    disk[keep.clone()].copy_from_slice(&old[keep]);
    LSN.set(&mut disk, lsn);
    disk
}

/// Converts a btree root from the region of an item to the form on disk, for a fork of `room`
/// bytes.
///
/// # Errors
/// If the region is not a btree root or the root does not fit.
pub fn root_to_disk(region: &[u8], room: usize) -> Result<Vec<u8>, String> {
    if region.len() < LONG.len || room < ROOT_HEADER {
        return Err(format!("btree root of {} bytes", region.len()));
    }
    let level = usize::from(btree::LEVEL.get(region));
    let records = usize::from(btree::NUMRECS.get(region));
    let from_max = (region.len() - LONG.len) / 16;
    let to_max = (room - ROOT_HEADER) / 16;
    if level == 0 || level >= btree::MAX_LEVELS || records > from_max || records > to_max {
        return Err(format!(
            "btree root of level {level} with {records} records, {from_max} in the log, \
             room for {to_max}"
        ));
    }
    let mut root = vec![0; room];
    // Level and number of records are next to each other in both forms.
    let header = btree::LEVEL.range().start..btree::NUMRECS.range().end;
    root[..ROOT_HEADER].copy_from_slice(&region[header]);
    let keys = &region[LONG.len..LONG.len + 8 * records];
    root[ROOT_HEADER..ROOT_HEADER + 8 * records].copy_from_slice(keys);
    let (from, to) = (LONG.len + 8 * from_max, ROOT_HEADER + 8 * to_max);
    root[to..to + 8 * records].copy_from_slice(&region[from..from + 8 * records]);
    Ok(root)
}

/// Converts a btree root from the form on disk to the region of an item.
///
/// # Errors
/// If `root` is not a btree root.
pub fn root_to_log(root: &[u8], ino: Ino, uuid: &Uuid) -> Result<Vec<u8>, String> {
    let from_max = root.len().saturating_sub(ROOT_HEADER) / 16;
    if root.len() < ROOT_HEADER {
        return Err(format!("btree root of {} bytes", root.len()));
    }
    let records = usize::from(btree::ROOT_NUMRECS.get(root));
    if records > from_max {
        return Err(format!("btree root of {records} records with room for {from_max}"));
    }
    let mut region = vec![0; LONG.len + 16 * records];
    btree::MAGIC.set(&mut region, btree::TreeKind::Bmap.magic());
    region[4..8].copy_from_slice(&root[..4]);
    region[LONG.leftsib..LONG.blkno].fill(0xff);
    region[LONG.blkno..LONG.lsn].fill(0xff);
    region[LONG.uuid..LONG.uuid + 16].copy_from_slice(&uuid.0);
    region[LONG.owner..LONG.owner + 8].copy_from_slice(&ino.0.to_be_bytes());
    let keys = &root[ROOT_HEADER..ROOT_HEADER + 8 * records];
    region[LONG.len..LONG.len + 8 * records].copy_from_slice(keys);
    let from = ROOT_HEADER + 8 * from_max;
    region[LONG.len + 8 * records..].copy_from_slice(&root[from..from + 8 * records]);
    Ok(region)
}
