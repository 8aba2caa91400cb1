//! Blocks of btrees.

use uxfs_format::btree::{BmapNode, LEVEL, NUMRECS, TreeKind};

use super::used::Used;

/// The bytes of a block that mean something.
pub(super) fn used(block: &[u8], tree: TreeKind) -> Used {
    let head = tree.header().len;
    let count = usize::from(NUMRECS.get(block));
    if LEVEL.get(block) == 0 {
        return Used::up_to(head + count * tree.rec_len());
    }
    let pointers = head + tree.max_node(block.len()) * tree.key_len();
    Used::up_to(head + count * tree.key_len())
        .and(pointers..pointers + count * tree.header().ptr_len)
}

/// The bytes of an extent tree's root in a fork of `fork_len` bytes that mean something.
pub(super) fn used_root(fork_len: usize, count: usize) -> Used {
    let node = BmapNode::root(fork_len);
    let count = count.min(node.max());
    let (keys, pointers) = (node.key(0).offset(), node.ptr(0).offset());
    Used::up_to(keys + 8 * count).and(pointers..pointers + 8 * count)
}
