//! The extent records of a fork one by one, in extents form or in a btree.

use uxfs_format::extent::RECORD_LEN;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::{Check, Extent, FileBlock};

use super::btree::Bmbt;
use super::convert;
use crate::btree::{Cursor, Env};
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// The records of a fork in extents form.
pub(super) struct List<'a>(&'a [u8]);

impl<'a> List<'a> {
    pub(super) fn of(inode: &'a InodeState, fork: Fork) -> Self {
        let count = inode.core.fork_extents(fork) as usize;
        let bytes = inode.fork(fork);
        // The inode core's check ensures that the records fit.
        Self(&bytes[..(count.saturating_mul(RECORD_LEN)).min(bytes.len())])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len() / RECORD_LEN
    }

    pub(super) fn get(&self, index: usize) -> Option<Extent> {
        let raw = self.0.get(index * RECORD_LEN..(index + 1) * RECORD_LEN)?;
        Some(Extent::unpack(raw.try_into().ok()?))
    }

    /// Number of records that start before `at`.
    pub(super) fn starting_before(&self, at: FileBlock) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|e| e.offset < at) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Returns the first extent that ends after `at`: the one that maps `at`, otherwise the next one.
///
/// # Errors
/// A damaged structure on the way.
pub fn at_or_after(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    at: FileBlock,
) -> Result<Option<Extent>> {
    let found = match inode.core.fork_format(fork) {
        ForkFormat::Extents => {
            let list = List::of(inode, fork);
            let index = list.starting_before(FileBlock(at.0.saturating_add(1)));
            match index.checked_sub(1).and_then(|i| list.get(i)).filter(|e| e.end() > at) {
                Some(extent) => Some(extent),
                None => list.get(index),
            }
        }
        ForkFormat::Btree => {
            check_root(inode, fork)?;
            let (env, tree) = (Env::Inode(fs, inode), Bmbt::reading(fork));
            let mut cursor = match Cursor::<Bmbt>::seek_le(env, &tree, &at.0)? {
                Some(cursor) => cursor,
                None => Cursor::<Bmbt>::first(env, &tree)?,
            };
            match cursor.rec(env, &tree) {
                Some(extent) if extent.end() > at => Some(extent),
                _ if cursor.next(env, &tree)? => cursor.rec(env, &tree),
                _ => None,
            }
        }
        ForkFormat::Local | ForkFormat::Dev => None,
    };
    match checked(fs, inode, fork, found)? {
        Some(e) if e.end() <= at => Err(out_of_order(inode, fork, &e)),
        found => Ok(found),
    }
}

/// Returns the last extent that starts before `at`.
///
/// # Errors
/// A damaged structure on the way.
pub fn before(fs: &Mount, inode: &InodeState, fork: Fork, at: FileBlock) -> Result<Option<Extent>> {
    let Some(last) = at.0.checked_sub(1) else { return Ok(None) };
    let found = match inode.core.fork_format(fork) {
        ForkFormat::Extents => {
            let list = List::of(inode, fork);
            list.starting_before(at).checked_sub(1).and_then(|i| list.get(i))
        }
        ForkFormat::Btree => {
            check_root(inode, fork)?;
            let (env, tree) = (Env::Inode(fs, inode), Bmbt::reading(fork));
            match Cursor::<Bmbt>::seek_le(env, &tree, &last)? {
                Some(cursor) => cursor.rec(env, &tree),
                None => None,
            }
        }
        ForkFormat::Local | ForkFormat::Dev => None,
    };
    match checked(fs, inode, fork, found)? {
        Some(e) if e.offset >= at => Err(out_of_order(inode, fork, &e)),
        found => Ok(found),
    }
}

fn out_of_order(inode: &InodeState, fork: Fork, extent: &Extent) -> Error {
    inode.corrupt(Check::Order, format!("{fork:?} extent at {} is out of order", extent.offset))
}

fn check_root(inode: &InodeState, fork: Fork) -> Result<()> {
    match inode.fork(fork).first_chunk::<2>() {
        Some([0, level]) if (1..=8).contains(level) => Ok(()),
        _ => {
            Err(inode
                .corrupt(Check::Format, format!("root of the {fork:?} fork's btree is damaged")))
        }
    }
}

/// Does an extent lie inside one group, or for realtime data on the realtime device?
fn lies_inside(fs: &Mount, inode: &InodeState, fork: Fork, extent: &Extent) -> bool {
    if fork == Fork::Data && inode.core.is_realtime() {
        return extent.start.0.checked_add(extent.len).is_some_and(|end| end <= fs.geo.rt_blocks);
    }
    fs.geo.fsb_valid(extent.start, extent.len)
}

/// Returns the extent if it lies where extents may lie, otherwise an error.
fn checked(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    extent: Option<Extent>,
) -> Result<Option<Extent>> {
    match extent {
        Some(e) if e.len == 0 || !lies_inside(fs, inode, fork, &e) => {
            let problem = format!(
                "{fork:?} extent at {} maps blocks {}+{}, outside the volume",
                e.offset, e.start, e.len
            );
            Err(inode.corrupt(Check::Range, problem))
        }
        other => Ok(other),
    }
}

/// Adds a record that neither overlaps nor adjoins another one.
pub(super) fn insert_rec(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, rec: &Extent) -> Result<()> {
    let inode = tx.inode(slot);
    let count = inode.core.fork_extents(fork);
    if count >= inode.core.max_extents(fork) {
        return Err(Error::FileTooBig);
    }
    let format = inode.core.fork_format(fork);
    let room = inode.fork(fork).len() / RECORD_LEN;
    if format == ForkFormat::Extents && count as usize >= room {
        let room = inode.fork(fork).len();
        convert::to_btree(tx, slot, fork, room)?;
        return insert_rec(tx, slot, fork, rec);
    }
    match format {
        ForkFormat::Extents => {
            let index = List::of(inode, fork).starting_before(rec.offset);
            let (at, end) = (index * RECORD_LEN, count as usize * RECORD_LEN);
            let bytes = tx.fork_mut(slot, fork);
            bytes.copy_within(at..end, at + RECORD_LEN);
            bytes[at..at + RECORD_LEN].copy_from_slice(&rec.pack());
        }
        ForkFormat::Btree => {
            let tree = Bmbt::new(slot, fork);
            let cursor = Cursor::seek(Env::Tx(tx), &tree, &rec.offset.0)?;
            cursor.insert(tx, &tree, rec)?;
        }
        _ => {
            return Err(tx
                .inode(slot)
                .corrupt(Check::Format, format!("an extent in a {format:?} fork")));
        }
    }
    tx.core_mut(slot).set_fork_extents(fork, count + 1);
    Ok(())
}

/// Replaces a record by one that keeps the order.
pub(super) fn update_rec(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    old: &Extent,
    new: &Extent,
) -> Result<()> {
    let inode = tx.inode(slot);
    if inode.core.fork_format(fork) == ForkFormat::Btree {
        let tree = Bmbt::new(slot, fork);
        let mut cursor = Cursor::<Bmbt>::seek(Env::Tx(tx), &tree, &old.offset.0)?;
        if cursor.rec(Env::Tx(tx), &tree) != Some(*old) {
            return Err(vanished(tx, slot, old));
        }
        return cursor.update(tx, &tree, new);
    }
    let list = List::of(inode, fork);
    let index = list.starting_before(old.offset);
    if list.get(index) != Some(*old) {
        return Err(vanished(tx, slot, old));
    }
    let at = index * RECORD_LEN;
    tx.fork_mut(slot, fork)[at..at + RECORD_LEN].copy_from_slice(&new.pack());
    Ok(())
}

/// Deletes a record.
pub(super) fn delete_rec(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, old: &Extent) -> Result<()> {
    let inode = tx.inode(slot);
    let count = inode.core.fork_extents(fork);
    let format = inode.core.fork_format(fork);
    if format == ForkFormat::Btree {
        let tree = Bmbt::new(slot, fork);
        let cursor = Cursor::<Bmbt>::seek(Env::Tx(tx), &tree, &old.offset.0)?;
        if cursor.rec(Env::Tx(tx), &tree) != Some(*old) {
            return Err(vanished(tx, slot, old));
        }
        cursor.delete(tx, &tree)?;
        tx.core_mut(slot).set_fork_extents(fork, count.saturating_sub(1));
        return convert::to_extents_if_fitting(tx, slot, fork);
    }
    let list = List::of(inode, fork);
    let index = list.starting_before(old.offset);
    if list.get(index) != Some(*old) {
        return Err(vanished(tx, slot, old));
    }
    let (at, end) = (index * RECORD_LEN, list.len() * RECORD_LEN);
    let bytes = tx.fork_mut(slot, fork);
    bytes.copy_within(at + RECORD_LEN..end, at);
    bytes[end - RECORD_LEN..end].fill(0);
    tx.core_mut(slot).set_fork_extents(fork, count - 1);
    Ok(())
}

fn vanished(tx: &Tx<'_>, slot: InodeSlot, old: &Extent) -> Error {
    tx.inode(slot)
        .corrupt(Check::Missing, format!("the extent at {} is not where it was found", old.offset))
}
