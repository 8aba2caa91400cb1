//! The block form: one block holds the whole directory.

use smallvec::SmallVec;
use uxfs_format::dir::block::{self, TAIL_LEN, Tail};
use uxfs_format::dir::data::Item;
use uxfs_format::dir::sf::{self, SfEntry};
use uxfs_format::dir::{self, FIRST, entry_len, leaf as leaf_format};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Ino, da};

use super::form::{Hit, New, Slots, put};
use super::{data, short};
use crate::buf::BufRef;
use crate::dabuf;
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// The position of the leaf entries in the block.
pub(super) fn slots(buf: &BufRef) -> Slots {
    let tail = Tail::of(&buf.read());
    Slots { start: tail.leaf_start(buf.len()), count: tail.count }
}

/// Inserts a name. Returns `false` if it does not fit.
pub(super) fn insert(tx: &mut Tx<'_>, buf: &BufRef, new: New<'_>) -> bool {
    let len = entry_len(new.name.len());
    let mut plan = block::plan_insert(&buf.read(), new.hash, len);
    if plan.is_none() && compact(tx, buf, len) {
        plan = block::plan_insert(&buf.read(), new.hash, len);
    }
    let Some(plan) = plan else { return false };
    data::apply_insert(tx, buf, &plan.data, new);
    let start = plan.tail.leaf_start(buf.len());
    let (first, last) = (plan.spot.first, plan.spot.last);
    let address = dir::address(plan.data.at as u64);
    let range = start + first * da::ENTRY_LEN..start + (last + 1) * da::ENTRY_LEN;
    plan.spot.apply(&mut tx.edit(buf, range), new.hash, address);
    set_tail(tx, buf, plan.tail);
    true
}

fn set_tail(tx: &mut Tx<'_>, buf: &BufRef, tail: Tail) {
    put(tx, buf, buf.len() - TAIL_LEN, &tail.encode());
}

/// Removes the stale leaf entries if that makes space for an entry of `len` bytes.
fn compact(tx: &mut Tx<'_>, buf: &BufRef, len: usize) -> bool {
    let plan = {
        let block = buf.read();
        if Tail::of(&block).stale == 0 {
            return false;
        }
        block::plan_compact(&block)
    };
    if usize::from(plan.data.room()) < len {
        return false;
    }
    let start = plan.tail.leaf_start(buf.len());
    data::apply(tx, buf, &plan.data);
    put(tx, buf, start, &plan.entries);
    set_tail(tx, buf, plan.tail);
    true
}

/// Removes an entry, and converts the directory to short form if the rest fits.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, buf: &BufRef, hit: &Hit) -> Result<()> {
    let tail = Tail::of(&buf.read());
    let start = tail.leaf_start(buf.len());
    data::remove(tx, buf, hit.at, start)?;
    put(tx, buf, start + hit.index * da::ENTRY_LEN + 4, &[0; 4]);
    set_tail(tx, buf, Tail { stale: tail.stale + 1, ..tail });
    to_short(tx, slot, buf)
}

/// The block's content in short form, if it takes at most `room` bytes.
fn short_form(block: &[u8], room: usize) -> Option<sf::Bytes> {
    let tail = Tail::of(block);
    let live = (tail.count - tail.stale).checked_sub(2)?;
    if sf::header_len(false) + live * sf::sf_entry_len(1, false) > room
        || live > usize::from(u8::MAX)
    {
        return None;
    }
    let mut parent = Ino::NULL;
    let mut entries: SmallVec<[SfEntry<'_>; 40]> = SmallVec::new();
    for item in dir::data::items(block, tail.leaf_start(block.len())) {
        let Item::Entry(entry) = item else { continue };
        if entry.at >= FIRST {
            let offset = u16::try_from(entry.at).ok()?;
            let (name, ftype, ino) = (entry.name, entry.ftype, entry.ino);
            entries.push(SfEntry { at: 0, offset, name, ftype, ino });
        } else if entry.name == b".." {
            parent = entry.ino;
        }
    }
    let wide = sf::is_wide(parent) || entries.iter().any(|entry| sf::is_wide(entry.ino));
    let names: usize = entries.iter().map(|e| sf::sf_entry_len(e.name.len(), wide)).sum();
    let fits = sf::header_len(wide) + names <= room && !parent.is_null();
    fits.then(|| sf::build(parent, entries.iter().copied()))
}

/// Converts the directory to short form if its content fits.
fn to_short(tx: &mut Tx<'_>, slot: InodeSlot, buf: &BufRef) -> Result<()> {
    let room = tx.inode(slot).fork(Fork::Data).len();
    let Some(bytes) = short_form(&buf.read(), room) else { return Ok(()) };
    dabuf::shrink(tx, slot, Fork::Data, FileBlock(0), buf)?;
    let core = &tx.inode(slot).core;
    if core.nextents != 0 || core.format != ForkFormat::Extents {
        let problem = format!("{} extents after a directory's only block", core.nextents);
        return Err(tx.inode(slot).corrupt(Check::Count, problem));
    }
    short::write(tx, slot, &bytes);
    Ok(())
}

/// Converts the block to a data block and a leaf with its leaf entries.
pub(super) fn to_leaf(tx: &mut Tx<'_>, slot: InodeSlot, buf: &BufRef) -> Result<()> {
    let at = tx.fs().geo.dir_leaf_start();
    let leaf = dabuf::grow(tx, slot, Fork::Data, at, BufKind::DirLeaf1)?;
    let (tail, entries, plan) = {
        let block = buf.read();
        let tail = Tail::of(&block);
        let start = tail.leaf_start(block.len());
        let entries = block[start..block.len() - TAIL_LEN].to_vec();
        let len = block.len() - start;
        (tail, entries, dir::data::plan_remove(&block, start, start, len))
    };
    tx.set_kind(buf, BufKind::DirData);
    tx.set(buf, dir::MAGIC, dir::data::MAGIC);
    data::apply(tx, buf, &plan);
    {
        let mut raw = tx.edit_all(&leaf);
        da::MAGIC.set(&mut raw, da::DIR_LEAF1_MAGIC);
        raw[da::ENTRIES..da::ENTRIES + entries.len()].copy_from_slice(&entries);
        let len = raw.len();
        leaf_format::best_count_at(len).set(&mut raw, 1);
        leaf_format::best_at(len, 1, 0).set(&mut raw, plan.room());
    }
    super::form::set_counts(tx, &leaf, tail.count, tail.stale);
    Ok(())
}

/// Converts a directory in leaf form with a single data block to block form, and on to short form
/// if its content fits.
pub(super) fn from_leaf(tx: &mut Tx<'_>, slot: InodeSlot, leaf: &BufRef) -> Result<()> {
    let fs = tx.fs();
    let buf = data::read(fs, tx.inode(slot), 0)?;
    let entries = super::leaf::live_entries(leaf);
    let tail = Tail { count: entries.len() / da::ENTRY_LEN, stale: 0 };
    let start = tail.leaf_start(buf.len());
    let plan = {
        let block = buf.read();
        let Some(last) = dir::data::free_before(&block, block.len()) else { return Ok(()) };
        let first = usize::from(last.at);
        if first > start {
            return Ok(());
        }
        let rest = dir::data::Free::between(first, start);
        let added = (rest.len > 0).then_some(rest);
        let best = dir::data::best_after(&block, block.len(), &[last], added.as_slice());
        dir::data::Plan { at: start, added: [added, None], best }
    };
    tx.set_kind(&buf, BufKind::DirBlock);
    tx.set(&buf, dir::MAGIC, block::MAGIC);
    data::apply(tx, &buf, &plan);
    put(tx, &buf, start, &entries);
    set_tail(tx, &buf, tail);
    dabuf::shrink(tx, slot, Fork::Data, fs.geo.dir_leaf_start(), leaf)?;
    to_short(tx, slot, &buf)
}
