//! Reference counts: which extents have more than one owner.
//!
//! 1. An extent with one owner has no record. An extent with several owners has a record with their
//!    number.
//! 2. Neighbouring extents with equal counts are one record.
//! 3. A count that has reached [`PINNED`] is no longer exact: it never changes again, and the blocks
//!    are never freed.

use uxfs_format::btree::Refcount;
use uxfs_format::{AgBlock, AgNo, Check};

use super::blocks::{alloc_block, free_later};
use super::freelist;
use crate::btree::{AgKind, BlockSource, Cursor, Env, RefcountKind, RefcountTree, Tree};
use crate::error::Result;
use crate::tx::Tx;

/// The highest count. It is never changed again.
const PINNED: u32 = u32::MAX;
/// Most records examined in one step.
const RECORDS_A_STEP: usize = 64;

impl BlockSource for RefcountKind {
    fn take(tx: &mut Tx<'_>, ag: AgNo, near: AgBlock) -> Result<AgBlock> {
        alloc_block(tx, ag, near, Self::OWNER)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        free_later(tx, ag, block, 1, Self::OWNER);
        Ok(())
    }
}

/// A change of the owner count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// One owner more.
    More,
    /// One owner less.
    Less,
}

impl Change {
    /// The count after the change.
    fn of(self, count: u32) -> u32 {
        match (self, count) {
            (_, PINNED) => PINNED,
            (Self::More, count) => count + 1,
            (Self::Less, count) => count.saturating_sub(1),
        }
    }
}

/// The result of a step.
#[derive(Debug)]
pub(super) struct Adjusted {
    /// Number of blocks done, from the first on.
    pub(super) len: u32,
    /// Extents among them that have no owner left.
    pub(super) free: Vec<(AgBlock, u32)>,
}

/// Records of shared extents that touch or adjoin `start..end`, in order, at most `max`.
fn touching(tx: &Tx<'_>, ag: AgNo, start: u32, end: u32, max: usize) -> Result<Vec<Refcount>> {
    let (env, tree) = (Env::Tx(tx), RefcountTree::new(ag));
    let mut found = Vec::new();
    let mut cursor = match Cursor::<RefcountTree>::seek_le(env, &tree, &start)? {
        Some(cursor) => cursor,
        None => Cursor::<RefcountTree>::first(env, &tree)?,
    };
    // The record before may end where the range starts.
    cursor.back(env, &tree)?;
    while let Some(rec) = cursor.rec(env, &tree) {
        if rec.cow || rec.start.0 > end || found.len() == max {
            break;
        }
        if u64::from(rec.start.0) + u64::from(rec.len) > tx.fs().geo.ag_len(ag).into()
            || rec.count < 2
        {
            let problem = format!("{} owners of blocks {}+{}", rec.count, rec.start, rec.len);
            return Err(tx.ag(ag).headers().agf.corrupt(Check::Range, problem));
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

/// Builds records: contiguous extents with equal counts become one.
#[derive(Default)]
struct Runs(Vec<Refcount>);

impl Runs {
    fn put(&mut self, start: u32, end: u32, count: u32) {
        if start >= end || count < 2 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.count == count && last.start.0 + last.len == start => {
                last.len += end - start;
            }
            _ => {
                let start = AgBlock(start);
                self.0.push(Refcount { start, len: end - start.0, count, cow: false });
            }
        }
    }
}

/// Adds or removes one owner of `len` blocks, for as many blocks as one step allows.
pub(super) fn adjust(
    tx: &mut Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
    change: Change,
) -> Result<Adjusted> {
    let (from, mut to) = (start.0, start.0 + len);
    let old = touching(tx, ag, from, to, RECORDS_A_STEP)?;
    if let (Some(last), RECORDS_A_STEP) = (old.last(), old.len()) {
        to = to.min(last.start.0 + last.len);
    }
    let (mut new, mut free) = (Runs::default(), Vec::new());
    let mut owned = |new: &mut Runs, start: u32, end: u32, count: u32| {
        if start < end {
            match change.of(count) {
                0 => free.push((AgBlock(start), end - start)),
                count => new.put(start, end, count),
            }
        }
    };
    let mut at = from;
    for rec in &old {
        let (rec_start, rec_end) = (rec.start.0, rec.start.0 + rec.len);
        let (shared, shared_end) = (rec_start.clamp(from, to), rec_end.clamp(from, to));
        new.put(rec_start, rec_end.min(from), rec.count);
        if shared < shared_end {
            owned(&mut new, at, shared, 1);
            owned(&mut new, shared, shared_end, rec.count);
            at = shared_end;
        } else if rec_start >= to {
            // A record that only adjoins comes after the blocks before it.
            owned(&mut new, at, to, 1);
            at = to;
        }
        new.put(rec_start.max(to), rec_end, rec.count);
    }
    owned(&mut new, at, to, 1);
    replace(tx, ag, &old, &new.0)?;
    Ok(Adjusted { len: to - from, free })
}

/// Replaces neighbouring records.
pub(super) fn replace(tx: &mut Tx<'_>, ag: AgNo, old: &[Refcount], new: &[Refcount]) -> Result<()> {
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
    Ok(())
}

/// The first extent in `start..start + len` that has more than one owner.
pub(crate) fn shared_run(
    tx: &Tx<'_>,
    ag: AgNo,
    start: AgBlock,
    len: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let (from, to) = (start.0, start.0 + len);
    // At most two of the records only adjoin: the one before, and the one that the cursor stepped
    // back to.
    let hit = touching(tx, ag, from, to, 3)?.into_iter().find_map(|rec| {
        let (first, end) = (rec.start.0.max(from), (rec.start.0 + rec.len).min(to));
        (first < end).then(|| (AgBlock(first), end - first))
    });
    Ok(hit)
}

/// The extent around `block` whose blocks have the same count as `block`, if that is above one.
pub(crate) fn shared_at(tx: &Tx<'_>, ag: AgNo, block: AgBlock) -> Result<Option<(AgBlock, u32)>> {
    let all = touching(tx, ag, block.0, block.0 + 1, 3)?;
    let hit = all.into_iter().find(|r| r.start <= block && block.0 < r.start.0 + r.len);
    Ok(hit.map(|rec| (rec.start, rec.len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_reference_count_does_not_change() {
        assert_eq!((Change::More.of(1), Change::Less.of(2), Change::Less.of(1)), (2, 1, 0));
        assert_eq!(Change::More.of(PINNED - 1), PINNED);
        assert_eq!((Change::More.of(PINNED), Change::Less.of(PINNED)), (PINNED, PINNED));
    }

    #[test]
    fn adjacent_runs_with_equal_counts_are_merged() {
        let mut runs = Runs::default();
        for (start, end, count) in [(0, 4, 2), (4, 4, 7), (4, 6, 2), (6, 9, 1), (9, 12, 2)] {
            runs.put(start, end, count);
        }
        let found: Vec<_> = runs.0.iter().map(|r| (r.start.0, r.len, r.count)).collect();
        assert_eq!(found, [(0, 6, 2), (9, 3, 2)]);
    }
}
