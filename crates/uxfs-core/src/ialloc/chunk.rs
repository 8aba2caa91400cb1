//! Allocating and freeing inode chunks, whole or sparse.

use std::sync::Arc;

use uxfs_format::btree::{InodeChunk, RmapOwner};
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::inode::InodeCore;
use uxfs_format::log::Icreate;
use uxfs_format::verify::BufKind;
use uxfs_format::{AgBlock, AgIno, AgNo, Check};

use crate::alloc::{self, Owner, Want};
use crate::btree::{Cursor, Env, FinoTree, InoTree};
use crate::buf::{Piece, Pieces};
use crate::error::Result;
use crate::mount::Counters;
use crate::tx::Tx;

/// Allocates an inode chunk in a locked group, as near to `near` as possible: a whole chunk or,
/// with sparse inodes, a part that fits. Returns `None` if the group has no space, or inodes
/// already take their maximum share.
pub(super) fn create(tx: &mut Tx<'_>, ag: AgNo, near: AgIno) -> Result<Option<InodeChunk>> {
    let geo = Arc::clone(&tx.fs().geo);
    if !tx.fs().inodes_allowed(u64::from(CHUNK_INODES)) {
        return Ok(None);
    }
    let owner = Owner::Special(RmapOwner::INODES);
    let near = geo.agino_block(near);
    let blocks = geo.chunk_blocks();
    // A new record may split the inode trees, each at all levels.
    let agi = tx.agi(ag);
    let levels = agi.level.get() + if geo.has_finobt() { agi.free_level.get() } else { 0 };
    let keep = tx.fs().kept(ag) + levels + 2;
    // Skip busy extents. Where an earlier chunk's freeing is not durable, the log still holds
    // changes to its inodes. Only the cancel record of its blocks keeps recovery from replaying
    // them onto blocks that may never have been written, and a new chunk there would undo the
    // cancel.
    let idle = true;
    let align = geo.inode_align;
    let want = Want { min: blocks, max: blocks, align, near, keep, idle, ..Want::default() };
    if let Some((start, _)) = alloc::alloc_in(tx, ag, &want, owner)? {
        init(tx, ag, start, blocks);
        // A large block holds several chunks.
        let inodes = blocks << geo.inopb_log;
        let mut first = None;
        for at in (0..inodes).step_by(CHUNK_INODES as usize) {
            let chunk = InodeChunk {
                start: AgIno((start.0 << geo.inopb_log) + at),
                holemask: 0,
                count: if geo.has_sparse() { CHUNK_INODES as u8 } else { 0 },
                freecount: CHUNK_INODES as u8,
                free: u64::MAX,
            };
            insert(tx, ag, &chunk)?;
            first.get_or_insert(chunk);
        }
        grow(tx, ag, inodes);
        return Ok(first);
    }
    if geo.sparse_align == 0 {
        return Ok(None);
    }
    let part = geo.sparse_align;
    // The chunk's range must lie inside the group, after its headers and aligned.
    let end = geo.ag_len(ag) / blocks * blocks;
    let within = (geo.inode_align.next_multiple_of(blocks), end);
    let want = Want { min: part, max: part, align: part, within, near, keep, idle };
    let Some((start, _)) = alloc::alloc_in(tx, ag, &want, owner)? else { return Ok(None) };
    let window = start.0 / blocks * blocks;
    init(tx, ag, start, part);
    let (first, inodes) = ((start.0 - window) << geo.inopb_log, part << geo.inopb_log);
    let bits = |from: u32, n: u32| if n >= 64 { u64::MAX } else { ((1u64 << n) - 1) << from };
    let present16 = bits(first / 4, inodes / 4) as u16;
    let new = InodeChunk {
        start: AgIno(window << geo.inopb_log),
        holemask: !present16,
        count: inodes as u8,
        freecount: inodes as u8,
        free: u64::MAX,
    };
    grow(tx, ag, inodes);
    let tree = InoTree::new(ag);
    let old = Cursor::<InoTree>::seek(Env::Tx(tx), &tree, &new.start.0)?
        .rec(Env::Tx(tx), &tree)
        .filter(|c| c.start == new.start);
    let Some(old) = old else {
        insert(tx, ag, &new)?;
        return Ok(Some(new));
    };
    super::check(tx, ag, &old)?;
    if !old.holemask & !new.holemask != 0 {
        return Err(super::record_damaged(
            tx,
            ag,
            &old,
            Check::CrossReference,
            "has inodes in free blocks",
        ));
    }
    let merged = InodeChunk {
        start: old.start,
        holemask: old.holemask & new.holemask,
        count: old.count + new.count,
        freecount: old.freecount + new.freecount,
        free: old.free,
    };
    super::update(tx, ag, &old, &merged)?;
    Ok(Some(merged))
}

fn grow(tx: &mut Tx<'_>, ag: AgNo, inodes: u32) {
    tx.edit_agi(ag, |agi| {
        agi.count.set(agi.count.get() + inodes);
        agi.freecount.set(agi.freecount.get() + inodes);
    });
    let inodes = i64::from(inodes);
    tx.count(Counters { icount: inodes, ifree: inodes, ..Counters::default() });
}

fn insert(tx: &mut Tx<'_>, ag: AgNo, chunk: &InodeChunk) -> Result<()> {
    let tree = InoTree::new(ag);
    let cursor = Cursor::<InoTree>::seek(Env::Tx(tx), &tree, &chunk.start.0)?;
    cursor.insert(tx, &tree, chunk)?;
    tx.edit_agi(ag, |agi| agi.newino.set(chunk.start.0));
    if tx.fs().geo.has_finobt() {
        let tree = FinoTree::new(ag);
        let cursor = Cursor::<FinoTree>::seek(Env::Tx(tx), &tree, &chunk.start.0)?;
        cursor.insert(tx, &tree, chunk)?;
    }
    Ok(())
}

/// Fills new blocks with free inodes.
fn init(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, blocks: u32) {
    let geo = Arc::clone(&tx.fs().geo);
    let generation = tx.fs().numbers.next();
    let step = geo.cluster_blocks().min(blocks);
    for at in (0..blocks).step_by(step as usize) {
        let block = start.plus(at);
        let piece = Piece { daddr: geo.ag_daddr(ag, block), len: step << geo.block_log };
        let buf = tx.make_buf(Pieces::from_buf([piece]), BufKind::InodeCluster);
        let mut bytes = tx.edit_all(&buf);
        let size = geo.inode_size as usize;
        for (i, raw) in bytes.chunks_exact_mut(size).enumerate() {
            let agino = AgIno((block.0 << geo.inopb_log) + i as u32);
            let ino = geo.ino(ag, agino);
            InodeCore::encode_free(raw, ino, &geo.meta_uuid, generation);
            // The cache may hold an older inode with this number.
            tx.fs().inodes.forget(ino);
        }
    }
    tx.note_chunk(Icreate {
        ag,
        agbno: start,
        count: blocks << geo.inopb_log,
        isize: geo.inode_size,
        length: blocks,
        generation,
    });
    let first = AgIno(start.0 << geo.inopb_log);
    tx.admit_inodes(geo.ino(ag, first), blocks << geo.inopb_log);
}

/// Frees a chunk that has no inode in use.
pub(super) fn remove(tx: &mut Tx<'_>, ag: AgNo, chunk: &InodeChunk) -> Result<()> {
    let geo = Arc::clone(&tx.fs().geo);
    let tree = InoTree::new(ag);
    Cursor::<InoTree>::seek(Env::Tx(tx), &tree, &chunk.start.0)?.delete(tx, &tree)?;
    if geo.has_finobt() {
        let tree = FinoTree::new(ag);
        Cursor::<FinoTree>::seek(Env::Tx(tx), &tree, &chunk.start.0)?.delete(tx, &tree)?;
    }
    let count = u32::from(chunk.inodes());
    tx.edit_agi(ag, |agi| {
        agi.count.set(agi.count.get().saturating_sub(count));
        agi.freecount.set(agi.freecount.get().saturating_sub(count));
        agi.newino.set(u32::MAX);
    });
    let change = -i64::from(count);
    tx.count(Counters { icount: change, ifree: change, ..Counters::default() });
    tx.ag_mut(ag).last_chunk = None;
    // Each run of present inodes is a run of blocks.
    let present = chunk.present();
    let per_block = geo.inodes_per_block();
    let first = geo.agino_block(chunk.start);
    let mut at = 0;
    while at < geo.chunk_blocks() {
        let here = |b: u32| present >> (b * per_block) & 1 != 0;
        if !here(at) {
            at += 1;
            continue;
        }
        let run = (at..geo.chunk_blocks()).take_while(|b| here(*b)).count() as u32;
        let cluster = geo.cluster_blocks().min(run);
        for block in (at..at + run).step_by(cluster as usize) {
            let len = (cluster as usize) << geo.block_log;
            tx.forget(geo.ag_daddr(ag, first.plus(block)), len);
        }
        alloc::free_later(tx, ag, first.plus(at), run, RmapOwner::INODES);
        at += run;
    }
    tx.forget_inodes(geo.ino(ag, chunk.start), CHUNK_INODES);
    Ok(())
}
