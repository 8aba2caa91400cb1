//! Data blocks: reading entries by address, applying planned changes, adding and removing blocks.

use uxfs_format::dir::data::{self, BESTFREE, DataEntry, Plan};
use uxfs_format::dir::{FileType, offset};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Geometry};

use super::form::{Hit, New, put};
use crate::buf::BufRef;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};
use crate::{bmap, dabuf};

/// Offset of data block `db` in the fork.
pub(super) fn file_block(geo: &Geometry, db: u64) -> FileBlock {
    FileBlock(db << geo.dir_blklog)
}

/// Reads data block `db` of a directory in leaf or node form.
pub(super) fn read(fs: &Mount, inode: &InodeState, db: u64) -> Result<BufRef> {
    dabuf::read(fs, inode, Fork::Data, file_block(&fs.geo, db), &[BufKind::DirData])
}

/// Returns the entry at `address` if it has the name sought. `index` is the index in `leaf` of the
/// leaf entry with that address.
pub(super) fn probe(
    fs: &Mount,
    inode: &InodeState,
    leaf: &BufRef,
    address: u32,
    name: &[u8],
    index: usize,
) -> Result<Option<Hit>> {
    let size = u64::from(fs.geo.dir_block_size());
    let (db, at) = (offset(address) / size, (offset(address) % size) as usize);
    let in_block = leaf.kind() == BufKind::DirBlock;
    if in_block && db != 0 {
        return Err(leaf.corrupt(Check::Pointer, format!("leaf entry {index} leads to block {db}")));
    }
    let found = |buf: &BufRef| {
        let block = buf.read();
        let entry = fs.geo.dir.entry_at(&block, at, block.len())?;
        let ftype = FileType::from_raw(entry.ftype).unwrap_or_default();
        let found = fs.geo.naming.same(entry.name, name);
        Some(found.then_some((entry.ino, ftype, entry.name == name)))
    };
    let other = if in_block { None } else { Some(read(fs, inode, db)?) };
    let buf = other.as_ref().unwrap_or(leaf);
    match found(buf) {
        None => Err(buf
            .corrupt(Check::Pointer, format!("a leaf entry leads to offset {at}: no entry there"))),
        Some(None) => Ok(None),
        Some(Some((ino, ftype, exact))) => {
            Ok(Some(Hit { ino, ftype, db, data: buf.clone(), at, index, exact }))
        }
    }
}

/// Applies a plan: writes the new free areas and the list of the longest ones.
pub(super) fn apply(tx: &mut Tx<'_>, buf: &BufRef, plan: &Plan) {
    for free in plan.added.iter().flatten() {
        put(tx, buf, free.at.into(), &free.header());
        tx.set(buf, free.tag_at(), free.at);
    }
    let best = data::encode_best(&plan.best);
    if buf.read()[BESTFREE..BESTFREE + best.len()] != best {
        put(tx, buf, BESTFREE, &best);
    }
}

/// Applies a plan for a new entry.
pub(super) fn apply_insert(tx: &mut Tx<'_>, buf: &BufRef, plan: &Plan, new: New<'_>) {
    apply(tx, buf, plan);
    let (ino, ftype) = (new.ino, new.ftype as u8);
    let entry = DataEntry { at: plan.at, ino, name: new.name, ftype };
    entry.put(&mut tx.edit(buf, plan.at..plan.at + entry.space()));
}

/// Inserts a name into a data block whose index says that it has space. Returns the entry's offset
/// in the block and the longest free area that is left.
pub(super) fn insert(tx: &mut Tx<'_>, buf: &BufRef, new: New<'_>) -> Result<(usize, u16)> {
    let len = uxfs_format::dir::entry_len(new.name.len());
    let plan = {
        let block = buf.read();
        data::plan_insert(&block, block.len(), len)
    };
    let Some(plan) = plan else {
        return Err(buf.corrupt(
            Check::FreeSpace,
            format!("has no space for {len} bytes, although its index says so"),
        ));
    };
    apply_insert(tx, buf, &plan, new);
    Ok((plan.at, plan.room()))
}

/// Removes an entry from a data block whose data ends at `end`. Returns its longest free area.
pub(super) fn remove(tx: &mut Tx<'_>, buf: &BufRef, at: usize, end: usize) -> Result<u16> {
    let plan = {
        let block = buf.read();
        data::entry_at(&block, at, end).map(|e| data::plan_remove(&block, end, at, e.space()))
    };
    let Some(plan) = plan else {
        return Err(buf.corrupt(Check::Pointer, format!("no entry at offset {at}")));
    };
    apply(tx, buf, &plan);
    Ok(plan.room())
}

/// Allocates data block `db`, entirely free, and extends the directory's size to include it.
pub(super) fn grow(tx: &mut Tx<'_>, slot: InodeSlot, db: u64) -> Result<BufRef> {
    let geo = &tx.fs().geo;
    let at = file_block(geo, db);
    if at.0 + geo.dir_block_fsbs() > geo.dir_leaf_start().0 {
        return Err(Error::FileTooBig);
    }
    let buf = dabuf::grow(tx, slot, Fork::Data, at, BufKind::DirData)?;
    data::format(&mut tx.edit_all(&buf), data::MAGIC);
    let end = (db + 1) * u64::from(geo.dir_block_size());
    if tx.inode(slot).core.size < end {
        tx.core_mut(slot).size = end;
    }
    Ok(buf)
}

/// May the empty data block `db` be freed? Freeing one in the midst of an extent can take a block for the
/// extent btree. A directory on a full volume keeps the block, so that entries can still be removed.
pub(super) fn may_shrink(tx: &Tx<'_>, slot: InodeSlot, db: u64) -> Result<bool> {
    let fs = tx.fs();
    let at = file_block(&fs.geo, db);
    let end = at.plus(fs.geo.dir_block_fsbs());
    let Some(extent) = bmap::lookup(fs, tx.inode(slot), Fork::Data, at)? else { return Ok(true) };
    Ok(tx.blocks_left() > 0 || extent.offset == at || extent.end() <= end)
}

/// Frees the empty data block `db`. If it was the last one, the directory's size shrinks.
pub(super) fn shrink(tx: &mut Tx<'_>, slot: InodeSlot, db: u64, buf: &BufRef) -> Result<()> {
    let fs = tx.fs();
    let at = file_block(&fs.geo, db);
    dabuf::shrink(tx, slot, Fork::Data, at, buf)?;
    if tx.inode(slot).core.size == (db + 1) * u64::from(fs.geo.dir_block_size()) {
        let leaf = fs.geo.dir_leaf_start();
        let end = bmap::last_before(fs, tx.inode(slot), Fork::Data, leaf)?;
        if end.0 == 0 || end > at || !end.0.is_multiple_of(fs.geo.dir_block_fsbs()) {
            let problem = format!("directory's data ends at block {end} without the one at {at}");
            return Err(tx.inode(slot).corrupt(Check::Missing, problem));
        }
        tx.core_mut(slot).size = end.0 << fs.geo.block_log;
    }
    Ok(())
}

/// Is `room` the free space of an empty data block of `len` bytes?
pub(super) fn is_empty(room: u16, len: usize) -> bool {
    usize::from(room) == len - uxfs_format::dir::DATA_START
}
