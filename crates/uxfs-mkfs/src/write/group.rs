//! Writes the fixed metadata of one allocation group: headers and btree roots.

use uxfs_format::agf::{self, Agf};
use uxfs_format::agfl::{self, AgflHeader};
use uxfs_format::agi::{self, Agi};
use uxfs_format::btree::{self, FreeExtent, InodeChunk, Rmap, RmapOwner, SHORT, TreeKind};
use uxfs_format::features::RoCompat;
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgBlock, AgIno, AgNo};

use super::Writer;
use crate::error::MkfsError;
use crate::layout::Layout;

/// Positions of all structures in one AG of a new volume.
struct Plan {
    ag: AgNo,
    /// Blocks of the free list, in the order of its slots.
    free_list: Vec<u32>,
    free: Vec<FreeExtent>,
    longest: u32,
    chunks: Vec<InodeChunk>,
    rmaps: Vec<Rmap>,
    roots: Roots,
}

/// Blocks of the btree roots; 0 for btrees that the volume does not have.
#[derive(Clone, Copy, Default)]
struct Roots {
    bno: u32,
    cnt: u32,
    ino: u32,
    free_ino: u32,
    rmap: u32,
    refcount: u32,
}

impl Roots {
    fn new(layout: &Layout) -> Self {
        let bno = layout.units.header_blocks();
        let mut next = bno + 3;
        let mut take = |feature| {
            if !layout.has(feature) {
                return 0;
            }
            next += 1;
            next - 1
        };
        Self {
            bno,
            cnt: bno + 1,
            ino: bno + 2,
            free_ino: take(RoCompat::FINOBT),
            rmap: take(RoCompat::RMAPBT),
            refcount: take(RoCompat::REFLINK),
        }
    }
}

impl Plan {
    fn new(layout: &Layout, ag: AgNo, with_list: bool) -> Self {
        let roots = Roots::new(layout);
        let fixed = layout.units.fixed_blocks();
        let end = layout.ag_len(ag);
        let log = layout.log.within(ag);
        // The free space around the log, before the free list is taken from it.
        let mut free = match log {
            Some((start, len)) => vec![(fixed, start.0), (start.0 + len, end)],
            None => vec![(fixed, end)],
        };
        free.retain(|(start, end)| start < end);
        let wanted = if with_list { layout.free_list_blocks() } else { 0 };
        // mkfs.xfs leaves the free list empty if the log takes nearly the whole AG. Where blocks are
        // free before a log that ends with its AG, mkfs.xfs 6.1 loses them; this does not.
        let full = free.iter().map(|(from, to)| to - from).sum::<u32>() < wanted;
        let free_list = if full { Vec::new() } else { take_free_list(&mut free, wanted) };
        let mut chunks = Vec::new();
        if ag == AgNo(0) {
            let start = layout.root_block().0;
            cut(&mut free, start, start + layout.chunk_blocks());
            chunks = first_chunks(layout);
        }
        let free: Vec<FreeExtent> = free
            .iter()
            .map(|(start, end)| FreeExtent { start: AgBlock(*start), len: end - start })
            .collect();
        let longest = longest(&free);
        let mut plan = Self { ag, free_list, free, longest, chunks, rmaps: Vec::new(), roots };
        if layout.has(RoCompat::RMAPBT) {
            plan.rmaps = plan.reverse_mappings(layout);
        }
        plan
    }

    /// All reverse mappings of a new AG, in order.
    fn reverse_mappings(&self, layout: &Layout) -> Vec<Rmap> {
        let mut runs = vec![
            (0, self.roots.bno, RmapOwner::FS),
            (self.roots.bno, 2, RmapOwner::AG),
            (self.roots.ino, 1, RmapOwner::INOBT),
            (self.roots.rmap, 1, RmapOwner::AG),
        ];
        if layout.has(RoCompat::FINOBT) {
            runs.push((self.roots.free_ino, 1, RmapOwner::INOBT));
        }
        if layout.has(RoCompat::REFLINK) {
            runs.push((self.roots.refcount, 1, RmapOwner::REFC));
        }
        if let Some((start, len)) = layout.log.within(self.ag) {
            runs.push((start.0, len, RmapOwner::LOG));
        }
        if !self.chunks.is_empty() {
            runs.push((layout.root_block().0, layout.chunk_blocks(), RmapOwner::INODES));
        }
        runs.extend(self.free_list.iter().map(|block| (*block, 1, RmapOwner::AG)));
        runs.sort_unstable_by_key(|(start, ..)| *start);
        let mut rmaps: Vec<Rmap> = Vec::new();
        for (start, len, owner) in runs {
            match rmaps.last_mut() {
                Some(last) if last.owner == owner && last.start.0 + last.len == start => {
                    last.len += len;
                }
                _ => rmaps.push(Rmap { start: AgBlock(start), len, owner, ..Rmap::default() }),
            }
        }
        rmaps
    }
}

/// The chunks of the first inodes; three inodes are in use.
fn first_chunks(layout: &Layout) -> Vec<InodeChunk> {
    let first = layout.root_block().0 << layout.inopblog();
    let starts = (0..layout.units.new_inodes()).step_by(CHUNK_INODES as usize);
    let chunk = |start: u32| {
        let used = if start == 0 { 3 } else { 0 };
        let (start, free) = (AgIno(first + start), u64::MAX << used);
        InodeChunk { start, holemask: 0, count: 64, freecount: 64 - used, free }
    };
    starts.map(chunk).collect()
}

/// Takes the free list's blocks from the free runs: from the shortest run with enough blocks, or
/// else from the longest runs.
fn take_free_list(free: &mut Vec<(u32, u32)>, wanted: u32) -> Vec<u32> {
    let mut taken = Vec::new();
    while let missing @ 1.. = wanted - taken.len() as u32 {
        let len = |(start, end): &(u32, u32)| end - start;
        let fits = free.iter_mut().filter(|run| len(run) >= missing).min_by_key(|run| len(run));
        let run = match fits {
            Some(run) => run,
            None => match free.iter_mut().max_by_key(|run| len(run)) {
                Some(run) => run,
                None => break,
            },
        };
        let end = run.1.min(run.0 + missing);
        taken.extend(run.0..end);
        run.0 = end;
        free.retain(|(start, end)| start < end);
    }
    taken
}

fn longest(free: &[FreeExtent]) -> u32 {
    free.iter().map(|extent| extent.len).max().unwrap_or(0)
}

/// Removes `from..to` from the free runs.
fn cut(free: &mut Vec<(u32, u32)>, from: u32, to: u32) {
    let mut left = Vec::new();
    for &(start, end) in free.iter() {
        left.push((start, end.min(from)));
        left.push((start.max(to), end));
    }
    left.retain(|(start, end)| start < end);
    *free = left;
}

impl Writer<'_> {
    /// Writes the headers and btree roots of an AG.
    pub(crate) fn group(&self, ag: AgNo) -> Result<(), MkfsError> {
        let plan = Plan::new(self.layout, ag, self.grown.is_none());
        let units = &self.layout.units;
        let block = units.block as usize;
        let sector = units.sector as usize;
        let mut head = vec![0; units.fixed_blocks() as usize * block];
        // The primary superblock is written separately, last.
        if ag != AgNo(0) {
            head[..sector].copy_from_slice(&self.secondary(ag)?);
        }
        let mut headers = head[..4 * sector].chunks_exact_mut(sector).skip(1);
        for kind in [BufKind::Agf, BufKind::Agi, BufKind::Agfl] {
            let Some(buffer) = headers.next() else { break };
            match kind {
                BufKind::Agf => self.agf(buffer, &plan),
                BufKind::Agi => self.agi(buffer, &plan),
                _ => self.agfl(buffer, &plan),
            }
            verify::stamp_checksum(buffer, kind);
            let daddr = match kind {
                BufKind::Agf => self.geo.agf_daddr(ag),
                BufKind::Agi => self.geo.agi_daddr(ag),
                _ => self.geo.agfl_daddr(ag),
            };
            verify::check(buffer, kind, daddr, &self.geo)?;
        }
        for (kind, root, records) in plan.trees(self.geo.has_sparse()) {
            let at = root as usize * block;
            self.tree_root(&mut head[at..at + block], kind, &plan, root, &records)?;
        }
        let start = self.geo.ag_daddr(ag, AgBlock(0)).bytes();
        let skip = if ag == AgNo(0) { sector } else { 0 };
        self.put("allocation group's headers", start + skip as u64, &head[skip..])
    }

    fn agf(&self, buffer: &mut [u8], plan: &Plan) {
        let layout = self.layout;
        let agf = Agf::view_mut(buffer);
        let list = plan.free_list.len() as u32;
        let level = |feature| u32::from(layout.has(feature));
        agf.magicnum = agf::MAGIC.into();
        agf.versionnum = 1.into();
        agf.seqno = plan.ag.0.into();
        agf.length = layout.ag_len(plan.ag).into();
        agf.bno_root = plan.roots.bno.into();
        agf.cnt_root = plan.roots.cnt.into();
        agf.rmap_root = plan.roots.rmap.into();
        agf.bno_level = 1.into();
        agf.cnt_level = 1.into();
        agf.rmap_level = level(RoCompat::RMAPBT).into();
        // mkfs.xfs fills the ring from its second slot on.
        agf.flfirst = 1.into();
        agf.fllast = list.into();
        agf.flcount = list.into();
        agf.freeblks = plan.free.iter().map(|e| e.len).sum::<u32>().into();
        agf.longest = plan.longest.into();
        agf.uuid = layout.uuid.0;
        agf.rmap_blocks = level(RoCompat::RMAPBT).into();
        agf.refcount_blocks = level(RoCompat::REFLINK).into();
        agf.refcount_root = plan.roots.refcount.into();
        agf.refcount_level = level(RoCompat::REFLINK).into();
    }

    fn agi(&self, buffer: &mut [u8], plan: &Plan) {
        let layout = self.layout;
        let agi = Agi::view_mut(buffer);
        let finobt = u32::from(layout.has(RoCompat::FINOBT));
        agi.magicnum = agi::MAGIC.into();
        agi.versionnum = 1.into();
        agi.seqno = plan.ag.0.into();
        agi.length = layout.ag_len(plan.ag).into();
        agi.root = plan.roots.ino.into();
        agi.level = 1.into();
        agi.newino = u32::MAX.into();
        agi.dirino = u32::MAX.into();
        if let Some(first) = plan.chunks.first() {
            agi.newino = first.start.0.into();
        }
        agi.count = plan.chunks.iter().map(|c| u32::from(c.count)).sum::<u32>().into();
        agi.freecount = plan.chunks.iter().map(|c| u32::from(c.freecount)).sum::<u32>().into();
        agi.unlinked.fill(u32::MAX.into());
        agi.uuid = layout.uuid.0;
        agi.free_root = plan.roots.free_ino.into();
        agi.free_level = finobt.into();
        if layout.has(RoCompat::INOBTCNT) {
            agi.iblocks = 1.into();
            agi.fblocks = finobt.into();
        }
    }

    fn agfl(&self, buffer: &mut [u8], plan: &Plan) {
        let slots = agfl::slots(buffer.len());
        buffer[agfl::HEADER_LEN..agfl::slot_at(slots).offset()].fill(0xff);
        for (slot, block) in (1..).zip(&plan.free_list) {
            agfl::slot_at(slot).set(buffer, AgBlock(*block));
        }
        let header = AgflHeader::view_mut(buffer);
        header.magicnum = agfl::MAGIC.into();
        header.seqno = plan.ag.0.into();
        header.uuid = self.layout.uuid.0;
    }

    /// Builds a btree root that is a leaf.
    fn tree_root(
        &self,
        buffer: &mut [u8],
        kind: TreeKind,
        plan: &Plan,
        root: u32,
        records: &[u8],
    ) -> Result<(), MkfsError> {
        let daddr = self.geo.ag_daddr(plan.ag, AgBlock(root));
        // A new AG has only a few records.
        let count = (records.len() / kind.rec_len()) as u16;
        kind.put_header(buffer, 0);
        btree::NUMRECS.set(buffer, count);
        if let Some(layout) = BufKind::Btree(kind).layout() {
            layout.label(buffer, daddr, &self.layout.uuid, plan.ag.0.into());
        }
        buffer[SHORT.len..SHORT.len + records.len()].copy_from_slice(records);
        verify::stamp_checksum(buffer, BufKind::Btree(kind));
        verify::check(buffer, BufKind::Btree(kind), daddr, &self.geo)?;
        Ok(())
    }
}

impl Plan {
    /// The btrees of the AG: kind, root block and packed records.
    fn trees(&self, sparse: bool) -> Vec<(TreeKind, u32, Vec<u8>)> {
        let mut by_len = self.free.clone();
        by_len.sort_unstable_by_key(|e| (e.len, e.start));
        let mut chunks = self.chunks.clone();
        if !sparse {
            // Records have these fields only on volumes with sparse chunks.
            chunks.iter_mut().for_each(|chunk| (chunk.holemask, chunk.count) = (0, 0));
        }
        let chunks = pack(TreeKind::Ino, &chunks, InodeChunk::encode);
        let mut trees = vec![
            (TreeKind::Bno, self.roots.bno, pack(TreeKind::Bno, &self.free, FreeExtent::encode)),
            (TreeKind::Cnt, self.roots.cnt, pack(TreeKind::Cnt, &by_len, FreeExtent::encode)),
            (TreeKind::Ino, self.roots.ino, chunks.clone()),
            (TreeKind::FreeIno, self.roots.free_ino, chunks),
            (TreeKind::Rmap, self.roots.rmap, pack(TreeKind::Rmap, &self.rmaps, Rmap::encode)),
            (TreeKind::Refcount, self.roots.refcount, Vec::new()),
        ];
        trees.retain(|(_, root, _)| *root != 0);
        trees
    }
}

/// Records of a tree, one after the other.
fn pack<R>(kind: TreeKind, records: &[R], encode: impl Fn(&R, &mut [u8])) -> Vec<u8> {
    let mut raw = vec![0; records.len() * kind.rec_len()];
    for (slot, record) in raw.chunks_exact_mut(kind.rec_len()).zip(records) {
        encode(record, slot);
    }
    raw
}
