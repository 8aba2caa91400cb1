//! Single blocks: each parser gets any bytes with a correct identity.

use uxfs::mkfs;
use uxfs_format::btree::TreeKind;
use uxfs_format::dir::{block, data as dir_items, free, leaf};
use uxfs_format::extent::{Extent, RECORD_LEN};
use uxfs_format::log::{RecordHeader, cycle_of, is_unmount};
use uxfs_format::superblock::{self as sb, Superblock};
use uxfs_format::symlink::SymlinkHeader;
use uxfs_format::verify::{BufKind, Owner, check, check_owner, stamp_checksum};
use uxfs_format::{AgBlock, AgNo, BASIC_BLOCK, FsBlock, Geometry, Ino};
use uxfs_format::{agfl as free_list, attr, crc, da};

use crate::Input;
use crate::base::full;

/// The block: of the volume that the first byte picks, of the length that this kind has there, with
/// address and UUID put right. `true` if it passes its check.
fn load(data: &[u8], kind: BufKind) -> (Vec<u8>, &'static Geometry, bool) {
    let mut input = Input(data);
    let bases = full();
    let geo = &bases[usize::from(input.byte()) % bases.len()].geo;
    let len = match kind {
        BufKind::Superblock | BufKind::Agf | BufKind::Agi | BufKind::Agfl => geo.sector_size,
        BufKind::DirBlock
        | BufKind::DirData
        | BufKind::DirLeaf1
        | BufKind::DirLeafN
        | BufKind::DirFree => geo.dir_block_size(),
        _ => geo.block_size,
    };
    let mut bytes = input.0.to_vec();
    bytes.resize(len as usize, 0);
    let daddr = geo.ag_daddr(AgNo(0), AgBlock(100));
    let _ = check(&bytes, kind, daddr, geo);
    if let Some(layout) = kind.layout() {
        bytes[layout.uuid..layout.uuid + 16].copy_from_slice(&geo.meta_uuid.0);
        if let Some(at) = layout.blkno {
            bytes[at..at + 8].copy_from_slice(&daddr.0.to_be_bytes());
        }
    }
    stamp_checksum(&mut bytes, kind);
    let sound = check(&bytes, kind, daddr, geo).is_ok();
    let _ = check_owner(&bytes, kind, daddr, Owner::Inode(Ino(128)));
    (bytes, geo, sound)
}

/// A superblock, and the geometry that follows from it.
pub fn superblock(data: &[u8]) {
    let _ = Superblock::verify(data);
    let mut sector = data.get(1..).unwrap_or_default().to_vec();
    sector.resize(4096, 0);
    let size = usize::from(u16::from_be_bytes([sector[102], sector[103]])).clamp(512, 4096);
    crc::stamp(&mut sector[..size], sb::CRC_OFFSET);
    let Ok(sb) = Superblock::verify(&sector) else { return };
    let geo = Geometry::new(sb);
    let _ = mkfs::table_of(sb, "fuzz");
    let last = AgNo(geo.ag_count - 1);
    let _ = (geo.ag_len(last), geo.ag_header_blocks(), geo.agfl_daddr(last));
    for block in [0, 1, geo.dblocks - 1, geo.dblocks, u64::MAX >> 1, u64::MAX] {
        let fsb = FsBlock(block);
        if geo.fsb_valid(fsb, 1) {
            let daddr = geo.fsb_daddr(fsb);
            let (ag, at) = geo.daddr_ag(daddr);
            assert_eq!(geo.fsb(ag, at), fsb);
        }
        let ino = Ino(block);
        if geo.ino_valid(ino) {
            let _ = geo.cluster_of(geo.ino_agino(ino));
        }
    }
    let _ = (geo.dir_leaf_start(), geo.dir_free_start(), geo.literal_len(), geo.chunk_blocks());
}

/// A group's header of free space.
pub fn agf(data: &[u8]) {
    let _ = load(data, BufKind::Agf);
}

/// A group's header of inodes.
pub fn agi(data: &[u8]) {
    let _ = load(data, BufKind::Agi);
}

/// A group's free list.
pub fn agfl(data: &[u8]) {
    let (bytes, geo, _) = load(data, BufKind::Agfl);
    for index in 0..free_list::slots(geo.sector_size as usize) {
        let _ = free_list::slot(&bytes, index);
    }
}

/// A block of one of a group's trees.
pub fn btree(data: &[u8]) {
    const KINDS: [TreeKind; 6] = [
        TreeKind::Bno,
        TreeKind::Cnt,
        TreeKind::Ino,
        TreeKind::FreeIno,
        TreeKind::Rmap,
        TreeKind::Refcount,
    ];
    for kind in KINDS {
        let magic = kind.magic().to_be_bytes();
        if data.get(1..5).is_some_and(|seen| *seen == magic) {
            let _ = load(data, BufKind::Btree(kind));
        }
    }
}

/// A block of a file's extent tree.
pub fn bmbt(data: &[u8]) {
    let (bytes, ..) = load(data, BufKind::Btree(TreeKind::Bmap));
    for raw in bytes[TreeKind::Bmap.header().len..].as_chunks::<RECORD_LEN>().0 {
        let extent = Extent::unpack(raw);
        if extent.len > 0 {
            assert_eq!(extent.pack(), *raw);
        }
        let _ = extent.joins(&extent);
    }
}

/// A target of a symbolic link in a block of its own.
pub fn symlink(data: &[u8]) {
    let (bytes, ..) = load(data, BufKind::Symlink);
    let _ = SymlinkHeader::view(&bytes).bytes.get();
}

/// A part of an attribute's value in a block of its own.
pub fn attr_remote(data: &[u8]) {
    let _ = load(data, BufKind::AttrRemote);
}

/// A header of a log record.
pub fn log(data: &[u8]) {
    let mut raw = [0; BASIC_BLOCK];
    let bytes = data.get(1..).unwrap_or_default();
    let len = bytes.len().min(BASIC_BLOCK);
    raw[..len].copy_from_slice(&bytes[..len]);
    let _ = (cycle_of(&raw), is_unmount(&raw));
    if let Some(header) = RecordHeader::parse(&raw) {
        assert!((1..=8).contains(&header.header_blocks()));
        header.restore_first_word(&mut raw);
    }
}

/// Lengths of names to plan entries of.
const NAMES: [usize; 4] = [1, 12, 60, 255];

/// A directory in one block.
pub fn dir_block(data: &[u8]) {
    let (bytes, _, sound) = load(data, BufKind::DirBlock);
    let tail = block::Tail::of(&bytes);
    let end = tail.leaf_start(bytes.len());
    let entries: Vec<(usize, usize)> = data_items(&bytes, end);
    if !sound {
        return;
    }
    for hash in [0, 0x8000_0000, u32::MAX] {
        for name in NAMES {
            if let Some(plan) = block::plan_insert(&bytes, hash, uxfs_format::dir::entry_len(name))
            {
                let start = plan.tail.leaf_start(bytes.len());
                assert!(plan.data.at + name < start);
            }
        }
    }
    for (at, len) in entries {
        let _ = dir_items::plan_remove(&bytes, end, at, len);
    }
    if tail.stale > 0 {
        let _ = block::plan_compact(&bytes);
    }
}

/// The entries: place and length.
fn data_items(bytes: &[u8], end: usize) -> Vec<(usize, usize)> {
    let mut items = dir_items::items(bytes, end);
    let mut entries = Vec::new();
    for item in items.by_ref() {
        if let dir_items::Item::Entry(entry) = item {
            entries.push((entry.at, entry.space()));
        }
    }
    assert!(items.position() <= bytes.len());
    for at in [0, 16, 64, bytes.len() - 8, bytes.len(), bytes.len() + 8] {
        let _ = dir_items::entry_at(bytes, at, end);
        let _ = dir_items::free_before(bytes, at.min(bytes.len()));
    }
    entries
}

/// A block of a larger directory's entries.
pub fn dir_data(data: &[u8]) {
    let (bytes, _, sound) = load(data, BufKind::DirData);
    let entries = data_items(&bytes, bytes.len());
    if !sound {
        return;
    }
    for name in NAMES {
        let len = uxfs_format::dir::entry_len(name);
        if let Some(plan) = dir_items::plan_insert(&bytes, bytes.len(), len) {
            assert!(plan.at + len <= bytes.len());
        }
    }
    for (at, len) in entries {
        let _ = dir_items::plan_remove(&bytes, bytes.len(), at, len);
    }
}

fn dir_leaf(data: &[u8], kind: BufKind) {
    let (bytes, _, sound) = load(data, kind);
    let _ = (leaf::stale(&bytes), leaf::best_count(&bytes));
    if !sound {
        return;
    }
    let (count, stale) = (da::count(&bytes), leaf::stale(&bytes));
    let entries = &bytes[da::ENTRIES..];
    for hash in [0, 0x8000_0000, u32::MAX] {
        let first = da::lower_bound(entries, count, hash);
        assert!(first <= count);
        let spot = leaf::spot(entries, count, stale, hash);
        assert!(spot.first <= spot.last && spot.last <= count);
    }
}

/// The one leaf of a directory.
pub fn dir_leaf1(data: &[u8]) {
    dir_leaf(data, BufKind::DirLeaf1);
}

/// One of a directory's leaves.
pub fn dir_leafn(data: &[u8]) {
    dir_leaf(data, BufKind::DirLeafN);
}

/// A block of a directory's free index.
pub fn dir_free(data: &[u8]) {
    let (bytes, _, sound) = load(data, BufKind::DirFree);
    for index in [0, 1, 1000] {
        if index < free::capacity(bytes.len()) {
            let _ = free::best(&bytes, index);
        }
    }
    if sound {
        for len in [16, 280] {
            let found = free::find(&bytes, 0, usize::MAX, len);
            assert!(found.is_none_or(|index| index < free::nvalid(&bytes)));
        }
    }
}

/// A node above leaves.
pub fn da_node(data: &[u8]) {
    let (bytes, _, sound) = load(data, BufKind::DaNode);
    let _ = (da::forw(&bytes), da::back(&bytes), da::magic(&bytes), da::level(&bytes));
    if sound {
        let (count, entries) = (da::count(&bytes), &bytes[da::ENTRIES..]);
        for hash in [0, 0x8000_0000, u32::MAX] {
            assert!(da::lower_bound(entries, count, hash) <= count);
        }
        for index in 0..count {
            let _ = (da::hash(&bytes, index), da::child(&bytes, index));
        }
    }
}

/// A leaf of attributes: what is taken out and put together again is sound.
pub fn attr_leaf(data: &[u8]) {
    let (bytes, _, sound) = load(data, BufKind::AttrLeaf);
    if !sound {
        return;
    }
    let header = attr::leaf::Header::decode(&bytes);
    let _ = (header.free(bytes.len()), header.gap(), attr::leaf::last_hash(&bytes));
    for hash in [0, 0x8000_0000, u32::MAX] {
        assert!(attr::leaf::lower_bound(&bytes, hash) <= header.count);
    }
    assert_eq!(attr::leaf::records(&bytes).count(), header.count);
    let items = attr::leaf::items(&bytes);
    let mut copy = bytes.clone();
    attr::leaf::fill(&mut copy, &items);
    attr::leaf::verify(&copy).unwrap_or_else(|e| panic!("{e}"));
    assert!(attr::leaf::items(&copy) == items);
}
