//! The trees and headers of a group, made anew from its claims and its inode chunks.
//!
//! 1. The new trees take blocks that no inode claims. The old trees are not read.
//! 2. How many blocks the trees take depends on how the free space looks after they were taken. So the
//!    number is guessed, and raised until it is enough; what is left over goes to the free list.
//! 3. The lists of unlinked inodes are empty: the links were settled before.

use uxfs_check::Place;
use uxfs_format::agf::{self, Agf};
use uxfs_format::agfl::{self, AgflHeader};
use uxfs_format::agi::{self, Agi};
use uxfs_format::btree::{self, FreeExtent, InodeChunk, Refcount, Rmap, RmapOwner, TreeKind};
use uxfs_format::verify::BufKind;
use uxfs_format::{AgBlock, AgNo};

use crate::claim;
use crate::error::{RepairError, Result};
use crate::pass::Pass;
use crate::tree::{self, Label};
use crate::volume::{StepId, Volume};

/// Most rounds in which the number of blocks is raised.
const ROUNDS: usize = 64;

/// A tree of the group: its packed records and the blocks it gets.
struct Part {
    kind: TreeKind,
    records: Vec<u8>,
    blocks: Vec<u32>,
}

/// Everything that is written.
struct Layout {
    parts: Vec<Part>,
    /// Blocks of the free list.
    list: Vec<u32>,
    free: Vec<FreeExtent>,
}

/// Makes the trees and headers of a group anew.
pub(crate) fn rebuild(volume: &mut Volume, pass: &Pass, ag: AgNo, wrong: &str) -> Result<()> {
    let layout = lay_out(volume, pass, ag)?;
    let step = volume.step(
        "allocation group",
        Place::ag(ag),
        wrong,
        "headers and trees are made anew from what the inodes own",
    );
    let geo = volume.geo.clone();
    let daddr = |block: u64| geo.ag_daddr(ag, AgBlock(block as u32));
    let mut roots = Vec::new();
    for part in &layout.parts {
        let label = Label {
            kind: part.kind,
            owner: ag.0.into(),
            uuid: &geo.meta_uuid,
            block_size: geo.block_size as usize,
            daddr: &daddr,
        };
        let numbers: Vec<u64> = part.blocks.iter().map(|block| (*block).into()).collect();
        let built = tree::build(&label, &part.records, &numbers, 1)?;
        for (number, block) in &built.blocks {
            volume.write(step, daddr(*number).bytes(), block)?;
        }
        let root = built.top.first().map_or(0, |(_, root)| *root) as u32;
        roots.push((part.kind, root, built.levels, part.blocks.len() as u32));
    }
    free_list(volume, step, ag, &layout)?;
    agf(volume, step, ag, &layout, &roots)?;
    agi(volume, step, ag, &pass.chunks[ag.0 as usize], &roots)
}

/// Packs records, one after the other.
fn pack<R>(kind: TreeKind, records: &[R], encode: impl Fn(&R, &mut [u8])) -> Vec<u8> {
    let mut raw = vec![0; records.len() * kind.rec_len()];
    for (slot, record) in raw.chunks_exact_mut(kind.rec_len()).zip(records) {
        encode(record, slot);
    }
    raw
}

/// Takes `count` blocks from the longest free runs.
fn take(free: &mut Vec<(u32, u32)>, count: usize) -> Option<Vec<u32>> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let missing = (count - taken.len()) as u32;
        let (index, run) = free.iter().copied().enumerate().max_by_key(|(_, run)| run.1)?;
        let len = run.1.min(missing);
        taken.extend(run.0..run.0 + len);
        match run.1 - len {
            0 => drop(free.remove(index)),
            left => free[index] = (run.0 + len, left),
        }
    }
    Some(taken)
}

fn lay_out(volume: &Volume, pass: &Pass, ag: AgNo) -> Result<Layout> {
    let (geo, claims) = (&volume.geo, pass.claims.group(ag));
    let (size, slots) = (geo.block_size as usize, agfl::slots(geo.sector_size as usize) as usize);
    let all = claim::free_runs(claims, geo.ag_len(ag));
    let chunks = records_of(volume, &pass.chunks[ag.0 as usize]);
    let mut inode_trees = vec![(TreeKind::Ino, pack(TreeKind::Ino, &chunks, InodeChunk::encode))];
    if geo.has_finobt() {
        let free: Vec<InodeChunk> = chunks.iter().filter(|c| c.freecount > 0).copied().collect();
        inode_trees.push((TreeKind::FreeIno, pack(TreeKind::FreeIno, &free, InodeChunk::encode)));
    }
    let shared = if geo.has_reflink() { claim::shared_runs(claims) } else { Vec::new() };
    let mut wanted = 0;
    for _ in 0..ROUNDS {
        let mut free = all.clone();
        let Some(blocks) = take(&mut free, wanted) else { break };
        let mut blocks = blocks.into_iter();
        let mut give = |count: usize| -> Vec<u32> { blocks.by_ref().take(count).collect() };
        let mut parts = Vec::new();
        let mut needed = 0;
        for (kind, records) in &inode_trees {
            let count = tree::blocks(*kind, records.len() / kind.rec_len(), size, 1);
            needed += count;
            parts.push(Part { kind: *kind, records: records.clone(), blocks: give(count) });
        }
        if geo.has_reflink() {
            let kind = TreeKind::Refcount;
            let count = tree::blocks(kind, shared.len(), size, 1);
            needed += count;
            let records = pack(kind, &shared, Refcount::encode);
            parts.push(Part { kind, records, blocks: give(count) });
        }
        let own = |parts: &[Part]| -> Vec<Rmap> {
            let owner = |kind| match kind {
                TreeKind::Refcount => RmapOwner::REFC,
                _ => RmapOwner::INOBT,
            };
            let blocks = parts.iter().flat_map(|p| p.blocks.iter().map(move |b| (p.kind, *b)));
            blocks.map(|(kind, block)| one(owner(kind), block)).collect()
        };
        let extents = |free: &[(u32, u32)]| -> Vec<FreeExtent> {
            let extent = |run: &(u32, u32)| FreeExtent { start: AgBlock(run.0), len: run.1 };
            free.iter().map(extent).collect()
        };
        let free = extents(&free);
        // All that is left is owned alike: the trees that follow, and the free list.
        let rest: Vec<u32> = give(usize::MAX);
        let mut rmaps = Vec::new();
        if geo.has_rmap() {
            rmaps = claims.to_vec();
            rmaps.extend(own(&parts));
            rmaps.extend(rest.iter().map(|block| one(RmapOwner::AG, *block)));
            claim::merge(&mut rmaps);
        }
        let counts = [(TreeKind::Bno, free.len()), (TreeKind::Cnt, free.len())];
        let counts =
            counts.into_iter().chain(geo.has_rmap().then_some((TreeKind::Rmap, rmaps.len())));
        let counts: Vec<(TreeKind, usize)> = counts.collect();
        let mut list = 0;
        let mut tree_blocks = 0;
        for (kind, count) in &counts {
            tree_blocks += tree::blocks(*kind, *count, size, 1);
            list += list_share(volume, *kind, tree::levels(*kind, *count, size));
        }
        // A group that is nearly full has a shorter list.
        let least = needed + tree_blocks;
        let room = all.iter().map(|run| run.1 as usize).sum::<usize>();
        let list = list.min(slots).min(room.saturating_sub(least));
        if least + list > wanted {
            wanted = least + list;
            continue;
        }
        let mut rest = rest.into_iter();
        for (kind, count) in counts {
            let blocks = rest.by_ref().take(tree::blocks(kind, count, size, 1)).collect();
            let records = match kind {
                TreeKind::Bno => pack(kind, &free, FreeExtent::encode),
                TreeKind::Cnt => {
                    let mut by_len = free.clone();
                    by_len.sort_unstable_by_key(|extent| (extent.len, extent.start));
                    pack(kind, &by_len, FreeExtent::encode)
                }
                _ => pack(kind, &rmaps, Rmap::encode),
            };
            parts.push(Part { kind, records, blocks });
        }
        let list: Vec<u32> = rest.collect();
        if list.len() <= slots {
            return Ok(Layout { parts, list, free });
        }
        break;
    }
    Err(RepairError::Beyond(format!("AG {ag} has no room for its trees")))
}

fn one(owner: RmapOwner, block: u32) -> Rmap {
    Rmap { start: AgBlock(block), len: 1, owner, ..Rmap::default() }
}

/// How long the free list must be for a tree to split once on every level.
fn list_share(volume: &Volume, kind: TreeKind, levels: u32) -> usize {
    let (geo, size) = (&volume.geo, volume.geo.block_size as usize);
    let highest = match kind {
        TreeKind::Rmap if geo.has_reflink() => btree::MAX_LEVELS as u32,
        TreeKind::Rmap => kind.max_height(size, geo.ag_blocks.into()),
        _ => kind.max_height(size, u64::from(geo.ag_blocks) / 2),
    };
    let share = if levels < highest { 2 * levels } else { levels + highest.saturating_sub(2) };
    share as usize
}

/// Chunks as records; volumes without sparse chunks have no counts.
fn records_of(volume: &Volume, chunks: &[InodeChunk]) -> Vec<InodeChunk> {
    let mut records = chunks.to_vec();
    if !volume.geo.has_sparse() {
        records.iter_mut().for_each(|chunk| (chunk.holemask, chunk.count) = (0, 0));
    }
    records
}

fn free_list(volume: &mut Volume, step: StepId, ag: AgNo, layout: &Layout) -> Result<()> {
    let mut sector = vec![0; volume.geo.sector_size as usize];
    let slots = agfl::slots(sector.len());
    sector[agfl::HEADER_LEN..agfl::slot_at(slots).offset()].fill(0xff);
    for (slot, block) in (0..).zip(&layout.list) {
        agfl::slot_at(slot).set(&mut sector, AgBlock(*block));
    }
    let header = AgflHeader::view_mut(&mut sector);
    header.magicnum.set(agfl::MAGIC);
    header.seqno.set(ag.0);
    header.uuid = volume.geo.meta_uuid.0;
    let daddr = volume.geo.agfl_daddr(ag);
    volume.write_buffer(step, daddr, &mut sector, BufKind::Agfl)
}

type Root = (TreeKind, u32, u32, u32);

fn root(roots: &[Root], kind: TreeKind) -> Root {
    roots.iter().find(|root| root.0 == kind).copied().unwrap_or((kind, 0, 0, 0))
}

fn agf(volume: &mut Volume, step: StepId, ag: AgNo, layout: &Layout, roots: &[Root]) -> Result<()> {
    let mut sector = vec![0; volume.geo.sector_size as usize];
    let (bno, cnt) = (root(roots, TreeKind::Bno), root(roots, TreeKind::Cnt));
    let (rmap, refcount) = (root(roots, TreeKind::Rmap), root(roots, TreeKind::Refcount));
    let list = layout.list.len() as u32;
    let slots = agfl::slots(sector.len());
    let agf = Agf::view_mut(&mut sector);
    agf.magicnum.set(agf::MAGIC);
    agf.versionnum.set(1);
    agf.seqno.set(ag.0);
    agf.length.set(volume.geo.ag_len(ag));
    agf.bno_root.set(bno.1);
    agf.bno_level.set(bno.2);
    agf.cnt_root.set(cnt.1);
    agf.cnt_level.set(cnt.2);
    agf.rmap_root.set(rmap.1);
    agf.rmap_level.set(rmap.2);
    agf.flfirst.set(0);
    agf.fllast.set(list.checked_sub(1).unwrap_or(slots - 1));
    agf.flcount.set(list);
    agf.freeblks.set(layout.free.iter().map(|extent| extent.len).sum());
    agf.longest.set(layout.free.iter().map(|extent| extent.len).max().unwrap_or(0));
    agf.btreeblks.set(bno.3 + cnt.3 + rmap.3 - 2 - u32::from(rmap.3 > 0));
    agf.uuid = volume.geo.meta_uuid.0;
    agf.rmap_blocks.set(rmap.3);
    agf.refcount_blocks.set(refcount.3);
    agf.refcount_root.set(refcount.1);
    agf.refcount_level.set(refcount.2);
    let daddr = volume.geo.agf_daddr(ag);
    volume.write_buffer(step, daddr, &mut sector, BufKind::Agf)
}

fn agi(
    volume: &mut Volume,
    step: StepId,
    ag: AgNo,
    chunks: &[InodeChunk],
    roots: &[Root],
) -> Result<()> {
    let mut sector = vec![0; volume.geo.sector_size as usize];
    let (ino, free) = (root(roots, TreeKind::Ino), root(roots, TreeKind::FreeIno));
    let agi = Agi::view_mut(&mut sector);
    agi.magicnum.set(agi::MAGIC);
    agi.versionnum.set(1);
    agi.seqno.set(ag.0);
    agi.length.set(volume.geo.ag_len(ag));
    agi.count.set(chunks.iter().map(|chunk| u32::from(chunk.inodes())).sum());
    agi.root.set(ino.1);
    agi.level.set(ino.2);
    agi.freecount.set(chunks.iter().map(|chunk| u32::from(chunk.freecount)).sum());
    agi.newino.set(u32::MAX);
    agi.dirino.set(u32::MAX);
    agi.unlinked.fill(u32::MAX.into());
    agi.uuid = volume.geo.meta_uuid.0;
    agi.free_root.set(free.1);
    agi.free_level.set(free.2);
    if volume.geo.has_inobtcnt() {
        agi.iblocks.set(ino.3);
        agi.fblocks.set(free.3);
    }
    let daddr = volume.geo.agi_daddr(ag);
    volume.write_buffer(step, daddr, &mut sector, BufKind::Agi)
}
