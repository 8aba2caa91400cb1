//! A tree block (or a root in an inode's fork) as a list of numbered entries.

use core::ops::Range;

use uxfs_format::btree::{self, LEVEL, NUMRECS, ROOT_HEADER_LEN, ROOT_NUMRECS, TreeKind};
use uxfs_format::bytes::Field;

use super::tree::{Env, Tree};
use crate::buf::BufRef;
use crate::tx::Tx;

/// Where a node is stored.
#[derive(Clone)]
pub(super) enum Node {
    /// In a block.
    Block(BufRef),
    /// In the inode.
    Fork,
}

/// The layout of entries in a node of `len` bytes at `level`.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    header: usize,
    numrecs: Field<u16>,
    /// Maximum number of entries.
    pub(super) max: usize,
    /// Minimum number of entries, except in the root.
    pub(super) min: usize,
    rec_len: usize,
    key_len: usize,
    ptr_len: usize,
    leaf: bool,
}

impl Shape {
    pub(super) fn of<T: Tree>(node: &Node, level: usize, len: usize) -> Self {
        let header = T::KIND.header();
        let (head, numrecs, max) = match node {
            Node::Block(_) if level == 0 => (header.len, NUMRECS, T::KIND.max_leaf(len)),
            Node::Block(_) => (header.len, NUMRECS, T::KIND.max_node(len)),
            Node::Fork => (ROOT_HEADER_LEN, ROOT_NUMRECS, TreeKind::max_bmap_root(len)),
        };
        Self {
            header: head,
            numrecs,
            max,
            min: max / 2,
            rec_len: T::KIND.rec_len(),
            key_len: T::KIND.key_len(),
            ptr_len: header.ptr_len,
            leaf: level == 0,
        }
    }

    /// Byte range of the entries `range`: records of a leaf, keys of a node.
    pub(super) fn entries(&self, range: Range<usize>) -> Range<usize> {
        let len = if self.leaf { self.rec_len } else { self.key_len };
        self.header + range.start * len..self.header + range.end * len
    }

    /// Byte range of the pointers `range` of a node.
    pub(super) fn ptrs(&self, range: Range<usize>) -> Range<usize> {
        let start = self.header + self.max * self.key_len;
        start + range.start * self.ptr_len..start + range.end * self.ptr_len
    }

    pub(super) fn num(&self, bytes: &[u8]) -> usize {
        self.numrecs.get(bytes).into()
    }

    pub(super) fn ptr(&self, bytes: &[u8], index: usize) -> u64 {
        btree::ptr(&bytes[self.ptrs(index..index + 1)])
    }
}

/// Size of the largest entry: an rmap key pair or a record.
pub(super) const ENTRY_MAX: usize = 40;

/// One encoded entry: a record, or a key with its pointer.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) bytes: [u8; ENTRY_MAX],
    pub(super) ptr: u64,
}

impl Node {
    /// Calls `f` with the node's bytes.
    pub(super) fn with<T: Tree, R>(
        &self,
        env: Env<'_, '_>,
        tree: &T,
        level: usize,
        f: impl FnOnce(&[u8], Shape) -> R,
    ) -> R {
        match self {
            Self::Block(buf) => {
                let content = buf.read();
                f(&content, Shape::of::<T>(self, level, content.len()))
            }
            Self::Fork => {
                let bytes = fork_bytes(env, tree);
                f(bytes, Shape::of::<T>(self, level, bytes.len()))
            }
        }
    }

    pub(super) fn num<T: Tree>(&self, env: Env<'_, '_>, tree: &T, level: usize) -> usize {
        self.with(env, tree, level, |b, s| s.num(b))
    }

    /// Length of the node's bytes.
    fn len<T: Tree>(&self, env: Env<'_, '_>, tree: &T) -> usize {
        match self {
            Self::Block(buf) => buf.len(),
            Self::Fork => fork_bytes(env, tree).len(),
        }
    }

    pub(super) fn shape<T: Tree>(&self, env: Env<'_, '_>, tree: &T, level: usize) -> Shape {
        Shape::of::<T>(self, level, self.len(env, tree))
    }

    /// Changes bytes `range` of the node.
    pub(super) fn edit<T: Tree>(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        range: Range<usize>,
        f: impl FnOnce(&mut [u8]),
    ) {
        match (self, tree.fork()) {
            (Self::Block(buf), _) => f(&mut tx.edit(buf, range)),
            (Self::Fork, Some((Some(slot), fork))) => f(&mut tx.fork_mut(slot, fork)[range]),
            (Self::Fork, _) => unreachable!("a root in an inode is changed in a transaction"),
        }
    }

    pub(super) fn set_num<T: Tree>(&self, tx: &mut Tx<'_>, tree: &T, shape: &Shape, num: usize) {
        debug_assert!(num <= shape.max);
        self.edit(tx, tree, shape.numrecs.range(), |b| Field::at(0).set(b, num as u16));
    }

    /// Makes space for `count` entries at `at` by moving the entries after it. Does not change the
    /// count.
    pub(super) fn open<T: Tree>(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        shape: &Shape,
        num: usize,
        at: usize,
        count: usize,
    ) {
        debug_assert!(num + count <= shape.max && at <= num);
        if at == num {
            return;
        }
        let moved = |r: Range<usize>, unit: usize| {
            move |b: &mut [u8]| b.copy_within(0..r.len() - count * unit, count * unit)
        };
        let range = shape.entries(at..num + count);
        let unit = shape.entries(0..1).len();
        self.edit(tx, tree, range.clone(), moved(range, unit));
        if !shape.leaf {
            let range = shape.ptrs(at..num + count);
            self.edit(tx, tree, range.clone(), moved(range, shape.ptr_len));
        }
    }

    /// Closes the gap of `count` entries at `at`.
    pub(super) fn close<T: Tree>(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        shape: &Shape,
        num: usize,
        at: usize,
        count: usize,
    ) {
        if at + count == num {
            return;
        }
        let unit = shape.entries(0..1).len();
        self.edit(tx, tree, shape.entries(at..num), |b| b.copy_within(count * unit.., 0));
        if !shape.leaf {
            let unit = shape.ptr_len;
            self.edit(tx, tree, shape.ptrs(at..num), |b| b.copy_within(count * unit.., 0));
        }
    }

    /// Writes one entry.
    pub(super) fn put<T: Tree>(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        shape: &Shape,
        at: usize,
        entry: &Entry,
    ) {
        self.edit(tx, tree, shape.entries(at..at + 1), |b| {
            let len = b.len();
            b.copy_from_slice(&entry.bytes[..len]);
        });
        if !shape.leaf {
            self.edit(tx, tree, shape.ptrs(at..at + 1), |b| btree::put_ptr(b, entry.ptr));
        }
    }

    /// Copies entries `from` of another node to `at` of this one.
    pub(super) fn copy<T: Tree>(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        level: usize,
        at: usize,
        source: &Self,
        from: Range<usize>,
    ) {
        let env = Env::Tx(tx);
        let shape = self.shape(env, tree, level);
        let count = from.len();
        let (entries, ptrs) = source.with(env, tree, level, |b, s| {
            let entries: Vec<u8> = b[s.entries(from.clone())].to_vec();
            let ptrs: Vec<u8> = if s.leaf { Vec::new() } else { b[s.ptrs(from)].to_vec() };
            (entries, ptrs)
        });
        self.edit(tx, tree, shape.entries(at..at + count), |b| b.copy_from_slice(&entries));
        if !shape.leaf {
            self.edit(tx, tree, shape.ptrs(at..at + count), |b| b.copy_from_slice(&ptrs));
        }
    }
}

fn fork_bytes<'a, T: Tree>(env: Env<'a, '_>, tree: &T) -> &'a [u8] {
    match tree.fork() {
        Some((slot, fork)) => env.inode(slot).fork(fork),
        None => &[],
    }
}

/// The level that a block's header states.
pub(super) fn level_of(bytes: &[u8]) -> usize {
    LEVEL.get(bytes).into()
}
