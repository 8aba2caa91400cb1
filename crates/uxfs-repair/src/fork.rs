//! The extents of a fork: read from whatever is left of them, and written anew.
//!
//! 1. An extent that lies outside the volume, is empty or overlaps the one before in the file is
//!    dropped; what it mapped reads as a hole.
//! 2. A block of an extent tree is used if its magic number, owner, address and level are right. Its
//!    neighbours on the same level lead to leaves that a damaged node above has lost.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use uxfs_format::btree::{self, BmapNode, LONG, MAX_LEVELS, TreeKind};
use uxfs_format::inode::{Fork, ForkFormat, InodeCore};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{Extent, FsBlock, Ino};

use crate::burst;
use crate::error::Result;
use crate::volume::Volume;

/// What is left of a fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForkMap {
    /// The extents, in order of their offsets, without overlaps.
    pub(crate) extents: Vec<Extent>,
    /// Blocks of the extent tree.
    pub(crate) tree: Vec<FsBlock>,
    /// What is wrong with the fork; empty if it is sound.
    pub(crate) wrong: Vec<String>,
    /// What is lost.
    pub(crate) lost: Vec<String>,
}

impl ForkMap {
    /// The block at an offset of the fork, in blocks.
    pub(crate) fn get(&self, offset: u64) -> Option<FsBlock> {
        let index = self.extents.partition_point(|extent| extent.offset.0 <= offset);
        let extent = &self.extents[index.checked_sub(1)?];
        let inside = offset - extent.offset.0;
        (inside < extent.len).then(|| extent.start.plus(inside))
    }

    /// Mapped blocks, those of the extent tree included.
    pub(crate) fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len).sum::<u64>() + self.tree.len() as u64
    }

    /// Removes parts of extents from the map, where they map these very blocks.
    pub(crate) fn cut(&mut self, mut parts: Vec<Extent>) {
        parts.sort_unstable_by_key(|part| part.offset);
        let mut parts = parts.into_iter().peekable();
        let mut left = Vec::with_capacity(self.extents.len() + parts.len());
        let tail = |extent: &Extent, skip: u64| Extent {
            offset: extent.offset.plus(skip),
            start: extent.start.plus(skip),
            len: extent.len - skip,
            ..*extent
        };
        for mut extent in self.extents.drain(..) {
            while let Some(part) = parts.peek().filter(|part| part.offset < extent.end()) {
                let from = part.offset.max(extent.offset).0 - extent.offset.0;
                let to = part.end().min(extent.end()).0.saturating_sub(extent.offset.0);
                let delta = |extent: &Extent| extent.start.0.wrapping_sub(extent.offset.0);
                let beyond = part.end() > extent.end();
                if from < to && delta(part) == delta(&extent) {
                    if from > 0 {
                        left.push(Extent { len: from, ..extent });
                    }
                    extent = tail(&extent, to);
                }
                if beyond {
                    break;
                }
                parts.next();
            }
            if extent.len > 0 {
                left.push(extent);
            }
        }
        self.extents = left;
    }
}

/// Offset behind the last block that a fork can have.
fn last_block(volume: &Volume, fork: Fork) -> u64 {
    match fork {
        Fork::Data => ((1u64 << 63) >> volume.geo.block_log).min(1 << 54),
        Fork::Attr => 1 << 32,
    }
}

/// Reads a fork. `raw` are the bytes of the fork in the inode.
pub(crate) fn read(
    volume: &Volume,
    ino: Ino,
    core: &InodeCore,
    fork: Fork,
    raw: &[u8],
) -> Result<ForkMap> {
    let mut map = ForkMap::default();
    let mut found = Vec::new();
    match core.fork_format(fork) {
        ForkFormat::Extents => {
            let room = raw.len() / 16;
            let count = usize::try_from(core.fork_extents(fork)).unwrap_or(usize::MAX);
            if count > room {
                map.wrong.push(format!("{count} extents where {room} fit"));
            }
            for raw in raw.chunks_exact(16).take(count) {
                found.extend(raw.first_chunk().map(Extent::unpack));
            }
        }
        ForkFormat::Btree => Walk::new(volume, ino, &mut map, &mut found).root(raw)?,
        ForkFormat::Dev | ForkFormat::Local => return Ok(map),
    }
    keep(volume, core, fork, found, &mut map);
    if map.extents.len() as u64 != core.fork_extents(fork) {
        map.wrong.push(format!(
            "{} extents, {} counted",
            core.fork_extents(fork),
            map.extents.len()
        ));
    }
    Ok(map)
}

/// Keeps the extents that can be.
fn keep(volume: &Volume, core: &InodeCore, fork: Fork, mut found: Vec<Extent>, map: &mut ForkMap) {
    let sorted = found.is_sorted_by_key(|extent| extent.offset);
    if !sorted {
        map.wrong.push("extents out of order".into());
        found.sort_by_key(|extent| extent.offset);
    }
    let plain = fork == Fork::Attr || !core.is_reg();
    let most = last_block(volume, fork);
    let mut end = 0;
    for mut extent in found {
        let Extent { offset, start, len, unwritten } = extent;
        let problem = if len == 0 {
            "is empty"
        } else if !volume.geo.fsb_valid(start, len) {
            "does not lie inside a group"
        } else if offset.0 < end {
            "overlaps the one before"
        } else if extent.end().0 > most {
            "ends beyond the longest file"
        } else {
            if unwritten && plain {
                map.wrong.push(format!("the extent at offset {offset} is unwritten"));
                extent.unwritten = false;
            }
            end = extent.end().0;
            map.extents.push(extent);
            continue;
        };
        map.wrong
            .push(format!("the extent at offset {offset}, {len} blocks from {start}, {problem}"));
        map.lost.push(format!("{len} blocks from block {offset} of the {} on", name(fork)));
    }
}

/// A fork's name in messages.
pub(crate) const fn name(fork: Fork) -> &'static str {
    match fork {
        Fork::Data => "data fork",
        Fork::Attr => "attribute fork",
    }
}

/// A walk of an extent tree.
struct Walk<'w> {
    volume: &'w Volume,
    ino: Ino,
    seen: FxHashSet<FsBlock>,
    /// Neighbours that leaves name, with or without a node above.
    beside: Vec<FsBlock>,
    /// By level, the last block on the way from left to right, and its right neighbour.
    rightmost: BTreeMap<usize, (FsBlock, Option<FsBlock>)>,
    /// Is a part of the tree missing?
    torn: bool,
    map: &'w mut ForkMap,
    found: &'w mut Vec<Extent>,
}

impl<'w> Walk<'w> {
    fn new(volume: &'w Volume, ino: Ino, map: &'w mut ForkMap, found: &'w mut Vec<Extent>) -> Self {
        Self {
            volume,
            ino,
            seen: FxHashSet::default(),
            beside: Vec::new(),
            rightmost: BTreeMap::new(),
            torn: false,
            map,
            found,
        }
    }

    fn root(mut self, raw: &[u8]) -> Result<()> {
        let node = BmapNode::root(raw.len());
        let level = usize::from(btree::ROOT_LEVEL.get(raw));
        let count = usize::from(btree::ROOT_NUMRECS.get(raw));
        if count == 0 || count > node.max() || level == 0 || level >= MAX_LEVELS {
            let problem = format!("the root of the extent tree has level {level}, {count} keys");
            self.tear(problem);
        }
        for (_, child) in node.entries(raw, count) {
            self.visit(child, Some(level.saturating_sub(1)))?;
        }
        if !self.torn {
            if self.rightmost.values().any(|(_, right)| right.is_some()) {
                self.misplaced();
            }
            return Ok(());
        }
        while let Some(leaf) = self.beside.pop() {
            self.visit(leaf, Some(0))?;
        }
        self.map.lost.push("what the lost blocks of its extent tree mapped".into());
        Ok(())
    }

    fn tear(&mut self, problem: String) {
        self.torn = true;
        self.map.wrong.push(problem);
    }

    fn misplaced(&mut self) {
        self.map.wrong.push("blocks of the extent tree name wrong neighbours".into());
    }

    /// Compares a block's neighbours with the blocks that the nodes above name beside it.
    fn neighbours(&mut self, fsb: FsBlock, level: usize, bytes: &[u8]) {
        let beside = |left| btree::sibling(&bytes[LONG.sibling(left)]).map(FsBlock);
        let before = self.rightmost.insert(level, (fsb, beside(false)));
        let fits = match before {
            Some((left, right)) => beside(true) == Some(left) && right == Some(fsb),
            None => beside(true).is_none(),
        };
        if !fits && !self.torn {
            self.misplaced();
        }
    }

    fn visit(&mut self, fsb: FsBlock, level: Option<usize>) -> Result<()> {
        let geo = &self.volume.geo;
        if !geo.fsb_valid(fsb, 1) {
            self.tear(format!("the extent tree points to block {fsb}"));
            return Ok(());
        }
        if !self.seen.insert(fsb) {
            return Ok(());
        }
        let (kind, daddr) = (BufKind::Btree(TreeKind::Bmap), geo.fsb_daddr(fsb));
        let mut bytes = self.volume.blocks(fsb, 1)?;
        if !verify::checksum_matches(&bytes, kind) {
            let undone = burst::undo(&mut bytes, LONG.crc);
            let how = if undone { "a few bits of" } else { "part of" };
            self.map.wrong.push(format!("{how} the extent tree's block {fsb} were changed"));
        }
        let sound = verify::check(&bytes, kind, daddr, geo)
            .and_then(|()| verify::check_owner(&bytes, kind, daddr, Owner::Inode(self.ino)));
        let seen = usize::from(btree::LEVEL.get(&bytes));
        if let Err(problem) = sound {
            self.tear(format!("the extent tree's block {fsb}: {}", problem.detail));
            return Ok(());
        }
        if level.is_some_and(|level| level != seen) {
            self.tear(format!("the extent tree's block {fsb} has level {seen}"));
            return Ok(());
        }
        if kind.layout().is_some_and(|layout| self.volume.is_ahead(layout.lsn(&bytes))) {
            self.map
                .wrong
                .push(format!("the LSN of the extent tree's block {fsb} is ahead of the log"));
        }
        self.map.tree.push(fsb);
        self.neighbours(fsb, seen, &bytes);
        let count = usize::from(btree::NUMRECS.get(&bytes));
        if seen == 0 {
            let records = bytes[LONG.len..].chunks_exact(16).take(count);
            self.found.extend(records.filter_map(|raw| raw.first_chunk().map(Extent::unpack)));
            for left in [true, false] {
                self.beside.extend(btree::sibling(&bytes[LONG.sibling(left)]).map(FsBlock));
            }
            return Ok(());
        }
        for (_, child) in BmapNode::block(bytes.len()).entries(&bytes, count) {
            self.visit(child, Some(seen - 1))?;
        }
        Ok(())
    }
}
