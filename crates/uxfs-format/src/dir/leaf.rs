//! Leaf blocks: the index of a directory by hash.
//!
//! A directory in leaf form has one leaf block ([`BufKind::DirLeaf1`]); at its end it stores the
//! longest free area of every data block. A directory in node form has many leaf blocks
//! ([`BufKind::DirLeafN`]), linked with each other, under a tree of nodes.
//!
//! 1. Entries (hash, address) are in hash order, stale entries included.
//! 2. The count includes stale entries; the stale count is exact.
//! 3. The functions for entries work on the end of a one-block directory, too.
//!
//! [`BufKind::DirLeaf1`]: crate::verify::BufKind::DirLeaf1
//! [`BufKind::DirLeafN`]: crate::verify::BufKind::DirLeafN

use core::ops::Range;

use crate::bytes::{Field, be32};
use crate::da::{self, ENTRIES, ENTRY_LEN};
use crate::error::{Check, Problem};

/// Place of the count of stale entries.
pub const STALE: Field<u16> = Field::at(58);
/// Marks a data block that does not exist, in place of its longest free area.
pub const NO_BLOCK: u16 = u16::MAX;

/// The count of entries and the count of stale ones, as they are stored from [`da::COUNT`] on.
pub fn encode_counts(count: usize, stale: usize) -> [u8; 4] {
    let mut raw = [0; 4];
    Field::at(0).set(&mut raw, count as u16);
    Field::at(STALE.offset() - da::COUNT.offset()).set(&mut raw, stale as u16);
    raw
}

/// Number of stale entries of a leaf block.
pub fn stale(leaf: &[u8]) -> usize {
    STALE.get(leaf).into()
}

/// Hash of entry `index`; `entries` starts with entry 0.
pub fn hash(entries: &[u8], index: usize) -> u32 {
    be32(entries, index * ENTRY_LEN)
}

/// Address of entry `index`, 0 if it is stale; `entries` starts with entry 0.
pub fn address(entries: &[u8], index: usize) -> u32 {
    be32(entries, index * ENTRY_LEN + 4)
}

/// Planned insertion: the entries between the new one and the slot it uses (the nearest stale slot,
/// or a new one at the end) shift by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// First slot that changes.
    pub first: usize,
    /// Last slot that changes.
    pub last: usize,
    /// True if the entries shift up and the new entry becomes the first of them; false if they
    /// shift down and it becomes the last.
    pub up: bool,
    /// Does the insertion reuse a stale slot?
    pub reuses: bool,
}

impl Spot {
    /// Shifts the entries and stores the new one; `slots` are the bytes of the slots that change.
    pub fn apply(&self, slots: &mut [u8], hash: u32, address: u32) {
        let len = slots.len();
        let entry = da::entry(hash, address);
        if self.up {
            slots.copy_within(..len - ENTRY_LEN, ENTRY_LEN);
            slots[..ENTRY_LEN].copy_from_slice(&entry);
        } else {
            slots.copy_within(ENTRY_LEN.., 0);
            slots[len - ENTRY_LEN..].copy_from_slice(&entry);
        }
    }
}

/// Finds the slot for an entry of `hash` among `count` entries: the nearest stale one, or slot
/// `count` if no entry is stale. In the second case the caller must ensure that slot exists.
pub fn spot(entries: &[u8], count: usize, stale: usize, hash: u32) -> Spot {
    let index = da::lower_bound(entries, count, hash);
    if stale > 0 {
        let is_stale = |i: &usize| address(entries, *i) == 0;
        let reach = index.max(count - index);
        for distance in 0..=reach {
            if let Some(above) = Some(index + distance).filter(|i| *i < count && is_stale(i)) {
                return Spot { first: index, last: above, up: true, reuses: true };
            }
            if let Some(below) = index.checked_sub(distance + 1).filter(is_stale) {
                return Spot { first: below, last: index - 1, up: false, reuses: true };
            }
        }
    }
    Spot { first: index, last: count, up: true, reuses: false }
}

/// Maximum number of entries in a leaf-form leaf of `len` bytes for `blocks` data blocks.
pub const fn leaf1_capacity(len: usize, blocks: usize) -> usize {
    len.saturating_sub(ENTRIES + 4 + 2 * blocks) / ENTRY_LEN
}

/// Place of the number of data blocks in a leaf-form leaf of `leaf_len` bytes.
pub const fn best_count_at(leaf_len: usize) -> Field<u32> {
    Field::at(leaf_len.saturating_sub(4))
}

/// Number of data blocks whose longest free area a leaf-form leaf stores.
pub fn best_count(leaf: &[u8]) -> usize {
    best_count_at(leaf.len()).get(leaf) as usize
}

/// Place of the longest free area of data block `index` in a leaf-form leaf.
pub const fn best_at(leaf_len: usize, best_count: usize, index: usize) -> Field<u16> {
    Field::at(leaf_len - 4 - 2 * (best_count - index))
}

/// Bytes of the longest free areas of all data blocks in a leaf-form leaf.
pub const fn bests(leaf_len: usize, best_count: usize) -> Range<usize> {
    best_at(leaf_len, best_count, 0).offset()..leaf_len - 4
}

/// The longest free areas of consecutive data blocks, from the bytes that a leaf-form leaf or a
/// block of the free index stores.
pub fn rooms(bests: &[u8]) -> impl Iterator<Item = u16> + Clone + '_ {
    bests.chunks_exact(2).map(|raw| Field::at(0).get(raw))
}

/// Checks `count` entries at the start of `entries`, `stale` of them stale.
///
/// # Errors
/// A description of the first violated rule.
pub fn check_entries(entries: &[u8], count: usize, stale: usize) -> Result<(), Problem> {
    if let Some(index) = da::out_of_order(entries, count) {
        return Err(Check::Order.failed(format!("entry {index} is out of hash order")));
    }
    let seen = (0..count).filter(|&i| address(entries, i) == 0).count();
    if seen != stale {
        return Err(Check::Count.failed(format!("{seen} stale entries, says {stale}")));
    }
    Ok(())
}

/// Checks the rules that hold inside a leaf of a node-form directory.
///
/// # Errors
/// A description of the first violated rule.
pub fn check_leafn(block: &[u8]) -> Result<(), Problem> {
    let (count, room) = (da::count(block), da::capacity(block.len()));
    if count > room {
        return Err(Check::Count.failed(format!("{count} entries, room for {room}")));
    }
    check_entries(&block[ENTRIES..], count, stale(block))
}

/// Checks the rules that hold inside the leaf of a leaf-form directory.
///
/// # Errors
/// A description of the first violated rule.
pub fn check_leaf1(block: &[u8]) -> Result<(), Problem> {
    let (count, blocks) = (da::count(block), best_count(block));
    if blocks == 0 || blocks > (block.len() - ENTRIES - 4) / 2 {
        return Err(Check::Count.failed(format!("room of {blocks} data blocks")));
    }
    let room = leaf1_capacity(block.len(), blocks);
    if count > room {
        return Err(
            Check::Count.failed(format!("{count} entries and {blocks} blocks, room for {room}"))
        );
    }
    for index in 0..blocks {
        let best = best_at(block.len(), blocks, index).get(block);
        check_room(best, index, block.len())?;
    }
    check_entries(&block[ENTRIES..], count, stale(block))
}

/// Checks that a data block of `len` bytes can have a free area of `best` bytes.
pub(crate) fn check_room(best: u16, index: usize, len: usize) -> Result<(), Problem> {
    let most = len - super::DATA_START;
    if best == NO_BLOCK || (best.is_multiple_of(8) && usize::from(best) <= most) {
        return Ok(());
    }
    Err(Check::FreeSpace.failed(format!("room of {best} bytes in data block {index}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(u32, u32)]) -> Vec<u8> {
        list.iter().flat_map(|&(h, a)| da::entry(h, a)).chain([0; ENTRY_LEN]).collect()
    }

    fn insert(list: &[(u32, u32)], hash: u32) -> (Vec<(u32, u32)>, bool) {
        let mut raw = entries(list);
        let stale = list.iter().filter(|e| e.1 == 0).count();
        let spot = spot(&raw, list.len(), stale, hash);
        spot.apply(&mut raw[spot.first * 8..(spot.last + 1) * 8], hash, 77);
        let count = list.len() + usize::from(!spot.reuses);
        ((0..count).map(|i| (super::hash(&raw, i), address(&raw, i))).collect(), spot.reuses)
    }

    #[test]
    fn an_entry_is_inserted_in_hash_order() {
        assert_eq!(insert(&[(1, 9), (5, 9)], 3).0, [(1, 9), (3, 77), (5, 9)]);
        assert_eq!(insert(&[], 3).0, [(3, 77)]);
        assert_eq!(insert(&[(1, 9)], 3).0, [(1, 9), (3, 77)]);
    }

    #[test]
    fn takes_the_nearest_stale_slot() {
        let list = [(1, 0), (2, 9), (3, 9), (5, 9), (6, 0), (7, 9)];
        assert_eq!(insert(&list, 4).0, [(1, 0), (2, 9), (3, 9), (4, 77), (5, 9), (7, 9)]);
        assert_eq!(insert(&list, 2).0, [(2, 77), (2, 9), (3, 9), (5, 9), (6, 0), (7, 9)]);
        assert!(insert(&list, 9).1);
        assert_eq!(insert(&[(1, 9), (2, 0)], 9).0, [(1, 9), (9, 77)]);
        assert_eq!(insert(&[(4, 0), (5, 9)], 9).0, [(5, 9), (9, 77)]);
    }

    #[test]
    fn random_insertions_keep_the_order() {
        let mut rng = uxfs_testkit::Rng::new(99);
        let mut next = move || (rng.bits() >> 33) as u32;
        for _ in 0..2000 {
            let mut list: Vec<(u32, u32)> =
                (0..next() % 20).map(|_| (next() % 30, next() % 3)).collect();
            list.sort_by_key(|e| e.0);
            let hash = next() % 32;
            let (after, _) = insert(&list, hash);
            let mut live: Vec<_> = list.iter().copied().filter(|e| e.1 != 0).collect();
            live.push((hash, 77));
            live.sort_unstable();
            let mut seen: Vec<_> = after.iter().copied().filter(|e| e.1 != 0).collect();
            assert!(after.is_sorted_by_key(|e| e.0), "{list:?} + {hash} -> {after:?}");
            seen.sort_unstable();
            assert_eq!(seen, live);
        }
    }
}
