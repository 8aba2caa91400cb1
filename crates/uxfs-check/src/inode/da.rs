//! Walks the tree of nodes over directory leaves and attribute leaves.
//!
//! 1. A block is entered only once, and only if its level matches its position in the tree.
//! 2. Sibling pointers link the blocks of a level in the order of the tree.

use rustc_hash::FxHashSet;
use uxfs_format::da::{self, MAX_DEPTH};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{FileBlock, FsBlock, Lsn};

use super::fork::Map;
use super::pass::Inode;
use crate::bytes::be64;
use crate::code::{self, Code};
use crate::ctx::Ctx;
use crate::finding::Place;

/// Number of damaged blocks after which the check gives up on a fork.
const DAMAGE_MAX: usize = 16;

/// Reads blocks of a directory or attribute fork.
pub(crate) struct Reader<'r, 'a> {
    /// The shared state.
    pub(crate) ctx: &'r Ctx<'a>,
    /// The inode that owns the fork.
    pub(crate) inode: &'r Inode<'r>,
    /// The fork's extents.
    pub(crate) map: &'r Map,
    /// File system blocks in one block of the fork.
    pub(crate) fsbs: u64,
    /// The code under which a damaged leaf is reported.
    pub(crate) code: Code,
    damage: usize,
    buf: Vec<u8>,
}

impl<'r, 'a> Reader<'r, 'a> {
    /// A reader of blocks of `fsbs` file system blocks each.
    pub(crate) fn new(
        ctx: &'r Ctx<'a>,
        inode: &'r Inode<'r>,
        map: &'r Map,
        fsbs: u64,
        code: Code,
    ) -> Self {
        let buf = vec![0; (fsbs as usize) << ctx.geo.block_log];
        Self { ctx, inode, map, fsbs, code, damage: 0, buf }
    }

    /// Have too many damaged blocks been found?
    pub(crate) fn gave_up(&self) -> bool {
        self.damage >= DAMAGE_MAX
    }

    /// The location of a block.
    pub(crate) fn place(&self, fsb: FsBlock) -> Place {
        self.ctx.place(fsb).of(self.inode.ino)
    }

    /// Reads the block at an offset; it must be of one of the `kinds`. Returns kind, block number
    /// and bytes.
    pub(crate) fn read(
        &mut self,
        offset: u64,
        kinds: &[BufKind],
    ) -> Option<(BufKind, FsBlock, &[u8])> {
        if self.gave_up() {
            return None;
        }
        let read = self.map.read(self.ctx, self.inode, FileBlock(offset), &mut self.buf);
        let Some(fsb) = read else {
            self.damage += 1;
            let message = format!("no block at offset {offset}");
            self.ctx.find(self.code, self.inode.place(), message);
            return None;
        };
        let place = self.place(fsb);
        let Some(kind) = BufKind::identify(&self.buf, kinds) else {
            self.damage += 1;
            let message = format!("the block at offset {offset} has a wrong magic number");
            self.ctx.find(self.code, place, message);
            return None;
        };
        let daddr = self.ctx.geo.fsb_daddr(fsb);
        let checked = verify::check(&self.buf, kind, daddr, &self.ctx.geo).and_then(|()| {
            verify::check_owner(&self.buf, kind, daddr, Owner::Inode(self.inode.ino))
        });
        if !verify::checksum_matches(&self.buf, kind) {
            let message = format!("{}: checksum does not match", kind.name());
            self.ctx.find(self.code, place.clone(), message);
        }
        if let Err(e) = checked {
            self.damage += 1;
            let message = format!("{} at offset {offset}: {}", kind.name(), e.detail);
            self.ctx.find(self.code, place, message);
            return None;
        }
        if let Some(layout) = kind.layout() {
            self.ctx.check_lsn(Lsn(be64(&self.buf, layout.lsn)), &place);
        }
        Some((kind, fsb, &self.buf))
    }
}

/// A walk of the tree.
pub(crate) struct Tree<'t, 'r, 'a> {
    reader: &'t mut Reader<'r, 'a>,
    leaf: BufKind,
    before: [Option<(u32, u32)>; MAX_DEPTH + 1],
    last: u32,
    /// Blocks of the tree.
    pub(crate) seen: FxHashSet<u64>,
    /// Was the whole tree readable?
    pub(crate) complete: bool,
}

impl<'t, 'r, 'a> Tree<'t, 'r, 'a> {
    /// A walk of a tree whose leaves have kind `leaf`.
    pub(crate) fn new(reader: &'t mut Reader<'r, 'a>, leaf: BufKind) -> Self {
        let before = [None; MAX_DEPTH + 1];
        Self { reader, leaf, before, last: 0, seen: FxHashSet::default(), complete: true }
    }

    /// Walks the tree from the root; calls `each` with every leaf and its block number.
    pub(crate) fn run(&mut self, root: u64, each: &mut dyn FnMut(&[u8], FsBlock)) {
        let Ok(root) = u32::try_from(root) else { return };
        self.visit(root, None, each);
        for (block, forw) in self.before.iter().flatten() {
            if *forw != 0 && self.complete {
                let message =
                    format!("block {block} is the last of its level, but links to {forw}");
                self.reader.ctx.find(code::DA_CHAIN, self.reader.inode.place(), message);
            }
        }
    }

    /// Walks the subtree under a block; returns its highest hash.
    fn visit(
        &mut self,
        block: u32,
        level: Option<usize>,
        each: &mut dyn FnMut(&[u8], FsBlock),
    ) -> Option<u32> {
        let ctx = self.reader.ctx;
        let place = self.reader.inode.place();
        if !self.seen.insert(block.into()) {
            self.complete = false;
            ctx.find(code::DA, place, format!("block {block} is reached twice"));
            return None;
        }
        let both = [BufKind::DaNode, self.leaf];
        let kinds = match level {
            None => &both[..],
            Some(0) => &both[1..],
            Some(_) => &both[..1],
        };
        let Some((kind, fsb, bytes)) = self.reader.read(block.into(), kinds) else {
            self.complete = false;
            return None;
        };
        let seen = if kind == BufKind::DaNode { da::level(bytes) } else { 0 };
        if level.is_some_and(|level| level != seen) || seen > MAX_DEPTH {
            self.complete = false;
            ctx.find(code::DA, place, format!("block {block} has level {seen}"));
            return None;
        }
        let (forw, back) = (da::forw(bytes), da::back(bytes));
        let (wanted, named) = self.before[seen].replace((block, forw)).unwrap_or((0, block));
        if (back != wanted || named != block) && self.complete {
            let message = format!("block {block} is not linked to the block before it");
            ctx.find(code::DA_CHAIN, place.clone(), message);
        }
        if kind != BufKind::DaNode {
            return self.leaf(fsb, each);
        }
        let bytes = bytes.to_vec();
        let mut last = None;
        for index in 0..da::count(&bytes) {
            let child = self.visit(da::child(&bytes, index), Some(seen - 1), each);
            last = Some(da::hash(&bytes, index));
            if child.is_some() && child != last {
                let message =
                    format!("entry {index} of node {block} differs from its child's hash");
                ctx.find(code::DA_HASH, place.clone(), message);
            }
        }
        last
    }

    fn leaf(&mut self, fsb: FsBlock, each: &mut dyn FnMut(&[u8], FsBlock)) -> Option<u32> {
        let reader = &*self.reader;
        let bytes = &reader.buf[..];
        let hash = |index: usize| match self.leaf {
            BufKind::AttrLeaf => uxfs_format::attr::leaf::Entry::decode(bytes, index).hash,
            _ => da::hash(bytes, index),
        };
        let count = da::count(bytes);
        let last = count.checked_sub(1).map(hash);
        if count > 0 && hash(0) < self.last {
            let message = "the first hash of a leaf is below the last hash of the leaf before";
            reader.ctx.find(code::DA_CHAIN, reader.place(fsb), message);
        }
        self.last = last.unwrap_or(self.last);
        each(bytes, fsb);
        last
    }
}
