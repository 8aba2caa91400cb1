//! Phase 1: checks an allocation group's headers and btrees, alone and against the headers' counts.
//! The results are kept for the later phases.

use parking_lot::Mutex;
use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::btree::{InodeChunk, Rmap, RmapOwner, TreeKind};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgNo, Daddr, FsBlock, Lsn, agfl};

use crate::bytes::be64;
use crate::claim::{Claim, FREE};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::{chunks, records};

/// Results of phase 1 for one group.
#[derive(Default)]
pub(crate) struct Group {
    /// Inode chunks of valid records, in order.
    pub(crate) chunks: Vec<InodeChunk>,
    /// Reverse mappings, in order.
    pub(crate) rmaps: Vec<Rmap>,
    /// Shared runs (start, length, count), in order.
    pub(crate) shared: Vec<(u32, u32, u32)>,
    /// Claims of all owners of blocks in this group.
    pub(crate) claims: Mutex<Vec<Claim>>,
    /// Heads of the unlinked lists.
    pub(crate) unlinked: Vec<u32>,
    /// Inodes and free inodes, according to the AGI.
    pub(crate) inodes: (u32, u32),
    /// Free blocks for the superblock's counter, according to the AGF.
    pub(crate) free: u64,
    /// Blocks in the free-space btree, without its root.
    pub(crate) free_blocks: u64,
    /// Have all trees of the group been walked, so that all their claims are present?
    pub(crate) complete: bool,
    /// Were all reverse mappings readable?
    pub(crate) rmaps_complete: bool,
    /// Were all reference counts readable?
    pub(crate) shared_complete: bool,
}

/// Result of one tree's walk.
pub(crate) struct Walked {
    /// Blocks of the tree.
    pub(crate) blocks: Vec<FsBlock>,
    /// Was the whole tree readable?
    pub(crate) complete: bool,
}

/// Checks a group.
pub(crate) fn check(ctx: &Ctx<'_>, ag: AgNo) -> Group {
    let mut group = Group { complete: true, ..Group::default() };
    let geo = &ctx.geo;
    let headers = geo.ag_header_blocks();
    group.claims.get_mut().push(Claim::special(RmapOwner::FS, 0, headers));
    if geo.log_start.0 != 0 && geo.fsb_ag(geo.log_start) == ag {
        let start = geo.fsb_agblock(geo.log_start).0;
        let claim = Claim::special(RmapOwner::LOG, start, geo.log_blocks);
        group.claims.get_mut().push(claim);
    }
    let agf = header(ctx, ag, BufKind::Agf, geo.agf_daddr(ag));
    let agi = header(ctx, ag, BufKind::Agi, geo.agi_daddr(ag));
    let list = header(ctx, ag, BufKind::Agfl, geo.agfl_daddr(ag));
    group.complete = agf.is_some() && agi.is_some() && list.is_some();
    if let Some(agf) = &agf {
        let agf = Agf::view(agf);
        if let Some(list) = &list {
            free_list(ctx, ag, agf, list, &mut group);
        }
        records::check(ctx, ag, agf, &mut group);
        agf_fields(ctx, ag, agf);
    }
    if let Some(agi) = &agi {
        let agi = Agi::view(agi);
        chunks::check(ctx, ag, agi, &mut group);
        agi_fields(ctx, ag, agi);
        group.unlinked = agi.unlinked.iter().map(|head| head.get()).collect();
        group.inodes = (agi.count.get(), agi.freecount.get());
    }
    group
}

/// Reads and checks a header sector; `None` if it is unusable.
fn header(ctx: &Ctx<'_>, ag: AgNo, kind: BufKind, daddr: Daddr) -> Option<Vec<u8>> {
    let place = Place::ag(ag);
    let mut sector = vec![0; ctx.geo.sector_size as usize];
    if !ctx.read(daddr, &mut sector, &place) {
        return None;
    }
    let code = match kind {
        BufKind::Agf => code::AGF,
        BufKind::Agi => code::AGI,
        _ => code::AGFL,
    };
    if !verify::checksum_matches(&sector, kind) {
        ctx.find(code, place.clone(), format!("{}: checksum does not match", kind.name()));
    }
    let checked = verify::check(&sector, kind, daddr, &ctx.geo)
        .and_then(|()| verify::check_owner(&sector, kind, daddr, Owner::Ag(ag)));
    if let Err(e) = checked {
        ctx.find(code, place, format!("{}: {}", kind.name(), e.detail));
        return None;
    }
    if let Some(layout) = kind.layout() {
        ctx.check_lsn(Lsn(be64(&sector, layout.lsn)), &place);
    }
    Some(sector)
}

/// Checks the free list: every slot in use holds a valid block, and no block occurs twice.
fn free_list(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf, list: &[u8], group: &mut Group) {
    let slots = agfl::slots(list.len());
    let mut seen = Vec::new();
    for index in 0..agf.flcount.get().min(slots) {
        let slot = (agf.flfirst.get() + index) % slots;
        let block = agfl::slot(list, slot);
        if !ctx.geo.agblock_valid(ag, block) {
            let message = format!("slot {slot} of the free list holds block {block}");
            ctx.find(code::AGFL_SLOT, Place::ag(ag), message);
            group.complete = false;
            continue;
        }
        if seen.contains(&block) {
            let message = format!("slot {slot} of the free list repeats block {block}");
            ctx.find(code::AGFL_DOUBLE, Place::block(ag, block), message);
            continue;
        }
        seen.push(block);
        group.claims.get_mut().push(Claim::special(RmapOwner::AG, block.0, 1));
    }
}

/// Claims the blocks of a tree.
pub(crate) fn claim_tree(ctx: &Ctx<'_>, group: &mut Group, owner: RmapOwner, walked: &Walked) {
    group.complete &= walked.complete;
    let claims = group.claims.get_mut();
    for &fsb in &walked.blocks {
        claims.push(Claim::special(owner, ctx.geo.fsb_agblock(fsb).0, 1));
    }
}

/// Claims free blocks.
pub(crate) fn claim_free(group: &mut Group, start: u32, len: u32) {
    group.claims.get_mut().push(Claim::special(FREE, start, len));
}

/// Compares a number in a header with the number counted.
pub(crate) fn compare(
    ctx: &Ctx<'_>,
    ag: AgNo,
    code: code::Code,
    what: &str,
    stored: u64,
    counted: u64,
) {
    if stored != counted {
        ctx.find(code, Place::ag(ag), format!("{what} is {stored}, counted {counted}"));
    }
}

fn agf_fields(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf) {
    let geo = &ctx.geo;
    let zero = |what: &str, fine: bool| {
        if !fine {
            ctx.find(code::AGF_FIELD, Place::ag(ag), format!("{what} is not 0"));
        }
    };
    if !geo.has_rmap() {
        zero("agf_rmap_root", agf.rmap_root.get() == 0);
        zero("agf_rmap_level", agf.rmap_level.get() == 0);
        zero("agf_rmap_blocks", agf.rmap_blocks.get() == 0);
    }
    if !geo.has_reflink() {
        zero("agf_refcount_root", agf.refcount_root.get() == 0);
        zero("agf_refcount_level", agf.refcount_level.get() == 0);
        zero("agf_refcount_blocks", agf.refcount_blocks.get() == 0);
    }
    zero("agf_spare", agf.spare.iter().all(|b| *b == 0) && agf.spare2.get() == 0);
}

fn agi_fields(ctx: &Ctx<'_>, ag: AgNo, agi: &Agi) {
    let geo = &ctx.geo;
    let place = Place::ag(ag);
    let newino = uxfs_format::AgIno(agi.newino.get());
    if !newino.is_null() && !geo.ino_valid(geo.ino(ag, newino)) {
        ctx.find(code::AGI_FIELD, place.clone(), format!("agi_newino is {newino}"));
    }
    if agi.dirino.get() != u32::MAX {
        let message = format!("agi_dirino is {}, not null", agi.dirino.get());
        ctx.find(code::AGI_FIELD, place.clone(), message);
    }
    let zero = |what: &str, value: u32| {
        if value != 0 {
            ctx.find(code::AGI_FIELD, place.clone(), format!("{what} is {value}, not 0"));
        }
    };
    zero("agi_pad32", agi.pad.get());
    if !geo.has_finobt() {
        zero("agi_free_root", agi.free_root.get());
        zero("agi_free_level", agi.free_level.get());
    }
    if !geo.has_inobtcnt() {
        zero("agi_iblocks", agi.iblocks.get());
        zero("agi_fblocks", agi.fblocks.get());
    }
}

/// Walks a tree of the group.
pub(crate) fn walk(
    ctx: &Ctx<'_>,
    ag: AgNo,
    kind: TreeKind,
    (root, levels): (u32, u32),
    each: &mut dyn FnMut(&[u8]),
) -> Walked {
    let mut walk = crate::btree::Walk::of_group(ctx, kind, ag);
    walk.run(root.into(), levels, each);
    Walked { complete: walk.complete, blocks: walk.blocks }
}
