//! Blocks that two owners claim: one keeps them.
//!
//! 1. Files that carry the reflink flag share data blocks; nothing else is shared.
//! 2. Headers, the log and inodes keep their blocks. Of two inodes, the one with a sound checksum keeps
//!    them; of two alike, the one whose metadata block names it as its owner; then the one with the lower
//!    number.
//! 3. The other loses these blocks from its map, which reads as a hole there; that is listed.

use uxfs_check::Place;
use uxfs_format::btree::{Rmap, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::verify::{BufKind, OwnerField};
use uxfs_format::{AgBlock, AgNo, FsBlock, Ino};

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
        for (ag, cut) in cuts {
            apply(volume, pass, ag, &cut)?;
        }
    }
}

/// The cuts that settle the conflicts of a group.
fn group(volume: &Volume, pass: &Pass, ag: AgNo) -> Result<Vec<Cut>> {
    let mut cuts: Vec<Cut> = Vec::new();
    let mut open: Vec<Rmap> = Vec::new();
    for claim in pass.claims.group(ag) {
        open.retain(|other| claim::end(other) > claim.start.0);
        for other in &open {
            if shares(volume, pass, claim) && shares(volume, pass, other) {
                let same = claim.owner == other.owner;
                if !same {
                    continue;
                }
            }
            let loser = if wins(volume, pass, ag, other, claim)? { claim } else { other };
            let end = claim::end(claim).min(claim::end(other));
            let (start, len) = (claim.start.0, end - claim.start.0);
            if loser.owner.is_inode() {
                cuts.push(Cut { claim: *loser, start, len });
            }
        }
        open.push(*claim);
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

/// Takes the blocks of a cut from the loser's fork.
fn apply(volume: &mut Volume, pass: &mut Pass, ag: AgNo, cut: &Cut) -> Result<()> {
    let ino = Ino(cut.claim.owner.0);
    let fork = claim::fork_of(&cut.claim);
    let index = usize::from(cut.claim.attr);
    let mut map = match pass.rewrites.remove(&(ino, index)) {
        Some(map) => map,
        None => read(volume, ino, index)?,
    };
    let start = volume.geo.fsb(ag, AgBlock(cut.start));
    let what = if cut.claim.bmbt {
        map.tree.retain(|fsb| !(start.0..start.0 + u64::from(cut.len)).contains(&fsb.0));
        None
    } else {
        map.cut(start, cut.len.into());
        Some(format!("{} blocks of the {}, which another file keeps", cut.len, fork::name(fork)))
    };
    let place = Place { inode: Some(ino), ..volume.place(FsBlock(start.0)) };
    let wrong = format!("{} blocks belong to two owners", cut.len);
    let step = volume.step("inode", place, wrong, "the other owner keeps them");
    what.into_iter().for_each(|what| volume.lose(step, what));
    pass.withdraw(ino, &[fork]);
    for extent in &map.extents {
        pass.claims.extent(&volume.geo, ino, fork, extent);
        pass.stale.insert(volume.geo.fsb_ag(extent.start));
    }
    for fsb in &map.tree {
        pass.claims.bmbt(&volume.geo, ino, fork, *fsb);
    }
    pass.stale.insert(ag);
    pass.rewrites.insert((ino, index), map);
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
