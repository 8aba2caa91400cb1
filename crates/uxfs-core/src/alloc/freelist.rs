//! The length of the AGFL ([`super::agfl`]): blocks set aside so that the trees of free space and reverse
//! mappings can grow while free space itself changes.
//!
//! 1. Only those trees take blocks from the list and return blocks to it.
//! 2. Before each change in a group, [`fix`] brings the list to the length at which each of the trees can
//!    split once on every level.

use uxfs_format::btree::{RmapOwner, TreeKind};
use uxfs_format::{AgBlock, AgNo};

use super::agfl::{pop, push};
use super::{Owner, extent, rmap};
use crate::error::Result;
use crate::tx::Tx;

/// The length that the free list of a locked group must have.
pub(crate) fn needed(tx: &Tx<'_>, ag: AgNo) -> u32 {
    let geo = &tx.fs().geo;
    let agf = tx.agf(ag);
    let block = geo.block_size as usize;
    let free_max = TreeKind::Bno.max_height(block, u64::from(geo.ag_blocks) / 2);
    let one = |levels: u32, max: u32| {
        if levels < max { 2 * levels } else { levels + max.saturating_sub(2) }
    };
    let mut need = one(agf.bno_level.get(), free_max) + one(agf.cnt_level.get(), free_max);
    if geo.has_rmap() {
        let max = if geo.has_reflink() {
            uxfs_format::btree::MAX_LEVELS as u32
        } else {
            TreeKind::Rmap.max_height(block, geo.ag_blocks.into())
        };
        need += one(agf.rmap_level.get(), max);
    }
    need
}

/// Brings the free list of a locked group to the required length. Returns `false` if the group does
/// not have enough blocks; then nothing may be allocated from it, but blocks may be freed.
///
/// # Errors
/// A damaged structure on the way.
pub(crate) fn fix(tx: &mut Tx<'_>, ag: AgNo) -> Result<bool> {
    let has_rmap = tx.fs().geo.has_rmap();
    let owner = Owner::Special(RmapOwner::AG);
    // Each round may change a tree's height and with it the required length. This converges at
    // once.
    for _ in 0..64 {
        let (need, have) = (needed(tx, ag), tx.agf(ag).flcount.get());
        if have == need {
            return Ok(true);
        }
        if have > need {
            let block = pop(tx, ag)?;
            if has_rmap {
                rmap::remove(tx, ag, &owner.rmap(block, 1))?;
            }
            tx.forget_block(ag, block);
            extent::free(tx, ag, block, 1)?;
            continue;
        }
        let Some((start, len)) = extent::take_for_freelist(tx, ag, need - have)? else {
            return Ok(false);
        };
        for block in start.0..start.0 + len {
            push(tx, ag, AgBlock(block))?;
        }
        if has_rmap {
            rmap::add(tx, ag, &owner.rmap(start, len))?;
        }
    }
    Ok(true)
}
