//! The allocation groups of a transaction: locked, read and changed in place, and their busy blocks.
//!
//! 1. Groups are locked in ascending order. One below a group that is held is only tried ([`Tx::lock_ag`]).
//! 2. A group is unlocked before the end only if nothing in it was changed.
//! 3. Inside [`all_groups::at_once`] a transaction locks all groups with its first one. So it needs none that
//!    others hold.
//!
//! Called by the allocators of blocks and inodes, and by what frees either.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uxfs_format::AgNo;
use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;

use super::Tx;
use crate::ag::AgState;
use crate::all_groups;
use crate::buf::BufRef;
use crate::error::Result;

impl<'fs> Tx<'fs> {
    /// Locks an allocation group, and waits for it if the order allows that. Returns `false` if it
    /// is locked and must not be waited for. The caller then tries another group.
    ///
    /// # Errors
    /// If its headers cannot be read or are damaged.
    pub fn lock_ag(&mut self, ag: AgNo) -> Result<bool> {
        if self.holds_ag(ag) {
            return Ok(true);
        }
        if all_groups::wanted() && self.ags.is_empty() {
            for ag in (0..self.fs.geo.ag_count).map(AgNo) {
                self.lock_one(ag)?;
            }
            return Ok(true);
        }
        self.lock_one(ag)
    }

    fn lock_one(&mut self, ag: AgNo) -> Result<bool> {
        let cell = self.fs.ag(ag)?;
        let in_order = self.ags.iter().all(|(held, _)| *held < ag);
        let mut guard = if in_order {
            cell.lock()
        } else {
            match cell.try_lock() {
                Some(guard) => guard,
                None => {
                    self.saw_taken = true;
                    return Ok(false);
                }
            }
        };
        guard.load(self.fs, ag)?;
        self.ags.push((ag, guard));
        Ok(true)
    }

    /// Unlocks a group in which nothing was changed.
    pub(crate) fn unlock_ag(&mut self, ag: AgNo) {
        if all_groups::wanted() {
            return;
        }
        let changed = |buf: &BufRef| buf.holder.load(Ordering::Relaxed) == self.id;
        let headers = self.ag(ag).headers();
        if !changed(&headers.agf) && !changed(&headers.agi) {
            self.ags.retain(|(held, _)| *held != ag);
        }
    }

    /// Has this transaction locked the group?
    pub fn holds_ag(&self, ag: AgNo) -> bool {
        self.ags.iter().any(|(held, _)| *held == ag)
    }

    /// The state of a locked group.
    ///
    /// # Panics
    /// If the transaction has not locked it, which is an error of the caller.
    pub fn ag(&self, ag: AgNo) -> &AgState {
        let held = self.ags.iter().find(|(held, _)| *held == ag);
        &held.expect("the transaction has locked the AG").1
    }

    /// The state of a locked group, for change. It holds hints only, which a cancel does not
    /// restore.
    ///
    /// # Panics
    /// As [`Tx::ag`].
    pub fn ag_mut(&mut self, ag: AgNo) -> &mut AgState {
        let held = self.ags.iter_mut().find(|(held, _)| *held == ag);
        &mut held.expect("the transaction has locked the AG").1
    }

    /// A copy of the AGF of a held group.
    pub fn agf(&self, ag: AgNo) -> Agf {
        *Agf::view(&self.ag(ag).headers().agf.read())
    }

    /// A copy of the AGI of a held group.
    pub fn agi(&self, ag: AgNo) -> Agi {
        *Agi::view(&self.ag(ag).headers().agi.read())
    }

    /// Changes the AGF of a held group.
    pub fn edit_agf(&mut self, ag: AgNo, change: impl FnOnce(&mut Agf)) {
        let buf = Arc::clone(&self.ag(ag).headers().agf);
        change(Agf::view_mut(&mut self.edit(&buf, 0..size_of::<Agf>())));
    }

    /// Changes the AGI of a held group.
    pub fn edit_agi(&mut self, ag: AgNo, change: impl FnOnce(&mut Agi)) {
        let buf = Arc::clone(&self.ag(ag).headers().agi);
        change(Agi::view_mut(&mut self.edit(&buf, 0..size_of::<Agi>())));
    }

    /// Notes that blocks of a locked group were freed.
    pub(crate) fn note_freed(&mut self, ag: AgNo, start: uxfs_format::AgBlock, len: u32) {
        if let Some(journal) = &self.fs.journal {
            self.freed.push((ag, start, len));
            // This transaction must not write data there either ([`Self::expire_busy`]).
            let seq = journal.open_seq();
            self.ag_mut(ag).busy.add(seq, journal.batches_begun(), start, len);
        }
    }

    /// Drops the busy blocks of a locked group whose checkpoint is durable.
    pub(crate) fn expire_busy(&mut self, ag: AgNo) {
        if let Some(journal) = &self.fs.journal {
            // Blocks that this transaction freed are in no checkpoint yet.
            if let Some((_, state)) = self.ags.iter_mut().find(|(held, _)| *held == ag) {
                for (_, start, len) in self.freed.iter().filter(|(freed, ..)| *freed == ag) {
                    let (seq, batch) = (journal.open_seq(), journal.batches_begun());
                    state.busy.add(seq, batch, *start, *len);
                }
            }
            let busy = &mut self.ag_mut(ag).busy;
            busy.expire(journal.durable(), journal.batches_ended());
            let left = !busy.is_empty();
            self.saw_busy |= left;
        }
    }
}
