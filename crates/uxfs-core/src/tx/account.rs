//! What a transaction changes in the quotas: the difference between its inodes as they were and as they are.
//!
//! 1. Every way to change an inode's owner or blocks passes here, because every change ends in a commit.
//! 2. The dquots are found before the commit, which then cannot fail.

use std::sync::Arc;

use smallvec::SmallVec;
use uxfs_format::dquot::QuotaType;
use uxfs_format::inode::InodeCore;

use super::{InodeSlot, Tx};
use crate::dquot::{Change, DquotRef, Quota, Usage};
use crate::error::Result;
use crate::journal::{Cil, dquot_item};

/// A subject of quota, and the blocks and inodes that it gets.
type Difference = (QuotaType, u32, i64, i64);

/// Adds what an inode counts for its owners, or subtracts it.
fn count(quota: &Quota, all: &mut SmallVec<[Difference; 6]>, core: &InodeCore, sign: i64) {
    if core.mode == 0 {
        return;
    }
    let (blocks, inodes) = (sign * core.nblocks as i64, sign);
    for kind in quota.kinds() {
        let id = kind.id_of(core);
        match all.iter_mut().find(|(other, known, ..)| (*other, *known) == (kind, id)) {
            Some((_, _, all, number)) => (*all, *number) = (*all + blocks, *number + inodes),
            None => all.push((kind, id, blocks, inodes)),
        }
    }
}

impl Tx<'_> {
    /// Finds the dquots that the changes since the last roll change.
    ///
    /// # Errors
    /// If a record cannot be read, is damaged or missing.
    pub(super) fn account(&mut self) -> Result<()> {
        let Some(quota) = &self.fs.quota else { return Ok(()) };
        let mut all = SmallVec::new();
        for entry in self.inodes.iter().filter(|entry| !entry.changed.is_empty()) {
            if quota.is_quota_inode(entry.guard.ino) {
                continue;
            }
            if let Some(before) = &entry.before {
                count(quota, &mut all, &before.core, -1);
            }
            count(quota, &mut all, &entry.guard.core, 1);
        }
        for (kind, id, blocks, inodes) in all {
            if (blocks, inodes) != (0, 0) {
                let dquot = quota.get_counted(&self.fs.bufs, kind, id)?;
                let held = self.holds.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &dquot));
                let held = held.map(|(_, held)| core::mem::take(held)).unwrap_or_default();
                self.dquots.push((dquot, Change { blocks, inodes, held, ..Change::default() }));
            }
        }
        Ok(())
    }

    /// The transaction, bound by no limits of quotas: it frees more than it takes, or what it takes was
    /// admitted before.
    #[must_use]
    pub(crate) fn without_limits(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// Holds the blocks that an inode got in this transaction, if the limits of its owners allow it.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`].
    pub(super) fn hold_blocks(&mut self, slot: InodeSlot) -> Result<()> {
        let Some(quota) = self.fs.quota.as_ref().filter(|_| !self.unlimited) else { return Ok(()) };
        if !quota.enforces() || quota.is_quota_inode(self.inode(slot).ino) {
            return Ok(());
        }
        let entry = &self.inodes[slot.0];
        let before = entry.before.as_ref().map_or(0, |before| before.core.nblocks);
        let grown = entry.guard.core.nblocks.saturating_sub(before);
        let more = grown.saturating_sub(entry.held);
        if more > 0 {
            let core = entry.guard.core.clone();
            self.hold(&core, Usage { blocks: more, inodes: 0 })?;
            self.inodes[slot.0].held = grown;
        }
        Ok(())
    }

    /// Holds what a file of this core may come to use, if the limits of its owners allow it.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`].
    pub(crate) fn hold(&mut self, core: &InodeCore, more: Usage) -> Result<()> {
        let Some(quota) = self.fs.quota.as_ref().filter(|quota| quota.enforces()) else {
            return Ok(());
        };
        let now = self.fs.now().sec.max(0) as u64;
        for dquot in quota.limits_of(&self.fs.bufs, core)? {
            dquot.hold(quota, more, now)?;
            match self.holds.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &dquot)) {
                Some((_, held)) => {
                    held.blocks += more.blocks;
                    held.inodes += more.inodes;
                }
                None => self.holds.push((dquot, more)),
            }
        }
        Ok(())
    }

    /// Holds what an inode uses for those of its new owners that are not its owners yet.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`].
    pub(crate) fn hold_for_new_owners(&mut self, slot: InodeSlot, new: &InodeCore) -> Result<()> {
        let Some(quota) = self.fs.quota.as_ref() else { return Ok(()) };
        let old = self.inode(slot).core.clone();
        let used = Usage { blocks: old.nblocks, inodes: 1 };
        let now = self.fs.now().sec.max(0) as u64;
        for kind in quota.kinds().filter(|kind| kind.id_of(&old) != kind.id_of(new)) {
            let dquot = quota.get_counted(&self.fs.bufs, kind, kind.id_of(new))?;
            dquot.hold(quota, used, now)?;
            self.holds.push((dquot, used));
        }
        Ok(())
    }

    /// Ends what is held of dquots that did not change.
    pub(super) fn release_holds(&mut self) {
        self.holds.drain(..).for_each(|(dquot, held)| dquot.release(held));
        // Those of changes that were not made.
        self.dquots.drain(..).for_each(|(dquot, change)| dquot.release(change.held));
    }

    /// Changes a dquot by more than its usage when the transaction commits.
    pub(crate) fn change_dquot(&mut self, dquot: DquotRef, change: Change) {
        self.dquots.push((dquot, change));
    }

    /// Changes the dquots, in the open checkpoint.
    pub(super) fn log_dquots(&self, cil: &mut Cil) {
        if let Some(quota) = &self.fs.quota {
            for (dquot, change) in &self.dquots {
                dquot_item::add(cil, self.fs, quota, dquot, change);
            }
        }
    }

    /// Changes the dquots in their blocks, without a journal.
    pub(super) fn put_dquots(&self) {
        let Some(quota) = &self.fs.quota else { return };
        let now = self.fs.now().sec.max(0) as u64;
        for (dquot, change) in &self.dquots {
            let record = dquot.apply(change, quota, now).record;
            dquot.put(&record, None, &self.fs.geo);
            self.fs.bufs.mark_dirty(&dquot.buf);
        }
    }
}
