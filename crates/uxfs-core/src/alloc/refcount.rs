//! Reference counts: which runs of blocks have more than one owner.
//!
//! 1. A run with one owner has no record; one with more has, with their number.
//! 2. Neighbouring runs with the same number are one record.

use uxfs_format::btree::Refcount;
use uxfs_format::{AgBlock, AgNo};

use super::freelist;
use crate::btree::{Cursor, Env, RefcountTree, Tree};
use crate::error::Result;
use crate::tx::Tx;

/// Records of shared runs that touch or adjoin `start..end`.
fn touching(tx: &Tx<'_>, ag: AgNo, start: u32, end: u32) -> Result<Vec<Refcount>> {
    let (env, tree) = (Env::Tx(tx), RefcountTree::new(ag));
    let mut found = Vec::new();
    let mut cursor = match Cursor::<RefcountTree>::seek_le(env, &tree, &start)? {
        Some(cursor) => cursor,
        None => Cursor::<RefcountTree>::first(env, &tree)?,
    };
    // The record before may end where the range starts.
    cursor.back(env, &tree)?;
    while let Some(rec) = cursor.rec(env, &tree) {
        if rec.cow || rec.start.0 > end {
            break;
        }
        if u64::from(rec.start.0) + u64::from(rec.len) > tx.fs().geo.ag_len(ag).into()
            || rec.count < 2
        {
            let problem = format!("{} owners of blocks {}+{}", rec.count, rec.start, rec.len);
            return Err(tx.ag(ag).headers().agf.corrupt(problem));
        }
        if rec.start.0 + rec.len >= start {
            found.push(rec);
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok(found)
}

/// Takes one owner from each of `len` blocks, and gives the runs that have none left.
pub(super) fn decrease(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Vec<(AgBlock, u32)>> {
    let (from, to) = (start.0, start.0 + len);
    let old = touching(tx, ag, from, to)?;
    let mut new: Vec<Refcount> = Vec::with_capacity(old.len() + 2);
    let mut put = |start: u32, end: u32, count: u32| {
        if start >= end || count < 2 {
            return;
        }
        match new.last_mut() {
            Some(last) if last.count == count && last.start.0 + last.len == start => {
                last.len += end - start;
            }
            _ => new.push(Refcount { start: AgBlock(start), len: end - start, count, cow: false }),
        }
    };
    let mut freed = Vec::new();
    let mut at = from;
    for rec in &old {
        let (rec_start, rec_end) = (rec.start.0, rec.start.0 + rec.len);
        let (shared, shared_end) = (rec_start.clamp(from, to), rec_end.clamp(from, to));
        put(rec_start, rec_end.min(from), rec.count);
        if shared < shared_end {
            if at < shared {
                freed.push((AgBlock(at), shared - at));
            }
            put(shared, shared_end, rec.count - 1);
            at = shared_end;
        }
        put(rec_start.max(to), rec_end, rec.count);
    }
    if at < to {
        freed.push((AgBlock(at), to - at));
    }
    if old == new {
        return Ok(freed);
    }
    let tree = RefcountTree::new(ag);
    for rec in old.iter().filter(|r| !new.contains(r)) {
        freelist::fix(tx, ag)?;
        let cursor = Cursor::seek(Env::Tx(tx), &tree, &RefcountTree::key(rec))?;
        cursor.delete(tx, &tree)?;
    }
    for rec in new.iter().filter(|r| !old.contains(r)) {
        freelist::fix(tx, ag)?;
        let cursor = Cursor::seek(Env::Tx(tx), &tree, &RefcountTree::key(rec))?;
        cursor.insert(tx, &tree, rec)?;
    }
    Ok(freed)
}

/// The first run of blocks in `start..start + len` that has more than one owner.
pub(crate) fn shared_run(
    tx: &Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let (from, to) = (start.0, start.0 + len);
    let hit = touching(tx, ag, from, to)?.into_iter().find_map(|rec| {
        let (first, end) = (rec.start.0.max(from), (rec.start.0 + rec.len).min(to));
        (first < end).then(|| (AgBlock(first), end - first))
    });
    Ok(hit)
}
