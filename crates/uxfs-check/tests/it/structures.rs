//! Finds the structures of an image without the code under test: by magic number, correct checksum
//! and own address.

use uxfs_disk::BlockDev;
use uxfs_format::btree::TreeKind;
use uxfs_format::log::RecordHeader;
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::{BufKind, checksum_matches};
use uxfs_format::{AgNo, BASIC_BLOCK, Daddr, Geometry, crc, inode};

/// Kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Buffer(BufKind),
    Inode,
    LogRecord,
    Quota,
}

/// A structure: offset and length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Structure {
    pub(crate) kind: Kind,
    pub(crate) at: u64,
    pub(crate) len: usize,
}

impl Structure {
    /// Byte offset of its checksum.
    pub(crate) fn crc(&self) -> Option<usize> {
        match self.kind {
            Kind::Buffer(kind) => kind.layout().map(|layout| layout.crc),
            Kind::Inode => Some(inode::CRC_OFFSET),
            Kind::Quota => Some(108),
            Kind::LogRecord => None,
        }
    }
}

const IN_BLOCKS: [BufKind; 13] = [
    BufKind::Btree(TreeKind::Bno),
    BufKind::Btree(TreeKind::Cnt),
    BufKind::Btree(TreeKind::Ino),
    BufKind::Btree(TreeKind::FreeIno),
    BufKind::Btree(TreeKind::Rmap),
    BufKind::Btree(TreeKind::Refcount),
    BufKind::Btree(TreeKind::Bmap),
    BufKind::DirFree,
    BufKind::DaNode,
    BufKind::DirLeafN,
    BufKind::DirLeaf1,
    BufKind::AttrLeaf,
    BufKind::AttrRemote,
];
const DIR_DATA: [BufKind; 2] = [BufKind::DirBlock, BufKind::DirData];

/// All structures of an image.
pub(crate) fn find(dev: &dyn BlockDev) -> Vec<Structure> {
    let mut sector = vec![0; 4096];
    dev.read_at(0, &mut sector).unwrap();
    let geo = Geometry::new(Superblock::verify(&sector).unwrap());
    let mut found = Vec::new();
    let heads =
        [(BufKind::Superblock, 0), (BufKind::Agf, 1), (BufKind::Agi, 2), (BufKind::Agfl, 3)];
    for ag in (0..geo.ag_count).map(AgNo) {
        for (kind, sector) in heads {
            let at = geo.ag_sector_daddr(ag, sector).bytes();
            let len = geo.sector_size as usize;
            found.push(Structure { kind: Kind::Buffer(kind), at, len });
        }
    }
    let mut buf = vec![0; 64 << 10];
    let block = u64::from(geo.block_size);
    for number in 0..geo.dblocks {
        let at = number * block;
        let len = (dev.len() - at).min(buf.len() as u64) as usize;
        dev.read_at(at, &mut buf[..len]).unwrap();
        block_structures(&geo, at, &buf[..len], &mut found);
    }
    log_record(dev, &geo, &mut found);
    found
}

fn block_structures(geo: &Geometry, at: u64, bytes: &[u8], found: &mut Vec<Structure>) {
    let block = geo.block_size as usize;
    let dir = (geo.dir_block_size() as usize).min(bytes.len());
    let own = |kind: BufKind, bytes: &[u8]| {
        let blkno = kind.layout().and_then(|layout| layout.blkno).unwrap_or(0);
        let address = u64::from_be_bytes(bytes[blkno..blkno + 8].try_into().unwrap());
        checksum_matches(bytes, kind) && Daddr(address).bytes() == at
    };
    let in_dirs = [BufKind::DirFree, BufKind::DaNode, BufKind::DirLeafN, BufKind::DirLeaf1];
    let mut add = |kind: BufKind, len: usize| {
        if own(kind, &bytes[..len]) {
            found.push(Structure { kind: Kind::Buffer(kind), at, len });
        }
    };
    if let Some(kind) = BufKind::identify(&bytes[..block], &IN_BLOCKS) {
        add(kind, if in_dirs.contains(&kind) { dir } else { block });
        if kind == BufKind::DaNode && dir != block {
            add(kind, block);
        }
    } else if let Some(kind) = BufKind::identify(&bytes[..block], &DIR_DATA) {
        add(kind, dir);
    } else if let Some(kind) = BufKind::identify(&bytes[..block], &[BufKind::Symlink]) {
        for len in [block, 2 * block] {
            add(kind, len);
        }
    }
    let quota = |raw: &[u8]| raw[..2] == *b"DQ" && crc::matches(raw, 108);
    for (index, raw) in bytes[..block].chunks_exact(136).enumerate().filter(|(_, r)| quota(r)) {
        found.push(Structure { kind: Kind::Quota, at: at + (index * 136) as u64, len: raw.len() });
    }
    let size = geo.inode_size as usize;
    for (index, raw) in bytes[..block].chunks_exact(size).enumerate() {
        if raw[..2] == *b"IN"
            && crc::matches(raw, inode::CRC_OFFSET)
            && raw[160..176] == geo.meta_uuid.0
        {
            found.push(Structure { kind: Kind::Inode, at: at + (index * size) as u64, len: size });
        }
    }
}

/// The header of the log's last record, the unmount record.
fn log_record(dev: &dyn BlockDev, geo: &Geometry, found: &mut Vec<Structure>) {
    let start = geo.fsb_daddr(geo.log_start).bytes();
    let blocks = u64::from(geo.log_blocks) * u64::from(geo.block_size) / BASIC_BLOCK as u64;
    let mut last = None;
    let mut block = [0; BASIC_BLOCK];
    for number in 0..blocks {
        let at = start + number * BASIC_BLOCK as u64;
        dev.read_at(at, &mut block).unwrap();
        if let Some(header) = RecordHeader::parse(&block) {
            last = last.max(Some((header.cycle, at)));
        }
    }
    let at = last.unwrap().1;
    found.push(Structure { kind: Kind::LogRecord, at, len: BASIC_BLOCK });
}
