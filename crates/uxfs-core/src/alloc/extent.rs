//! Allocating an extent from a group's free space, and freeing one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uxfs_format::btree::FreeExtent;
use uxfs_format::{AgBlock, AgNo, Check};

use super::freelist;
use crate::btree::Bno;
use crate::btree::{BnoTree, Cnt, CntTree, Cursor, Env};
use crate::busy::Busy;
use crate::error::Result;
use crate::tx::Tx;

/// A request for blocks of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// Fewest blocks that are acceptable.
    pub(crate) min: u32,
    /// Most blocks that are useful.
    pub(crate) max: u32,
    /// The first block must be a multiple of this.
    pub(crate) align: u32,
    /// All blocks must lie from this one on, and before that one.
    pub(crate) within: (u32, u32),
    /// The preferred start.
    pub(crate) near: AgBlock,
    /// Blocks that must remain free in the group.
    pub(crate) keep: u32,
    /// Skip busy extents. Data requires it, because it is written at once, and so do inodes.
    pub(crate) idle: bool,
}

impl Default for Want {
    /// A block anywhere in the group.
    fn default() -> Self {
        let (near, within) = (AgBlock(0), (0, u32::MAX));
        Self { min: 1, max: 1, align: 1, within, near, keep: 0, idle: false }
    }
}

/// Free extents examined on either side of the preferred start.
const NEIGHBOURS: usize = 8;

impl Want {
    /// The usable part of a free extent: start and length. Returns `None` if it is too short.
    /// Blocks in `busy` are skipped.
    fn fit(&self, free: &FreeExtent, busy: &Busy) -> Option<(AgBlock, u32)> {
        let end = free.start.0.saturating_add(free.len).min(self.within.1);
        let start = free.start.max(AgBlock(self.within.0));
        let free = &FreeExtent { start, len: end.saturating_sub(start.0) };
        if free.len < self.min {
            return None;
        }
        if !self.idle || busy.is_empty() {
            return self.fit_in(free);
        }
        let (start, len) = busy.longest_idle(free.start.0, free.len);
        if len == 0 {
            return None;
        }
        self.fit_in(&FreeExtent { start: AgBlock(start), len })
    }

    fn fit_in(&self, free: &FreeExtent) -> Option<(AgBlock, u32)> {
        let end = u64::from(free.start.0) + u64::from(free.len);
        let from = |at: u32| {
            let start = u64::from(at).next_multiple_of(self.align.into());
            let len = end.saturating_sub(start).min(self.max.into());
            (len >= self.min.into()).then_some((AgBlock(start as u32), len as u32))
        };
        let whole = from(free.start.0);
        if self.near > free.start && u64::from(self.near.0) < end {
            let near = from(self.near.0);
            // Prefer the requested start, unless an earlier start yields more blocks.
            if near.map(|n| n.1) >= whole.map(|w| w.1) {
                return near;
            }
        }
        whole
    }
}

/// Takes blocks out of the free space of a group that the transaction has locked. Returns `None` if
/// no extent fits or the group would have too few blocks left.
pub(crate) fn take(tx: &mut Tx<'_>, ag: AgNo, want: &Want) -> Result<Option<(AgBlock, u32)>> {
    debug_assert!(want.min > 0 && want.min <= want.max && want.align > 0);
    let agf = tx.agf(ag);
    let need = freelist::needed(tx, ag);
    let spare = (agf.freeblks.get() + agf.flcount.get()).saturating_sub(need + want.keep);
    if agf.longest.get() < want.min || spare < want.min {
        return Ok(None);
    }
    if !freelist::fix(tx, ag)? {
        return Ok(None);
    }
    let want = Want { max: want.max.min(spare), ..*want };
    tx.expire_busy(ag);
    let Some((free, start, len)) = find(tx, ag, &want)? else { return Ok(None) };
    carve(tx, ag, free, start, len)?;
    Ok(Some((start, len)))
}

/// Takes up to `max` blocks for the free list itself.
pub(super) fn take_for_freelist(
    tx: &mut Tx<'_>,
    ag: AgNo,
    max: u32,
) -> Result<Option<(AgBlock, u32)>> {
    let want = Want { max, ..Want::default() };
    // The shortest sufficient extent, to keep long extents whole.
    let Some((free, start, len)) = find_by_len(tx, ag, &want)? else { return Ok(None) };
    carve(tx, ag, free, start, len)?;
    Ok(Some((start, len)))
}

/// The free extent, and the part of it that is used.
pub(super) type Found = (FreeExtent, AgBlock, u32);

fn find(tx: &Tx<'_>, ag: AgNo, want: &Want) -> Result<Option<Found>> {
    match find_near(tx, ag, want)? {
        Some(found) => Ok(Some(found)),
        None => find_by_len(tx, ag, want),
    }
}

/// The nearest extent that satisfies the whole request, among the neighbours of the preferred
/// start.
fn find_near(tx: &Tx<'_>, ag: AgNo, want: &Want) -> Result<Option<Found>> {
    let (env, tree) = (Env::Tx(tx), BnoTree::new(ag));
    let full = |free: &FreeExtent| {
        let (start, len) = want.fit(free, &tx.ag(ag).busy)?;
        (len == want.max).then_some((*free, start, len))
    };
    let key = (want.near.0, u32::MAX);
    if let Some(mut cursor) = Cursor::<BnoTree>::seek_le(env, &tree, &key)? {
        for _ in 0..NEIGHBOURS {
            let Some(free) = cursor.rec(env, &tree) else { break };
            // Extents after the preferred start are better than extents before it, unless the start
            // is inside this extent.
            if u64::from(free.start.0) + u64::from(free.len) > u64::from(want.near.0)
                && let Some(found) = full(&free)
            {
                return Ok(Some(found));
            }
            if !cursor.next(env, &tree)? {
                break;
            }
        }
        if let Some(mut cursor) = Cursor::<BnoTree>::seek_le(env, &tree, &key)? {
            for _ in 0..NEIGHBOURS {
                let Some(free) = cursor.rec(env, &tree) else { break };
                if let Some(found) = full(&free) {
                    return Ok(Some(found));
                }
                if !cursor.back(env, &tree)? {
                    break;
                }
            }
        }
        return Ok(None);
    }
    let mut cursor = Cursor::<BnoTree>::first(env, &tree)?;
    for _ in 0..NEIGHBOURS {
        let Some(free) = cursor.rec(env, &tree) else { break };
        if let Some(found) = full(&free) {
            return Ok(Some(found));
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok(None)
}

/// The shortest extent that satisfies the whole request, otherwise the longest acceptable one.
pub(super) fn find_by_len(tx: &Tx<'_>, ag: AgNo, want: &Want) -> Result<Option<Found>> {
    let (env, tree) = (Env::Tx(tx), CntTree::new(ag));
    let mut cursor = Cursor::<CntTree>::seek(env, &tree, &(want.max, 0))?;
    while let Some(free) = cursor.rec(env, &tree) {
        if let Some((start, len)) = want.fit(&free, &tx.ag(ag).busy)
            && len == want.max
        {
            return Ok(Some((free, start, len)));
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    let mut best: Option<Found> = None;
    let Some(mut cursor) = Cursor::<CntTree>::last(env, &tree)? else { return Ok(None) };
    while let Some(free) = cursor.rec(env, &tree) {
        let best_len = best.map_or(0, |b| b.2);
        if free.len <= best_len || free.len < want.min {
            break;
        }
        if let Some((start, len)) = want.fit(&free, &tx.ag(ag).busy)
            && len > best_len
        {
            best = Some((free, start, len));
        }
        if !cursor.back(env, &tree)? {
            break;
        }
    }
    Ok(best)
}

/// Fails if a free-space record extends past the end of the group.
fn check(tx: &Tx<'_>, ag: AgNo, free: &FreeExtent) -> Result<()> {
    let geo = &tx.fs().geo;
    let end = u64::from(free.start.0) + u64::from(free.len);
    if free.len > 0 && free.start.0 >= geo.ag_header_blocks() && end <= geo.ag_len(ag).into() {
        return Ok(());
    }
    let problem = format!("free blocks {}+{} lie outside the AG", free.start, free.len);
    Err(tx.ag(ag).headers().agf.corrupt(Check::Range, problem))
}

/// Removes `len` blocks at `start` from a free extent, in both trees.
fn carve(tx: &mut Tx<'_>, ag: AgNo, free: FreeExtent, start: AgBlock, len: u32) -> Result<()> {
    check(tx, ag, &free)?;
    let before = start.0 - free.start.0;
    let after = free.len - before - len;
    let left = (before > 0).then_some(FreeExtent { start: free.start, len: before });
    let right = (after > 0).then_some(FreeExtent { start: start.plus(len), len: after });
    replace_bno(tx, ag, &[free], left, right)?;
    let longest = match (left, right) {
        (Some(rest), None) | (None, Some(rest)) => shorten_cnt(tx, ag, free, rest)?,
        _ => None,
    };
    let longest = match longest {
        Some(longest) => longest,
        None => {
            replace_cnt(tx, ag, &[free], &[left, right])?;
            longest_free(tx, ag)?
        }
    };
    set_totals(tx, ag, -i64::from(len), longest)
}

/// Adds `len` blocks at `start` to the free space of a group, merged with their neighbours.
///
/// # Errors
/// [`crate::Error::Corrupt`] if a block is free already or lies outside the group.
pub(crate) fn free(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock, len: u32) -> Result<()> {
    let geo = Arc::clone(&tx.fs().geo);
    let end = u64::from(start.0) + u64::from(len);
    let headers = geo.ag_header_blocks();
    if len == 0 || start.0 < headers || end > geo.ag_len(ag).into() {
        let problem = format!("blocks {start}+{len} to be freed lie outside the AG");
        return Err(tx.ag(ag).headers().agf.corrupt(Check::Range, problem));
    }
    let (env, tree) = (Env::Tx(tx), BnoTree::new(ag));
    let before = match Cursor::<BnoTree>::seek_le(env, &tree, &(start.0, u32::MAX))? {
        Some(cursor) => cursor.rec(env, &tree),
        None => None,
    };
    let next = Cursor::<BnoTree>::seek(env, &tree, &(start.0, 0))?.rec(env, &tree);
    for free in before.iter().chain(&next) {
        check(tx, ag, free)?;
    }
    let overlap = before.is_some_and(|b| u64::from(b.start.0) + u64::from(b.len) > start.0.into())
        || next.is_some_and(|b| u64::from(b.start.0) < end);
    if overlap {
        let problem = format!("blocks {start}+{len} to be freed are free already");
        return Err(tx.ag(ag).headers().agf.corrupt(Check::Overlap, problem));
    }
    let before = before.filter(|b| b.start.0 + b.len == start.0);
    let next = next.filter(|b| u64::from(b.start.0) == end);
    let merged = FreeExtent {
        start: before.map_or(start, |b| b.start),
        len: len + before.map_or(0, |b| b.len) + next.map_or(0, |b| b.len),
    };
    let old: Vec<FreeExtent> = before.into_iter().chain(next).collect();
    replace_bno(tx, ag, &old, Some(merged), None)?;
    replace_cnt(tx, ag, &old, &[Some(merged), None])?;
    // On the device the blocks may still belong to their old owner.
    tx.note_freed(ag, start, len);
    tx.fs().freed.store(true, Ordering::Release);
    let longest = longest_free(tx, ag)?;
    set_totals(tx, ag, len.into(), longest)
}

/// Replaces neighbouring records of the by-block tree.
fn replace_bno(
    tx: &mut Tx<'_>,
    ag: AgNo,
    old: &[FreeExtent],
    new: Option<FreeExtent>,
    also: Option<FreeExtent>,
) -> Result<()> {
    let tree = BnoTree::new(ag);
    let mut fresh = new.into_iter().chain(also);
    for (at, rec) in old.iter().enumerate() {
        let mut cursor = Cursor::<BnoTree>::seek(Env::Tx(tx), &tree, &(rec.start.0, 0))?;
        if cursor.rec(Env::Tx(tx), &tree) != Some(*rec) {
            return Err(differ(tx, ag, rec));
        }
        // The first old record is updated in place; the others are deleted.
        match if at == 0 { fresh.next() } else { None } {
            Some(rec) => cursor.update(tx, &tree, &rec)?,
            None => cursor.delete(tx, &tree)?,
        }
    }
    for rec in fresh {
        let key = <Bno as crate::btree::AgKind>::key(&rec);
        Cursor::<BnoTree>::seek(Env::Tx(tx), &tree, &key)?.insert(tx, &tree, &rec)?;
    }
    Ok(())
}

/// Replaces records of the by-length tree, whose order may change.
fn replace_cnt(
    tx: &mut Tx<'_>,
    ag: AgNo,
    old: &[FreeExtent],
    new: &[Option<FreeExtent>],
) -> Result<()> {
    let tree = CntTree::new(ag);
    let key = <Cnt as crate::btree::AgKind>::key;
    for rec in old {
        let cursor = Cursor::<CntTree>::seek(Env::Tx(tx), &tree, &key(rec))?;
        if cursor.rec(Env::Tx(tx), &tree) != Some(*rec) {
            return Err(differ(tx, ag, rec));
        }
        cursor.delete(tx, &tree)?;
    }
    for rec in new.iter().flatten() {
        let cursor = Cursor::<CntTree>::seek(Env::Tx(tx), &tree, &key(rec))?;
        cursor.insert(tx, &tree, rec)?;
    }
    Ok(())
}

/// Replaces the longest record of the by-length tree by a shorter one, if it is still the longest then, and
/// returns its length. That is the usual case while a volume is filled, and takes one search. In other cases
/// nothing changes.
fn shorten_cnt(tx: &mut Tx<'_>, ag: AgNo, old: FreeExtent, new: FreeExtent) -> Result<Option<u32>> {
    let tree = CntTree::new(ag);
    let key = <Cnt as crate::btree::AgKind>::key;
    let mut cursor = Cursor::<CntTree>::seek(Env::Tx(tx), &tree, &key(&old))?;
    if cursor.rec(Env::Tx(tx), &tree) != Some(old) {
        return Err(differ(tx, ag, &old));
    }
    let env = Env::Tx(tx);
    if !cursor.is_last(env, &tree) || !cursor.keeps_place(env, &tree, &key(&new)) {
        return Ok(None);
    }
    cursor.update(tx, &tree, &new)?;
    Ok(Some(new.len))
}

fn differ(tx: &Tx<'_>, ag: AgNo, rec: &FreeExtent) -> crate::Error {
    let problem = format!("the free-space trees differ about {}+{}", rec.start, rec.len);
    tx.ag(ag).headers().agf.corrupt(Check::CrossReference, problem)
}

/// The length of the group's longest free extent.
fn longest_free(tx: &Tx<'_>, ag: AgNo) -> Result<u32> {
    let (env, tree) = (Env::Tx(tx), CntTree::new(ag));
    let last = Cursor::<CntTree>::last(env, &tree)?;
    Ok(last.and_then(|cursor| cursor.rec(env, &tree)).map_or(0, |free| free.len))
}

/// Updates the AGF's totals after the trees changed.
fn set_totals(tx: &mut Tx<'_>, ag: AgNo, change: i64, longest: u32) -> Result<()> {
    let free = i64::from(tx.agf(ag).freeblks.get()) + change;
    let Ok(free) = u32::try_from(free) else {
        return Err(tx
            .ag(ag)
            .headers()
            .agf
            .corrupt(Check::Counter, "fewer free blocks than were taken"));
    };
    tx.edit_agf(ag, |agf| {
        agf.freeblks.set(free);
        agf.longest.set(longest);
    });
    Ok(())
}
