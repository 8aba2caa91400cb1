//! A group: its headers, its trees, and the inodes that they lead to.

use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::btree::{InodeChunk, LEVEL, NUMRECS, TreeKind, ptr};
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::verify::BufKind;
use uxfs_format::{AgBlock, AgIno, AgNo, Daddr};

use crate::dump::Dump;
use crate::error::DumpError;
use crate::options::DumpProgress;
use crate::scrub::{self, Outcome};

impl Dump<'_> {
    /// Dumps a group.
    pub(crate) fn group(&mut self, ag: AgNo) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        self.progress(DumpProgress::Trees { ag: ag.0 });
        let sector = geo.sector_size as usize;
        self.block(BufKind::Superblock, geo.ag_sector_daddr(ag, 0), sector)?;
        let agf = self.block(BufKind::Agf, geo.agf_daddr(ag), sector)?;
        let agi = self.block(BufKind::Agi, geo.agi_daddr(ag), sector)?;
        let agf = agf.as_deref().map(Agf::view);
        self.free_list(ag, agf)?;
        if let Some(agf) = agf {
            let mut trees = vec![
                (TreeKind::Bno, &agf.bno_root, &agf.bno_level),
                (TreeKind::Cnt, &agf.cnt_root, &agf.cnt_level),
            ];
            if geo.has_rmap() {
                trees.push((TreeKind::Rmap, &agf.rmap_root, &agf.rmap_level));
            }
            if geo.has_reflink() {
                trees.push((TreeKind::Refcount, &agf.refcount_root, &agf.refcount_level));
            }
            for (kind, root, level) in trees {
                self.tree(ag, kind, AgBlock(root.get()), level.get())?;
            }
        }
        if let Some(agi) = agi.as_deref().map(Agi::view) {
            if geo.has_finobt() {
                self.tree(
                    ag,
                    TreeKind::FreeIno,
                    AgBlock(agi.free_root.get()),
                    agi.free_level.get(),
                )?;
            }
            self.tree(ag, TreeKind::Ino, AgBlock(agi.root.get()), agi.level.get())?;
        }
        Ok(())
    }

    fn free_list(&mut self, ag: AgNo, agf: Option<&Agf>) -> Result<(), DumpError> {
        let daddr = self.scrub.geo.agfl_daddr(ag);
        let sector = self.scrub.geo.sector_size as usize;
        if !self.claim(daddr, sector, "AGFL") {
            return Ok(());
        }
        let Some(mut list) = self.read(daddr, sector)? else { return Ok(()) };
        let outcome = self.scrub.free_list(&mut list, daddr, agf);
        self.put(daddr, &list)?;
        self.note(outcome);
        Ok(())
    }

    /// Dumps the part of a tree below `block`, which has `levels` levels.
    fn tree(
        &mut self,
        ag: AgNo,
        kind: TreeKind,
        block: AgBlock,
        levels: u32,
    ) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let len = geo.block_size as usize;
        let place = format!("{} {block} of AG {ag}", kind.block_name());
        if !geo.agblock_valid(ag, block) {
            self.warn(format!("{place} does not exist"));
            return Ok(());
        }
        let found = self.block(BufKind::Btree(kind), geo.ag_daddr(ag, block), len)?;
        let Some(found) = found else { return Ok(()) };
        let level = u32::from(LEVEL.get(&found));
        if level + 1 != levels {
            self.warn(format!("{place} has level {level} where {levels} levels are left"));
            return Ok(());
        }
        let header = kind.header().len;
        let count = usize::from(NUMRECS.get(&found));
        if level == 0 {
            if kind == TreeKind::Ino {
                let records = found[header..].chunks_exact(kind.rec_len()).take(count);
                for record in records {
                    self.chunk(ag, InodeChunk::decode(record))?;
                }
            }
            return Ok(());
        }
        let pointers = header + kind.max_node(len) * kind.key_len();
        for raw in found[pointers..].chunks_exact(kind.header().ptr_len).take(count) {
            // Pointers inside a group have 32 bits.
            self.tree(ag, kind, AgBlock(ptr(raw) as u32), level)?;
        }
        Ok(())
    }

    /// Dumps the inodes of a chunk and what their forks lead to.
    fn chunk(&mut self, ag: AgNo, chunk: InodeChunk) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let present = if geo.has_sparse() { chunk.present() } else { u64::MAX };
        let last = chunk.start.0.saturating_add(CHUNK_INODES - 1);
        if [chunk.start.0, last]
            .iter()
            .any(|agino| !geo.agblock_valid(ag, geo.agino_block(AgIno(*agino))))
        {
            self.warn(format!("AG {ag}: a chunk of inodes at {} does not exist", chunk.start));
            return Ok(());
        }
        let mut first = 0;
        while first < CHUNK_INODES {
            let count = run(present, first);
            if count > 0 {
                self.inodes(ag, AgIno(chunk.start.0 + first), count)?;
            }
            first += count.max(1);
        }
        self.summary.inodes += u64::from(present.count_ones());
        let (done, total) = (self.summary.inodes, self.sb.icount.get());
        self.progress(DumpProgress::Inodes { done, total, ag: ag.0, ags: geo.ag_count });
        Ok(())
    }

    /// Dumps inodes that follow each other.
    fn inodes(&mut self, ag: AgNo, first: AgIno, count: u32) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let size = geo.inode_size as usize;
        let in_block = first.0 & (geo.inodes_per_block() - 1);
        let block = geo.ag_daddr(ag, geo.agino_block(first));
        let daddr = Daddr(block.0 + u64::from((in_block * geo.inode_size) >> 9));
        let len = count as usize * size;
        if !self.claim(daddr, len, "inodes") {
            return Ok(());
        }
        let Some(inodes) = self.read(daddr, len)? else { return Ok(()) };
        let mut changed = inodes.clone();
        for (raw, agino) in changed.chunks_exact_mut(size).zip(first.0..) {
            let outcome = self.scrub.inode(raw, geo.ino(ag, AgIno(agino)));
            self.note(outcome);
        }
        self.put(daddr, &changed)?;
        for (raw, agino) in inodes.chunks_exact(size).zip(first.0..) {
            let ino = geo.ino(ag, AgIno(agino));
            // One that cannot be decoded was reported above.
            if let Ok(core) = scrub::core(raw, ino)
                && core.mode != 0
            {
                self.forks(ino, raw, &core)?;
            }
        }
        Ok(())
    }

    /// Dumps a block of a file's fork that needs no changes: it holds numbers only.
    pub(crate) fn plain(&mut self, daddr: Daddr, len: usize) -> Result<bool, DumpError> {
        if !self.claim(daddr, len, "file data") {
            return Ok(false);
        }
        if let Some(block) = self.read(daddr, len)? {
            self.put(daddr, &block)?;
        }
        Ok(true)
    }

    /// Dumps a block of a directory or of attributes, whose pieces lie in several places, as one of these
    /// kinds. `false` if it is in the dump already.
    pub(crate) fn pieces(
        &mut self,
        kinds: &[BufKind],
        places: &[Daddr],
        piece: usize,
    ) -> Result<bool, DumpError> {
        let mut block = Vec::with_capacity(places.len() * piece);
        let mut whole = true;
        for place in places {
            if !self.claim(*place, piece, kinds.first().map_or("block", |kind| kind.name())) {
                return Ok(false);
            }
            match self.read(*place, piece)? {
                Some(bytes) => block.extend_from_slice(&bytes),
                None => whole = false,
            }
        }
        // What is left of it cannot be understood.
        if !whole {
            return Ok(true);
        }
        let first = places.first().copied().unwrap_or_default();
        let kind = BufKind::identify(&block, kinds).or(kinds.first().copied());
        let outcome = match kind {
            Some(kind) => self.scrub.block(&mut block, kind, first),
            None => Outcome::Fine,
        };
        for (bytes, place) in block.chunks_exact(piece).zip(places) {
            self.put(*place, bytes)?;
        }
        self.note(outcome);
        Ok(true)
    }
}

/// Number of inodes from `first` on that are present, up to the first that is not.
fn run(present: u64, first: u32) -> u32 {
    (present >> first).trailing_ones().min(CHUNK_INODES - first)
}
