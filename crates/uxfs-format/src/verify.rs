//! Verification of whole metadata buffers: what each kind is recognised by, and what must hold.
//!
//! 1. Every buffer passes [`check`] when it is read and before it is written.
//! 2. The checks here need only the buffer, its address and the geometry. What needs other
//!    structures (order against neighbours, owners) is checked by whoever follows the pointers.

use crate::agf::Agf;
use crate::agi::Agi;
use crate::btree::{self, TreeKind};
use crate::error::{Corrupt, Place};
use crate::features::RoCompat;
use crate::geometry::Geometry;
use crate::types::{AgBlock, AgNo, Daddr, FsBlock, Ino};
use crate::{agf, agfl, agi, attr, crc, da, dir, inode, superblock, symlink};

/// Kinds of metadata buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum BufKind {
    Superblock,
    Agf,
    Agi,
    Agfl,
    Btree(TreeKind),
    InodeCluster,
    Symlink,
    /// The one block of a directory in block form.
    DirBlock,
    /// A data block of a larger directory.
    DirData,
    /// The one leaf of a directory in leaf form.
    DirLeaf1,
    /// A leaf of a directory in node form.
    DirLeafN,
    /// A block of a directory's free index.
    DirFree,
    /// A node above directory or attribute leaves.
    DaNode,
    AttrLeaf,
    AttrRemote,
}

/// Where a kind keeps what every kind has.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Checksum.
    pub crc: usize,
    /// Own address, if kept.
    pub blkno: Option<usize>,
    /// Log sequence number.
    pub lsn: usize,
    /// UUID.
    pub uuid: usize,
    /// Owner.
    pub owner: OwnerField,
}

/// Who a buffer says it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerField {
    /// Nothing kept.
    None,
    /// AG number at this offset.
    Ag(usize),
    /// Inode number at this offset.
    Inode(usize),
}

fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

impl BufKind {
    /// XFS' name of the structure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Agf => "AGF",
            Self::Agi => "AGI",
            Self::Agfl => "AGFL",
            Self::Btree(tree) => tree.block_name(),
            Self::InodeCluster => "inode cluster",
            Self::Symlink => "remote symlink",
            Self::DirBlock => "directory block",
            Self::DirData => "directory data block",
            Self::DirLeaf1 | Self::DirLeafN => "directory leaf block",
            Self::DirFree => "directory free block",
            Self::DaNode => "da node block",
            Self::AttrLeaf => "attribute leaf block",
            Self::AttrRemote => "remote attribute block",
        }
    }

    /// Where it keeps checksum, address, owner; `None` for inode clusters, whose inodes each have
    /// their own.
    pub const fn layout(self) -> Option<Layout> {
        let da =
            Layout { crc: 12, blkno: Some(16), lsn: 24, uuid: 32, owner: OwnerField::Inode(48) };
        let dir =
            Layout { crc: 4, blkno: Some(8), lsn: 16, uuid: 24, owner: OwnerField::Inode(40) };
        let remote =
            Layout { crc: 12, blkno: Some(40), lsn: 48, uuid: 16, owner: OwnerField::Inode(32) };
        Some(match self {
            Self::Superblock => Layout {
                crc: superblock::CRC_OFFSET,
                blkno: None,
                lsn: 240,
                uuid: 32,
                owner: OwnerField::None,
            },
            Self::Agf => Layout {
                crc: agf::CRC_OFFSET,
                blkno: None,
                lsn: 208,
                uuid: 64,
                owner: OwnerField::Ag(8),
            },
            Self::Agi => Layout {
                crc: agi::CRC_OFFSET,
                blkno: None,
                lsn: 320,
                uuid: 296,
                owner: OwnerField::Ag(8),
            },
            Self::Agfl => Layout {
                crc: agfl::CRC_OFFSET,
                blkno: None,
                lsn: 24,
                uuid: 8,
                owner: OwnerField::Ag(4),
            },
            Self::Btree(tree) => {
                let h = tree.header();
                let owner = match tree {
                    TreeKind::Bmap => OwnerField::Inode(h.owner),
                    _ => OwnerField::Ag(h.owner),
                };
                Layout { crc: h.crc, blkno: Some(h.blkno), lsn: h.lsn, uuid: h.uuid, owner }
            }
            Self::InodeCluster => return None,
            Self::Symlink | Self::AttrRemote => remote,
            Self::DirBlock | Self::DirData | Self::DirFree => dir,
            Self::DirLeaf1 | Self::DirLeafN | Self::DaNode | Self::AttrLeaf => da,
        })
    }

    fn has_magic(self, b: &[u8]) -> bool {
        match self {
            Self::Superblock => be32(b, 0) == superblock::MAGIC,
            Self::Agf => be32(b, 0) == agf::MAGIC,
            Self::Agi => be32(b, 0) == agi::MAGIC,
            Self::Agfl => be32(b, 0) == agfl::MAGIC,
            Self::Btree(tree) => be32(b, 0) == tree.magic(),
            Self::InodeCluster => be16(b, 0) == inode::MAGIC,
            Self::Symlink => be32(b, 0) == symlink::MAGIC,
            Self::DirBlock => be32(b, 0) == 0x5844_4233,
            Self::DirData => be32(b, 0) == 0x5844_4433,
            Self::DirFree => be32(b, 0) == 0x5844_4633,
            Self::DirLeaf1 => be16(b, 8) == 0x3df1,
            Self::DirLeafN => be16(b, 8) == 0x3dff,
            Self::DaNode => be16(b, 8) == 0x3ebe,
            Self::AttrLeaf => be16(b, 8) == 0x3bee,
            Self::AttrRemote => be32(b, 0) == 0x5841_524d,
        }
    }

    /// Which of `candidates` the buffer says it is, by its magic number.
    pub fn identify(buffer: &[u8], candidates: &[Self]) -> Option<Self> {
        candidates.iter().copied().find(|kind| kind.has_magic(buffer))
    }
}

/// Owner that a buffer is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An allocation group.
    Ag(AgNo),
    /// An inode.
    Inode(Ino),
    /// The volume.
    Volume,
}

/// Does the buffer say that it belongs to `owner`?
///
/// # Errors
/// If it names another owner.
pub fn check_owner(
    buffer: &[u8],
    kind: BufKind,
    daddr: Daddr,
    owner: Owner,
) -> Result<(), Corrupt> {
    let Some(layout) = kind.layout() else { return Ok(()) };
    let (seen, wanted) = match (layout.owner, owner) {
        (OwnerField::Ag(at), Owner::Ag(ag)) => (be32(buffer, at).into(), u64::from(ag.0)),
        (OwnerField::Inode(at), Owner::Inode(ino)) => (be64(buffer, at), ino.0),
        _ => return Ok(()),
    };
    if seen == wanted {
        return Ok(());
    }
    let problem = format!("belongs to {seen}, not to {wanted}");
    Err(Corrupt::new(kind.name(), Place::Device(daddr), problem))
}

/// Checks a buffer of `kind` read from (or about to be written to) `daddr`, its checksum aside.
///
/// # Errors
/// The first rule that does not hold.
pub fn check(buffer: &[u8], kind: BufKind, daddr: Daddr, geo: &Geometry) -> Result<(), Corrupt> {
    let bad = |problem: String| Err(Corrupt::new(kind.name(), Place::Device(daddr), problem));
    // Version 4 keeps no more than the magic number, by which the kind was told.
    let labelled = geo.has_crc();
    if labelled && !kind.has_magic(buffer) {
        return bad(format!("wrong magic number (starts {:#010x})", be32(buffer, 0)));
    }
    if let Some(layout) = kind.layout().filter(|_| labelled) {
        if kind != BufKind::Superblock && buffer[layout.uuid..layout.uuid + 16] != geo.meta_uuid.0 {
            return bad("UUID is another volume's".into());
        }
        if let Some(at) = layout.blkno
            && be64(buffer, at) != daddr.0
        {
            return bad(format!("says it lies at daddr {}", be64(buffer, at)));
        }
    }
    let rules = match kind {
        BufKind::Agf => check_agf(Agf::view(buffer), geo),
        BufKind::Agi => check_agi(Agi::view(buffer), geo),
        BufKind::Agfl => check_agfl(buffer, geo),
        BufKind::Btree(tree) => check_btree(buffer, tree, daddr, geo),
        BufKind::AttrLeaf => attr::leaf::verify(buffer),
        BufKind::AttrRemote => attr::remote::verify(buffer),
        BufKind::DaNode => da::check_node(buffer),
        BufKind::DirBlock => dir::block::check(buffer, geo),
        BufKind::DirData => dir::data::check(buffer, geo),
        BufKind::DirLeaf1 => dir::leaf::check_leaf1(buffer),
        BufKind::DirLeafN => dir::leaf::check_leafn(buffer),
        BufKind::DirFree => dir::free::check(buffer),
        _ => Ok(()),
    };
    rules.or_else(bad)
}

/// Does the stored checksum of a buffer match? Inode clusters have none of their own.
pub fn checksum_matches(buffer: &[u8], kind: BufKind) -> bool {
    kind.layout().is_none_or(|layout| crc::matches(buffer, layout.crc))
}

/// Stores the checksum of a buffer; inode clusters have none of their own.
pub fn stamp_checksum(buffer: &mut [u8], kind: BufKind) {
    if let Some(layout) = kind.layout() {
        crc::stamp(buffer, layout.crc);
    }
}

fn check_agf(agf: &Agf, geo: &Geometry) -> Result<(), String> {
    let ag = AgNo(agf.seqno.get());
    let len = geo.ag_len(ag);
    if ag.0 >= geo.ag_count || agf.length.get() != len {
        return Err(format!("AG {ag} of {} blocks, which has {len}", agf.length.get()));
    }
    if agf.versionnum.get() != 1 {
        return Err(format!("version {}", agf.versionnum.get()));
    }
    let slots = agfl::slots(geo.sector_size as usize);
    let (first, last, count) = (agf.flfirst.get(), agf.fllast.get(), agf.flcount.get());
    if first >= slots || last >= slots || count > slots {
        return Err(format!("free list {first}..{last} of {count} in {slots} slots"));
    }
    let live = if last >= first { last - first + 1 } else { slots - first + last + 1 };
    if count != 0 && live != count {
        return Err(format!("free list {first}..{last} does not hold {count}"));
    }
    let (free, longest) = (agf.freeblks.get(), agf.longest.get());
    if free > len || longest > free || agf.btreeblks.get() > len {
        return Err(format!("{free} free blocks, longest {longest}, of {len}"));
    }
    let mut roots = vec![
        ("bnobt", agf.bno_root.get(), agf.bno_level.get()),
        ("cntbt", agf.cnt_root.get(), agf.cnt_level.get()),
    ];
    if geo.has_rmap() {
        roots.push(("rmapbt", agf.rmap_root.get(), agf.rmap_level.get()));
    }
    if geo.has_reflink() {
        roots.push(("refcountbt", agf.refcount_root.get(), agf.refcount_level.get()));
    }
    check_roots(&roots, ag, geo)
}

fn check_agi(agi: &Agi, geo: &Geometry) -> Result<(), String> {
    let ag = AgNo(agi.seqno.get());
    let len = geo.ag_len(ag);
    if ag.0 >= geo.ag_count || agi.length.get() != len {
        return Err(format!("AG {ag} of {} blocks, which has {len}", agi.length.get()));
    }
    if agi.versionnum.get() != 1 {
        return Err(format!("version {}", agi.versionnum.get()));
    }
    if agi.freecount.get() > agi.count.get() {
        return Err(format!("{} of {} inodes free", agi.freecount.get(), agi.count.get()));
    }
    let mut roots = vec![("inobt", agi.root.get(), agi.level.get())];
    if geo.has_finobt() {
        roots.push(("finobt", agi.free_root.get(), agi.free_level.get()));
    }
    check_roots(&roots, ag, geo)?;
    for (bucket, head) in agi.unlinked.iter().enumerate() {
        let head = head.get();
        if head != u32::MAX && head as usize % agi::UNLINKED_BUCKETS != bucket {
            return Err(format!("unlinked bucket {bucket} holds inode {head}"));
        }
    }
    Ok(())
}

fn check_roots(roots: &[(&str, u32, u32)], ag: AgNo, geo: &Geometry) -> Result<(), String> {
    for &(name, root, level) in roots {
        if !geo.agblock_valid(ag, AgBlock(root)) {
            return Err(format!("{name} root at block {root}"));
        }
        if level == 0 || level as usize > btree::MAX_LEVELS {
            return Err(format!("{name} of {level} levels"));
        }
    }
    Ok(())
}

fn check_agfl(buffer: &[u8], geo: &Geometry) -> Result<(), String> {
    let ag = AgNo(be32(buffer, 4));
    if ag.0 >= geo.ag_count {
        return Err(format!("belongs to AG {ag}"));
    }
    for index in 0..agfl::slots(buffer.len()) {
        let block = agfl::slot(buffer, index);
        if !block.is_null() && block.0 >= geo.ag_len(ag) {
            return Err(format!("slot {index} holds block {block}"));
        }
    }
    Ok(())
}

fn check_btree(buffer: &[u8], tree: TreeKind, daddr: Daddr, geo: &Geometry) -> Result<(), String> {
    let wanted = match tree {
        TreeKind::Rmap => geo.ro_compat.contains(RoCompat::RMAPBT),
        TreeKind::Refcount => geo.ro_compat.contains(RoCompat::REFLINK),
        TreeKind::FreeIno => geo.ro_compat.contains(RoCompat::FINOBT),
        _ => true,
    };
    if !wanted {
        return Err("the volume has no such tree".into());
    }
    let level = usize::from(be16(buffer, btree::LEVEL_OFFSET));
    let records = usize::from(be16(buffer, btree::NUMRECS_OFFSET));
    if level >= btree::MAX_LEVELS {
        return Err(format!("level {level}"));
    }
    let max = match level {
        0 => tree.max_leaf(buffer.len()),
        _ => tree.max_node(buffer.len()),
    };
    if records > max || (level > 0 && records == 0) {
        return Err(format!("{records} records at level {level}, room for {max}"));
    }
    let header = tree.header();
    for at in [header.leftsib, header.rightsib] {
        let valid = if header.ptr_len == 8 {
            let fsb = be64(buffer, at);
            fsb == u64::MAX || geo.fsb_valid(FsBlock(fsb), 1)
        } else {
            let block = be32(buffer, at);
            let (ag, _) = geo.daddr_ag(daddr);
            block == u32::MAX || geo.agblock_valid(ag, AgBlock(block))
        };
        if !valid {
            return Err("sibling outside the volume".into());
        }
    }
    Ok(())
}
