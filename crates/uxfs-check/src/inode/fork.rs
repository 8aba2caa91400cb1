//! Checks the forks of an inode: each extent, and the totals in the core.

use uxfs_format::btree::RmapOwner;
use uxfs_format::inode::{Flags, Fork, ForkFormat};
use uxfs_format::{Extent, FileBlock, FsBlock};

use super::pass::{Extents, Inode, Local, Pass};
use crate::btree::Walk;
use crate::claim::Claim;
use crate::code;
use crate::ctx::{Ctx, Reservation};

/// Number of extents for which memory is reserved at once.
const KEEP: usize = 1024;
/// Bytes of that many extents, doubled because they are also sorted.
const BYTES: usize = KEEP * 2 * size_of::<Extent>();
const RMAP_ATTR: u64 = 1 << 63;
const RMAP_BMBT: u64 = 1 << 62;
const RMAP_UNWRITTEN: u64 = 1 << 61;

/// Totals of a fork's walk.
#[derive(Default)]
struct Sum {
    extents: u64,
    blocks: u64,
    complete: bool,
}

/// Checks both forks against the core. Stores the extents of the data fork in `data`, if given, and
/// those of the attribute fork in `attrs`. False if something could not be read.
pub(crate) fn check(
    pass: &Pass<'_, '_>,
    inode: &Inode<'_>,
    data: Option<&mut Extents>,
    attrs: &mut Extents,
    memory: &mut Reservation<'_, '_>,
    local: &mut Local,
) -> bool {
    let first = walk(pass, inode, Fork::Data, data, memory, local);
    let second = if inode.core.has_attr_fork() {
        walk(pass, inode, Fork::Attr, Some(attrs), memory, local)
    } else {
        Sum { complete: true, ..Sum::default() }
    };
    let whole = first.complete && second.complete;
    local.incomplete |= !whole;
    local.totals.extents += first.extents + second.extents;
    if !whole {
        return false;
    }
    let stored = inode.core.nblocks;
    let counted = first.blocks + second.blocks;
    if stored != counted {
        let message = format!("di_nblocks is {stored}, counted {counted}");
        pass.ctx.find(code::INODE_NBLOCKS, inode.place(), message);
    }
    for (fork, sum) in [(Fork::Data, first), (Fork::Attr, second)] {
        let stored = inode.core.fork_extents(fork);
        if stored != sum.extents {
            let message = format!("{stored} extents in the {fork:?} fork, counted {}", sum.extents);
            pass.ctx.find(code::INODE_NEXTENTS, inode.place(), message);
        }
    }
    true
}

fn walk(
    pass: &Pass<'_, '_>,
    inode: &Inode<'_>,
    fork: Fork,
    mut keep: Option<&mut Extents>,
    memory: &mut Reservation<'_, '_>,
    local: &mut Local,
) -> Sum {
    let ctx = pass.ctx;
    let mut sum = Sum { complete: true, ..Sum::default() };
    let mut end = 0;
    let mut each = |extent: Extent| {
        sum.extents += 1;
        sum.blocks += extent.len;
        let before = core::mem::replace(&mut end, extent.offset.0 + extent.len);
        if extent_fine(ctx, inode, fork, &extent, before) {
            claim(ctx, inode, fork, &extent, local);
            if let Some(keep) = &mut keep {
                let room = !keep.len().is_multiple_of(KEEP) || memory.grow(BYTES);
                sum.complete &= room;
                if room {
                    keep.push(extent);
                }
            }
        } else {
            sum.complete = false;
        }
    };
    let bytes = inode.fork(fork);
    match inode.core.fork_format(fork) {
        ForkFormat::Extents => {
            let count = usize::try_from(inode.core.fork_extents(fork)).unwrap_or(usize::MAX);
            for raw in bytes.chunks_exact(16).take(count) {
                if let Ok(raw) = raw.try_into() {
                    each(Extent::unpack(raw));
                }
            }
        }
        ForkFormat::Btree => {
            let mut walk = Walk::of_fork(ctx, inode.ino);
            walk.run_fork(bytes, &mut each);
            sum.complete &= walk.complete;
            sum.blocks += walk.blocks.len() as u64;
            let mut blocks = walk.blocks;
            blocks.sort_unstable();
            for fsb in blocks {
                let flags = RMAP_BMBT | if fork == Fork::Attr { RMAP_ATTR } else { 0 };
                let start = ctx.geo.fsb_agblock(fsb).0;
                let owner = RmapOwner(inode.ino.0);
                let claim = Claim { start, len: 1, owner, offset: flags };
                local.claim(ctx, ctx.geo.fsb_ag(fsb), claim);
            }
        }
        ForkFormat::Dev | ForkFormat::Local => {}
    }
    sum
}

fn extent_fine(ctx: &Ctx<'_>, inode: &Inode<'_>, fork: Fork, extent: &Extent, before: u64) -> bool {
    let realtime = fork == Fork::Data && inode.core.flags.contains(Flags::REALTIME);
    let problem = if extent.len == 0 {
        "is empty"
    } else if !realtime && !ctx.geo.fsb_valid(extent.start, extent.len) {
        "is not inside one group"
    } else if extent.offset.0 < before {
        "begins before the end of the previous extent"
    } else if extent.end().0 > last_block(ctx, fork) {
        "ends beyond the maximum file size"
    } else if extent.unwritten && (fork == Fork::Attr || !inode.core.is_reg()) {
        "is unwritten"
    } else {
        return true;
    };
    let Extent { offset, start, len, .. } = extent;
    let message = format!(
        "{fork:?} fork: the extent at offset {offset}, {len} blocks from {start}, {problem}"
    );
    ctx.find(code::EXTENT, inode.place(), message);
    false
}

/// First offset behind the last block that a fork can have.
fn last_block(ctx: &Ctx<'_>, fork: Fork) -> u64 {
    match fork {
        Fork::Data => ((1u64 << 63) >> ctx.geo.block_log).min(1 << 54),
        Fork::Attr => 1 << 32,
    }
}

fn claim(ctx: &Ctx<'_>, inode: &Inode<'_>, fork: Fork, extent: &Extent, local: &mut Local) {
    if fork == Fork::Data && inode.core.flags.contains(Flags::REALTIME) {
        return;
    }
    let mut offset = extent.offset.0;
    if fork == Fork::Attr {
        offset |= RMAP_ATTR;
    }
    if extent.unwritten {
        offset |= RMAP_UNWRITTEN;
    }
    // An extent is shorter than 2^21 blocks.
    let len = u32::try_from(extent.len).unwrap_or(u32::MAX);
    let start = ctx.geo.fsb_agblock(extent.start).0;
    let owner = RmapOwner(inode.ino.0);
    local.claim(ctx, ctx.geo.fsb_ag(extent.start), Claim { start, len, owner, offset });
}

/// The extents of a fork whose blocks are to be read.
pub(crate) struct Map {
    extents: Extents,
    /// May the blocks be read? Not if the fork maps blocks twice.
    pub(crate) sound: bool,
}

impl Map {
    /// Maps the extents of a fork; `name` is for the message of a finding.
    pub(crate) fn new(ctx: &Ctx<'_>, inode: &Inode<'_>, extents: Extents, name: &str) -> Self {
        let mut runs: Vec<(FsBlock, u64)> = extents.iter().map(|e| (e.start, e.len)).collect();
        runs.sort_unstable();
        let sound = runs.windows(2).all(|w| w[0].0.0 + w[0].1 <= w[1].0.0);
        if !sound {
            let message = format!("the {name} fork maps blocks twice");
            ctx.find(code::EXTENT_OVERLAP, inode.place(), message);
        }
        Self { extents, sound }
    }

    /// The extents.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// First offset behind the last block.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.end().0)
    }

    /// The block at an offset, and the number of blocks from it to the end of its extent.
    pub(crate) fn get(&self, offset: FileBlock) -> Option<(FsBlock, u64)> {
        let index = self.extents.partition_point(|extent| extent.offset <= offset);
        let extent = &self.extents[index.checked_sub(1)?];
        let inside = offset.0 - extent.offset.0;
        (inside < extent.len).then(|| (extent.start.plus(inside), extent.len - inside))
    }

    /// Fills `buf` with the blocks from an offset on; returns the number of the first block.
    pub(crate) fn read(
        &self,
        ctx: &Ctx<'_>,
        inode: &Inode<'_>,
        offset: FileBlock,
        buf: &mut [u8],
    ) -> Option<FsBlock> {
        let (first, _) = self.get(offset)?;
        let (mut at, mut offset) = (0, offset);
        while at < buf.len() {
            let (fsb, run) = self.get(offset)?;
            let left = ((buf.len() - at) >> ctx.geo.block_log) as u64;
            let run = run.min(left.max(1));
            let end = at + ((run as usize) << ctx.geo.block_log);
            let place = ctx.place(fsb).of(inode.ino);
            if !ctx.read(ctx.geo.fsb_daddr(fsb), buf.get_mut(at..end)?, &place) {
                return None;
            }
            (at, offset) = (end, offset.plus(run));
        }
        Some(first)
    }
}
