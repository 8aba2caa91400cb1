//! The lists of unlinked inodes: inodes that have no name but are not freed yet. An AGI has 64 buckets
//! with one list each. After a crash, recovery frees the inodes on these lists.

use uxfs_format::agi::UNLINKED_BUCKETS;
use uxfs_format::{AgIno, AgNo, Check};

use crate::error::{Error, Result};
use crate::tx::{InodeSlot, Tx};

fn bucket(agino: AgIno) -> usize {
    agino.0 as usize % UNLINKED_BUCKETS
}

/// Adds an inode that has lost its last name to its unlinked list. Locks the inode's group.
pub(crate) fn add(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let geo = &tx.fs().geo;
    let ino = tx.inode(slot).ino;
    let (ag, agino) = (geo.ino_ag(ino), geo.ino_agino(ino));
    lock(tx, ag)?;
    let head = tx.agi(ag).unlinked[bucket(agino)].get();
    tx.core_mut(slot).next_unlinked = AgIno(head);
    tx.edit_agi(ag, |agi| agi.unlinked[bucket(agino)].set(agino.0));
    Ok(())
}

/// Removes an inode from its unlinked list, whose group the transaction has locked. Returns `false`
/// if the inode before it is locked elsewhere: then cancel the transaction and try again.
pub(crate) fn remove(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<bool> {
    let geo = std::sync::Arc::clone(&tx.fs().geo);
    let ino = tx.inode(slot).ino;
    let (ag, agino) = (geo.ino_ag(ino), geo.ino_agino(ino));
    let next = tx.inode(slot).core.next_unlinked;
    let mut at = AgIno(tx.agi(ag).unlinked[bucket(agino)].get());
    if at == agino {
        tx.edit_agi(ag, |agi| agi.unlinked[bucket(agino)].set(next.0));
        tx.core_mut(slot).next_unlinked = AgIno::NULL;
        return Ok(true);
    }
    let broken = |tx: &Tx<'_>| {
        let problem = format!("inode {ino} is not on its list of unlinked inodes");
        Err(tx.ag(ag).headers().agi.corrupt(Check::Missing, problem))
    };
    for _ in 0..tx.agi(ag).count.get() {
        if at.is_null() {
            return broken(tx);
        }
        let Some(before) = tx.lock_unlinked(geo.ino(ag, at))? else { return Ok(false) };
        let follows = tx.inode(before).core.next_unlinked;
        if follows == agino {
            tx.core_mut(before).next_unlinked = next;
            tx.core_mut(slot).next_unlinked = AgIno::NULL;
            return Ok(true);
        }
        at = follows;
    }
    broken(tx)
}

fn lock(tx: &mut Tx<'_>, ag: AgNo) -> Result<()> {
    if tx.lock_ag(ag)? {
        return Ok(());
    }
    Err(Error::Invalid("the inode's group must be locked before all others"))
}
