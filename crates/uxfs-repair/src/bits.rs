//! Blocks of which only a few bits were changed: put back by their checksum, in place.
//!
//! 1. Only blocks and sectors that the check complains of are looked at.
//! 2. A block is put back only if it then passes its verification.
//!
//! The first phase of each round. Inodes have the same treatment in [`crate::inode`].

use uxfs_check::{Finding, Place, code};
use uxfs_format::btree::TreeKind;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgNo, Daddr};

use crate::burst;
use crate::error::Result;
use crate::volume::Volume;

/// Kinds of block that have a checksum of their own.
const KINDS: [BufKind; 16] = [
    BufKind::Btree(TreeKind::Bno),
    BufKind::Btree(TreeKind::Cnt),
    BufKind::Btree(TreeKind::Ino),
    BufKind::Btree(TreeKind::FreeIno),
    BufKind::Btree(TreeKind::Rmap),
    BufKind::Btree(TreeKind::Refcount),
    BufKind::Btree(TreeKind::Bmap),
    BufKind::DirBlock,
    BufKind::DirData,
    BufKind::DirLeaf1,
    BufKind::DirLeafN,
    BufKind::DirFree,
    BufKind::DaNode,
    BufKind::AttrLeaf,
    BufKind::AttrRemote,
    BufKind::Symlink,
];

/// Puts back what it can of the blocks in the findings. True if there was something.
pub(crate) fn put_back(volume: &mut Volume, findings: &[Finding]) -> Result<bool> {
    let mut any = false;
    let mut places: Vec<&Place> = findings.iter().map(|finding| &finding.place).collect();
    places.dedup();
    for place in places {
        let (Some(ag), Some(block)) = (place.ag, place.block) else { continue };
        if !volume.geo.agblock_valid(ag, block) {
            continue;
        }
        let daddr = volume.geo.ag_daddr(ag, block);
        for kind in KINDS {
            if one(volume, daddr, kind, place.clone())? {
                any = true;
                break;
            }
        }
    }
    for finding in findings {
        let Some(ag) = finding.place.ag.filter(|ag| ag.0 < volume.geo.ag_count) else { continue };
        let (daddr, kind) = match () {
            () if finding.code == code::AGF.name => (volume.geo.agf_daddr(ag), BufKind::Agf),
            () if finding.code == code::AGI.name => (volume.geo.agi_daddr(ag), BufKind::Agi),
            () if finding.code == code::AGFL.name => (volume.geo.agfl_daddr(ag), BufKind::Agfl),
            () if finding.code == code::SB_COPY.name && ag != AgNo(0) => {
                (volume.geo.ag_sector_daddr(ag, 0), BufKind::Superblock)
            }
            () => continue,
        };
        any |= one(volume, daddr, kind, Place::ag(ag))?;
    }
    Ok(any)
}

/// Bytes of a block of this kind.
fn len(volume: &Volume, kind: BufKind) -> usize {
    let size = match kind {
        BufKind::Superblock | BufKind::Agf | BufKind::Agi | BufKind::Agfl => volume.geo.sector_size,
        BufKind::DirBlock
        | BufKind::DirData
        | BufKind::DirLeaf1
        | BufKind::DirLeafN
        | BufKind::DirFree => volume.geo.dir_block_size(),
        _ => volume.geo.block_size,
    };
    size as usize
}

fn one(volume: &mut Volume, daddr: Daddr, kind: BufKind, place: Place) -> Result<bool> {
    let mut bytes = vec![0; len(volume, kind)];
    if volume.read(daddr.bytes(), &mut bytes).is_err() {
        return Ok(false);
    }
    let Some(layout) = kind.layout().filter(|_| !verify::checksum_matches(&bytes, kind)) else {
        return Ok(false);
    };
    let undone = burst::undo(&mut bytes, layout.crc)
        && verify::check(&bytes, kind, daddr, &volume.geo).is_ok()
        && !volume.is_ahead(layout.lsn(&bytes));
    if undone {
        let wrong = "a few bits were changed, which its checksum tells";
        let step = volume.step(kind.name(), place, wrong, "the bits are put back");
        volume.write(step, daddr.bytes(), &bytes)?;
    }
    Ok(undone)
}
