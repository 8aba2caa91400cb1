//! The node tree over directory and attribute leaves ("da btree"): the header that its blocks
//! share, and the nodes.
//!
//! A node stores the *highest* hash of each child. Entries with equal hashes may continue in the
//! next child. A search starts at the first child whose highest hash is at least the hash sought.
//!
//! 1. Entries of a node are in hash order; equal hashes are allowed. A node is never empty.
//! 2. `forw` and `back` link the blocks of one level in that order; 0 ends the chain.
//! 3. Directory and attribute leaves have the same header. Their entries have the same length as
//!    a node's and start with the hash, so [`lower_bound`] searches all of them.

use crate::bytes::{Field, be32};
use crate::error::{Check, Problem};

/// Magic number of a node.
pub const NODE_MAGIC: u16 = 0x3ebe;
/// Magic number of an attribute leaf.
pub const ATTR_LEAF_MAGIC: u16 = 0x3bee;
/// Magic number of the one leaf of a directory in leaf form.
pub const DIR_LEAF1_MAGIC: u16 = 0x3df1;
/// Magic number of a leaf of a directory in node form.
pub const DIR_LEAFN_MAGIC: u16 = 0x3dff;

/// Place of the number of the next block on the level.
pub const FORW: Field<u32> = Field::at(0);
/// Place of the number of the previous block on the level.
pub const BACK: Field<u32> = Field::at(4);
/// Place of the magic number.
pub const MAGIC: Field<u16> = Field::at(8);
/// Length of the common header.
pub const INFO_LEN: usize = 56;
/// Place of the entry count, in nodes and leaves.
pub const COUNT: Field<u16> = Field::at(56);
/// Place of a node's level; level 1 is just above the leaves.
pub const LEVEL: Field<u16> = Field::at(58);
/// Byte offset of the first entry of a node or of a directory leaf.
pub const ENTRIES: usize = 64;
/// Length of an entry.
pub const ENTRY_LEN: usize = 8;
/// Place of the hash in an entry.
pub const ENTRY_HASH: Field<u32> = Field::at(0);
/// Place in a node's entry of the child's block number.
const ENTRY_CHILD: Field<u32> = Field::at(4);
/// Maximum number of levels of a tree, the leaves included.
pub const MAX_DEPTH: usize = 5;

/// Block number of the next block of the level, in file system blocks; 0 if there is none.
pub fn forw(block: &[u8]) -> u32 {
    FORW.get(block)
}

/// Block number of the previous block of the level, in file system blocks; 0 if there is none.
pub fn back(block: &[u8]) -> u32 {
    BACK.get(block)
}

/// The magic number.
pub fn magic(block: &[u8]) -> u16 {
    MAGIC.get(block)
}

/// Number of entries, stale entries included.
pub fn count(block: &[u8]) -> usize {
    COUNT.get(block).into()
}

/// Level of a node.
pub fn level(node: &[u8]) -> usize {
    LEVEL.get(node).into()
}

/// Maximum number of entries in a node (or a node-form directory leaf) of `len` bytes.
pub const fn capacity(len: usize) -> usize {
    len.saturating_sub(ENTRIES) / ENTRY_LEN
}

/// Place of the hash of entry `index` of a node.
pub const fn hash_at(index: usize) -> Field<u32> {
    ENTRY_HASH.behind(ENTRIES + index * ENTRY_LEN)
}

/// Hash of entry `index` of a node: the highest of its child.
pub fn hash(node: &[u8], index: usize) -> u32 {
    hash_at(index).get(node)
}

/// Block number of the child of entry `index` of a node, in file system blocks.
pub fn child(node: &[u8], index: usize) -> u32 {
    ENTRY_CHILD.behind(ENTRIES + index * ENTRY_LEN).get(node)
}

/// A node's entry as it is stored.
pub fn entry(hash: u32, child: u32) -> [u8; ENTRY_LEN] {
    let mut raw = [0; ENTRY_LEN];
    ENTRY_HASH.set(&mut raw, hash);
    ENTRY_CHILD.set(&mut raw, child);
    raw
}

/// Writes magic number, entry count and level into the header of a node.
///
/// # Panics
/// If `node` is shorter than the header.
pub fn put_node_header(node: &mut [u8], count: usize, level: usize) {
    MAGIC.set(node, NODE_MAGIC);
    COUNT.set(node, count as u16);
    LEVEL.set(node, level as u16);
}

/// Index of the first of `count` entries, which start at byte 0 of `entries`, whose hash is not
/// below `hash`; `count` if there is none.
pub fn lower_bound(entries: &[u8], count: usize, hash: u32) -> usize {
    let (mut low, mut high) = (0, count.min(entries.len() / ENTRY_LEN));
    while low < high {
        let mid = low + (high - low) / 2;
        if be32(entries, mid * ENTRY_LEN) < hash {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    low
}

/// Index of the first of `count` entries whose hash is below the hash before it; `None` if the
/// hashes are in order.
pub fn out_of_order(entries: &[u8], count: usize) -> Option<usize> {
    let mut before = 0;
    for index in 0..count {
        let hash = be32(entries, index * ENTRY_LEN);
        if hash < before {
            return Some(index);
        }
        before = hash;
    }
    None
}

/// Checks the rules that hold inside a node.
///
/// # Errors
/// A description of the first violated rule.
pub fn check_node(block: &[u8]) -> Result<(), Problem> {
    let (count, level) = (count(block), level(block));
    if level == 0 || level >= MAX_DEPTH {
        return Err(Check::Level.failed(format!("level {level}")));
    }
    let room = capacity(block.len());
    if count == 0 || count > room {
        return Err(Check::Count.failed(format!("{count} entries, room for {room}")));
    }
    match out_of_order(&block[ENTRIES..], count) {
        Some(index) => Err(Check::Order.failed(format!("entry {index} is out of hash order"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(hashes: &[u32]) -> Vec<u8> {
        let mut block = vec![0; 4096];
        put_node_header(&mut block, hashes.len(), 1);
        for (i, &h) in hashes.iter().enumerate() {
            let at = ENTRIES + i * ENTRY_LEN;
            block[at..at + ENTRY_LEN].copy_from_slice(&entry(h, 100 + i as u32));
        }
        block
    }

    #[test]
    fn searches_to_the_first_of_equal_hashes() {
        let n = node(&[3, 7, 7, 9]);
        let find = |h| lower_bound(&n[ENTRIES..], count(&n), h);
        assert_eq!([0, 3, 4, 7, 8, 9, 10].map(find), [0, 0, 1, 1, 3, 3, 4]);
        assert_eq!((hash(&n, 3), child(&n, 3)), (9, 103));
        assert_eq!(capacity(4096), 504);
    }

    #[test]
    fn checks_count_level_and_order() {
        assert_eq!(check_node(&node(&[1, 1, 2])), Ok(()));
        assert!(check_node(&node(&[])).is_err());
        assert!(check_node(&node(&[2, 1])).is_err());
        let mut deep = node(&[1]);
        LEVEL.set(&mut deep, 5);
        assert!(check_node(&deep).is_err());
        let mut full = node(&[1]);
        COUNT.set(&mut full, 505);
        assert!(check_node(&full).is_err());
    }
}
