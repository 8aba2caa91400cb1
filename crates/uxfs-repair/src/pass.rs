//! The pass over all inodes: each is mended, and what its forks map becomes claims.
//!
//! 1. Everything is decided by the inodes and by what they map; the trees of the groups only tell where
//!    inodes are.
//! 2. Forks that cannot stay as they are wait in [`Pass::rewrites`] until all claims are known.
//! 3. What is kept of a sound inode is a few numbers and its claims.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use uxfs_check::Place;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::btree::{InodeChunk, Rmap, RmapOwner};
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::inode::{CRC_OFFSET, Flags2, MODE, S_IFDIR, S_IFMT, S_IFREG};
use uxfs_format::{AgIno, AgNo, Ino, crc};

use crate::chunk;
use crate::claim::Claims;
use crate::error::Result;
use crate::fork::ForkMap;
use crate::inode::{self, FORKS, Mended, State};
use crate::volume::Volume;

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its mode.
    pub(crate) mode: u16,
    /// Its link count, as stored.
    pub(crate) nlink: u32,
    /// Its generation.
    pub(crate) generation: u32,
    /// Did its checksum fail for more than a few bits?
    pub(crate) doubtful: bool,
    /// May it share blocks?
    pub(crate) reflink: bool,
    /// Entries that lead here.
    pub(crate) seen: u32,
}

impl Known {
    /// Is it a regular file?
    pub(crate) const fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    /// Is it a directory?
    pub(crate) const fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }
}

/// What the pass found.
pub(crate) struct Pass {
    /// The inodes in use, in order.
    pub(crate) inodes: Vec<Known>,
    /// Who owns which blocks.
    pub(crate) claims: Claims,
    /// The chunks of each group.
    pub(crate) chunks: Vec<Vec<InodeChunk>>,
    /// Groups whose trees no longer agree with what they describe.
    pub(crate) stale: FxHashSet<AgNo>,
    /// Groups that were scanned for inodes.
    pub(crate) scanned: FxHashSet<AgNo>,
    /// Forks to be written anew.
    pub(crate) rewrites: BTreeMap<(Ino, usize), ForkMap>,
}

impl Pass {
    /// The inode with a number, if it is in use.
    pub(crate) fn get(&self, ino: Ino) -> Option<&Known> {
        let index = self.inodes.binary_search_by_key(&ino, |known| known.ino).ok()?;
        self.inodes.get(index)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Known> {
        let index = self.inodes.binary_search_by_key(&ino, |known| known.ino).ok()?;
        self.inodes.get_mut(index)
    }

    /// Marks inodes as free.
    pub(crate) fn free(&mut self, volume: &Volume, gone: &FxHashSet<Ino>) {
        self.inodes.retain(|known| !gone.contains(&known.ino));
        self.rewrites.retain(|(owner, _), _| !gone.contains(owner));
        self.withdraw(&gone.iter().flat_map(|ino| [(*ino, 0), (*ino, 1)]).collect());
        for ino in gone {
            let ag = volume.geo.ino_ag(*ino);
            let agino = volume.geo.ino_agino(*ino);
            self.stale.insert(ag);
            let chunks = &mut self.chunks[ag.0 as usize];
            let index = chunks.partition_point(|chunk| chunk.start <= agino);
            if let Some(chunk) = index.checked_sub(1).and_then(|index| chunks.get_mut(index)) {
                chunk.free |= 1 << (agino.0 - chunk.start.0).min(CHUNK_INODES - 1);
                chunk.freecount = (chunk.free & chunk.present()).count_ones() as u8;
            }
        }
    }

    /// Withdraws the claims of forks: inodes, and indexes of [`FORKS`].
    pub(crate) fn withdraw(&mut self, gone: &FxHashSet<(Ino, usize)>) {
        if gone.is_empty() {
            return;
        }
        let is_gone = |claim: &Rmap| {
            claim.owner.is_inode() && gone.contains(&(Ino(claim.owner.0), usize::from(claim.attr)))
        };
        for ag in (0u32..).map(AgNo).take(self.chunks.len()) {
            if self.claims.group(ag).iter().any(is_gone) {
                self.stale.insert(ag);
            }
        }
        self.claims.withdraw(is_gone);
    }

    /// Claims the blocks of a fork.
    pub(crate) fn claim(&mut self, volume: &Volume, ino: Ino, index: usize, map: &ForkMap) {
        for extent in &map.extents {
            self.claims.extent(&volume.geo, ino, FORKS[index], extent);
        }
        for fsb in &map.tree {
            self.claims.bmbt(&volume.geo, ino, FORKS[index], *fsb);
        }
    }
}

/// Passes over all inodes. `flagged` are inodes that lack the reflink flag; the groups in `scan` are
/// scanned for inodes, whatever their trees say.
pub(crate) fn run(
    volume: &mut Volume,
    flagged: &FxHashSet<Ino>,
    scan: &FxHashSet<AgNo>,
) -> Result<Pass> {
    let mut pass = Pass {
        inodes: Vec::new(),
        claims: Claims::fixed(&volume.geo),
        chunks: Vec::new(),
        stale: FxHashSet::default(),
        scanned: FxHashSet::default(),
        rewrites: BTreeMap::new(),
    };
    for ag in volume.groups() {
        let mut found = chunk::find(volume, ag, scan.contains(&ag))?;
        if found.listed && !all_likely(volume, ag, &found.chunks)? {
            found = chunk::find(volume, ag, true)?;
        }
        if !found.listed {
            pass.stale.insert(ag);
            pass.scanned.insert(ag);
        }
        let mut chunks = Vec::new();
        for mut chunk in found.chunks {
            if inodes_of(volume, &mut pass, ag, &mut chunk, flagged)? {
                claim_chunk(volume, &mut pass.claims, ag, &chunk);
                chunks.push(chunk);
            }
        }
        pass.chunks.push(chunks);
    }
    pass.inodes.sort_unstable_by_key(|known| known.ino);
    Ok(pass)
}

/// Is there an inode at the start or at the end of each chunk that a tree lists? A tree that lies about one
/// may lie about others.
fn all_likely(volume: &Volume, ag: AgNo, chunks: &[InodeChunk]) -> Result<bool> {
    for chunk in chunks {
        let present = chunk.present();
        let ends = [present.trailing_zeros(), CHUNK_INODES - 1 - present.leading_zeros()];
        let mut likely = 0;
        for bit in ends {
            let ino = volume.geo.ino(ag, AgIno(chunk.start.0 + bit));
            likely += u32::from(inode::is_likely(volume, ino, &volume.inode(ino)?));
        }
        if likely == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Claims the blocks of a chunk that are there. Blocks that hold several chunks are claimed once.
fn claim_chunk(volume: &Volume, claims: &mut Claims, ag: AgNo, chunk: &InodeChunk) {
    let geo = &volume.geo;
    let first = geo.agino_block(chunk.start).0;
    let per_block = geo.inodes_per_block();
    if per_block >= CHUNK_INODES {
        let claimed = claims.group(ag).last().is_some_and(|last| {
            last.owner == RmapOwner::INODES
                && (last.start.0..crate::claim::end(last)).contains(&first)
        });
        if !claimed {
            claims.special(ag, RmapOwner::INODES, first, 1);
        }
        return;
    }
    let present = chunk.present();
    for block in 0..geo.chunk_blocks() {
        if present >> (block * per_block) & ((1 << per_block) - 1) != 0 {
            claims.special(ag, RmapOwner::INODES, first + block, 1);
        }
    }
}

fn inodes_of(
    volume: &mut Volume,
    pass: &mut Pass,
    ag: AgNo,
    chunk: &mut InodeChunk,
    flagged: &FxHashSet<Ino>,
) -> Result<bool> {
    let size = volume.geo.inode_size as usize;
    let mut raw = vec![0; size * CHUNK_INODES as usize];
    volume.read(volume.inode_at(volume.geo.ino(ag, chunk.start)), &mut raw)?;
    let before = chunk.present();
    if !chunk::keep_likely(volume, ag, chunk, &raw) {
        pass.stale.insert(ag);
        return Ok(false);
    }
    let present = chunk.present();
    if present != before {
        pass.stale.insert(ag);
    }
    let mut free = u64::MAX;
    for (bit, raw) in raw.chunks_exact(size).enumerate() {
        if present >> bit & 1 == 0 {
            continue;
        }
        let ino = volume.geo.ino(ag, AgIno(chunk.start.0 + bit as u32));
        volume.highest_lsn = volume.highest_lsn.max(lsn(raw));
        let state = inode::mend(volume, ino, raw)?;
        if !matches!(state, State::Used(_))
            && let Some(anew) = inode::made_anew(volume, ino)
        {
            let step = volume.step("inode", Place::inode(ino), "it is lost", "made anew, empty");
            volume.lose(step, format!("inode {ino}"));
            volume.write(step, volume.inode_at(ino), &anew)?;
            if let State::Used(mended) = inode::mend(volume, ino, &anew)? {
                free &= !(1 << bit);
                keep(volume, pass, ino, &anew, *mended, false)?;
            }
            continue;
        }
        match state {
            State::Free => {}
            State::FreeDamaged(wrong) => clear(volume, ino, raw, &wrong, None)?,
            State::Lost(wrong) => {
                let listed = chunk.free >> bit & 1 == 0;
                let lost = listed.then(|| format!("inode {ino}"));
                clear(volume, ino, raw, &wrong, lost)?;
            }
            State::Used(mended) => {
                free &= !(1 << bit);
                keep(volume, pass, ino, raw, *mended, flagged.contains(&ino))?;
            }
        }
    }
    if free != chunk.free {
        pass.stale.insert(ag);
    }
    chunk.free = free;
    let freecount = (free & present).count_ones() as u8;
    chunk.freecount = freecount;
    Ok(true)
}

/// The LSN of an inode whose checksum says that it is to be trusted.
fn lsn(raw: &[u8]) -> uxfs_format::Lsn {
    let lsn = uxfs_format::inode::LSN.get(raw);
    match crc::matches(raw, CRC_OFFSET) && !lsn.is_null() {
        true => lsn,
        false => uxfs_format::Lsn(0),
    }
}

fn clear(
    volume: &mut Volume,
    ino: Ino,
    raw: &[u8],
    wrong: &str,
    lost: Option<String>,
) -> Result<()> {
    let mut raw = raw.to_vec();
    inode::encode_free(volume, ino, &mut raw);
    let step = volume.step("inode", Place::inode(ino), wrong, "a free inode");
    lost.into_iter().for_each(|lost| volume.lose(step, lost));
    volume.write(step, volume.inode_at(ino), &raw)
}

/// Keeps an inode: writes it if it was mended, and claims its blocks.
fn keep(
    volume: &mut Volume,
    pass: &mut Pass,
    ino: Ino,
    before: &[u8],
    mut mended: Mended,
    flagged: bool,
) -> Result<()> {
    if flagged && mended.core.is_reg() && volume.geo.has_reflink() {
        let flags = mended.core.flags2 | Flags2::REFLINK;
        if flags != mended.core.flags2 {
            mended.wrong.push("it shares blocks without the reflink flag".into());
            mended.core.flags2 = flags;
            uxfs_format::bytes::Field::<u64>::at(120).set(&mut mended.raw, flags.bits());
        }
    }
    crc::stamp(&mut mended.raw, CRC_OFFSET);
    if mended.raw != before || !mended.targets.is_empty() {
        let wrong = match mended.wrong.is_empty() {
            true => "fields that break rules".to_owned(),
            false => mended.wrong.join("; "),
        };
        let step = volume.step("inode", Place::inode(ino), wrong, "the fields are put right");
        mended.lost.iter().for_each(|lost| volume.lose(step, lost.clone()));
        volume.write(step, volume.inode_at(ino), &mended.raw)?;
        for (fsb, bytes) in &mended.targets {
            volume.write(step, volume.geo.fsb_daddr(*fsb).bytes(), bytes)?;
        }
        pass.stale.insert(volume.geo.ino_ag(ino));
    }
    let owner = volume.geo.root_ino != ino && !mended.maps[0].extents.is_empty();
    if planted(Fault::SoundFileDropped) && mended.core.is_reg() && owner {
        return clear(volume, ino, before, "", None);
    }
    let forgotten = planted(Fault::OwnerForgotten) && mended.core.is_reg() && owner;
    let [data, attr] = mended.maps;
    for (index, map) in [data, attr].into_iter().enumerate() {
        if !forgotten {
            pass.claim(volume, ino, index, &map);
        }
        if mended.rewrite[index] {
            pass.rewrites.insert((ino, index), map);
        }
    }
    pass.inodes.push(Known {
        ino,
        mode: MODE.get(&mended.raw),
        nlink: mended.core.nlink,
        generation: mended.core.generation,
        doubtful: mended.doubtful,
        reflink: mended.core.flags2.contains(Flags2::REFLINK),
        seen: 0,
    });
    Ok(())
}
