//! Deferred operations as recovery completes them: the ordinary operations, continued from the middle.
//!
//! Each function works in one group, whose lock the transaction holds.

use uxfs_format::btree::{Refcount, Rmap, RmapOwner};
use uxfs_format::inode::Fork;
use uxfs_format::log::{RefcountOp, RmapOp};
use uxfs_format::{AgBlock, AgNo, Extent, Ino};

use super::refcount::{self, Change};
use super::{Owner, free_extent, freelist, rmap};
use crate::btree::{Cursor, Env, RefcountTree, RmapKey, RmapTree, Tree};
use crate::error::Result;
use crate::mount::Counters;
use crate::tx::Tx;

fn give_back(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    freelist::fix(tx, ag)?;
    free_extent(tx, ag, start, len)?;
    tx.count(Counters { fdblocks: len.into(), ..Counters::default() });
    Ok(())
}

/// Frees blocks and removes the owner that their reverse mapping names. One mapping must cover the
/// whole range, or none may overlap it.
pub(crate) fn free_of_anyone(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    freelist::fix(tx, ag)?;
    if tx.fs().geo.has_rmap() {
        let mut owners = Vec::new();
        let (low, high) = (RmapKey::at(start), RmapKey::last_at(start.plus(len - 1)));
        let tree = RmapTree::new(ag);
        Cursor::<RmapTree>::overlapping(Env::Tx(tx), &tree, &low, &high, &mut |rec| {
            owners.push(*rec);
            owners.len() < 2
        })?;
        match owners[..] {
            [] => {}
            [rec] if rec.start <= start && rec.start.0 + rec.len >= start.0 + len => {
                let moved = if rec.offset_moves() { start.0 - rec.start.0 } else { 0 };
                let offset = rec.offset + u64::from(moved);
                rmap::remove(tx, ag, &Rmap { start, len, offset, ..rec })?;
            }
            _ => {
                let problem = format!("blocks {start}+{len} to be freed have owners");
                return Err(tx.ag(ag).headers().agf.corrupt(problem));
            }
        }
    }
    give_back(tx, ag, start, len)
}

/// Applies one change to a reverse mapping.
pub(crate) fn rmap(tx: &mut Tx<'_>, ag: AgNo, op: RmapOp, what: &Rmap) -> Result<()> {
    freelist::fix(tx, ag)?;
    match op {
        RmapOp::Map | RmapOp::MapShared | RmapOp::Alloc => rmap::add(tx, ag, what),
        RmapOp::Unmap | RmapOp::UnmapShared | RmapOp::Free => rmap::remove(tx, ag, what),
        RmapOp::Convert | RmapOp::ConvertShared => rmap::convert(tx, ag, what),
    }
}

/// Locks the group of a fork's extent. Returns its reverse mapping if the volume keeps reverse
/// mappings.
fn of_fork(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) -> Result<Option<(AgNo, Rmap)>> {
    let geo = &tx.fs().geo;
    if !geo.has_rmap() {
        return Ok(None);
    }
    let (ag, start) = (geo.fsb_ag(extent.start), geo.fsb_agblock(extent.start));
    let owner = Owner::Fork { ino, fork, offset: extent.offset, unwritten: extent.unwritten };
    // No other thread uses the volume, so groups can be locked in any order.
    tx.lock_ag(ag)?;
    freelist::fix(tx, ag)?;
    // An extent's length always fits into 21 bits.
    Ok(Some((ag, owner.rmap(start, extent.len as u32))))
}

/// Records that a fork maps an extent.
pub(crate) fn map_fork(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) -> Result<()> {
    match of_fork(tx, ino, fork, extent)? {
        Some((ag, what)) => rmap::add(tx, ag, &what),
        None => Ok(()),
    }
}

/// Removes the record that a fork maps an extent.
pub(crate) fn unmap_fork(tx: &mut Tx<'_>, ino: Ino, fork: Fork, extent: &Extent) -> Result<()> {
    match of_fork(tx, ino, fork, extent)? {
        Some((ag, what)) => rmap::remove(tx, ag, &what),
        None => Ok(()),
    }
}

/// Changes reference counts.
pub(crate) fn refcount(
    tx: &mut Tx<'_>,
    ag: AgNo,
    op: RefcountOp,
    start: AgBlock,
    len: u32,
) -> Result<()> {
    match op {
        RefcountOp::Increase => adjust(tx, ag, start, len, Change::More),
        RefcountOp::Decrease => adjust(tx, ag, start, len, Change::Less),
        RefcountOp::AllocCow => stage(tx, ag, start, len),
        RefcountOp::FreeCow => unstage(tx, ag, start, len),
    }
}

/// Staging extents (copy on write) that touch or adjoin `from..to`.
fn staged(tx: &Tx<'_>, ag: AgNo, from: u32, to: u32) -> Result<Vec<Refcount>> {
    let (env, tree) = (Env::Tx(tx), RefcountTree::new(ag));
    let key =
        RefcountTree::key(&Refcount { start: AgBlock(from), cow: true, ..Default::default() });
    let mut cursor = match Cursor::<RefcountTree>::seek_le(env, &tree, &key)? {
        Some(cursor) => cursor,
        None => Cursor::<RefcountTree>::first(env, &tree)?,
    };
    // The record before may end where the range starts.
    cursor.back(env, &tree)?;
    let mut found = Vec::new();
    while let Some(rec) = cursor.rec(env, &tree) {
        if rec.cow && rec.start.0 > to {
            break;
        }
        let Some(end) = rec.start.0.checked_add(rec.len) else {
            let problem = format!("reference counts of blocks {}+{}", rec.start, rec.len);
            return Err(tx.ag(ag).headers().agf.corrupt(problem));
        };
        if rec.cow && end >= from {
            found.push(rec);
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok(found)
}

/// Appends a staging extent, merged with the last one if contiguous.
fn push(runs: &mut Vec<Refcount>, start: u32, end: u32) {
    if start >= end {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.start.0 + last.len == start => last.len += end - start,
        _ => {
            let start = AgBlock(start);
            runs.push(Refcount { start, len: end - start.0, count: 1, cow: true });
        }
    }
}

/// Adds or removes one owner of each block. Blocks without owners are freed.
fn adjust(
    tx: &mut Tx<'_>,
    ag: AgNo,
    mut start: AgBlock,
    mut len: u32,
    change: Change,
) -> Result<()> {
    while len > 0 {
        freelist::fix(tx, ag)?;
        let done = refcount::adjust(tx, ag, start, len, change)?;
        for (start, len) in done.free {
            give_back(tx, ag, start, len)?;
        }
        (start, len) = (start.plus(done.len), len - done.len);
    }
    Ok(())
}

/// Records blocks as CoW staging blocks.
fn stage(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    freelist::fix(tx, ag)?;
    let (from, to) = (start.0, start.0 + len);
    let old = staged(tx, ag, from, to)?;
    let mut new = Vec::new();
    for rec in old.iter().filter(|rec| rec.start.0 < from) {
        push(&mut new, rec.start.0, rec.start.0 + rec.len);
    }
    push(&mut new, from, to);
    for rec in old.iter().filter(|rec| rec.start.0 >= from) {
        push(&mut new, rec.start.0, rec.start.0 + rec.len);
    }
    refcount::replace(tx, ag, &old, &new)
}

/// Removes the staging records of blocks. The blocks stay allocated.
fn unstage(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    freelist::fix(tx, ag)?;
    let (from, to) = (start.0, start.0 + len);
    let old = staged(tx, ag, from, to)?;
    let whole = old.iter().any(|rec| rec.start.0 <= from && rec.start.0 + rec.len >= to);
    if !whole {
        let problem = format!("blocks {start}+{len} are not staged for copy on write");
        return Err(tx.ag(ag).headers().agf.corrupt(problem));
    }
    let mut new = Vec::new();
    for rec in &old {
        push(&mut new, rec.start.0, (rec.start.0 + rec.len).min(from));
        push(&mut new, rec.start.0.max(to), rec.start.0 + rec.len);
    }
    refcount::replace(tx, ag, &old, &new)
}

/// Frees one staging extent of a group and returns its length, or `None` if there is none.
pub(crate) fn free_staged(tx: &mut Tx<'_>, ag: AgNo) -> Result<Option<u32>> {
    let (env, tree) = (Env::Tx(tx), RefcountTree::new(ag));
    // Staging records come after all others.
    let last = match Cursor::<RefcountTree>::last(env, &tree)? {
        Some(cursor) => cursor.rec(env, &tree).filter(|rec| rec.cow),
        None => None,
    };
    let Some(rec) = last else { return Ok(None) };
    unstage(tx, ag, rec.start, rec.len)?;
    if tx.fs().geo.has_rmap() {
        let owned = Owner::Special(RmapOwner::COW).rmap(rec.start, rec.len);
        freelist::fix(tx, ag)?;
        rmap::remove(tx, ag, &owned)?;
    }
    give_back(tx, ag, rec.start, rec.len)?;
    Ok(Some(rec.len))
}
