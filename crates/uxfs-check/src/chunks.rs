//! Checks the records of the inode btree (chunks of 64 inodes) and the free-inode btree (the chunks
//! that have free inodes).

use uxfs_format::agi::Agi;
use uxfs_format::btree::{InodeChunk, RmapOwner, TreeKind};
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::{AgIno, AgNo};

use crate::bytes::{be16, be32, be64};
use crate::claim::Claim;
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::{Group, claim_tree, compare, walk};

/// Walks both trees and checks the AGI's counts.
pub(crate) fn check(ctx: &Ctx<'_>, ag: AgNo, agi: &Agi, group: &mut Group) {
    let mut chunks: Vec<InodeChunk> = Vec::new();
    let (mut count, mut free, mut sound) = (0u64, 0u64, true);
    let root = (agi.root.get(), agi.level.get());
    let walked = walk(ctx, ag, TreeKind::Ino, root, &mut |record| {
        let chunk = decode(ctx, record);
        count += u64::from(chunk.count);
        free += u64::from(chunk.freecount);
        let before = chunks.last().map_or(0, |c| u64::from(c.start.0) + u64::from(CHUNK_INODES));
        let problem = if u64::from(chunk.start.0) < before {
            Some("overlaps the previous chunk")
        } else {
            problem(ctx, ag, &chunk, record)
        };
        if let Some(problem) = problem {
            let message = format!("inode chunk {}: {problem}", chunk.start);
            ctx.find(code::INOBT_RECORD, Place::ag(ag), message);
        }
        if inside(ctx, ag, &chunk) && u64::from(chunk.start.0) >= before {
            chunks.push(chunk);
        } else {
            sound = false;
        }
    });
    if walked.complete {
        compare(ctx, ag, code::AGI_COUNT, "agi_count", agi.count.get().into(), count);
        compare(ctx, ag, code::AGI_COUNT, "agi_freecount", agi.freecount.get().into(), free);
    }
    claim_chunks(ctx, &chunks, group);
    claim_tree(ctx, group, RmapOwner::INOBT, &walked);
    group.complete &= sound;
    let stored = u64::from(agi.iblocks.get());
    if ctx.geo.has_inobtcnt() {
        compare(ctx, ag, code::AGI_BLOCKS, "agi_iblocks", stored, walked.blocks.len() as u64);
    }
    if ctx.geo.has_finobt() {
        free_tree(ctx, ag, agi, &chunks, walked.complete && sound, group);
    }
    group.chunks = chunks;
}

/// Checks that the free-inode btree holds the same records as the inode btree, except full chunks.
fn free_tree(
    ctx: &Ctx<'_>,
    ag: AgNo,
    agi: &Agi,
    chunks: &[InodeChunk],
    sound: bool,
    group: &mut Group,
) {
    let mut wanted = chunks.iter().filter(|chunk| chunk.freecount > 0);
    let mut differs = None;
    let root = (agi.free_root.get(), agi.free_level.get());
    let walked = walk(ctx, ag, TreeKind::FreeIno, root, &mut |record| {
        let chunk = decode(ctx, record);
        if wanted.next() != Some(&chunk) && differs.is_none() {
            differs = Some(chunk.start);
        }
    });
    let missing = wanted.next().map(|chunk| chunk.start);
    if let Some(start) = differs.or(missing.filter(|_| walked.complete))
        && sound
    {
        let message = format!("the free-inode btree differs from the inode btree at {start}");
        ctx.find(code::FINOBT, Place::ag(ag), message);
    }
    claim_tree(ctx, group, RmapOwner::INOBT, &walked);
    if ctx.geo.has_inobtcnt() {
        let stored = u64::from(agi.fblocks.get());
        compare(ctx, ag, code::AGI_BLOCKS, "agi_fblocks", stored, walked.blocks.len() as u64);
    }
}

fn decode(ctx: &Ctx<'_>, record: &[u8]) -> InodeChunk {
    let (start, free) = (AgIno(be32(record, 0)), be64(record, 8));
    if ctx.geo.has_sparse() {
        let counts = be16(record, 6);
        let (count, freecount) = ((counts >> 8) as u8, counts as u8);
        return InodeChunk { start, holemask: be16(record, 4), count, freecount, free };
    }
    let freecount = u8::try_from(be32(record, 4)).unwrap_or(u8::MAX);
    InodeChunk { start, holemask: 0, count: 64, freecount, free }
}

/// Does the whole range of the chunk lie inside the group?
fn inside(ctx: &Ctx<'_>, ag: AgNo, chunk: &InodeChunk) -> bool {
    let geo = &ctx.geo;
    let first = geo.agino_block(chunk.start);
    let end = u64::from(first.0) + u64::from(geo.chunk_blocks());
    geo.agblock_valid(ag, first)
        && end <= u64::from(geo.ag_len(ag))
        && chunk.start.0.is_multiple_of(CHUNK_INODES.min(geo.inodes_per_block()))
}

fn problem(ctx: &Ctx<'_>, ag: AgNo, chunk: &InodeChunk, record: &[u8]) -> Option<&'static str> {
    let geo = &ctx.geo;
    if !inside(ctx, ag, chunk) {
        return Some("not inside the group");
    }
    if !geo.agino_block(chunk.start).0.is_multiple_of(geo.inode_align) {
        return Some("not aligned");
    }
    let present = chunk.present();
    if u32::from(chunk.count) != present.count_ones() {
        return Some("the count differs from the inodes present");
    }
    if u32::from(chunk.freecount) != (chunk.free & present).count_ones() {
        return Some("the free count differs from the free inodes");
    }
    if chunk.free | present != u64::MAX {
        return Some("absent inodes are not marked free");
    }
    if present == 0 {
        return Some("no inode is present");
    }
    if geo.has_sparse() && chunk.holemask != 0 {
        let unit = (geo.sparse_align << geo.inopb_log).clamp(4, CHUNK_INODES) / 4;
        let mask = if unit >= 16 { u16::MAX } else { (1 << unit) - 1 };
        for part in (0..16).step_by(unit as usize) {
            let bits = chunk.holemask >> part & mask;
            if bits != 0 && bits != mask {
                return Some("a hole is not a whole allocation unit");
            }
        }
    }
    (!geo.has_sparse() && be32(record, 4) > CHUNK_INODES).then_some("the free count exceeds 64")
}

/// Claims the blocks of chunks. A block that holds several chunks is claimed once.
fn claim_chunks(ctx: &Ctx<'_>, chunks: &[InodeChunk], group: &mut Group) {
    let geo = &ctx.geo;
    let claims = group.claims.get_mut();
    let mut before = None;
    for chunk in chunks {
        let first = geo.agino_block(chunk.start).0;
        if geo.inodes_per_block() >= CHUNK_INODES {
            if before.replace(first) != Some(first) {
                claims.push(Claim::special(RmapOwner::INODES, first, 1));
            }
            continue;
        }
        let present = chunk.present();
        for block in 0..geo.chunk_blocks() {
            let inodes = present >> (block << geo.inopb_log);
            if inodes & ((1 << geo.inodes_per_block()) - 1) != 0 {
                let claim = Claim::special(RmapOwner::INODES, first + block, 1);
                crate::claim::push(claims, claim);
            }
        }
    }
}
