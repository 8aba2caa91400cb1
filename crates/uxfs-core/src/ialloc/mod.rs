//! Allocating and freeing inodes.
//!
//! 1. The inode tree holds every chunk. The free-inode tree holds exactly the chunks with a free
//!    inode, with the same record.
//! 2. Each change updates the AGI's totals and the superblock's counters.
//! 3. An inode is allocated only if both its chunk's record and its own bytes say that it is free.

mod chunk;
mod trees;

use uxfs_format::btree::InodeChunk;
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::inode::{Flags2, ForkFormat, InodeCore};
use uxfs_format::{AgIno, AgNo, Check, Ino, Place, inode};

use crate::btree::{Cursor, Env, FinoTree, InoTree};
use crate::error::{Error, Result};
use crate::inode::{self as icache, InodeState};
use crate::mount::Counters;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Most blocks that allocating an inode may take: a chunk, and growth of the inode trees.
pub(crate) fn blocks(fs: &Mount) -> u64 {
    u64::from(fs.geo.chunk_blocks()) + 2 * 5
}

/// Allocates an inode near `parent` or, for a directory, in the next group in turn. The inode is
/// locked in the transaction, with empty forks and the fields of `core`.
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub(crate) fn alloc(tx: &mut Tx<'_>, parent: Ino, core: InodeCore) -> Result<InodeSlot> {
    let fs = tx.fs();
    let count = fs.geo.ag_count;
    let own = fs.geo.ino_ag(parent);
    let first = if core.is_dir() { AgNo(fs.next_dir_group()) } else { own };
    // First try groups that also have space for the inode's data, then all groups.
    for may_be_tight in [false, true] {
        for step in 0..count {
            let ag = AgNo((first.0 + step) % count);
            let held = tx.holds_ag(ag);
            if !tx.lock_ag(ag)? {
                continue;
            }
            if let Some(ino) = alloc_in(tx, ag, parent, may_be_tight)? {
                return join(tx, ino, core);
            }
            if !held {
                tx.unlock_ag(ag);
            }
        }
    }
    Err(Error::NoSpace)
}

fn alloc_in(tx: &mut Tx<'_>, ag: AgNo, parent: Ino, may_be_tight: bool) -> Result<Option<Ino>> {
    let geo = &tx.fs().geo;
    let agf = tx.agf(ag);
    // A nearly full group keeps its space for the files that it has.
    let tight = agf.freeblks.get() < geo.ag_len(ag) / 64 + 2 * geo.chunk_blocks();
    if tight && !may_be_tight {
        return Ok(None);
    }
    let same = geo.ino_ag(parent) == ag;
    let near = if same { geo.ino_agino(parent) } else { AgIno(0) };
    let chunk = match find_free(tx, ag, near)? {
        Some(chunk) => chunk,
        None => match chunk::create(tx, ag, near)? {
            Some(chunk) => chunk,
            None => return Ok(None),
        },
    };
    check(tx, ag, &chunk)?;
    let usable = chunk.free & chunk.present();
    if usable == 0 {
        return Err(record_damaged(
            tx,
            ag,
            &chunk,
            Check::Counter,
            "has no free inode, against its tree",
        ));
    }
    let bit = usable.trailing_zeros();
    let taken =
        InodeChunk { free: chunk.free & !(1 << bit), freecount: chunk.freecount - 1, ..chunk };
    update(tx, ag, &chunk, &taken)?;
    tx.edit_agi(ag, |agi| agi.freecount.set(agi.freecount.get().saturating_sub(1)));
    tx.count(Counters { ifree: -1, ..Counters::default() });
    tx.ag_mut(ag).last_chunk = Some(chunk.start);
    Ok(Some(tx.fs().geo.ino(ag, AgIno(chunk.start.0 + bit))))
}

/// Finds a chunk with a free inode: the chunk of `near`, the chunk of the last allocation, or the
/// nearest one.
fn find_free(tx: &Tx<'_>, ag: AgNo, near: AgIno) -> Result<Option<InodeChunk>> {
    if tx.agi(ag).freecount.get() == 0 {
        return Ok(None);
    }
    let env = Env::Tx(tx);
    let hint = tx.ag(ag).last_chunk;
    if !tx.fs().geo.has_finobt() {
        return scan(tx, ag, hint.unwrap_or(AgIno(0)));
    }
    let tree = FinoTree::new(ag);
    if let Some(hint) = hint {
        let found = Cursor::<FinoTree>::seek(env, &tree, &hint.0)?.rec(env, &tree);
        if let Some(chunk) = found.filter(|c| c.start == hint) {
            return Ok(Some(chunk));
        }
    }
    if let Some(cursor) = Cursor::<FinoTree>::seek_le(env, &tree, &near.0)? {
        return Ok(cursor.rec(env, &tree));
    }
    Ok(Cursor::<FinoTree>::first(env, &tree)?.rec(env, &tree))
}

/// For volumes without a free-inode tree: finds the first chunk with a free inode, starting at
/// `from` and wrapping around.
fn scan(tx: &Tx<'_>, ag: AgNo, from: AgIno) -> Result<Option<InodeChunk>> {
    let (env, tree) = (Env::Tx(tx), InoTree::new(ag));
    for start in [from.0, 0] {
        let mut cursor = Cursor::<InoTree>::seek(env, &tree, &start)?;
        while let Some(chunk) = cursor.rec(env, &tree) {
            if chunk.freecount > 0 {
                return Ok(Some(chunk));
            }
            if !cursor.next(env, &tree)? {
                break;
            }
        }
    }
    Ok(None)
}

fn record_damaged(tx: &Tx<'_>, ag: AgNo, chunk: &InodeChunk, check: Check, detail: &str) -> Error {
    let block = tx.fs().geo.agino_block(chunk.start);
    let problem = format!("record of inode {} {detail}", chunk.start);
    Error::corrupt("inobt record", Place::Ag(ag, block), check, problem)
}

/// Fails if a chunk's record contradicts itself, or the chunk lies outside the group.
fn check(tx: &Tx<'_>, ag: AgNo, chunk: &InodeChunk) -> Result<()> {
    let geo = &tx.fs().geo;
    let last = AgIno(chunk.start.0.saturating_add(CHUNK_INODES - 1));
    let inside = [chunk.start, last].map(|i| geo.agblock_valid(ag, geo.agino_block(i)));
    if inside != [true; 2] || !chunk.start.0.is_multiple_of(geo.inodes_per_block().min(64)) {
        return Err(record_damaged(tx, ag, chunk, Check::Range, "lies where no chunk can lie"));
    }
    let present = chunk.present();
    if present.count_ones() != chunk.inodes().into()
        || (chunk.free & present).count_ones() != chunk.freecount.into()
    {
        return Err(record_damaged(
            tx,
            ag,
            chunk,
            Check::Counter,
            "counts other inodes than it marks",
        ));
    }
    Ok(())
}

/// Replaces a chunk's record in both trees.
fn update(tx: &mut Tx<'_>, ag: AgNo, old: &InodeChunk, new: &InodeChunk) -> Result<()> {
    let tree = InoTree::new(ag);
    let mut cursor = Cursor::<InoTree>::seek(Env::Tx(tx), &tree, &old.start.0)?;
    if cursor.rec(Env::Tx(tx), &tree) != Some(*old) {
        return Err(record_damaged(
            tx,
            ag,
            old,
            Check::CrossReference,
            "differs between the inode trees",
        ));
    }
    cursor.update(tx, &tree, new)?;
    if !tx.fs().geo.has_finobt() {
        return Ok(());
    }
    let tree = FinoTree::new(ag);
    let mut cursor = Cursor::<FinoTree>::seek(Env::Tx(tx), &tree, &old.start.0)?;
    let found = cursor.rec(Env::Tx(tx), &tree).filter(|c| c.start == old.start);
    if found != (old.freecount > 0).then_some(*old) {
        return Err(record_damaged(
            tx,
            ag,
            old,
            Check::CrossReference,
            "differs between the inode trees",
        ));
    }
    match (found, new.freecount > 0) {
        (Some(_), true) => cursor.update(tx, &tree, new),
        (Some(_), false) => cursor.delete(tx, &tree),
        (None, true) => cursor.insert(tx, &tree, new),
        (None, false) => Ok(()),
    }
}

/// Adds the newly allocated inode to the transaction.
fn join(tx: &mut Tx<'_>, ino: Ino, core: InodeCore) -> Result<InodeSlot> {
    let fs = tx.fs();
    let mut flags2 = core.flags2;
    flags2.set(Flags2::BIGTIME, fs.geo.has_bigtime());
    flags2.set(Flags2::NREXT64, fs.geo.has_nrext64());
    let core = InodeCore {
        flags2,
        generation: fs.numbers.next(),
        next_unlinked: AgIno::NULL,
        changecount: 0,
        ..core
    };
    if tx.has_inode(ino) {
        let problem = "is in use by what asks for a new one, against its chunk's record";
        return Err(Error::corrupt("inode", Place::Inode(ino), Check::State, problem));
    }
    if fs.inodes.is_free_in_memory(ino)? {
        return Ok(tx.join_new(InodeState::new(ino, core, &fs.geo)));
    }
    let (buf, offset) = icache::read_cluster(fs, ino)?;
    let (named, mode) = {
        let cluster = buf.read();
        let raw = cluster.get(offset..).unwrap_or_default();
        (inode::has_magic(raw), inode::MODE.get(raw))
    };
    if !named || mode != 0 {
        let problem = format!("is free by its chunk's record, but has mode {mode:#o}");
        return Err(Error::corrupt("inode", Place::Inode(ino), Check::State, problem));
    }
    Ok(tx.join_new(InodeState::new(ino, core, &fs.geo)))
}

/// Frees an inode whose forks are empty, and its chunk if that was the last inode in use there.
///
/// # Errors
/// A damaged structure on the way.
pub(crate) fn free(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let geo = std::sync::Arc::clone(&tx.fs().geo);
    let ino = tx.inode(slot).ino;
    let (ag, agino) = (geo.ino_ag(ino), geo.ino_agino(ino));
    debug_assert!(tx.holds_ag(ag), "the caller has locked the inode's group");
    let old = tx.inode(slot).core.clone();
    if old.nblocks != 0 {
        let problem = format!("still counts {} blocks when it is freed", old.nblocks);
        return Err(tx.inode(slot).corrupt(Check::Counter, problem));
    }
    *tx.core_mut(slot) = InodeCore {
        format: ForkFormat::Extents,
        aformat: ForkFormat::Extents,
        generation: old.generation.wrapping_add(1),
        next_unlinked: AgIno::NULL,
        changecount: old.changecount,
        lsn: old.lsn,
        flags2: old.flags2 & (Flags2::BIGTIME | Flags2::NREXT64),
        ..InodeCore::default()
    };
    tx.literal_mut(slot, uxfs_format::inode::Fork::Data, geo.literal_len()).fill(0);
    let chunk = {
        let (env, tree) = (Env::Tx(&*tx), InoTree::new(ag));
        let found = Cursor::<InoTree>::seek_le(env, &tree, &agino.0)?;
        found.and_then(|c| c.rec(env, &tree)).filter(|c| agino.0 - c.start.0 < 64)
    };
    let Some(chunk) = chunk else {
        let problem = "has no chunk in the inode tree";
        return Err(Error::corrupt("inode", Place::Inode(ino), Check::Missing, problem));
    };
    check(tx, ag, &chunk)?;
    let bit = 1u64 << (agino.0 - chunk.start.0);
    if chunk.free & bit != 0 {
        return Err(record_damaged(tx, ag, &chunk, Check::State, "says an inode in use is free"));
    }
    let freed = InodeChunk { free: chunk.free | bit, freecount: chunk.freecount + 1, ..chunk };
    update(tx, ag, &chunk, &freed)?;
    tx.edit_agi(ag, |agi| agi.freecount.set(agi.freecount.get() + 1));
    tx.count(Counters { ifree: 1, ..Counters::default() });
    if freed.freecount == freed.inodes() && geo.inodes_per_block() <= 64 {
        chunk::remove(tx, ag, &freed)?;
    }
    Ok(())
}
