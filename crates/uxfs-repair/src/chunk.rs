//! Finds the inode chunks of a group: in the inode trees, in the reverse mappings, and by a scan of the
//! group's blocks for inodes that say so themselves.
//!
//! 1. A sound inode tree is believed. Otherwise all sources together count.
//! 2. A chunk that only a scan found is not believed if a sound tree says that its blocks are free, if
//!    sound reverse mappings name another owner, or if none of its inodes is in use: freed chunks stay
//!    on the device.

use std::collections::BTreeMap;

use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::btree::{FreeExtent, InodeChunk, Rmap, RmapOwner, TreeKind};
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgBlock, AgIno, AgNo, FsBlock, inode};

use crate::error::Result;
use crate::volume::Volume;
use crate::walk;

/// Most bytes read at once by a scan.
const PIECE: u64 = 1 << 20;

/// Chunks by their first inode.
type Found = BTreeMap<AgIno, InodeChunk>;

/// The chunks of a group.
pub(crate) struct Chunks {
    /// The chunks in order. Which inodes are free is as a tree says, or by their modes.
    pub(crate) chunks: Vec<InodeChunk>,
    /// Did a sound inode tree list them?
    pub(crate) listed: bool,
}

/// Finds the chunks of a group. With `scan`, the inode tree is not believed, sound or not.
pub(crate) fn find(volume: &Volume, ag: AgNo, scan: bool) -> Result<Chunks> {
    let sector = volume.sector(volume.geo.agi_daddr(ag))?;
    let agi = Agi::view(&sector);
    let listed = walk::tree(volume, ag, TreeKind::Ino, agi.root.get(), agi.level.get())?;
    let mut chunks = Found::new();
    let mut sound = listed.whole && verify::checksum_matches(&sector, BufKind::Agi);
    for record in listed.records.chunks_exact(TreeKind::Ino.rec_len()) {
        sound &= add(volume, ag, &mut chunks, InodeChunk::decode(record));
    }
    let count = chunks.values().map(|chunk| u32::from(chunk.inodes())).sum::<u32>();
    if sound && count == agi.count.get() && !scan {
        return Ok(Chunks { chunks: chunks.into_values().collect(), listed: true });
    }
    if volume.geo.has_finobt() {
        let free = (agi.free_root.get(), agi.free_level.get());
        let listed = walk::tree(volume, ag, TreeKind::FreeIno, free.0, free.1)?;
        for record in listed.records.chunks_exact(TreeKind::FreeIno.rec_len()) {
            add(volume, ag, &mut chunks, InodeChunk::decode(record));
        }
    }
    Scan::new(volume, ag)?.run(&mut chunks)?;
    Ok(Chunks { chunks: chunks.into_values().collect(), listed: false })
}

/// Marks the parts of a chunk as absent in which hardly any inode says that it is one: a record that
/// leads elsewhere must not destroy what is there. False if nothing is left.
pub(crate) fn keep_likely(volume: &Volume, ag: AgNo, chunk: &mut InodeChunk, raw: &[u8]) -> bool {
    let geo = &volume.geo;
    let mut likely = 0u64;
    for (bit, raw) in raw.chunks_exact(geo.inode_size as usize).enumerate() {
        let ino = geo.ino(ag, AgIno(chunk.start.0 + bit as u32));
        likely |= u64::from(crate::inode::is_likely(volume, ino, raw)) << bit;
    }
    let unit = part_of(volume);
    for part in (0..CHUNK_INODES).step_by(unit as usize) {
        if (likely & mask_of(part, unit)).count_ones() * 4 < unit {
            chunk.holemask |= holes_of(part, unit);
        }
    }
    chunk.count = chunk.present().count_ones() as u8;
    chunk.count > 0
}

/// Inodes of the unit in which chunks have holes.
fn part_of(volume: &Volume) -> u32 {
    match volume.geo.has_sparse() {
        true => (volume.geo.sparse_align << volume.geo.inopb_log).clamp(4, CHUNK_INODES),
        false => CHUNK_INODES,
    }
}

/// One bit for each inode of a part.
const fn mask_of(part: u32, unit: u32) -> u64 {
    if unit >= 64 { u64::MAX } else { ((1 << unit) - 1) << part }
}

/// The bits of a part in a mask of holes.
const fn holes_of(part: u32, unit: u32) -> u16 {
    if unit >= 64 { u16::MAX } else { ((1 << (unit / 4)) - 1) << (part / 4) }
}

/// Adds a chunk unless it is impossible or overlaps another. False if it was not added.
fn add(volume: &Volume, ag: AgNo, chunks: &mut Found, chunk: InodeChunk) -> bool {
    let mut chunk = chunk;
    if !volume.geo.has_sparse() {
        (chunk.holemask, chunk.count) = (0, 0);
    }
    let unit = part_of(volume);
    for part in (0..CHUNK_INODES).step_by(unit as usize) {
        let holes = holes_of(part, unit);
        // A unit of which a part is a hole is there, if its inodes say so.
        if chunk.holemask & holes != holes {
            chunk.holemask &= !holes;
        }
    }
    chunk.count = chunk.present().count_ones() as u8;
    if !is_possible(volume, ag, &chunk) {
        return false;
    }
    let first = AgIno(chunk.start.0.saturating_sub(CHUNK_INODES - 1));
    let last = AgIno(chunk.start.0.saturating_add(CHUNK_INODES - 1));
    if chunks.range(first..=last).next().is_some() {
        return false;
    }
    chunks.insert(chunk.start, chunk);
    true
}

fn is_possible(volume: &Volume, ag: AgNo, chunk: &InodeChunk) -> bool {
    let geo = &volume.geo;
    let first = geo.agino_block(chunk.start);
    let end = u64::from(first.0) + u64::from(geo.chunk_blocks());
    let unit = CHUNK_INODES.min(geo.inodes_per_block());
    let log = geo.log_start.0 != 0 && geo.fsb_ag(geo.log_start) == ag && {
        let start = u64::from(geo.fsb_agblock(geo.log_start).0);
        u64::from(first.0) < start + u64::from(geo.log_blocks) && start < end
    };
    geo.agblock_valid(ag, first)
        && end <= u64::from(geo.ag_len(ag))
        && chunk.start.0.is_multiple_of(unit)
        && first.0.is_multiple_of(geo.inode_align)
        && chunk.present() != 0
        && !log
}

/// A scan of a group.
struct Scan<'v> {
    volume: &'v Volume,
    ag: AgNo,
    /// Free runs, if a free-space tree is sound.
    free: Option<Vec<(u32, u32)>>,
    /// Runs of inode chunks, if the reverse mappings are sound.
    inodes: Option<Vec<(u32, u32)>>,
}

impl<'v> Scan<'v> {
    fn new(volume: &'v Volume, ag: AgNo) -> Result<Self> {
        let sector = volume.sector(volume.geo.agf_daddr(ag))?;
        let agf = Agf::view(&sector);
        let run = |raw: &[u8]| {
            let extent = FreeExtent::decode(raw);
            (extent.start.0, extent.len)
        };
        let mut free = None;
        for (kind, root, levels) in [
            (TreeKind::Bno, agf.bno_root.get(), agf.bno_level.get()),
            (TreeKind::Cnt, agf.cnt_root.get(), agf.cnt_level.get()),
        ] {
            let walked = walk::tree(volume, ag, kind, root, levels)?;
            if walked.whole && free.is_none() {
                let mut runs: Vec<_> =
                    walked.records.chunks_exact(kind.rec_len()).map(run).collect();
                runs.sort_unstable();
                free = Some(runs);
            }
        }
        let mut inodes = None;
        if volume.geo.has_rmap() {
            let (root, levels) = (agf.rmap_root.get(), agf.rmap_level.get());
            let walked = walk::tree(volume, ag, TreeKind::Rmap, root, levels)?;
            if walked.whole {
                let rmaps = walked.records.chunks_exact(TreeKind::Rmap.rec_len());
                let own = rmaps.map(Rmap::decode).filter(|r| r.owner == RmapOwner::INODES);
                inodes = Some(own.map(|rmap| (rmap.start.0, rmap.len)).collect());
            }
        }
        Ok(Self { volume, ag, free, inodes })
    }

    fn run(&self, chunks: &mut Found) -> Result<()> {
        let geo = &self.volume.geo;
        let align = geo.inode_align.max(1);
        let chunk_blocks = geo.chunk_blocks();
        let len = geo.ag_len(self.ag);
        let piece = ((PIECE >> geo.block_log) as u32 / align).max(1) * align;
        let piece = piece.max(chunk_blocks);
        let mut at = 0;
        while at < len {
            let count = piece.min(len - at);
            let fsb = geo.fsb(self.ag, AgBlock(at));
            let bytes = self.volume.blocks(FsBlock(fsb.0), count.into())?;
            for block in (at..at + count).step_by(align as usize) {
                let from = ((block - at) as usize) << geo.block_log;
                let to = from + ((chunk_blocks as usize) << geo.block_log);
                match bytes.get(from..to) {
                    Some(raw) => self.block(block, raw, chunks),
                    None if block + chunk_blocks <= len => {
                        let fsb = geo.fsb(self.ag, AgBlock(block));
                        let raw = self.volume.blocks(fsb, chunk_blocks.into())?;
                        self.block(block, &raw, chunks);
                    }
                    None => {}
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Looks for chunks that start at a block.
    fn block(&self, block: u32, raw: &[u8], chunks: &mut Found) {
        let geo = &self.volume.geo;
        let each = (CHUNK_INODES as usize) << geo.inode_log;
        let first = block << geo.inopb_log;
        for (raw, start) in raw.chunks_exact(each).zip((first..).step_by(CHUNK_INODES as usize)) {
            if let Some(chunk) = self.chunk(AgIno(start), raw) {
                add(self.volume, self.ag, chunks, chunk);
            }
        }
    }

    /// The chunk that these bytes hold.
    fn chunk(&self, start: AgIno, raw: &[u8]) -> Option<InodeChunk> {
        let geo = &self.volume.geo;
        let (mut own, mut used) = (0u64, 0u64);
        for (bit, raw) in raw.chunks_exact(geo.inode_size as usize).enumerate() {
            let ino = geo.ino(self.ag, AgIno(start.0 + bit as u32));
            if inode::has_magic(raw)
                && inode::INO.get(raw) == ino
                && raw[160..176] == geo.meta_uuid.0
            {
                own |= 1 << bit;
                used |= u64::from(inode::MODE.get(raw) != 0) << bit;
            }
        }
        let unit = part_of(self.volume);
        let mut holemask = 0u16;
        for part in (0..CHUNK_INODES).step_by(unit as usize) {
            let mask = mask_of(part, unit);
            // Most of the inodes of a part say so, or it is something else.
            let there = (own & mask).count_ones() * 2 > unit && self.may_be(start, part, unit);
            if !there {
                holemask |= holes_of(part, unit);
                used &= !mask;
            }
        }
        let listed = self.inodes.is_some();
        if holemask == u16::MAX || (used == 0 && !listed) {
            return None;
        }
        let mut chunk = InodeChunk { start, holemask, ..InodeChunk::default() };
        chunk.count = chunk.present().count_ones() as u8;
        chunk.free = !used;
        chunk.freecount = (chunk.free & chunk.present()).count_ones() as u8;
        Some(chunk)
    }

    /// May inodes `part` to `part + unit` of a chunk be there, as the other trees say?
    fn may_be(&self, start: AgIno, part: u32, unit: u32) -> bool {
        let geo = &self.volume.geo;
        let first = geo.agino_block(AgIno(start.0 + part)).0;
        let last = geo.agino_block(AgIno(start.0 + part + unit - 1)).0;
        let covers = |(run, len): &(u32, u32)| *run <= first && last < run + len;
        let touches = |(run, len): &(u32, u32)| *run <= last && first < run + len;
        match (&self.inodes, &self.free) {
            (Some(inodes), _) => inodes.iter().any(covers),
            (None, Some(free)) => !free.iter().any(touches),
            (None, None) => true,
        }
    }
}
