//! Tests of the btree engine against a map as the model, on trees of 1 KiB blocks. Order, half-full
//! blocks, sibling links and keys are checked throughout. Nothing is committed: after the cancel the
//! volume must be unchanged.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::btree::{BmapNode, ROOT_NUMRECS, Rmap, RmapKey, RmapOwner};
use uxfs_format::extent::Extent;
use uxfs_format::inode::ForkFormat;
use uxfs_format::{AgBlock, FileBlock, FsBlock, Ino};
use uxfs_testkit::Rng;

use super::change;
use super::cursor::read_block;
use super::node::Node;
use super::short::RmapKind;
use super::{AgKind, AgTree, BlockSource, Cursor, Env, Root, Tree};
use crate::bmap::Bmbt;
use crate::buf::BufRef;
use crate::error::Result;
use crate::inode::Changed;
use crate::tx::Tx;
use crate::{Fs, OpenOptions, alloc};
use uxfs_format::btree::TreeKind;
use uxfs_format::inode::Fork;
use uxfs_format::verify::Owner;
use uxfs_format::{AgNo, Daddr};

/// A tree separate from the volume's trees, with the layout of kind `K` and blocks from free space.
struct Beside<K> {
    ag: AgTree<K>,
    root: Cell<(u64, usize)>,
    given_back: RefCell<Vec<u64>>,
}

impl<K: AgKind + BlockSource> Beside<K> {
    fn new(tx: &mut Tx<'_>) -> Self {
        let tree = Self {
            ag: AgTree::new(AgNo(0)),
            root: Cell::new((0, 1)),
            given_back: RefCell::default(),
        };
        let (_, block) = change::new_block(tx, &tree, 0, 0).unwrap();
        tree.root.set((block, 1));
        tree
    }
}

impl<K: AgKind + BlockSource> Tree for Beside<K> {
    type Rec = K::Rec;
    type Key = K::Key;
    const KIND: TreeKind = K::KIND;
    const OVERLAPPING: bool = K::OVERLAPPING;

    fn read_rec(raw: &[u8]) -> K::Rec {
        K::read_rec(raw)
    }
    fn write_rec(rec: &K::Rec, raw: &mut [u8]) {
        K::write_rec(rec, raw);
    }
    fn key(rec: &K::Rec) -> K::Key {
        K::key(rec)
    }
    fn high_key(rec: &K::Rec) -> K::Key {
        K::high_key(rec)
    }
    fn read_key(raw: &[u8]) -> K::Key {
        K::read_key(raw)
    }
    fn write_key(key: &K::Key, raw: &mut [u8]) {
        K::write_key(key, raw);
    }
    fn root(&self, _: Env<'_, '_>) -> Root {
        Root::Block(self.root.get().0, self.root.get().1)
    }
    fn set_root(&self, _: &mut Tx<'_>, block: u64, levels: usize) {
        self.root.set((block, levels));
    }
    fn daddr(&self, fs: &crate::Mount, block: u64) -> Result<Daddr> {
        self.ag.daddr(fs, block)
    }
    fn block_at(&self, fs: &crate::Mount, daddr: Daddr) -> u64 {
        self.ag.block_at(fs, daddr)
    }
    fn owner(&self, env: Env<'_, '_>) -> Owner {
        self.ag.owner(env)
    }
    fn alloc(&self, tx: &mut Tx<'_>, near: u64) -> Result<u64> {
        if let Some(block) = self.given_back.borrow_mut().pop() {
            return Ok(block);
        }
        tx.lock_ag(AgNo(0))?;
        let near = AgBlock(near as u32);
        alloc::alloc_block(tx, AgNo(0), near, RmapOwner::REFC).map(|b| b.0.into())
    }
    fn free(&self, tx: &mut Tx<'_>, buf: &BufRef) -> Result<()> {
        tx.invalidate(buf);
        self.given_back.borrow_mut().push(self.block_at(tx.fs(), buf.daddr()));
        Ok(())
    }
}

/// State kept for each level while the tree is walked.
#[derive(Default)]
struct Seen {
    blocks: Vec<u64>,
    siblings: Vec<(Option<u64>, Option<u64>)>,
}

/// Walks the tree and fails on the first violated invariant. Returns the records.
fn walk<T: Tree>(tx: &Tx<'_>, tree: &T) -> Vec<T::Rec> {
    let env = Env::Tx(tx);
    let (root, level) = match tree.root(env) {
        Root::Block(block, levels) => {
            (read_block(env, tree, block, levels - 1).unwrap(), levels - 1)
        }
        Root::Fork(_, level) => (Node::Fork, level),
    };
    let mut levels: Vec<Seen> = (0..level).map(|_| Seen::default()).collect();
    let mut records = Vec::new();
    walk_node(tx, tree, &root, level, true, &mut levels, &mut records);
    for seen in levels {
        for (at, siblings) in seen.siblings.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| seen.blocks[at]);
            assert_eq!(*siblings, (before, seen.blocks.get(at + 1).copied()));
        }
    }
    assert!(records.windows(2).all(|w| T::key(&w[0]) < T::key(&w[1])), "out of order");
    records
}

fn walk_node<T: Tree>(
    tx: &Tx<'_>,
    tree: &T,
    node: &Node,
    level: usize,
    top: bool,
    levels: &mut [Seen],
    records: &mut Vec<T::Rec>,
) -> Option<(T::Key, T::Key)> {
    let env = Env::Tx(tx);
    let shape = node.shape(env, tree, level);
    let num = node.num(env, tree, level);
    assert!(num <= shape.max, "{num} entries, most {}", shape.max);
    // An only child of a root in an inode may hold fewer entries.
    let only = levels.len() == level + 1
        && matches!(tree.root(env), Root::Fork(..))
        && Node::Fork.num(env, tree, level + 1) == 1;
    assert!(top || only || num >= shape.min, "{num} entries at level {level} of {}", shape.min);
    assert!(!top || level == 0 || num > usize::from(matches!(node, Node::Block(_))));
    let mut span: Option<(T::Key, T::Key)> = None;
    for at in 0..num {
        let (low, high) = if level == 0 {
            let rec = node.with(env, tree, 0, |b, s| T::read_rec(&b[s.entries(at..at + 1)]));
            records.push(rec);
            (T::key(&rec), T::high_key(&rec))
        } else {
            let half = if T::OVERLAPPING { T::KIND.key_len() / 2 } else { 0 };
            let (block, stored) = node.with(env, tree, level, |b, s| {
                let raw = &b[s.entries(at..at + 1)];
                (s.ptr(b, at), (T::read_key(raw), T::read_key(&raw[half..])))
            });
            let child = read_block(env, tree, block, level - 1).unwrap();
            let Node::Block(buf) = &child else { unreachable!() };
            levels[level - 1].blocks.push(block);
            levels[level - 1].siblings.push((
                change::sibling_number::<T>(buf, true),
                change::sibling_number::<T>(buf, false),
            ));
            let is = walk_node(tx, tree, &child, level - 1, false, levels, records).unwrap();
            assert_eq!(stored.0, is.0, "low key");
            assert!(!T::OVERLAPPING || stored.1 == is.1, "high key {stored:?}, but {is:?}");
            is
        };
        span = Some(span.map_or((low, high), |(l, h)| (l, h.max(high))));
    }
    span
}

/// A kind of record for the tests, made from a number that determines its order.
trait Sample: Tree {
    fn rec(number: u64, content: u64) -> Self::Rec;
    fn same(a: &Self::Rec, b: &Self::Rec) -> bool;
}

impl Sample for Beside<RmapKind> {
    fn rec(number: u64, content: u64) -> Rmap {
        Rmap {
            start: AgBlock(number as u32 / 3),
            // Mostly short extents; some extend over many others.
            len: 1 + (content % if content.is_multiple_of(61) { 3000 } else { 4 }) as u32,
            owner: RmapOwner(100 + number % 3),
            offset: 7,
            ..Rmap::default()
        }
    }
    fn same(a: &Rmap, b: &Rmap) -> bool {
        a == b
    }
}

impl Sample for Bmbt {
    fn rec(number: u64, content: u64) -> Extent {
        Extent {
            offset: FileBlock(number * 8),
            start: FsBlock(1000 + content % 4096),
            len: 1 + content % 8,
            unwritten: content & 8 != 0,
        }
    }
    fn same(a: &Extent, b: &Extent) -> bool {
        a == b
    }
}

/// The order of the numbers of new records.
#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    Random,
}

struct Trial<'t, 'fs, T: Sample> {
    tx: &'t mut Tx<'fs>,
    tree: T,
    model: BTreeMap<u64, T::Rec>,
    rng: Rng,
}

impl<T: Sample> Trial<'_, '_, T> {
    fn insert(&mut self, number: u64) {
        let rec = T::rec(number, self.rng.bits() >> 8);
        let key = T::key(&rec);
        let cursor = Cursor::<T>::seek(Env::Tx(self.tx), &self.tree, &key).unwrap();
        let exists = self.model.contains_key(&number);
        let done = cursor.insert(self.tx, &self.tree, &rec);
        assert_eq!(done.is_err(), exists, "{number}: {done:?}");
        self.model.entry(number).or_insert(rec);
    }

    fn some(&mut self) -> Option<(u64, T::Rec)> {
        let from = self.rng.below(1 << 20);
        let found = self.model.range(from..).next().or_else(|| self.model.iter().next());
        found.map(|(n, r)| (*n, *r))
    }

    fn seek(&self, rec: &T::Rec) -> Cursor<T> {
        let cursor = Cursor::<T>::seek(Env::Tx(self.tx), &self.tree, &T::key(rec)).unwrap();
        assert!(cursor.rec(Env::Tx(self.tx), &self.tree).is_some_and(|r| T::same(&r, rec)));
        cursor
    }

    fn delete(&mut self, number: u64, rec: &T::Rec) {
        self.seek(rec).delete(self.tx, &self.tree).unwrap();
        self.model.remove(&number);
    }

    fn update(&mut self, number: u64, rec: &T::Rec) {
        let new = T::rec(number, self.rng.bits() >> 8);
        self.seek(rec).update(self.tx, &self.tree, &new).unwrap();
        self.model.insert(number, new);
    }

    fn check(&mut self) {
        let env = Env::Tx(self.tx);
        let found = walk(self.tx, &self.tree);
        assert_eq!(found.len(), self.model.len());
        assert!(found.iter().zip(self.model.values()).all(|(a, b)| T::same(a, b)));
        // Step forwards and backwards from a random position, and compare the record at or before
        // it.
        let number = self.rng.below(1 << 20);
        let key = T::key(&T::rec(number, 0));
        let mut cursor = Cursor::<T>::seek(env, &self.tree, &key).unwrap();
        for (_, rec) in self.model.range(number..).take(200) {
            assert!(cursor.rec(env, &self.tree).is_some_and(|r| T::same(&r, rec)));
            cursor.next(env, &self.tree).unwrap();
        }
        let mut cursor = Cursor::<T>::seek_le(env, &self.tree, &key).unwrap();
        for (_, rec) in self.model.range(..=number).rev().take(200) {
            let at = cursor.as_mut().unwrap();
            assert!(at.rec(env, &self.tree).is_some_and(|r| T::same(&r, rec)));
            if !at.back(env, &self.tree).unwrap() {
                cursor = None;
            }
        }
        let last = Cursor::<T>::last(env, &self.tree).unwrap();
        let last = last.and_then(|c| c.rec(env, &self.tree));
        assert_eq!(last.is_some(), !self.model.is_empty());
    }

    /// Fills the tree with `count` records, changes it at random, and empties it except for `rest`.
    fn run(&mut self, order: Order, count: u64, rest: usize) {
        for step in 0..count {
            let number = match order {
                Order::Up => 4 * step,
                Order::Down => 4 * (count - step),
                Order::Random => self.rng.below(1 << 20),
            };
            self.insert(number);
            if step % 199 == 0 || step < 150 {
                self.check();
            }
        }
        for step in 0..count / 2 {
            match (self.rng.below(3), self.some()) {
                (0, Some((number, rec))) => self.delete(number, &rec),
                (1, Some((number, rec))) => self.update(number, &rec),
                _ => {
                    let number = self.rng.below(1 << 20);
                    self.insert(number);
                }
            }
            if step % 199 == 0 {
                self.check();
            }
        }
        let mut step = 0;
        while self.model.len() > rest {
            let from_end = match order {
                Order::Up => self.model.iter().next(),
                Order::Down => self.model.iter().next_back(),
                Order::Random => None,
            };
            let one = from_end.map(|(n, r)| (*n, *r)).or_else(|| self.some());
            let (number, rec) = one.unwrap();
            self.delete(number, &rec);
            step += 1;
            if step % 199 == 0 || self.model.len() < 150 {
                self.check();
            }
        }
    }
}

fn volume(options: &[&str]) -> (tempfile::TempDir, Fs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    uxfs_oracle::mkfs(&path, 512 << 20, options);
    let dev: Arc<dyn BlockDev> = Arc::new(FileDev::open(&path, OpenMode::Write).unwrap());
    let fs = Fs::open(dev, OpenOptions { seed: Some(1), ..OpenOptions::default() }).unwrap();
    (dir, fs)
}

/// The AGF of the first group, which every trial changes and every cancel restores.
fn header(fs: &Fs) -> Vec<u8> {
    let mut tx = Tx::begin(fs, 0).unwrap();
    tx.lock_ag(AgNo(0)).unwrap();
    let agf = Arc::clone(&tx.ag(AgNo(0)).headers().agf);
    agf.read().to_vec()
}

#[test]
fn an_overlapping_tree_matches_a_map() {
    let (_dir, fs) = volume(&["-b", "size=1024", "-m", "rmapbt=1"]);
    for (seed, order) in [(1, Order::Random), (2, Order::Up), (3, Order::Down)] {
        println!("seed {seed}, {order:?}");
        let before = header(&fs);
        let mut tx = Tx::begin(&fs, 2000).unwrap();
        let tree = Beside::<RmapKind>::new(&mut tx);
        let mut trial = Trial { tx: &mut tx, tree, model: BTreeMap::new(), rng: Rng::new(seed) };
        trial.run(order, 8000, 0);
        assert_eq!(trial.tree.root.get().1, 1, "an emptied tree is one leaf");
        drop(tx);
        assert_eq!(header(&fs), before);
    }
}

#[test]
fn an_overlap_search_matches_a_scan() {
    let (_dir, fs) = volume(&["-b", "size=1024", "-m", "rmapbt=1"]);
    let mut tx = Tx::begin(&fs, 2000).unwrap();
    let tree = Beside::<RmapKind>::new(&mut tx);
    let mut trial = Trial { tx: &mut tx, tree, model: BTreeMap::new(), rng: Rng::new(5) };
    for _ in 0..4000 {
        let number = trial.rng.below(30_000);
        trial.insert(number);
    }
    for _ in 0..500 {
        let block = AgBlock(trial.rng.below(12_000) as u32);
        let (low, high) = (RmapKey::at(block), RmapKey::last_at(block));
        let mut found = Vec::new();
        let env = Env::Tx(trial.tx);
        Cursor::<Beside<RmapKind>>::overlapping(env, &trial.tree, &low, &high, &mut |rec| {
            found.push(*rec);
            true
        })
        .unwrap();
        let touches = |r: &&Rmap| r.start <= block && r.start.0 + r.len > block.0;
        let wanted: Vec<Rmap> = trial.model.values().filter(touches).copied().collect();
        assert_eq!(found.iter().filter(|r| touches(r)).copied().collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn a_tree_rooted_in_an_inode_matches_a_map() {
    for block in ["size=1024", "size=65536"] {
        let (_dir, fs) = volume(&["-b", block]);
        for (seed, order) in [(1, Order::Random), (2, Order::Up), (3, Order::Down)] {
            println!("{block}, seed {seed}, {order:?}");
            let mut tx = Tx::begin(&fs, 2000).unwrap();
            let slot = tx.lock_inode(fs.root()).unwrap();
            let before = (tx.inode(slot).core.clone(), tx.inode(slot).literal.clone());
            // A root with a single leaf, as in a fork that has just outgrown the inode.
            let tree = Bmbt::new(slot, Fork::Data);
            tx.inode_mut(slot, Changed::DATA).literal.fill(0);
            tx.core_mut(slot).format = ForkFormat::Btree;
            let ino: Ino = tx.inode(slot).ino;
            let goal = fs.inode_goal(ino).0;
            tree.set_root(&mut tx, 0, 2);
            let (_, leaf) = change::new_block(&mut tx, &tree, 0, goal).unwrap();
            let root = tx.fork_mut(slot, Fork::Data);
            ROOT_NUMRECS.set(root, 1);
            BmapNode::root(root.len()).ptr(0).set(root, FsBlock(leaf));
            let mut trial =
                Trial { tx: &mut tx, tree, model: BTreeMap::new(), rng: Rng::new(seed) };
            trial.insert(1 << 19);
            trial.run(order, 6000, 30);
            drop(tx);
            let mut tx = Tx::begin(&fs, 0).unwrap();
            let slot = tx.lock_inode(ino).unwrap();
            let after = (tx.inode(slot).core.clone(), tx.inode(slot).literal.clone());
            assert_eq!(after, before, "a cancel restores the inode");
        }
    }
}
