//! Blocks that two owners claim: one keeps them.
//!
//! 1. Files that carry the reflink flag share data blocks, with others or with themselves; nothing else is
//!    shared.
//! 2. Headers, the log and inodes keep their blocks. Of two inodes, the one that a metadata block names as
//!    its owner keeps them; of two alike, the one with a sound checksum; then the one with the lower number.
//! 3. The other loses these blocks from its map, which reads as a hole there; that is listed.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use uxfs_check::Place;
use uxfs_format::btree::{Rmap, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::verify::{BufKind, OwnerField};
use uxfs_format::{AgBlock, AgNo, Extent, FileBlock, FsBlock, Ino};

use crate::claim::{self, Key};
use crate::error::Result;
use crate::fork::{self, ForkMap};
use crate::inode::FORKS;
use crate::pass::Pass;
use crate::volume::Volume;

/// Kinds of block that name the inode that owns them.
const OWNED: [BufKind; 10] = [
    BufKind::Btree(TreeKind::Bmap),
    BufKind::DirBlock,
    BufKind::DirData,
    BufKind::DirFree,
    BufKind::DirLeaf1,
    BufKind::DirLeafN,
    BufKind::DaNode,
    BufKind::AttrLeaf,
    BufKind::AttrRemote,
    BufKind::Symlink,
];

/// Settles all conflicts. Afterwards the claims are sorted, and agree with each other.
pub(crate) fn settle(volume: &mut Volume, pass: &mut Pass) -> Result<()> {
    // A fork that is cut leaves claims of its own that were not compared yet, but never more blocks.
    loop {
        pass.claims.merge();
        let mut cuts = Vec::new();
        for ag in volume.groups() {
            cuts.extend(Sweep::new(volume, pass, ag).run()?.into_iter().map(|cut| (ag, cut)));
        }
        if cuts.is_empty() {
            return Ok(());
        }
        apply(volume, pass, cuts)?;
    }
}

/// A sweep over the claims of a group in order of their first block. A claim is compared with the one that
/// holds that block; a claim that loses is entered again behind the blocks that it loses.
struct Sweep<'s> {
    volume: &'s Volume,
    pass: &'s Pass,
    ag: AgNo,
    /// The claim that holds its blocks alone.
    alone: Option<Rmap>,
    /// Claims that share blocks, the strongest first. Some may have ended.
    sharing: BTreeMap<(bool, u64, Key), Rmap>,
    /// What losers have left.
    rests: BTreeMap<Key, Rmap>,
    /// What losers lose.
    cuts: Vec<Rmap>,
}

impl<'s> Sweep<'s> {
    const fn new(volume: &'s Volume, pass: &'s Pass, ag: AgNo) -> Self {
        Self {
            volume,
            pass,
            ag,
            alone: None,
            sharing: BTreeMap::new(),
            rests: BTreeMap::new(),
            cuts: Vec::new(),
        }
    }

    /// The cuts that settle the conflicts.
    fn run(mut self) -> Result<Vec<Rmap>> {
        let mut claims = self.pass.claims.group(self.ag).iter().copied().peekable();
        loop {
            let next = claims.peek().map(claim::key);
            let rest = self.rests.first_entry().filter(|rest| next.is_none_or(|n| *rest.key() < n));
            let Some(claim) = rest.map(|rest| rest.remove()).or_else(|| claims.next()) else {
                return Ok(self.cuts);
            };
            self.enter(claim)?;
        }
    }

    fn enter(&mut self, claim: Rmap) -> Result<()> {
        let reaches = |other: &Rmap| claim::end(other) > claim.start.0;
        if let Some(other) = self.alone.filter(reaches) {
            if self.wins(&other, &claim)? {
                self.cut(&claim, &other, claim.start.0);
                return Ok(());
            }
            self.cut(&other, &claim, claim.start.0);
        }
        self.alone = None;
        if shares(self.volume, self.pass, &claim) {
            // Of those that share, no metadata block names an owner.
            let doubtful = self.pass.get(Ino(claim.owner.0)).is_none_or(|known| known.doubtful);
            self.sharing.insert((doubtful, claim.owner.0, claim::key(&claim)), claim);
            return Ok(());
        }
        while let Some((key, other)) = self.sharing.pop_first() {
            if !reaches(&other) {
                continue;
            }
            if self.wins(&other, &claim)? {
                self.sharing.insert(key, other);
                self.cut(&claim, &other, claim.start.0);
                return Ok(());
            }
            self.cut(&other, &claim, claim.start.0);
        }
        self.alone = Some(claim);
        Ok(())
    }

    fn wins(&self, first: &Rmap, second: &Rmap) -> Result<bool> {
        wins(self.volume, self.pass, self.ag, first, second)
    }

    /// Cuts from `loser`, from `start` on, what `winner` keeps.
    fn cut(&mut self, loser: &Rmap, winner: &Rmap, start: u32) {
        let end = claim::end(loser).min(claim::end(winner));
        let lost = Rmap { len: end - start, ..claim::from(loser, start) };
        if loser.owner.is_inode() {
            self.cuts.push(lost);
        }
        if claim::end(loser) > end {
            let rest = claim::from(loser, end);
            self.rests.insert(claim::key(&rest), rest);
        }
    }
}

fn shares(volume: &Volume, pass: &Pass, claim: &Rmap) -> bool {
    volume.geo.has_reflink()
        && claim::may_share(claim)
        && pass.get(Ino(claim.owner.0)).is_some_and(|known| known.reflink)
}

/// Does the first of two claims keep its blocks?
fn wins(volume: &Volume, pass: &Pass, ag: AgNo, first: &Rmap, second: &Rmap) -> Result<bool> {
    let special = (first.owner.is_inode(), second.owner.is_inode());
    if special.0 != special.1 {
        return Ok(special.1);
    }
    let start = AgBlock(first.start.0.max(second.start.0));
    let named = owner(volume, ag, start)?;
    let rank = |claim: &Rmap| {
        let ino = Ino(claim.owner.0);
        let sound = pass.get(ino).is_some_and(|known| !known.doubtful);
        let plain =
            claim::may_share(claim) && !pass.get(ino).is_some_and(crate::pass::Known::is_dir);
        (named == Some(ino) && !plain, sound)
    };
    let (one, other) = (rank(first), rank(second));
    Ok(if one == other { first.owner <= second.owner } else { one > other })
}

/// The inode that a metadata block names as its owner.
fn owner(volume: &Volume, ag: AgNo, block: AgBlock) -> Result<Option<Ino>> {
    let bytes = volume.block(ag, block)?;
    let daddr = volume.geo.ag_daddr(ag, block);
    let Some(kind) = BufKind::identify(&bytes, &OWNED) else { return Ok(None) };
    let Some(layout) = kind.layout().filter(|layout| layout.is_at(&bytes, daddr)) else {
        return Ok(None);
    };
    Ok(match layout.owner {
        OwnerField::Inode(at) => Field::<Ino>::at(at).try_get(&bytes),
        _ => None,
    })
}

/// Takes the blocks of cuts from the losers' forks.
fn apply(volume: &mut Volume, pass: &mut Pass, cuts: Vec<(AgNo, Rmap)>) -> Result<()> {
    let mut forks: BTreeMap<(Ino, usize), Vec<(FsBlock, Rmap)>> = BTreeMap::new();
    for (ag, cut) in cuts {
        let fork = (Ino(cut.owner.0), usize::from(cut.attr));
        forks.entry(fork).or_default().push((volume.geo.fsb(ag, cut.start), cut));
    }
    pass.withdraw(&forks.keys().copied().collect());
    for ((ino, index), cuts) in forks {
        let mut map = match pass.rewrites.remove(&(ino, index)) {
            Some(map) => map,
            None => read(volume, ino, index)?,
        };
        let (tree, data): (Vec<_>, Vec<_>) = cuts.iter().partition(|(_, cut)| cut.bmbt);
        let count = |cuts: &[(FsBlock, Rmap)]| cuts.iter().map(|(_, cut)| u64::from(cut.len)).sum();
        let (all, lost): (u64, u64) = (count(&cuts), count(&data));
        let place = Place { inode: Some(ino), ..volume.place(cuts[0].0) };
        let wrong = format!("{all} blocks belong to two owners");
        let step = volume.step("inode", place, wrong, "the other owner keeps them");
        if lost > 0 {
            let fork = fork::name(FORKS[index]);
            volume.lose(step, format!("{lost} blocks of the {fork}, which another owner keeps"));
        }
        let blocks = tree.iter().flat_map(|(start, cut)| (start.0..).take(cut.len as usize));
        let gone: FxHashSet<u64> = blocks.collect();
        map.tree.retain(|fsb| !gone.contains(&fsb.0));
        let extent = |(start, cut): (FsBlock, Rmap)| Extent {
            offset: FileBlock(cut.offset),
            start,
            len: cut.len.into(),
            unwritten: cut.unwritten,
        };
        map.cut(data.into_iter().map(extent).collect());
        pass.claim(volume, ino, index, &map);
        pass.rewrites.insert((ino, index), map);
    }
    Ok(())
}

/// Reads the map of a fork of an inode that was mended.
pub(crate) fn read(volume: &Volume, ino: Ino, index: usize) -> Result<ForkMap> {
    let raw = volume.inode(ino)?;
    match crate::inode::mend(volume, ino, &raw)? {
        crate::inode::State::Used(mut mended) => Ok(core::mem::take(&mut mended.maps[index])),
        _ => Ok(ForkMap::default()),
    }
}

/// The other fork's index.
pub(crate) const fn other(index: usize) -> usize {
    FORKS.len() - 1 - index
}
