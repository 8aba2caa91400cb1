//! CoW staging blocks, as the reference count btree records them.
//!
//! The kernel allocates staging blocks before it writes to shared data. uxfs makes none; recovery completes
//! and frees those that a kernel left.
//!
//! Each function works in one group, whose lock the transaction holds.

use uxfs_format::btree::{Refcount, RmapOwner};
use uxfs_format::{AgBlock, AgNo, Check};

use super::{Owner, free_now, freelist, refcount};
use crate::btree::{Cursor, Env, RefcountTree, Tree};
use crate::deferred::FreedOwner;
use crate::error::Result;
use crate::tx::Tx;

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
            return Err(tx.ag(ag).headers().agf.corrupt(Check::Range, problem));
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

/// Records blocks as CoW staging blocks.
pub(crate) fn stage(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
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
pub(crate) fn unstage(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    freelist::fix(tx, ag)?;
    let (from, to) = (start.0, start.0 + len);
    let old = staged(tx, ag, from, to)?;
    let whole = old.iter().any(|rec| rec.start.0 <= from && rec.start.0 + rec.len >= to);
    if !whole {
        let problem = format!("blocks {start}+{len} are not staged for copy on write");
        return Err(tx.ag(ag).headers().agf.corrupt(Check::Missing, problem));
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
    let owner = FreedOwner::Known(Owner::Special(RmapOwner::COW));
    free_now(tx, ag, rec.start, rec.len, owner)?;
    Ok(Some(rec.len))
}
