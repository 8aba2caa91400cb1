//! Forks written anew: as extents in the inode where they fit, else as an extent tree.
//!
//! 1. It runs after all claims are settled: the blocks of a new tree are taken from the blocks without an owner.
//! 2. The old blocks of the tree are given up.

use uxfs_check::Place;
use uxfs_format::btree::TreeKind;
use uxfs_format::bytes::Field;
use uxfs_format::inode::{CORE_LEN, CRC_OFFSET, Flags2, Fork, ForkFormat, InodeCore};
use uxfs_format::{AgBlock, AgNo, Extent, FsBlock, Ino, crc};

use crate::claim;
use crate::conflict;
use crate::error::{RepairError, Result};
use crate::fork::{self, ForkMap};
use crate::inode::FORKS;
use crate::pass::Pass;
use crate::tree::{self, Label};
use crate::volume::Volume;

const FORMAT: [usize; 2] = [5, 83];
const NBLOCKS: Field<u64> = Field::at(64);

/// Blocks without an owner, by group.
struct Free(Vec<Vec<(u32, u32)>>);

/// Writes all forks that wait for it.
pub(crate) fn run(volume: &mut Volume, pass: &mut Pass) -> Result<()> {
    let rewrites = core::mem::take(&mut pass.rewrites);
    if rewrites.is_empty() {
        return Ok(());
    }
    pass.withdraw(&rewrites.keys().copied().collect());
    let mut maps = Vec::new();
    for ((ino, index), mut map) in rewrites {
        map.tree.clear();
        map.lost = beyond(volume, ino, index, &mut map)?;
        pass.claim(volume, ino, index, &map);
        maps.push((ino, index, map));
    }
    pass.claims.merge();
    let runs = |ag| claim::free_runs(pass.claims.group(ag), volume.geo.ag_len(ag));
    let mut free = Free(volume.groups().map(runs).collect());
    for (ino, index, map) in maps {
        one(volume, pass, &mut free, (ino, index), map)?;
    }
    pass.claims.merge();
    Ok(())
}

/// The bytes of a fork in its inode.
fn range(raw: &[u8], fork: Fork) -> core::ops::Range<usize> {
    let core = InodeCore { forkoff: raw[82], ..InodeCore::default() };
    let range = core.fork_range(fork, raw.len() - CORE_LEN);
    CORE_LEN + range.start..CORE_LEN + range.end
}

/// Takes the extents that a fork has no room for, not even for the root of a tree. Returns what is lost.
fn beyond(volume: &Volume, ino: Ino, index: usize, map: &mut ForkMap) -> Result<Vec<String>> {
    let room = range(&volume.inode(ino)?, FORKS[index]).len();
    if TreeKind::max_bmap_root(room) > 0 || map.extents.len() <= room / 16 {
        return Ok(Vec::new());
    }
    let name = fork::name(FORKS[index]);
    let lost = map.extents.drain(room / 16..).map(|extent| {
        let Extent { offset, len, .. } = extent;
        format!("{len} blocks from block {offset} of the {name} on: it has no room for them")
    });
    Ok(lost.collect())
}

fn one(
    volume: &mut Volume,
    pass: &mut Pass,
    free: &mut Free,
    (ino, index): (Ino, usize),
    mut map: ForkMap,
) -> Result<()> {
    let fork = FORKS[index];
    let other = conflict::read(volume, ino, conflict::other(index))?;
    let mut raw = volume.inode(ino)?;
    let flags2 = Flags2::from_bits_retain(Field::<u64>::at(120).get(&raw));
    let range = range(&raw, fork);
    let step = volume.step(
        "inode",
        Place::inode(ino),
        format!("its {} cannot stay as it is", fork::name(fork)),
        format!("it maps {} extents", map.extents.len()),
    );
    map.lost.drain(..).for_each(|lost| volume.lose(step, lost));
    let room = range.len() / 16;
    if map.extents.len() <= room {
        raw[FORMAT[index]] = ForkFormat::Extents as u8;
        raw[range.clone()].fill(0);
        for (slot, extent) in raw[range].chunks_exact_mut(16).zip(&map.extents) {
            slot.copy_from_slice(&extent.pack());
        }
    } else {
        raw[FORMAT[index]] = ForkFormat::Btree as u8;
        let top = TreeKind::max_bmap_root(range.len());
        let size = volume.geo.block_size as usize;
        let count = tree::blocks(TreeKind::Bmap, map.extents.len(), size, top);
        map.tree = free.take(volume, ino, count)?;
        for fsb in &map.tree {
            pass.claims.bmbt(&volume.geo, ino, fork, *fsb);
            pass.stale.insert(volume.geo.fsb_ag(*fsb));
        }
        let numbers: Vec<u64> = map.tree.iter().map(|fsb| fsb.0).collect();
        let records: Vec<u8> = map.extents.iter().flat_map(Extent::pack).collect();
        let geo = volume.geo.clone();
        let daddr = |number: u64| geo.fsb_daddr(FsBlock(number));
        let (uuid, kind) = (&geo.meta_uuid, TreeKind::Bmap);
        let label = Label { kind, owner: ino.0, uuid, block_size: size, daddr: &daddr };
        let built = tree::build(&label, &records, &numbers, top)?;
        for (number, block) in &built.blocks {
            volume.write(step, daddr(*number).bytes(), block)?;
        }
        tree::put_root(&mut raw[range], &built);
    }
    let count = map.extents.len() as u64;
    match (fork, flags2.contains(Flags2::NREXT64)) {
        (Fork::Data, true) => Field::<u64>::at(24).set(&mut raw, count),
        (Fork::Data, false) | (Fork::Attr, true) => {
            Field::<u32>::at(76).set(&mut raw, count as u32);
        }
        (Fork::Attr, false) => Field::<u16>::at(80).set(&mut raw, count as u16),
    }
    NBLOCKS.set(&mut raw, map.blocks() + other.blocks());
    crc::stamp(&mut raw, CRC_OFFSET);
    volume.write(step, volume.inode_at(ino), &raw)
}

impl Free {
    /// Takes blocks for an inode's extent tree, near the inode if there are some.
    fn take(&mut self, volume: &Volume, ino: Ino, count: usize) -> Result<Vec<FsBlock>> {
        let geo = &volume.geo;
        let mut taken = Vec::new();
        let groups = (0..geo.ag_count).map(|ag| AgNo((geo.ino_ag(ino).0 + ag) % geo.ag_count));
        for ag in groups {
            let runs = &mut self.0[ag.0 as usize];
            while taken.len() < count
                && let Some((start, len)) = runs.pop()
            {
                taken.push(geo.fsb(ag, AgBlock(start)));
                if len > 1 {
                    runs.push((start + 1, len - 1));
                }
            }
        }
        match taken.len() == count {
            true => Ok(taken),
            false => Err(RepairError::Beyond(format!(
                "the volume is full: no {count} blocks for the extent tree of inode {ino}"
            ))),
        }
    }
}
