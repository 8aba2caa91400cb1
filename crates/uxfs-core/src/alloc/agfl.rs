//! The blocks of a group's free list (AGFL), which the free-space and reverse-mapping trees use.
//!
//! Allocating changes these trees, so they take blocks only from this list. [`super::freelist`] keeps
//! the list long enough.

use std::sync::Arc;

use uxfs_format::agfl;
use uxfs_format::{AgBlock, AgNo, Check};

use crate::btree::{BlockSource, Bno, Cnt, RmapKind};
use crate::error::{Error, Result};
use crate::tx::Tx;

/// Takes a block from the list, for a tree that grows.
pub(crate) fn take(tx: &mut Tx<'_>, ag: AgNo, for_rmap: bool) -> Result<AgBlock> {
    let block = pop(tx, ag)?;
    tx.edit_agf(ag, |agf| {
        agf.btreeblks.set(agf.btreeblks.get() + 1);
        if for_rmap {
            agf.rmap_blocks.set(agf.rmap_blocks.get() + 1);
        }
    });
    Ok(block)
}

/// Adds a block that a tree has released to the list.
pub(crate) fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock, of_rmap: bool) -> Result<()> {
    push(tx, ag, block)?;
    tx.edit_agf(ag, |agf| {
        agf.btreeblks.set(agf.btreeblks.get().saturating_sub(1));
        if of_rmap {
            agf.rmap_blocks.set(agf.rmap_blocks.get().saturating_sub(1));
        }
    });
    Ok(())
}

pub(super) fn pop(tx: &mut Tx<'_>, ag: AgNo) -> Result<AgBlock> {
    let agf = tx.agf(ag);
    let list = Arc::clone(&tx.ag(ag).headers().agfl);
    if agf.flcount.get() == 0 {
        // A group without any free block cannot fill its list.
        return Err(Error::NoSpace);
    }
    let first = agf.flfirst.get();
    let block = agfl::slot(&list.read(), first);
    if !tx.fs().geo.agblock_valid(ag, block) {
        return Err(list.corrupt(Check::FreeList, format!("slot {first} holds block {block}")));
    }
    let slots = agfl::slots(list.len());
    tx.edit_agf(ag, |agf| {
        agf.flfirst.set((first + 1) % slots);
        agf.flcount.set(agf.flcount.get() - 1);
    });
    Ok(block)
}

pub(super) fn push(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
    let agf = tx.agf(ag);
    let list = Arc::clone(&tx.ag(ag).headers().agfl);
    let slots = agfl::slots(list.len());
    if agf.flcount.get() >= slots {
        return Err(list.corrupt(Check::FreeList, "the free list is full"));
    }
    let slot = (agf.fllast.get() + 1) % slots;
    tx.set(&list, agfl::slot_at(slot), block);
    tx.edit_agf(ag, |agf| {
        agf.fllast.set(slot);
        agf.flcount.set(agf.flcount.get() + 1);
    });
    Ok(())
}

impl BlockSource for Bno {
    fn take(tx: &mut Tx<'_>, ag: AgNo, _near: AgBlock) -> Result<AgBlock> {
        take(tx, ag, false)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        give(tx, ag, block, false)
    }
}

impl BlockSource for Cnt {
    fn take(tx: &mut Tx<'_>, ag: AgNo, _near: AgBlock) -> Result<AgBlock> {
        take(tx, ag, false)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        give(tx, ag, block, false)
    }
}

impl BlockSource for RmapKind {
    fn take(tx: &mut Tx<'_>, ag: AgNo, _near: AgBlock) -> Result<AgBlock> {
        take(tx, ag, true)
    }

    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()> {
        give(tx, ag, block, true)
    }
}
