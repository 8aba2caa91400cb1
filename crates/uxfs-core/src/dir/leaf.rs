//! The leaf form: data blocks, and one leaf that holds all entries by hash and the largest free space
//! of each data block.

use uxfs_format::Check;
use uxfs_format::da;
use uxfs_format::dir::leaf::{self, NO_BLOCK, best_at};
use uxfs_format::dir::{self, entry_len, free};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;

use super::form::{Hit, New, Slots, put, set_counts};
use super::{block, data};
use crate::buf::BufRef;
use crate::dabuf;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// The position of the leaf entries.
pub(super) fn slots(leaf: &BufRef) -> Slots {
    Slots { start: da::ENTRIES, count: da::count(&leaf.read()) }
}

/// The leaf entries that are not stale.
pub(super) fn live_entries(leaf: &BufRef) -> Vec<u8> {
    let block = leaf.read();
    let end = da::ENTRIES + da::count(&block) * da::ENTRY_LEN;
    block[da::ENTRIES..end]
        .chunks_exact(da::ENTRY_LEN)
        .filter(|entry| leaf::address(entry, 0) != 0)
        .flatten()
        .copied()
        .collect()
}

/// Inserts an entry into a leaf that has a free slot: a stale one, or one after the last entry.
pub(super) fn insert_entry(tx: &mut Tx<'_>, leaf: &BufRef, hash: u32, address: u32) {
    let (count, stale, spot) = {
        let block = leaf.read();
        let (count, stale) = (da::count(&block), leaf::stale(&block));
        (count, stale, leaf::spot(&block[da::ENTRIES..], count, stale, hash))
    };
    let range = |slot: usize| da::ENTRIES + slot * da::ENTRY_LEN;
    spot.apply(&mut tx.edit(leaf, range(spot.first)..range(spot.last + 1)), hash, address);
    if spot.reuses {
        set_counts(tx, leaf, count, stale - 1);
    } else {
        set_counts(tx, leaf, count + 1, stale);
    }
}

/// Marks the entry in slot `index` stale.
pub(super) fn remove_entry(tx: &mut Tx<'_>, leaf: &BufRef, index: usize) {
    let (count, stale) = {
        let block = leaf.read();
        (da::count(&block), leaf::stale(&block))
    };
    put(tx, leaf, da::ENTRIES + index * da::ENTRY_LEN + 4, &[0; 4]);
    set_counts(tx, leaf, count, stale + 1);
}

/// Removes the stale entries of a leaf.
pub(super) fn compact(tx: &mut Tx<'_>, leaf: &BufRef) {
    let entries = live_entries(leaf);
    put(tx, leaf, da::ENTRIES, &entries);
    set_counts(tx, leaf, entries.len() / da::ENTRY_LEN, 0);
}

/// The data block for a new entry.
struct Target {
    db: usize,
    /// The block does not exist yet.
    fresh: bool,
}

/// Returns the first data block with space for `len` bytes, otherwise the first index at which a
/// new block can be added.
fn target(block: &[u8], len: usize) -> Target {
    let count = leaf::best_count(block);
    let room = leaf::rooms(&block[leaf::bests(block.len(), count)]);
    let fits = |room: u16| room != NO_BLOCK && usize::from(room) >= len;
    if let Some(db) = room.clone().position(fits) {
        return Target { db, fresh: false };
    }
    let hole = room.clone().position(|room| room == NO_BLOCK);
    Target { db: hole.unwrap_or(count), fresh: true }
}

/// Inserts a name. Returns `false` if the leaf has no space for it.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    leaf: &BufRef,
    new: New<'_>,
) -> Result<bool> {
    let (target, count, stale, bests) = {
        let block = leaf.read();
        let target = target(&block, entry_len(new.name.len()));
        (target, da::count(&block), leaf::stale(&block), leaf::best_count(&block))
    };
    let bests_after = bests.max(target.db + 1);
    let room = leaf::leaf1_capacity(leaf.len(), bests_after);
    if count + usize::from(stale == 0) > room {
        if count - stale + 1 > room {
            return Ok(false);
        }
        compact(tx, leaf);
    }
    let buf = match target.fresh {
        true => data::grow(tx, slot, target.db as u64)?,
        false => data::read(tx.fs(), tx.inode(slot), target.db as u64)?,
    };
    let (at, left) = data::insert(tx, &buf, new)?;
    if bests_after != bests {
        resize_bests(tx, leaf, bests, bests_after);
    }
    tx.set(leaf, best_at(leaf.len(), bests_after, target.db), left);
    let place = (target.db * leaf.len() + at) as u64;
    insert_entry(tx, leaf, new.hash, dir::address(place));
    Ok(true)
}

/// Changes the number of data blocks in the leaf's list of free space from `before` to `after`. New
/// elements stand for missing blocks.
fn resize_bests(tx: &mut Tx<'_>, leaf: &BufRef, before: usize, after: usize) {
    let len = leaf.len();
    let old = leaf::bests(len, before).start;
    let first = leaf::bests(len, after).start;
    let mut raw = tx.edit(leaf, first.min(old)..len);
    let at = |offset: usize| offset - first.min(old);
    if after > before {
        raw.copy_within(at(old)..at(len - 4), at(first));
        raw[at(first) + 2 * before..at(len - 4)].fill(0xff);
    } else {
        raw.copy_within(at(old)..at(old) + 2 * after, at(first));
    }
    let end = raw.len();
    leaf::best_count_at(end).set(&mut raw, after as u32);
}

/// Removes an entry. Frees a data block that becomes empty, and converts the directory to block
/// form if it fits.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, leaf: &BufRef, hit: &Hit) -> Result<()> {
    let len = leaf.len();
    let bests = leaf::best_count(&leaf.read());
    let Some(db) = usize::try_from(hit.db).ok().filter(|db| *db < bests) else {
        return Err(leaf.corrupt(
            Check::FreeSpace,
            format!("has no free-space entry for data block {}", hit.db),
        ));
    };
    let mut room = data::remove(tx, &hit.data, hit.at, len)?;
    remove_entry(tx, leaf, hit.index);
    if db != 0 && data::is_empty(room, len) && data::may_shrink(tx, slot, hit.db)? {
        data::shrink(tx, slot, hit.db, &hit.data)?;
        room = NO_BLOCK;
    }
    tx.set(leaf, best_at(len, bests, db), room);
    if room == NO_BLOCK {
        trim_bests(tx, leaf);
    }
    maybe_block(tx, slot, leaf)
}

/// Converts the directory to block form if one data block is left and everything fits.
pub(super) fn maybe_block(tx: &mut Tx<'_>, slot: InodeSlot, leaf: &BufRef) -> Result<()> {
    if tx.inode(slot).core.size == u64::from(tx.fs().geo.dir_block_size()) {
        block::from_leaf(tx, slot, leaf)?;
    }
    Ok(())
}

/// Removes missing data blocks from the end of the list of free space.
fn trim_bests(tx: &mut Tx<'_>, leaf: &BufRef) {
    let (before, after) = {
        let block = leaf.read();
        let count = leaf::best_count(&block);
        let room = |db: &usize| best_at(block.len(), count, *db).get(&block);
        let last = (0..count).rev().find(|db| room(db) != NO_BLOCK);
        (count, last.map_or(1, |db| db + 1))
    };
    if after != before {
        resize_bests(tx, leaf, before, after);
    }
}

/// Converts the leaf to node form, and its list of free space to a block of the free index.
pub(super) fn to_node(tx: &mut Tx<'_>, slot: InodeSlot, leaf: &BufRef) -> Result<()> {
    let geo = &tx.fs().geo;
    let bests = {
        let block = leaf.read();
        block[leaf::bests(block.len(), leaf::best_count(&block))].to_vec()
    };
    let count = bests.len() / 2;
    if count > free::capacity(leaf.len()) {
        return Err(leaf
            .corrupt(Check::FreeSpace, format!("has free-space entries for {count} data blocks")));
    }
    let used = leaf::rooms(&bests).filter(|room| *room != NO_BLOCK).count();
    let index = dabuf::grow(tx, slot, Fork::Data, geo.dir_free_start(), BufKind::DirFree)?;
    {
        let mut raw = tx.edit_all(&index);
        dir::MAGIC.set(&mut raw, free::MAGIC);
        free::NVALID.set(&mut raw, count as u32);
        free::NUSED.set(&mut raw, used as u32);
        raw[free::slots(0..count)].copy_from_slice(&bests);
    }
    tx.set_kind(leaf, BufKind::DirLeafN);
    tx.set(leaf, da::MAGIC, da::DIR_LEAFN_MAGIC);
    let first = leaf.len() - 4 - bests.len();
    tx.edit(leaf, first..leaf.len()).fill(0);
    Ok(())
}

/// Converts the only leaf of a directory in node form and the only block of its free index to the
/// leaf of leaf form, if everything fits with some space to spare.
pub(super) fn from_node(tx: &mut Tx<'_>, slot: InodeSlot, leaf: &BufRef) -> Result<()> {
    let fs = tx.fs();
    let len = leaf.len();
    let (live, chained) = {
        let block = leaf.read();
        (da::count(&block) - leaf::stale(&block), da::forw(&block) | da::back(&block))
    };
    let blocks = tx.inode(slot).core.size >> (fs.geo.block_log + fs.geo.dir_blklog);
    if chained != 0 || blocks > free::capacity(len) as u64 {
        return Ok(());
    }
    let at = fs.geo.dir_free_start();
    let index = dabuf::read(fs, tx.inode(slot), Fork::Data, at, &[BufKind::DirFree])?;
    let bests = {
        let block = index.read();
        block[free::slots(0..free::nvalid(&block))].to_vec()
    };
    let count = bests.len() / 2;
    if count == 0 || live > leaf::leaf1_capacity(len, count) / 8 * 7 {
        return Ok(());
    }
    // The fork must not map any block after the free index.
    let end = crate::bmap::last_before(
        fs,
        tx.inode(slot),
        Fork::Data,
        uxfs_format::FileBlock((1 << 54) - 1),
    )?;
    if end != at.plus(fs.geo.dir_block_fsbs()) {
        return Ok(());
    }
    compact(tx, leaf);
    tx.set_kind(leaf, BufKind::DirLeaf1);
    tx.set(leaf, da::MAGIC, da::DIR_LEAF1_MAGIC);
    put(tx, leaf, leaf::bests(len, count).start, &bests);
    tx.set(leaf, leaf::best_count_at(len), count as u32);
    dabuf::shrink(tx, slot, Fork::Data, at, &index)?;
    trim_bests(tx, leaf);
    maybe_block(tx, slot, leaf)
}
