//! Builds a tree from its records in one go: leaves first, then the levels above.
//!
//! 1. Every block but the root is at least half full, as readers demand, and has room for a few more
//!    records, so that the next changes do not split every leaf.
//! 2. The number of blocks depends only on the number of records: [`blocks`] tells it before.

use uxfs_format::btree::{self, BmapNode, Rmap, RmapKey, TreeKind};
use uxfs_format::bytes::{Field, Number};
use uxfs_format::extent::Extent;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Daddr, FileBlock, FsBlock, Uuid};

use crate::error::{RepairError, Result};

/// A block of a tree: its number and its content.
pub(crate) type Block = (u64, Vec<u8>);

/// A tree that was built.
pub(crate) struct Tree {
    /// All blocks.
    pub(crate) blocks: Vec<Block>,
    /// The blocks of the highest level, each with its lowest key: one, or for an extent tree as many
    /// as the root in the inode holds.
    pub(crate) top: Vec<Child>,
    /// Levels, without a root in an inode.
    pub(crate) levels: u32,
}

/// How many children or records each of the blocks for `count` of them gets.
fn spread(count: usize, max: usize) -> Vec<usize> {
    if count <= max {
        return vec![count];
    }
    let wanted = count.div_ceil(max - max / 8);
    let parts = wanted.min(count / (max / 2)).max(count.div_ceil(max));
    (0..parts).map(|part| count / parts + usize::from(part < count % parts)).collect()
}

/// Number of blocks of a tree of `records` records whose highest level has at most `top` blocks.
pub(crate) fn blocks(kind: TreeKind, records: usize, block_size: usize, top: usize) -> usize {
    let mut level = spread(records, kind.max_leaf(block_size)).len();
    let mut all = level;
    while level > top.max(1) {
        level = spread(level, kind.max_node(block_size)).len();
        all += level;
    }
    all
}

/// Number of levels of such a tree.
pub(crate) fn levels(kind: TreeKind, records: usize, block_size: usize) -> u32 {
    let mut level = spread(records, kind.max_leaf(block_size)).len();
    let mut levels = 1;
    while level > 1 {
        level = spread(level, kind.max_node(block_size)).len();
        levels += 1;
    }
    levels
}

/// What identifies the blocks of a tree.
pub(crate) struct Label<'a> {
    /// Which tree it is.
    pub(crate) kind: TreeKind,
    /// AG number or inode number.
    pub(crate) owner: u64,
    /// UUID in metadata.
    pub(crate) uuid: &'a Uuid,
    /// Bytes of a block.
    pub(crate) block_size: usize,
    /// Where a block lies.
    pub(crate) daddr: &'a dyn Fn(u64) -> Daddr,
}

/// The key of a record, as a node holds it.
fn record_key(kind: TreeKind, record: &[u8]) -> Vec<u8> {
    match kind {
        TreeKind::Bmap => {
            let offset =
                record.first_chunk().map_or(FileBlock(0), |raw| Extent::unpack(raw).offset);
            number(offset.0)
        }
        TreeKind::Rmap => {
            let rmap = Rmap::decode(record);
            let low = RmapKey { block: rmap.start, owner: rmap.owner, offset: rmap.key_offset() };
            let more = rmap.len.saturating_sub(1);
            let ahead = if rmap.offset_moves() { u64::from(more) } else { 0 };
            let high = RmapKey {
                block: rmap.start.plus(more),
                owner: rmap.owner,
                offset: rmap.key_offset() + ahead,
            };
            pair(&low, &high)
        }
        _ => record[..kind.key_len()].to_vec(),
    }
}

fn number(number: u64) -> Vec<u8> {
    let mut raw = vec![0; 8];
    number.write(&mut raw, 0);
    raw
}

fn pair(low: &RmapKey, high: &RmapKey) -> Vec<u8> {
    let mut key = vec![0; TreeKind::Rmap.key_len()];
    let (first, second) = key.split_at_mut(TreeKind::Rmap.key_len() / 2);
    low.encode(first);
    high.encode(second);
    key
}

/// The key of a block, from the keys of what is in it.
fn block_key(kind: TreeKind, mut keys: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let low = keys.next().unwrap_or_else(|| vec![0; kind.key_len()]);
    if kind != TreeKind::Rmap {
        return low;
    }
    let half = kind.key_len() / 2;
    let high = |key: &[u8]| RmapKey::decode(&key[half..]);
    let highest = keys.map(|key| high(&key)).fold(high(&low), Ord::max);
    pair(&RmapKey::decode(&low), &highest)
}

/// A child of a node: its lowest key, or both keys, and its block.
type Child = (Vec<u8>, u64);

/// Builds a tree of packed records in these blocks, as many as [`blocks`] says.
pub(crate) fn build(
    label: &Label<'_>,
    records: &[u8],
    numbers: &[u64],
    top: usize,
) -> Result<Tree> {
    let (kind, size) = (label.kind, label.block_size);
    let mut numbers = numbers.iter().copied();
    let mut tree = Tree { blocks: Vec::new(), top: Vec::new(), levels: 1 };
    let parts = spread(records.len() / kind.rec_len(), kind.max_leaf(size));
    let places = places(kind, parts.len(), &mut numbers)?;
    let mut rest = records;
    let mut above: Vec<Child> = Vec::new();
    for (index, count) in parts.iter().enumerate() {
        let (own, others) = rest.split_at(count * kind.rec_len());
        rest = others;
        let mut block = new_block(label, 0, *count, &places, index);
        block[kind.header().len..][..own.len()].copy_from_slice(own);
        let keys = own.chunks_exact(kind.rec_len()).map(|record| record_key(kind, record));
        above.push((block_key(kind, keys), places[index]));
        finish(label, &mut tree, places[index], block);
    }
    while above.len() > top.max(1) {
        let parts = spread(above.len(), kind.max_node(size));
        let places = self::places(kind, parts.len(), &mut numbers)?;
        let mut rest = &above[..];
        let mut next: Vec<Child> = Vec::new();
        for (index, count) in parts.iter().enumerate() {
            let (own, others) = rest.split_at(*count);
            rest = others;
            let mut block = new_block(label, tree.levels as u16, *count, &places, index);
            put_children(kind, &mut block, own);
            let keys = own.iter().map(|(key, _)| key.clone());
            next.push((block_key(kind, keys), places[index]));
            finish(label, &mut tree, places[index], block);
        }
        above = next;
        tree.levels += 1;
    }
    tree.top = above;
    Ok(tree)
}

/// The next blocks of those that were set aside.
fn places(
    kind: TreeKind,
    count: usize,
    numbers: &mut dyn Iterator<Item = u64>,
) -> Result<Vec<u64>> {
    let places: Vec<u64> = numbers.take(count).collect();
    match places.len() == count {
        true => Ok(places),
        false => Err(RepairError::Beyond(format!(
            "too few blocks were set aside for a {}",
            kind.block_name()
        ))),
    }
}

/// A block of a level without its content: header, siblings, labels.
fn new_block(label: &Label<'_>, level: u16, count: usize, places: &[u64], index: usize) -> Vec<u8> {
    let (kind, header) = (label.kind, label.kind.header());
    let mut block = vec![0; label.block_size];
    kind.put_header(&mut block, level);
    // A block has fewer than 2^16 records.
    btree::NUMRECS.set(&mut block, count as u16);
    let left = index.checked_sub(1).map(|left| places[left]);
    btree::put_sibling(&mut block[header.sibling(true)], left);
    btree::put_sibling(&mut block[header.sibling(false)], places.get(index + 1).copied());
    if let Some(layout) = BufKind::Btree(kind).layout() {
        layout.label(&mut block, (label.daddr)(places[index]), label.uuid, label.owner);
    }
    block
}

fn finish(label: &Label<'_>, tree: &mut Tree, place: u64, mut block: Vec<u8>) {
    verify::stamp_checksum(&mut block, BufKind::Btree(label.kind));
    tree.blocks.push((place, block));
}

fn put_children(kind: TreeKind, block: &mut [u8], children: &[Child]) {
    let header = kind.header();
    let pointers = header.len + kind.max_node(block.len()) * kind.key_len();
    for (index, (key, place)) in children.iter().enumerate() {
        let at = header.len + index * kind.key_len();
        block[at..at + key.len()].copy_from_slice(key);
        let at = pointers + index * header.ptr_len;
        btree::put_ptr(&mut block[at..at + header.ptr_len], *place);
    }
}

/// Writes the root of an extent tree into a fork.
pub(crate) fn put_root(fork: &mut [u8], tree: &Tree) {
    fork.fill(0);
    btree::ROOT_LEVEL.set(fork, tree.levels as u16);
    btree::ROOT_NUMRECS.set(fork, tree.top.len() as u16);
    let entry =
        |(key, place): &(Vec<u8>, u64)| (Field::<FileBlock>::at(0).get(key), FsBlock(*place));
    let entries: Vec<(FileBlock, FsBlock)> = tree.top.iter().map(entry).collect();
    BmapNode::root(fork.len()).put_entries(fork, &entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_half_full_at_least() {
        for max in [8, 9, 100, 505] {
            for count in 0..3000 {
                let parts = spread(count, max);
                assert_eq!(parts.iter().sum::<usize>(), count);
                let alone = parts.len() == 1;
                assert!(parts.iter().all(|part| *part <= max && (alone || *part >= max / 2)));
            }
        }
    }
}
