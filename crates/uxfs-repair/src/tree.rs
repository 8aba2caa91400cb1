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
    pub(crate) top: Vec<(Vec<u8>, u64)>,
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
    while level > top {
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
fn block_key(kind: TreeKind, keys: &[Vec<u8>]) -> Vec<u8> {
    let low = keys.first().cloned().unwrap_or_else(|| vec![0; kind.key_len()]);
    if kind != TreeKind::Rmap {
        return low;
    }
    let half = kind.key_len() / 2;
    let high = keys.iter().map(|key| RmapKey::decode(&key[half..])).max();
    high.map_or(low.clone(), |high| pair(&RmapKey::decode(&low), &high))
}

/// Builds a tree of packed records in these blocks, as many as [`blocks`] says.
pub(crate) fn build(
    label: &Label<'_>,
    records: &[u8],
    numbers: &[u64],
    top: usize,
) -> Result<Tree> {
    let kind = label.kind;
    let (header, size) = (kind.header(), label.block_size);
    let mut numbers = numbers.iter().copied();
    let mut tree = Tree { blocks: Vec::new(), top: Vec::new(), levels: 0 };
    // What a level consists of: the raw bytes of a record or of a child's number, and its key.
    let mut items: Vec<(Vec<u8>, Vec<u8>)> = records
        .chunks_exact(kind.rec_len())
        .map(|record| (record.to_vec(), record_key(kind, record)))
        .collect();
    let mut level = 0u16;
    loop {
        let max = if level == 0 { kind.max_leaf(size) } else { kind.max_node(size) };
        let parts = spread(items.len(), max);
        let places: Vec<u64> = numbers.by_ref().take(parts.len()).collect();
        if places.len() < parts.len() {
            return Err(RepairError::Beyond(format!(
                "too few blocks were set aside for a {}",
                kind.block_name()
            )));
        }
        let mut above = Vec::new();
        let mut rest = &items[..];
        for (index, count) in parts.iter().enumerate() {
            let (own, others) = rest.split_at(*count);
            rest = others;
            let mut block = vec![0; size];
            kind.put_header(&mut block, level);
            btree::NUMRECS.set(&mut block, *count as u16);
            let left = index.checked_sub(1).map(|left| places[left]);
            let right = places.get(index + 1).copied();
            btree::put_sibling(&mut block[header.sibling(true)], left);
            btree::put_sibling(&mut block[header.sibling(false)], right);
            put_items(kind, &mut block, level, own);
            let daddr = (label.daddr)(places[index]);
            if let Some(layout) = BufKind::Btree(kind).layout() {
                layout.label(&mut block, daddr, label.uuid, label.owner);
            }
            verify::stamp_checksum(&mut block, BufKind::Btree(kind));
            let keys: Vec<Vec<u8>> = own.iter().map(|(_, key)| key.clone()).collect();
            let mut pointer = vec![0; header.ptr_len];
            btree::put_ptr(&mut pointer, places[index]);
            above.push((pointer, block_key(kind, &keys), places[index]));
            tree.blocks.push((places[index], block));
        }
        level += 1;
        tree.levels = level.into();
        if above.len() <= top {
            tree.top = above.into_iter().map(|(_, key, place)| (key, place)).collect();
            return Ok(tree);
        }
        items = above.into_iter().map(|(pointer, key, _)| (pointer, key)).collect();
    }
}

fn put_items(kind: TreeKind, block: &mut [u8], level: u16, items: &[(Vec<u8>, Vec<u8>)]) {
    let start = kind.header().len;
    if level == 0 {
        for ((record, _), slot) in items.iter().zip(block[start..].chunks_exact_mut(kind.rec_len()))
        {
            slot.copy_from_slice(record);
        }
        return;
    }
    let pointers = start + kind.max_node(block.len()) * kind.key_len();
    for (index, (pointer, key)) in items.iter().enumerate() {
        let at = start + index * kind.key_len();
        block[at..at + key.len()].copy_from_slice(key);
        let at = pointers + index * pointer.len();
        block[at..at + pointer.len()].copy_from_slice(pointer);
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
