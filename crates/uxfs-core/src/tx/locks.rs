//! Locking inodes for a transaction.
//!
//! 1. A transaction locks its inodes all at once, before anything else.
//! 2. Inside the gate it never waits for one: who has it may be waiting for log space, or to come in
//!    again. It lets go of all, waits outside the gate and without log space, and begins anew.
//! 3. Outside the gate it holds a lock only as long as nothing has to be waited for.

use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use uxfs_format::Ino;

use super::{InodeSlot, Tx};
use crate::error::{Error, Result};
use crate::inode::{InodeRef, InodeState};
use crate::journal::Grant;

/// An inode that was locked.
type Locked = (InodeRef, ArcRwLockWriteGuard<RawRwLock, InodeState>);

impl Tx<'_> {
    /// Locks an inode for change; the same inode again gives the same slot.
    ///
    /// # Errors
    /// If the inode cannot be read or is damaged or free.
    pub fn lock_inode(&mut self, ino: Ino) -> Result<InodeSlot> {
        if let Some(at) = self.inodes.iter().position(|held| held.guard.ino == ino) {
            return Ok(InodeSlot(at));
        }
        let [slot] = self.lock_inodes([ino])?;
        Ok(slot)
    }

    /// Locks several inodes in ascending order and gives their slots in the order asked for.
    ///
    /// # Errors
    /// As [`Tx::lock_inode`].
    pub fn lock_inodes<const N: usize>(&mut self, inos: [Ino; N]) -> Result<[InodeSlot; N]> {
        debug_assert!(self.inodes.is_empty(), "inodes are locked all at once");
        let mut sorted = inos;
        sorted.sort_unstable();
        let mut had = None;
        while let Some(ino) = self.try_inodes(&sorted, had.take())? {
            had = self.wait_for_inode(ino)?;
        }
        Ok(inos.map(|ino| {
            let at = self.inodes.iter().position(|i| i.guard.ino == ino);
            InodeSlot(at.unwrap_or_default())
        }))
    }

    /// Locks inodes that are given in ascending order, one of which it may have already. If one is
    /// taken, lets go of all and gives that one.
    fn try_inodes(&mut self, sorted: &[Ino], mut had: Option<Locked>) -> Result<Option<Ino>> {
        for ino in sorted {
            if self.inodes.last().is_some_and(|held| held.guard.ino == *ino) {
                continue;
            }
            let (cell, guard) = match had.take_if(|(_, guard)| guard.ino == *ino) {
                Some(locked) => locked,
                None => {
                    let cell = self.fs.inodes.get(self.fs, *ino)?;
                    let Some(guard) = cell.try_write_arc() else {
                        self.inodes.clear();
                        return Ok(Some(*ino));
                    };
                    (cell, guard)
                }
            };
            if guard.core.mode == 0 {
                return Err(Error::NotFound);
            }
            self.join(cell, guard, false);
        }
        Ok(None)
    }

    /// Waits for an inode that somebody else has locked, outside the gate and without log space:
    /// they may be waiting to come in again, or for that space. Gives it locked, if the
    /// rest can be had without waiting.
    fn wait_for_inode(&mut self, ino: Ino) -> Result<Option<Locked>> {
        let cell = self.fs.inodes.get(self.fs, ino)?;
        let Some(journal) = &self.fs.journal else {
            let guard = crate::sync::write_arc(&cell);
            return Ok(Some((cell, guard)));
        };
        self.gate = None;
        journal.release(core::mem::take(&mut self.granted));
        let guard = crate::sync::write_arc(&cell);
        if let Grant::Granted = journal.try_grant(None, self.link)? {
            self.granted = self.link;
            self.gate = self.fs.gate.try_read_recursive();
            if self.gate.is_some() {
                return Ok(Some((cell, guard)));
            }
        }
        // Who is shutting transactions out may want to look at the inode, and who waits for room in
        // the log may want to bring it home.
        drop(guard);
        if self.granted == 0 {
            self.granted = self.fs.reserve_log_bytes(journal, self.link)?;
        }
        self.gate = Some(self.fs.gate.read());
        Ok(None)
    }

    /// Locks an inode without a name, on the way along a list of such. `None` if somebody else has
    /// it locked, who may be waiting for what this transaction holds: it has to let go and try
    /// again.
    ///
    /// # Errors
    /// As [`Tx::lock_inode`].
    pub(crate) fn lock_unlinked(&mut self, ino: Ino) -> Result<Option<InodeSlot>> {
        if let Some(at) = self.inodes.iter().position(|i| i.guard.ino == ino) {
            return Ok(Some(InodeSlot(at)));
        }
        let cell = self.fs.inodes.get(self.fs, ino)?;
        let guard = cell.try_write_arc();
        Ok(guard.map(|guard| self.join(cell, guard, false)))
    }
}
