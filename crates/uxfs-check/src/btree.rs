//! Walks a btree of any kind and checks its structure.
//!
//! 1. A block is entered only once, so cycles and shared blocks end the walk there. A block with
//!    the wrong owner, kind or level is not entered.
//! 2. The visitor gets records in the order of the leaves, after the checks of their block.
//! 3. The walk checks the order of records; the visitor checks their content.

use rustc_hash::FxHashSet;
use uxfs_format::btree::{self, MAX_LEVELS, TreeKind};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgBlock, AgNo, Extent, FsBlock, Lsn};

use crate::bytes::{be16, be32, be64, put32, put64};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;

/// Length of the longest key in bytes: that of the reverse-mapping btree.
const KEY_MAX: usize = 20;
/// The flag that is not part of a reverse-mapping key.
const RMAP_UNWRITTEN: u64 = 1 << 61;

/// A key, padded with zeroes. Except for cntbt keys, comparing the bytes compares the keys.
pub(crate) type Key = [u8; KEY_MAX];

/// Lowest and highest key of a subtree.
#[derive(Clone, Copy)]
struct Span {
    low: Key,
    high: Key,
}

/// One walk of one tree.
pub(crate) struct Walk<'w, 'a> {
    ctx: &'w Ctx<'a>,
    kind: TreeKind,
    owner: Owner,
    ag: AgNo,
    place: Place,
    last: Option<Key>,
    /// For each level: the block visited last, and its right sibling pointer.
    before: [Option<(u64, u64)>; MAX_LEVELS + 1],
    seen: FxHashSet<u64>,
    /// Blocks of the tree, in the order of the walk.
    pub(crate) blocks: Vec<FsBlock>,
    /// Was every block of the tree readable?
    pub(crate) complete: bool,
}

/// The key of a record as a node stores it.
fn low_key(kind: TreeKind, record: &[u8]) -> Key {
    let mut key = [0; KEY_MAX];
    match kind {
        TreeKind::Bno | TreeKind::Cnt => key[..8].copy_from_slice(&record[..8]),
        TreeKind::Ino | TreeKind::FreeIno | TreeKind::Refcount => {
            key[..4].copy_from_slice(&record[..4]);
        }
        TreeKind::Bmap => {
            let offset = be64(record, 0) >> 9 & ((1 << 54) - 1);
            put64(&mut key, 0, offset);
        }
        TreeKind::Rmap => {
            key[..4].copy_from_slice(&record[..4]);
            key[4..12].copy_from_slice(&record[8..16]);
            let offset = be64(record, 16) & !RMAP_UNWRITTEN;
            put64(&mut key, 12, offset);
        }
    }
    key
}

/// The highest key that a record covers; differs from [`low_key`] for reverse mappings only.
fn high_key(kind: TreeKind, record: &[u8]) -> Key {
    let mut key = low_key(kind, record);
    if kind == TreeKind::Rmap {
        let more = be32(record, 4).saturating_sub(1);
        let start = be32(record, 0).wrapping_add(more);
        put32(&mut key, 0, start);
        let (owner, offset) = (be64(record, 8), be64(record, 16) & !RMAP_UNWRITTEN);
        if owner >> 63 == 0 && offset & 1 << 62 == 0 {
            let end = offset.wrapping_add(more.into());
            put64(&mut key, 12, end);
        }
    }
    key
}

/// A stored reverse-mapping key without the unwritten flag. Kernels up to 6.3 store the flag in
/// keys but ignore it.
fn without_unwritten(stored: &[u8]) -> Key {
    let mut key = [0; KEY_MAX];
    key.copy_from_slice(stored);
    let offset = be64(stored, 12) & !RMAP_UNWRITTEN;
    put64(&mut key, 12, offset);
    key
}

/// Converts a key to a form that sorts by byte order.
fn order(kind: TreeKind, key: &Key) -> Key {
    let mut order = *key;
    if kind == TreeKind::Cnt {
        order[..4].copy_from_slice(&key[4..8]);
        order[4..8].copy_from_slice(&key[..4]);
    }
    order
}

impl<'w, 'a> Walk<'w, 'a> {
    /// A walk of a tree of an allocation group.
    pub(crate) fn of_group(ctx: &'w Ctx<'a>, kind: TreeKind, ag: AgNo) -> Self {
        Self::new(ctx, kind, Owner::Ag(ag), ag, Place::VOLUME)
    }

    /// A walk of a fork's extent tree.
    pub(crate) fn of_fork(ctx: &'w Ctx<'a>, ino: uxfs_format::Ino) -> Self {
        Self::new(ctx, TreeKind::Bmap, Owner::Inode(ino), AgNo(0), Place::inode(ino))
    }

    fn new(ctx: &'w Ctx<'a>, kind: TreeKind, owner: Owner, ag: AgNo, place: Place) -> Self {
        Self {
            ctx,
            kind,
            owner,
            ag,
            place,
            last: None,
            before: [None; MAX_LEVELS + 1],
            seen: FxHashSet::default(),
            blocks: Vec::new(),
            complete: true,
        }
    }

    /// The block that a pointer refers to; `None` if it lies outside the valid range.
    fn target(&self, ptr: u64) -> Option<FsBlock> {
        let geo = &self.ctx.geo;
        if self.kind == TreeKind::Bmap {
            return geo.fsb_valid(FsBlock(ptr), 1).then_some(FsBlock(ptr));
        }
        let block = AgBlock(u32::try_from(ptr).ok()?);
        geo.agblock_valid(self.ag, block).then(|| geo.fsb(self.ag, block))
    }

    fn place_of(&self, fsb: FsBlock) -> Place {
        Place { inode: self.place.inode, ..self.ctx.place(fsb) }
    }

    /// Walks a whole tree of `levels` levels from its root block.
    pub(crate) fn run(&mut self, root: u64, levels: u32, each: &mut dyn FnMut(&[u8])) {
        if levels == 0 || levels as usize > MAX_LEVELS {
            self.complete = false;
            return;
        }
        self.visit(root, levels as usize - 1, true, each);
        self.finish();
    }

    /// Walks a fork's extent tree from its root in the inode.
    pub(crate) fn run_fork(&mut self, fork: &[u8], each: &mut dyn FnMut(Extent)) {
        let (level, count) = (usize::from(be16(fork, 0)), usize::from(be16(fork, 2)));
        let room = TreeKind::max_bmap_root(fork.len());
        if level == 0 || level >= MAX_LEVELS || count == 0 || count > room {
            self.complete = false;
            let message =
                format!("the extent btree root has level {level} and {count} of {room} keys");
            self.ctx.find(code::FORK, self.place.clone(), message);
            return;
        }
        let mut visit = |record: &[u8]| {
            if let Ok(raw) = record.try_into() {
                each(Extent::unpack(raw));
            }
        };
        for index in 0..count {
            let ptr = be64(fork, 4 + 8 * room + 8 * index);
            let low = self.visit(ptr, level - 1, count == 1, &mut visit).map(|span| span.low);
            let key = &fork[4 + 8 * index..12 + 8 * index];
            if low.is_some_and(|low| low[..8] != *key) {
                let message = format!("key {index} of the root differs from its child's");
                self.ctx.find(code::BTREE_KEY, self.place.clone(), message);
            }
        }
        self.finish();
    }

    /// Checks that the last block of each level has no right sibling.
    fn finish(&mut self) {
        let none = self.none();
        for (level, last) in self.before.iter().enumerate() {
            let Some((ptr, right)) = *last else { continue };
            if right != none && self.complete {
                let place = self.target(ptr).map_or(self.place.clone(), |fsb| self.place_of(fsb));
                let message = format!("the last block of level {level} has a right sibling");
                self.ctx.find(code::BTREE_SIBLING, place, message);
            }
        }
    }

    fn none(&self) -> u64 {
        if self.kind == TreeKind::Bmap { u64::MAX } else { u32::MAX.into() }
    }

    fn name(&self) -> &'static str {
        self.kind.block_name()
    }

    /// Reads and checks one block. `None` if the walk must not enter it.
    fn load(&mut self, ptr: u64, level: usize) -> Option<(FsBlock, Vec<u8>)> {
        let ctx = self.ctx;
        let Some(fsb) = self.target(ptr) else {
            let message = format!("{} pointer to invalid block {ptr}", self.name());
            ctx.find(code::BTREE_POINTER, self.tree_place(), message);
            return None;
        };
        let place = self.place_of(fsb);
        if !self.seen.insert(fsb.0) {
            ctx.find(code::BTREE_LOOP, place, format!("{} reached twice", self.name()));
            return None;
        }
        let mut block = vec![0; ctx.geo.block_size as usize];
        let daddr = ctx.geo.fsb_daddr(fsb);
        if !ctx.read(daddr, &mut block, &place) {
            return None;
        }
        let kind = BufKind::Btree(self.kind);
        if let Err(e) = verify::check(&block, kind, daddr, &ctx.geo) {
            ctx.find(code::BTREE, place, format!("{}: {}", self.name(), e.detail));
            return None;
        }
        if let Err(e) = verify::check_owner(&block, kind, daddr, self.owner) {
            ctx.find(code::BTREE_OWNER, place, format!("{}: {}", self.name(), e.detail));
            return None;
        }
        let seen = usize::from(btree::LEVEL.get(&block));
        if seen != level {
            let message = format!("{} has level {seen}, expected {level}", self.name());
            ctx.find(code::BTREE_LEVEL, place, message);
            return None;
        }
        if !verify::checksum_matches(&block, kind) {
            ctx.find(code::BTREE_CRC, place.clone(), format!("{}: wrong checksum", self.name()));
        }
        ctx.check_lsn(Lsn(be64(&block, self.kind.header().lsn)), &place);
        Some((fsb, block))
    }

    fn tree_place(&self) -> Place {
        if self.kind == TreeKind::Bmap { self.place.clone() } else { Place::ag(self.ag) }
    }

    fn siblings(&mut self, ptr: u64, level: usize, block: &[u8], place: &Place) {
        let header = self.kind.header();
        let number = |at: usize| {
            if header.ptr_len == 8 { be64(block, at) } else { be32(block, at).into() }
        };
        let (left, right) = (number(header.leftsib), number(header.rightsib));
        let before = self.before[level].replace((ptr, right));
        let (wanted, named) = before.map_or((self.none(), ptr), |(ptr, right)| (ptr, right));
        if (left != wanted || named != ptr) && self.complete {
            let message =
                format!("{}: sibling pointers disagree with the blocks before", self.name());
            self.ctx.find(code::BTREE_SIBLING, place.clone(), message);
        }
    }

    fn visit(
        &mut self,
        ptr: u64,
        level: usize,
        alone: bool,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<Span> {
        let Some((fsb, block)) = self.load(ptr, level) else {
            self.complete = false;
            return None;
        };
        let place = self.place_of(fsb);
        self.blocks.push(fsb);
        self.siblings(ptr, level, &block, &place);
        let count = usize::from(btree::NUMRECS.get(&block));
        let max = match level {
            0 => self.kind.max_leaf(block.len()),
            _ => self.kind.max_node(block.len()),
        };
        if !alone && count < max / 2 {
            let message = format!("{}: {count} records, minimum {}", self.name(), max / 2);
            self.ctx.find(code::BTREE_MIN, place.clone(), message);
        }
        if level == 0 {
            self.leaf(&block, count, &place, each)
        } else {
            self.node(&block, level, count, max, &place, each)
        }
    }

    fn leaf(
        &mut self,
        block: &[u8],
        count: usize,
        place: &Place,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<Span> {
        let (start, len) = (self.kind.header().len, self.kind.rec_len());
        let mut span: Option<Span> = None;
        for record in block.get(start..start + count * len)?.chunks_exact(len) {
            let low = low_key(self.kind, record);
            let high = high_key(self.kind, record);
            let place_in_order = order(self.kind, &low);
            if self.last.is_some_and(|last| last >= place_in_order) {
                let message = format!("{}: records out of order", self.name());
                self.ctx.find(code::BTREE_ORDER, place.clone(), message);
            }
            self.last = Some(place_in_order);
            span = Some(match span {
                None => Span { low, high },
                Some(span) => Span { low: span.low, high: span.high.max(high) },
            });
            each(record);
        }
        span
    }

    fn node(
        &mut self,
        block: &[u8],
        level: usize,
        count: usize,
        max: usize,
        place: &Place,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<Span> {
        let header = self.kind.header();
        let key_len = self.kind.key_len();
        let mut span: Option<Span> = None;
        for index in 0..count {
            let at = header.len + max * key_len + index * header.ptr_len;
            let ptr = if header.ptr_len == 8 { be64(block, at) } else { be32(block, at).into() };
            let Some(child) = self.visit(ptr, level - 1, false, each) else { continue };
            let at = header.len + index * key_len;
            let right = if self.kind == TreeKind::Rmap {
                let stored = |at: usize| without_unwritten(&block[at..at + KEY_MAX]);
                stored(at) == child.low && stored(at + KEY_MAX) == child.high
            } else {
                block[at..at + key_len] == child.low[..key_len]
            };
            if !right {
                let message = format!("{}: key {index} differs from its child's", self.name());
                self.ctx.find(code::BTREE_KEY, place.clone(), message);
            }
            span = Some(match span {
                None => child,
                Some(span) => Span { low: span.low, high: span.high.max(child.high) },
            });
        }
        span
    }
}
