//! Blocks that two owners claim: one keeps them.
//!
//! 1. Files that carry the reflink flag share data blocks; nothing else is shared.
//! 2. Headers, the log and inodes keep their blocks. Of two inodes, the one with a sound checksum keeps
//!    them; of two alike, the one whose metadata block names it as its owner; then the one with the lower
//!    number.
//! 3. The other loses these blocks from its map, which reads as a hole there; that is listed.

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_check::Place;
use uxfs_format::btree::{Rmap, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::verify::{BufKind, OwnerField};
use uxfs_format::{AgBlock, AgNo, Ino};

use crate::claim;
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

/// Blocks that a claim loses.
struct Cut {
    claim: Rmap,
    start: u32,
    len: u32,
}

/// Settles all conflicts. Afterwards the claims are sorted, and agree with each other.
pub(crate) fn settle(volume: &mut Volume, pass: &mut Pass) -> Result<()> {
    // A fork that is cut leaves claims of its own that were not compared yet, but never more blocks.
    loop {
        pass.claims.merge();
        let mut cuts = Vec::new();
        for ag in volume.groups() {
            for cut in group(volume, pass, ag)? {
                cuts.push((ag, cut));
            }
        }
        if cuts.is_empty() {
            return Ok(());
        }
        apply(volume, pass, &cuts)?;
    }
}

/// The cuts that settle the conflicts of a group.
fn group(volume: &Volume, pass: &Pass, ag: AgNo) -> Result<Vec<Cut>> {
    let mut cuts: Vec<Cut> = Vec::new();
    // Claims that reach beyond the start of the next: those that may share, by owner, and the others.
    let mut alone: Vec<Rmap> = Vec::new();
    let mut sharing: FxHashMap<u64, Vec<Rmap>> = FxHashMap::default();
    for claim in pass.claims.group(ag) {
        let reaches = |other: &Rmap| claim::end(other) > claim.start.0;
        alone.retain(reaches);
        let mut against = alone.clone();
        if shares(volume, pass, claim) {
            let own = sharing.entry(claim.owner.0).or_default();
            own.retain(reaches);
            against.extend_from_slice(own);
            own.push(*claim);
        } else {
            sharing.retain(|_, own| {
                own.retain(reaches);
                !own.is_empty()
            });
            against.extend(sharing.values().flatten());
            alone.push(*claim);
        }
        for other in &against {
            let loser = if wins(volume, pass, ag, other, claim)? { claim } else { other };
            let end = claim::end(claim).min(claim::end(other));
            let (start, len) = (claim.start.0, end - claim.start.0);
            if loser.owner.is_inode() {
                cuts.push(Cut { claim: *loser, start, len });
            }
        }
    }
    Ok(cuts)
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
fn apply(volume: &mut Volume, pass: &mut Pass, cuts: &[(AgNo, Cut)]) -> Result<()> {
    let mut changed = FxHashSet::default();
    for (ag, cut) in cuts {
        let (ino, index) = (Ino(cut.claim.owner.0), usize::from(cut.claim.attr));
        let mut map = match pass.rewrites.remove(&(ino, index)) {
            Some(map) => map,
            None => read(volume, ino, index)?,
        };
        let start = volume.geo.fsb(*ag, AgBlock(cut.start));
        let place = Place { inode: Some(ino), ..volume.place(start) };
        let wrong = format!("{} blocks belong to two owners", cut.len);
        let step = volume.step("inode", place, wrong, "the other owner keeps them");
        if cut.claim.bmbt {
            map.tree.retain(|fsb| !(start.0..start.0 + u64::from(cut.len)).contains(&fsb.0));
        } else {
            let inside = u64::from(cut.start - cut.claim.start.0);
            map.cut(start, cut.len.into(), cut.claim.offset + inside);
            let fork = fork::name(FORKS[index]);
            volume
                .lose(step, format!("{} blocks of the {fork}, which another file keeps", cut.len));
        }
        pass.rewrites.insert((ino, index), map);
        changed.insert((ino, index));
    }
    pass.withdraw(&changed);
    for (ino, index) in changed {
        if let Some(map) = pass.rewrites.remove(&(ino, index)) {
            pass.claim(volume, ino, index, &map);
            pass.rewrites.insert((ino, index), map);
        }
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
