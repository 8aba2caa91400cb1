//! Verification of whole metadata buffers: how each kind is recognised, and the rules it must keep.
//!
//! 1. Every buffer passes [`check`] after a read and before a write.
//! 2. These checks use only the buffer, its address and the geometry. The code that follows a
//!    pointer checks the rules that involve other structures (owner, order among neighbours).

use crate::agf::Agf;
use crate::agi::Agi;
use crate::btree::{self, TreeKind};
pub use crate::buf_kind::{BufKind, Layout, OwnerField};
use crate::bytes::{be32, be64};
use crate::error::{Check, Problem};
use crate::error::{Corrupt, Place};
use crate::features::RoCompat;
use crate::geometry::Geometry;
use crate::types::{AgBlock, AgNo, Daddr, FsBlock, Ino};
use crate::{agfl, agi, attr, crc, da, dir, dquot};

/// The expected owner of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An allocation group.
    Ag(AgNo),
    /// An inode.
    Inode(Ino),
    /// The volume.
    Volume,
}

/// Checks that the buffer names `owner` as its owner.
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
    Err(Corrupt::new(kind.name(), Place::Device(daddr), Check::Owner, problem))
}

/// Checks a buffer of `kind` that was read from `daddr` or is to be written there. The checksum is
/// not checked here, see [`checksum_matches`].
///
/// # Errors
/// The first violated rule.
pub fn check(buffer: &[u8], kind: BufKind, daddr: Daddr, geo: &Geometry) -> Result<(), Corrupt> {
    let bad = |check: Check, detail: String| {
        Err(Corrupt::new(kind.name(), Place::Device(daddr), check, detail))
    };
    // Version 4 stores only the magic number, which identified the kind.
    let labelled = geo.has_crc();
    if labelled && !kind.has_magic(buffer) {
        return bad(Check::Magic, format!("wrong magic number (starts {:#010x})", be32(buffer, 0)));
    }
    if let Some(layout) = kind.layout().filter(|_| labelled) {
        if kind != BufKind::Superblock && buffer[layout.uuid..layout.uuid + 16] != geo.meta_uuid.0 {
            return bad(Check::Uuid, "UUID is another volume's".into());
        }
        if let Some(at) = layout.blkno
            && be64(buffer, at) != daddr.0
        {
            return bad(
                Check::Address,
                format!("its address field says daddr {}", be64(buffer, at)),
            );
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
        BufKind::Dquot(kind) => dquot::check_block(buffer, kind, geo),
        _ => Ok(()),
    };
    rules.map_err(|problem| problem.of(kind.name(), Place::Device(daddr)))
}

/// Does the stored checksum of a buffer match? Inode clusters have none of their own.
pub fn checksum_matches(buffer: &[u8], kind: BufKind) -> bool {
    match kind {
        BufKind::Dquot(_) => dquot::checksums_match(buffer),
        _ => kind.layout().is_none_or(|layout| crc::matches(buffer, layout.crc)),
    }
}

/// Stores the checksum of a buffer; inode clusters have none of their own.
pub fn stamp_checksum(buffer: &mut [u8], kind: BufKind) {
    match kind.layout() {
        Some(layout) => crc::stamp(buffer, layout.crc),
        None if matches!(kind, BufKind::Dquot(_)) => dquot::stamp_checksums(buffer),
        None => {}
    }
}

fn check_agf(agf: &Agf, geo: &Geometry) -> Result<(), Problem> {
    let ag = AgNo(agf.seqno.get());
    let len = geo.ag_len(ag);
    if ag.0 >= geo.ag_count || agf.length.get() != len {
        return Err(Check::Geometry
            .failed(format!("AG {ag} of {} blocks, which has {len}", agf.length.get())));
    }
    if agf.versionnum.get() != 1 {
        return Err(Check::Version.failed(format!("version {}", agf.versionnum.get())));
    }
    let slots = agfl::slots(geo.sector_size as usize);
    let (first, last, count) = (agf.flfirst.get(), agf.fllast.get(), agf.flcount.get());
    if first >= slots || last >= slots || count > slots {
        return Err(Check::FreeList
            .failed(format!("free list {first}..{last} of {count} in {slots} slots")));
    }
    let live = if last >= first { last - first + 1 } else { slots - first + last + 1 };
    if count != 0 && live != count {
        return Err(
            Check::FreeList.failed(format!("free list {first}..{last} does not hold {count}"))
        );
    }
    let (free, longest) = (agf.freeblks.get(), agf.longest.get());
    if free > len || longest > free || agf.btreeblks.get() > len {
        return Err(
            Check::Counter.failed(format!("{free} free blocks, longest {longest}, of {len}"))
        );
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

fn check_agi(agi: &Agi, geo: &Geometry) -> Result<(), Problem> {
    let ag = AgNo(agi.seqno.get());
    let len = geo.ag_len(ag);
    if ag.0 >= geo.ag_count || agi.length.get() != len {
        return Err(Check::Geometry
            .failed(format!("AG {ag} of {} blocks, which has {len}", agi.length.get())));
    }
    if agi.versionnum.get() != 1 {
        return Err(Check::Version.failed(format!("version {}", agi.versionnum.get())));
    }
    if agi.freecount.get() > agi.count.get() {
        return Err(Check::Counter.failed(format!(
            "{} of {} inodes free",
            agi.freecount.get(),
            agi.count.get()
        )));
    }
    let mut roots = vec![("inobt", agi.root.get(), agi.level.get())];
    if geo.has_finobt() {
        roots.push(("finobt", agi.free_root.get(), agi.free_level.get()));
    }
    check_roots(&roots, ag, geo)?;
    for (bucket, head) in agi.unlinked.iter().enumerate() {
        let head = head.get();
        if head != u32::MAX && head as usize % agi::UNLINKED_BUCKETS != bucket {
            return Err(Check::Hash.failed(format!("unlinked bucket {bucket} holds inode {head}")));
        }
    }
    Ok(())
}

fn check_roots(roots: &[(&str, u32, u32)], ag: AgNo, geo: &Geometry) -> Result<(), Problem> {
    for &(name, root, level) in roots {
        if !geo.agblock_valid(ag, AgBlock(root)) {
            return Err(Check::Pointer.failed(format!("{name} root at block {root}")));
        }
        if level == 0 || level as usize > btree::MAX_LEVELS {
            return Err(Check::Level.failed(format!("{name} of {level} levels")));
        }
    }
    Ok(())
}

fn check_agfl(buffer: &[u8], geo: &Geometry) -> Result<(), Problem> {
    let ag = AgNo(be32(buffer, 4));
    if ag.0 >= geo.ag_count {
        return Err(Check::Owner.failed(format!("belongs to AG {ag}")));
    }
    for index in 0..agfl::slots(buffer.len()) {
        let block = agfl::slot(buffer, index);
        if !block.is_null() && block.0 >= geo.ag_len(ag) {
            return Err(Check::FreeList.failed(format!("slot {index} holds block {block}")));
        }
    }
    Ok(())
}

fn check_btree(buffer: &[u8], tree: TreeKind, daddr: Daddr, geo: &Geometry) -> Result<(), Problem> {
    let wanted = match tree {
        TreeKind::Rmap => geo.ro_compat.contains(RoCompat::RMAPBT),
        TreeKind::Refcount => geo.ro_compat.contains(RoCompat::REFLINK),
        TreeKind::FreeIno => geo.ro_compat.contains(RoCompat::FINOBT),
        _ => true,
    };
    if !wanted {
        return Err(Check::Version.failed("the volume has no such tree"));
    }
    let level = usize::from(btree::LEVEL.get(buffer));
    let records = usize::from(btree::NUMRECS.get(buffer));
    if level >= btree::MAX_LEVELS {
        return Err(Check::Level.failed(format!("level {level}")));
    }
    let max = match level {
        0 => tree.max_leaf(buffer.len()),
        _ => tree.max_node(buffer.len()),
    };
    if records > max || (level > 0 && records == 0) {
        return Err(
            Check::Count.failed(format!("{records} records at level {level}, room for {max}"))
        );
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
            return Err(Check::Pointer.failed("sibling outside the volume"));
        }
    }
    Ok(())
}
