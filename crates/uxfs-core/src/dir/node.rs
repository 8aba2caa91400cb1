//! The node form: data blocks, leaves under a tree of nodes, and the free index.

use uxfs_format::dir::leaf::{self as leaf_format, NO_BLOCK};
use uxfs_format::dir::{self, entry_len, free};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Geometry, da};

use super::form::{Hit, New, put, set_counts};
use super::search::search;
use super::{data, leaf};
use crate::buf::BufRef;
use crate::da::{self as tree, Path, Tree};
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::Changed;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Finds a name and the path to its leaf.
pub(super) fn find(
    fs: &Mount,
    inode: &InodeState,
    root: &BufRef,
    name: &[u8],
    hash: u32,
) -> Result<Option<(Hit, Path)>> {
    let mut path = tree::find_leaf_from(fs, inode, Tree::Dir, root.clone(), hash)?;
    let mut other = None;
    // The tree has no more leaves than blocks. In a damaged tree the walk might not end otherwise.
    for _ in 0..inode.core.nblocks.min(fs.geo.dblocks) {
        let slots = leaf::slots(&path.leaf);
        let (hit, more) = search(fs, inode, &path.leaf, slots, name, hash)?;
        if let Some(hit) = hit {
            if hit.exact {
                return Ok(Some((hit, path)));
            }
            other.get_or_insert_with(|| (hit, path.clone()));
        }
        // The next leaf can continue this hash only if this leaf ends with it or with a lower hash.
        if !more || !tree::next_leaf(fs, inode, Tree::Dir, &mut path)? {
            return Ok(other);
        }
    }
    Err(inode.corrupt(Check::Loop, "the directory's leaves form a cycle"))
}

/// Hash of a leaf's last entry, stale or not; 0 if the leaf is empty.
fn last_hash(leaf: &BufRef) -> u32 {
    let block = leaf.read();
    match da::count(&block) {
        0 => 0,
        count => leaf_format::hash(&block[da::ENTRIES..], count - 1),
    }
}

/// Inserts a name.
pub(super) fn insert(tx: &mut Tx<'_>, slot: InodeSlot, root: BufRef, new: New<'_>) -> Result<()> {
    let fs = tx.fs();
    let mut path = tree::find_leaf_from(fs, tx.inode(slot), Tree::Dir, root, new.hash)?;
    let full = {
        let block = path.leaf.read();
        leaf_format::stale(&block) == 0 && da::count(&block) >= da::capacity(block.len())
    };
    if full {
        split(tx, slot, &mut path)?;
        if new.hash > last_hash(&path.leaf) {
            tree::next_leaf(fs, tx.inode(slot), Tree::Dir, &mut path)?;
        }
    }
    let place = insert_data(tx, slot, new)?;
    let before = last_hash(&path.leaf);
    leaf::insert_entry(tx, &path.leaf, new.hash, dir::address(place));
    let after = last_hash(&path.leaf);
    if after != before {
        tree::fix_hash(tx, &path, after);
    }
    Ok(())
}

/// Splits the full leaf at the end of the path.
fn split(tx: &mut Tx<'_>, slot: InodeSlot, path: &mut Path) -> Result<()> {
    let (fresh, at) = tree::new_leaf_after(tx, slot, Tree::Dir, path)?;
    let (half, upper, hashes) = {
        let block = path.leaf.read();
        let count = da::count(&block);
        let half = count / 2;
        let entries = &block[da::ENTRIES..da::ENTRIES + count * da::ENTRY_LEN];
        let hash = |index| leaf_format::hash(entries, index);
        (half, entries[half * da::ENTRY_LEN..].to_vec(), (hash(half - 1), hash(count - 1)))
    };
    put(tx, &fresh, da::ENTRIES, &upper);
    set_counts(tx, &fresh, upper.len() / da::ENTRY_LEN, 0);
    set_counts(tx, &path.leaf, half, 0);
    tree::insert_after(tx, slot, Tree::Dir, path, at, hashes.0, hashes.1)
}

/// A block of the free index, and the slot in it for a data block.
struct Room {
    db: u64,
    index: BufRef,
    slot: usize,
}

/// Offset in the fork of block `number` of the free index.
fn index_block(geo: &Geometry, number: u64) -> FileBlock {
    geo.dir_free_start().plus(number << geo.dir_blklog)
}

/// The index of the free index block for data block `db`, and the slot in it.
fn index_of(geo: &Geometry, db: u64) -> (u64, usize) {
    let capacity = free::capacity(geo.dir_block_size() as usize) as u64;
    (db / capacity, (db % capacity) as usize)
}

fn read_index(fs: &Mount, inode: &InodeState, number: u64) -> Result<Option<BufRef>> {
    let at = index_block(&fs.geo, number);
    let kinds = [BufKind::DirFree];
    let Some(buf) = dabuf::read_opt(fs, inode, Fork::Data, at, &kinds)? else { return Ok(None) };
    let (first, len) = (u64::from(buf.get(free::FIRST_DB)), buf.len());
    if first != number * free::capacity(len) as u64 {
        return Err(
            buf.corrupt(Check::Address, format!("block {number} starts with data block {first}"))
        );
    }
    Ok(Some(buf))
}

/// Finds a data block with space for `len` bytes: the block that had space last time, otherwise the
/// next one after it, wrapping around. If all blocks are full, the entries that then go into a new
/// block pay for the search.
fn find_room(fs: &Mount, inode: &InodeState, len: usize) -> Result<Option<Room>> {
    let size = fs.geo.dir_block_size() as usize;
    let capacity = free::capacity(size);
    let blocks = inode.core.size.div_ceil(size as u64);
    let count = blocks.div_ceil(capacity as u64).max(1);
    let (hint, from) = index_of(&fs.geo, u64::from(inode.hints.room).min(blocks));
    let hint = hint.min(count - 1);
    for turn in 0..=count {
        let number = (hint + turn) % count;
        let Some(index) = read_index(fs, inode, number)? else { continue };
        let range = match turn {
            0 => from..capacity,
            _ if turn == count => 0..from,
            _ => 0..capacity,
        };
        let found = free::find(&index.read(), range.start, range.end, len);
        if let Some(slot) = found {
            let db = number * capacity as u64 + slot as u64;
            return Ok(Some(Room { db, index, slot }));
        }
    }
    Ok(None)
}

/// Inserts a name into an existing or new data block. Returns its offset in the data space.
fn insert_data(tx: &mut Tx<'_>, slot: InodeSlot, new: New<'_>) -> Result<u64> {
    let fs = tx.fs();
    let found = find_room(fs, tx.inode(slot), entry_len(new.name.len()))?;
    let (room, buf) = match found {
        Some(room) => {
            let buf = data::read(fs, tx.inode(slot), room.db)?;
            (room, buf)
        }
        None => grow(tx, slot)?,
    };
    let (at, left) = data::insert(tx, &buf, new)?;
    tx.set(&room.index, free::best_at(room.slot), left);
    let hint = u32::try_from(room.db).unwrap_or(0);
    if tx.inode(slot).hints.room != hint {
        tx.inode_mut(slot, Changed::empty()).hints.room = hint;
    }
    Ok(room.db * u64::from(fs.geo.dir_block_size()) + at as u64)
}

/// Allocates a data block at the first hole or at the end, and its slot in the free index.
fn grow(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<(Room, BufRef)> {
    let fs = tx.fs();
    let at = dabuf::first_unused(tx, slot, Fork::Data, FileBlock(0))?;
    let db = at.0 >> fs.geo.dir_blklog;
    let buf = data::grow(tx, slot, db)?;
    let (number, index_slot) = index_of(&fs.geo, db);
    let index = match read_index(fs, tx.inode(slot), number)? {
        Some(index) => index,
        None => grow_index(tx, slot, number)?,
    };
    let (valid, used, best) = {
        let block = index.read();
        (free::nvalid(&block), free::nused(&block), free::best(&block, index_slot))
    };
    if best != NO_BLOCK {
        return Err(index.corrupt(
            Check::FreeSpace,
            format!("holds free space for data block {db}, which does not exist"),
        ));
    }
    if index_slot >= valid {
        tx.edit(&index, free::slots(valid..index_slot + 1)).fill(0xff);
        tx.set(&index, free::NVALID, index_slot as u32 + 1);
    }
    tx.set(&index, free::NUSED, used as u32 + 1);
    Ok((Room { db, index, slot: index_slot }, buf))
}

fn grow_index(tx: &mut Tx<'_>, slot: InodeSlot, number: u64) -> Result<BufRef> {
    let geo = &tx.fs().geo;
    let at = index_block(geo, number);
    let first = number * free::capacity(geo.dir_block_size() as usize) as u64;
    let Ok(first) = u32::try_from(first) else { return Err(Error::FileTooBig) };
    let index = dabuf::grow(tx, slot, Fork::Data, at, BufKind::DirFree)?;
    tx.set(&index, dir::MAGIC, free::MAGIC);
    tx.set(&index, free::FIRST_DB, first);
    Ok(index)
}

/// Removes an entry. Frees a data block that becomes empty, merges a leaf of few entries with the
/// next leaf, and if one leaf is left converts the directory to leaf form if it fits.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, path: Path, hit: &Hit) -> Result<()> {
    remove_data(tx, slot, hit)?;
    leaf::remove_entry(tx, &path.leaf, hit.index);
    join(tx, slot, path)?;
    let fs = tx.fs();
    let kinds = [BufKind::DaNode, BufKind::DirLeafN];
    let base = fs.geo.dir_leaf_start();
    let root = dabuf::read(fs, tx.inode(slot), Fork::Data, base, &kinds)?;
    if root.kind() == BufKind::DirLeafN {
        leaf::from_node(tx, slot, &root)?;
    }
    Ok(())
}

fn remove_data(tx: &mut Tx<'_>, slot: InodeSlot, hit: &Hit) -> Result<()> {
    let fs = tx.fs();
    let len = hit.data.len();
    let room = data::remove(tx, &hit.data, hit.at, len)?;
    let (number, index_slot) = index_of(&fs.geo, hit.db);
    let Some(index) = read_index(fs, tx.inode(slot), number)? else {
        let problem = format!("no free index block for data block {}", hit.db);
        return Err(tx.inode(slot).corrupt(Check::Missing, problem));
    };
    if free::best(&index.read(), index_slot) == NO_BLOCK {
        return Err(
            index.corrupt(Check::FreeSpace, format!("has no entry for data block {}", hit.db))
        );
    }
    if hit.db == 0 || !data::is_empty(room, len) || !data::may_shrink(tx, slot, hit.db)? {
        tx.set(&index, free::best_at(index_slot), room);
        return Ok(());
    }
    data::shrink(tx, slot, hit.db, &hit.data)?;
    tx.set(&index, free::best_at(index_slot), NO_BLOCK);
    let (used, valid) = {
        let block = index.read();
        let live = (0..free::nvalid(&block)).rev().find(|i| free::best(&block, *i) != NO_BLOCK);
        (free::nused(&block) - 1, live.map_or(0, |last| last + 1))
    };
    if used == 0 {
        let at = index_block(&fs.geo, number);
        return dabuf::shrink(tx, slot, Fork::Data, at, &index);
    }
    tx.set(&index, free::NUSED, used as u32);
    tx.set(&index, free::NVALID, valid as u32);
    Ok(())
}

/// Removes the path's leaf from the tree if it is empty, or moves the next leaf's entries into it
/// if both hold few entries.
fn join(tx: &mut Tx<'_>, slot: InodeSlot, mut path: Path) -> Result<()> {
    let fs = tx.fs();
    let live = |leaf: &BufRef| {
        let block = leaf.read();
        da::count(&block) - leaf_format::stale(&block)
    };
    let capacity = da::capacity(path.leaf.len());
    let own = live(&path.leaf);
    if own > capacity / 4 || tree::is_only_leaf(&path) {
        return Ok(());
    }
    if own == 0 {
        return tree::remove_leaf(tx, slot, Tree::Dir, path);
    }
    let near = path.clone();
    if !tree::next_leaf(fs, tx.inode(slot), Tree::Dir, &mut path)?
        || own + live(&path.leaf) > capacity / 2
    {
        return Ok(());
    }
    let mut entries = leaf::live_entries(&near.leaf);
    entries.extend(leaf::live_entries(&path.leaf));
    put(tx, &near.leaf, da::ENTRIES, &entries);
    set_counts(tx, &near.leaf, entries.len() / da::ENTRY_LEN, 0);
    tree::fix_hash(tx, &near, last_hash(&near.leaf));
    tree::remove_leaf(tx, slot, Tree::Dir, path)
}
