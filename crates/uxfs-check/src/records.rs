//! Checks the trees whose roots are in the AGF: free space, reverse mappings, reference counts.

use uxfs_format::agf::Agf;
use uxfs_format::btree::{REFCOUNT_COW_FLAG, Rmap, RmapOwner, TreeKind};
use uxfs_format::{AgBlock, AgNo, Ino};

use crate::bytes::{be32, be64};
use crate::claim::Claim;
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::{Group, claim_free, claim_tree, compare, walk};

/// Walks the trees and checks the AGF's counts.
pub(crate) fn check(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf, group: &mut Group) {
    let mut below_root = free_space(ctx, ag, agf, group);
    if ctx.geo.has_rmap() {
        below_root += reverse_mappings(ctx, ag, agf, group);
    }
    if ctx.geo.has_reflink() {
        reference_counts(ctx, ag, agf, group);
    }
    compare(ctx, ag, code::AGF_BTREEBLKS, "agf_btreeblks", agf.btreeblks.get().into(), below_root);
    let stored = [agf.freeblks.get(), agf.flcount.get(), agf.btreeblks.get()];
    group.free = stored.into_iter().map(u64::from).sum();
}

/// Checks both free-space trees. Returns the number of blocks below their roots.
fn free_space(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf, group: &mut Group) -> u64 {
    let mut free: Vec<(u32, u32)> = Vec::new();
    let (mut end, mut total, mut longest) = (0u64, 0u64, 0);
    let root = (agf.bno_root.get(), agf.bno_level.get());
    let by_start = walk(ctx, ag, TreeKind::Bno, root, &mut |record| {
        let (start, len) = (be32(record, 0), be32(record, 4));
        if !free_record(ctx, ag, start, len) {
            return;
        }
        if !free.is_empty() && u64::from(start) <= end {
            let message = format!("free extent {start}+{len} touches the previous one");
            ctx.find(code::FREE_RECORD, Place::block(ag, AgBlock(start)), message);
        }
        end = u64::from(start) + u64::from(len);
        total += u64::from(len);
        longest = longest.max(len);
        free.push((start, len));
    });
    let mut other: Vec<(u32, u32)> = Vec::new();
    let root = (agf.cnt_root.get(), agf.cnt_level.get());
    let by_len = walk(ctx, ag, TreeKind::Cnt, root, &mut |record| {
        other.push((be32(record, 0), be32(record, 4)));
    });
    if by_start.complete && by_len.complete {
        compare_trees(ctx, ag, &free, other);
        compare(ctx, ag, code::AGF_FREEBLKS, "agf_freeblks", agf.freeblks.get().into(), total);
        compare(
            ctx,
            ag,
            code::AGF_LONGEST,
            "agf_longest",
            agf.longest.get().into(),
            longest.into(),
        );
    }
    for &(start, len) in &free {
        claim_free(group, start, len);
    }
    group.free_blocks = total;
    claim_tree(ctx, group, RmapOwner::AG, &by_start);
    claim_tree(ctx, group, RmapOwner::AG, &by_len);
    (by_start.blocks.len() + by_len.blocks.len()).saturating_sub(2) as u64
}

fn free_record(ctx: &Ctx<'_>, ag: AgNo, start: u32, len: u32) -> bool {
    let fine = inside(ctx, ag, start, len);
    if !fine {
        let message = format!("free extent {start}+{len} is not inside the group");
        ctx.find(code::FREE_RECORD, Place::ag(ag), message);
    }
    fine
}

/// Do the blocks lie in the group, behind its headers?
fn inside(ctx: &Ctx<'_>, ag: AgNo, start: u32, len: u32) -> bool {
    let geo = &ctx.geo;
    let end = u64::from(start) + u64::from(len);
    len > 0 && start >= geo.ag_header_blocks() && end <= u64::from(geo.ag_len(ag))
}

fn compare_trees(ctx: &Ctx<'_>, ag: AgNo, by_start: &[(u32, u32)], mut by_len: Vec<(u32, u32)>) {
    by_len.sort_unstable();
    if by_start == by_len {
        return;
    }
    let differs = by_start.iter().zip(&by_len).find(|(a, b)| a != b);
    let first = differs.map_or(String::new(), |((a, len), (b, other))| {
        format!(", first {a}+{len} against {b}+{other}")
    });
    let (a, b) = (by_start.len(), by_len.len());
    let message = format!("{a} free extents by start and {b} by length differ{first}");
    ctx.find(code::FREE_TREES, Place::ag(ag), message);
}

/// Checks the reverse mappings. Returns the number of blocks below the root.
fn reverse_mappings(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf, group: &mut Group) -> u64 {
    let mut rmaps: Vec<Rmap> = Vec::new();
    let root = (agf.rmap_root.get(), agf.rmap_level.get());
    let walked = walk(ctx, ag, TreeKind::Rmap, root, &mut |record| {
        let mut rmap = Rmap {
            start: AgBlock(be32(record, 0)),
            len: be32(record, 4),
            owner: RmapOwner(be64(record, 8)),
            ..Rmap::default()
        };
        rmap.set_packed_offset(be64(record, 16));
        if let Some(problem) = rmap_problem(ctx, ag, &rmap, be64(record, 16)) {
            let message = format!("reverse mapping of {}: {problem}", Claim::of(&rmap).describe());
            ctx.find(code::RMAP_RECORD, Place::block(ag, rmap.start), message);
        }
        if ctx.reserve(size_of::<Rmap>()) {
            rmaps.push(rmap);
        }
    });
    group.rmaps = rmaps;
    group.rmaps_complete = walked.complete;
    let stored = u64::from(agf.rmap_blocks.get());
    compare(ctx, ag, code::AGF_BLOCKS, "agf_rmap_blocks", stored, walked.blocks.len() as u64);
    claim_tree(ctx, group, RmapOwner::AG, &walked);
    walked.blocks.len().saturating_sub(1) as u64
}

fn rmap_problem(ctx: &Ctx<'_>, ag: AgNo, rmap: &Rmap, offset: u64) -> Option<&'static str> {
    let geo = &ctx.geo;
    let end = u64::from(rmap.start.0) + u64::from(rmap.len);
    if rmap.len == 0 || end > u64::from(geo.ag_len(ag)) {
        return Some("not inside the group");
    }
    let special = RmapOwner::COW.0..=RmapOwner::FS.0;
    if rmap.owner.is_inode() {
        if !geo.ino_valid(Ino(rmap.owner.0)) {
            return Some("no such inode");
        }
        if rmap.unwritten && (rmap.attr || rmap.bmbt) {
            return Some("metadata cannot be unwritten");
        }
    } else if !special.contains(&rmap.owner.0) {
        return Some("no such owner");
    } else if offset != 0 {
        return Some("this owner has no offset");
    }
    (offset != rmap.packed_offset()).then_some("unknown flags")
}

fn reference_counts(ctx: &Ctx<'_>, ag: AgNo, agf: &Agf, group: &mut Group) {
    let (mut shared, mut staged): (Vec<(u32, u32, u32)>, Vec<Claim>) = Default::default();
    let mut end = (false, 0u64);
    let root = (agf.refcount_root.get(), agf.refcount_level.get());
    let walked = walk(ctx, ag, TreeKind::Refcount, root, &mut |record| {
        let (raw, len, count) = (be32(record, 0), be32(record, 4), be32(record, 8));
        let (start, cow) = (raw & !REFCOUNT_COW_FLAG, raw & REFCOUNT_COW_FLAG != 0);
        let place = Place::block(ag, AgBlock(start));
        let right = if cow { count == 1 } else { count >= 2 };
        let overlaps = end.0 == cow && u64::from(start) < end.1;
        if !inside(ctx, ag, start, len) || !right || overlaps {
            let message = format!("blocks {start}+{len} with {count} owners, staged: {cow}");
            ctx.find(code::REFCOUNT_RECORD, place, message);
            return;
        }
        end = (cow, u64::from(start) + u64::from(len));
        if cow {
            let message = format!("{len} blocks are still staged for copy on write");
            ctx.find(code::COW_LEFT, place, message);
            staged.push(Claim::special(RmapOwner::COW, start, len));
        } else if ctx.reserve(12) {
            shared.push((start, len, count));
        }
    });
    group.shared = shared;
    group.shared_complete = walked.complete;
    group.claims.get_mut().extend(staged);
    let stored = u64::from(agf.refcount_blocks.get());
    compare(ctx, ag, code::AGF_BLOCKS, "agf_refcount_blocks", stored, walked.blocks.len() as u64);
    claim_tree(ctx, group, RmapOwner::REFC, &walked);
}
