//! The block form: a directory in one block.
//!
//! The block is a data block with leaf entries at its end. Behind the leaf entries lie their count
//! and the count of stale ones. The leaf entries grow down into the free area before them.
//!
//! 1. Every entry has exactly one leaf entry that is not stale, with its hash and address.
//! 2. "." and ".." are the first two entries.

use crate::error::{Check, Problem};
use smallvec::{SmallVec, smallvec};

use super::data::{self, DataEntry, Free, Plan};
use super::entry::DATA_START;
use super::leaf::{self, Spot};
use crate::bytes::{be32, be64};
use crate::da::ENTRY_LEN;
use crate::geometry::Geometry;
use crate::naming::Naming;
use crate::types::Ino;

/// "XDB3".
pub const MAGIC: u32 = 0x5844_4233;
/// Byte offset of the owner's inode number.
pub const OWNER: usize = 40;
/// Length of the counts at the end.
pub const TAIL_LEN: usize = 8;

/// The counts at the end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Number of leaf entries, stale ones included.
    pub count: usize,
    /// Number of stale leaf entries.
    pub stale: usize,
}

impl Tail {
    /// Reads the counts of `block`.
    pub fn of(block: &[u8]) -> Self {
        let at = block.len().saturating_sub(TAIL_LEN);
        Self { count: be32(block, at) as usize, stale: be32(block, at + 4) as usize }
    }

    /// Encodes the counts.
    pub fn encode(&self) -> [u8; TAIL_LEN] {
        let mut raw = [0; TAIL_LEN];
        raw[..4].copy_from_slice(&(self.count as u32).to_be_bytes());
        raw[4..].copy_from_slice(&(self.stale as u32).to_be_bytes());
        raw
    }

    /// Byte offset of the first leaf entry in a block of `len` bytes.
    pub fn leaf_start(&self, len: usize) -> usize {
        data_limit(len, self.count)
    }
}

/// Byte offset of the end of the data in a block of `len` bytes with `count` leaf entries.
pub const fn data_limit(len: usize, count: usize) -> usize {
    len.saturating_sub(TAIL_LEN).saturating_sub(count.saturating_mul(ENTRY_LEN))
}

/// Planned insertion of an entry into a block.
#[derive(Clone, Copy, Debug)]
pub struct Insertion {
    /// The change of the data part.
    pub data: Plan,
    /// The leaf slots that change, numbered as after the insertion.
    pub spot: Spot,
    /// The counts after the insertion.
    pub tail: Tail,
}

/// Plans the insertion of an entry of `len` bytes with this hash. `None` if the entry does not fit
/// without compaction.
pub fn plan_insert(block: &[u8], hash: u32, len: usize) -> Option<Insertion> {
    let tail = Tail::of(block);
    let start = tail.leaf_start(block.len());
    let spot = leaf::spot(&block[start..], tail.count, tail.stale, hash);
    if spot.reuses {
        let data = data::plan_insert(block, start, len)?;
        let tail = Tail { stale: tail.stale - 1, ..tail };
        return Some(Insertion { data, spot, tail });
    }
    // The new leaf entry takes 8 bytes of the free area before the leaf. Relative to the leaf's
    // new start, the first slot is free.
    let last = data::free_before(block, start).filter(|free| usize::from(free.len) >= ENTRY_LEN)?;
    let cut = Free { len: last.len - ENTRY_LEN as u16, ..last };
    let others = data::best(block).into_iter().filter(|free| free.at != last.at);
    let area = others.chain([cut]).max_by_key(|free| free.len)?;
    if usize::from(area.len) < len {
        return None;
    }
    let at = usize::from(area.at);
    let rest = Free::between(at + len, area.end());
    let mut removed: SmallVec<[Free; 2]> = smallvec![last];
    let mut added: SmallVec<[Free; 2]> = smallvec![];
    if area.at != last.at {
        removed.push(area);
        added.push(cut);
    }
    added.push(rest);
    added.retain(|free| free.len > 0);
    let best = data::best_after(block, start, &removed, &added);
    let data = Plan { at, added: [added.first().copied(), added.get(1).copied()], best };
    let spot = Spot { first: 0, last: spot.first, up: false, reuses: false };
    Some(Insertion { data, spot, tail: Tail { count: tail.count + 1, ..tail } })
}

/// Planned removal of all stale leaf entries, to gain space.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The change of the data part; the area that becomes free is the first of `added`.
    pub data: Plan,
    /// The remaining leaf entries.
    pub entries: Vec<u8>,
    /// The counts after the compaction.
    pub tail: Tail,
}

/// Plans the removal of all stale leaf entries.
pub fn plan_compact(block: &[u8]) -> Compaction {
    let tail = Tail::of(block);
    let start = tail.leaf_start(block.len());
    let entries: Vec<u8> = block[start..block.len() - TAIL_LEN]
        .chunks_exact(ENTRY_LEN)
        .filter(|entry| leaf::address(entry, 0) != 0)
        .flatten()
        .copied()
        .collect();
    let data = data::plan_remove(block, start, start, tail.stale * ENTRY_LEN);
    Compaction { data, entries, tail: Tail { count: tail.count - tail.stale, stale: 0 } }
}

/// Makes a directory of `entries` in a zeroed block that already names its owner. The entries
/// include "." and "..", come in order of their addresses, and all fit into the block.
pub fn fill<'a>(block: &mut [u8], naming: Naming, entries: impl Iterator<Item = DataEntry<'a>>) {
    let mut index: SmallVec<[(u32, u32); 64]> = smallvec![];
    let mut areas: SmallVec<[Free; 16]> = smallvec![];
    let mut at = DATA_START;
    for entry in entries {
        if entry.at > at {
            areas.push(Free::between(at, entry.at));
        }
        at = entry.at + entry.space();
        entry.put(&mut block[entry.at..at]);
        index.push((naming.hash(entry.name), super::address(entry.at as u64)));
    }
    index.sort_unstable();
    let tail = Tail { count: index.len(), stale: 0 };
    let start = tail.leaf_start(block.len());
    if start > at {
        areas.push(Free::between(at, start));
    }
    for area in &areas {
        let first = usize::from(area.at);
        block[first..first + data::FREE_HEADER_LEN].copy_from_slice(&area.header());
        area.tag_at().set(block, area.at);
    }
    for (slot, (hash, address)) in block[start..].chunks_exact_mut(ENTRY_LEN).zip(&index) {
        slot.copy_from_slice(&crate::da::entry(*hash, *address));
    }
    let end = block.len();
    block[end - TAIL_LEN..].copy_from_slice(&tail.encode());
    super::MAGIC.set(block, MAGIC);
    let best = data::best_after(&[], 0, &[], &areas);
    let raw = data::encode_best(&best);
    block[data::BESTFREE..data::BESTFREE + data::BESTFREE_LEN].copy_from_slice(&raw);
}

/// Checks the rules that hold inside a block.
///
/// # Errors
/// A description of the first violated rule.
pub fn check(block: &[u8], geo: &Geometry) -> Result<(), Problem> {
    let tail = Tail::of(block);
    let room = (block.len() - geo.dir.start() - TAIL_LEN) / ENTRY_LEN;
    if tail.count > room || tail.stale > tail.count {
        return Err(Check::Count.failed(format!(
            "{} leaf entries, {} stale, room for {room}",
            tail.count, tail.stale
        )));
    }
    let start = tail.leaf_start(block.len());
    let entries = &block[start..block.len() - TAIL_LEN];
    leaf::check_entries(entries, tail.count, tail.stale)?;
    let mut places: SmallVec<[u64; 8]> = smallvec![0; (block.len() / 8).div_ceil(64)];
    let mut seen = 0;
    data::check_items(block, start, geo, |entry| {
        places[entry.at / 8 / 64] |= 1 << (entry.at / 8 % 64);
        seen += 1;
    })?;
    if seen != tail.count - tail.stale {
        return Err(Check::Count
            .failed(format!("{seen} entries with {} leaf entries", tail.count - tail.stale)));
    }
    for index in 0..tail.count {
        let address = leaf::address(entries, index) as usize;
        if address == 0 {
            continue;
        }
        let place = places.get_mut(address / 64).filter(|word| **word & 1 << (address % 64) != 0);
        let Some(place) = place else {
            return Err(Check::Pointer
                .failed(format!("leaf entry {index} leads to no entry, or not alone")));
        };
        *place &= !(1 << (address % 64));
        let Some(entry) = geo.dir.entry_at(block, address * 8, start) else {
            return Err(Check::Pointer.failed(format!("leaf entry {index} leads to no entry")));
        };
        if geo.naming.hash(entry.name) != leaf::hash(entries, index) {
            return Err(
                Check::Hash.failed(format!("leaf entry {index} has another hash than its entry"))
            );
        }
    }
    check_dots(block, start, geo)
}

/// Checks that "." and ".." come first and that "." leads to the owner, if the block names one.
fn check_dots(block: &[u8], end: usize, geo: &Geometry) -> Result<(), Problem> {
    let dot = geo.dir.entry_at(block, geo.dir.start(), end);
    let owned = |ino: Ino| !geo.has_crc() || ino.0 == be64(block, OWNER);
    if dot.is_none_or(|entry| entry.name != b"." || !owned(entry.ino)) {
        return Err(Check::Missing.failed("has no \".\" for itself"));
    }
    let dotdot = geo.dir.entry_at(block, geo.dir.dotdot(), end);
    if dotdot.is_none_or(|entry| entry.name != b"..") {
        return Err(Check::Missing.failed("has no \"..\""));
    }
    Ok(())
}
