//! Reverse mappings: the owner of each extent of a group.
//!
//! 1. Extents with the same owner and state that are contiguous both on disk and in the file are one
//!    record.
//! 2. Records of different owners overlap only where files share blocks.

use uxfs_format::btree::{Rmap, RmapKey};
use uxfs_format::{AgBlock, AgNo, Check};

use crate::btree::{Cursor, Env, RmapTree, Tree};
use crate::error::Result;
use crate::tx::Tx;

/// Does `next` continue `one` with the same owner and state?
fn joins(one: &Rmap, next: &Rmap) -> bool {
    one.owner == next.owner
        && one.attr == next.attr
        && one.bmbt == next.bmbt
        && one.unwritten == next.unwritten
        && one.start.0.checked_add(one.len) == Some(next.start.0)
        && next.start.0.checked_add(next.len).is_some()
        && (!one.offset_moves() || one.offset + u64::from(one.len) == next.offset)
}

/// Adds a mapping.
pub(super) fn add(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    let left = match rmap.start.0.checked_sub(1) {
        Some(block) => find(tx, ag, AgBlock(block), |r| joins(r, rmap))?,
        None => None,
    };
    let right = find(tx, ag, rmap.start.plus(rmap.len), |r| joins(rmap, r))?;
    let mut merged = *rmap;
    if let Some(left) = left {
        merged = Rmap { len: left.len + merged.len, ..left };
    }
    if let Some(right) = right {
        merged.len += right.len;
        delete(tx, ag, &right)?;
    }
    match left {
        Some(left) => update(tx, ag, &left, &merged),
        None => insert(tx, ag, &merged),
    }
}

/// Removes a mapping, which may be a part of a record.
pub(super) fn remove(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    let old = covering(tx, ag, rmap)?;
    let (left, right) = around(&old, rmap);
    match (left, right) {
        (None, None) => delete(tx, ag, &old),
        (Some(left), None) => update(tx, ag, &old, &left),
        (None, Some(right)) => {
            delete(tx, ag, &old)?;
            insert(tx, ag, &right)
        }
        (Some(left), Some(right)) => {
            update(tx, ag, &old, &left)?;
            insert(tx, ag, &right)
        }
    }
}

/// Sets a mapping's state to `rmap.unwritten`. It must have the other state.
pub(super) fn convert(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    remove(tx, ag, &Rmap { unwritten: !rmap.unwritten, ..*rmap })?;
    super::freelist::fix(tx, ag)?;
    add(tx, ag, rmap)
}

/// The record that covers all of `rmap`.
fn covering(tx: &Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<Rmap> {
    let found = find(tx, ag, rmap.start, |r| {
        let skip = rmap.start.0 - r.start.0;
        r.owner == rmap.owner
            && r.attr == rmap.attr
            && r.bmbt == rmap.bmbt
            && r.unwritten == rmap.unwritten
            && skip + rmap.len <= r.len
            && (!r.offset_moves() || r.offset + u64::from(skip) == rmap.offset)
    })?;
    found.ok_or_else(|| {
        let problem = format!("no reverse mapping for {rmap:?}");
        tx.ag(ag).headers().agf.corrupt(Check::Missing, problem)
    })
}

/// The parts of `old` before and after `part`.
fn around(old: &Rmap, part: &Rmap) -> (Option<Rmap>, Option<Rmap>) {
    let before = part.start.0 - old.start.0;
    let skip = before + part.len;
    let moved = if old.offset_moves() { u64::from(skip) } else { 0 };
    let left = (before > 0).then_some(Rmap { len: before, ..*old });
    let right = (skip < old.len).then_some(Rmap {
        start: old.start.plus(skip),
        len: old.len - skip,
        offset: old.offset + moved,
        ..*old
    });
    (left, right)
}

/// A record that covers `block` and for which `wanted` holds.
fn find(
    tx: &Tx<'_>,
    ag: AgNo,
    block: AgBlock,
    wanted: impl Fn(&Rmap) -> bool,
) -> Result<Option<Rmap>> {
    let (env, tree) = (Env::Tx(tx), RmapTree::new(ag));
    let mut found = None;
    let (low, high) = (RmapKey::at(block), RmapKey::last_at(block));
    Cursor::<RmapTree>::overlapping(env, &tree, &low, &high, &mut |rec| {
        let end = u64::from(rec.start.0) + u64::from(rec.len);
        if rec.start <= block && end > u64::from(block.0) && wanted(rec) {
            found = Some(*rec);
        }
        found.is_none()
    })?;
    Ok(found)
}

fn seek(tx: &Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<Cursor<RmapTree>> {
    Cursor::seek(Env::Tx(tx), &RmapTree::new(ag), &RmapTree::key(rmap))
}

fn insert(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    seek(tx, ag, rmap)?.insert(tx, &RmapTree::new(ag), rmap)
}

fn delete(tx: &mut Tx<'_>, ag: AgNo, rmap: &Rmap) -> Result<()> {
    seek(tx, ag, rmap)?.delete(tx, &RmapTree::new(ag))
}

fn update(tx: &mut Tx<'_>, ag: AgNo, old: &Rmap, new: &Rmap) -> Result<()> {
    seek(tx, ag, old)?.update(tx, &RmapTree::new(ag), new)
}

#[cfg(test)]
mod tests {
    use uxfs_format::btree::RmapOwner;

    use super::*;

    #[test]
    fn a_damaged_record_is_not_merged() {
        let rmap = |start, len| Rmap {
            start: AgBlock(start),
            len,
            owner: RmapOwner(200),
            offset: u64::from(start),
            attr: false,
            bmbt: false,
            unwritten: false,
        };
        assert!(joins(&rmap(10, 5), &rmap(15, 5)));
        assert!(!joins(&rmap(10, 5), &rmap(16, 5)));
        // Lengths are untested values from disk.
        assert!(!joins(&rmap(10, u32::MAX), &rmap(15, 5)));
        assert!(!joins(&rmap(10, 5), &rmap(15, u32::MAX)));
    }
}
