//! Locks inodes for a transaction.
//!
//! 1. A transaction locks all its inodes at once, before anything else.
//! 2. Inside the gate it never waits for an inode, because the holder may be waiting for log space
//!    or for the gate. It unlocks all inodes, waits outside the gate and without log space, and
//!    starts again.
//! 3. Outside the gate it holds an inode's lock only while it waits for nothing.

use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use uxfs_format::Ino;

use super::{InodeSlot, Tx};
use crate::error::{Error, Result};
use crate::inode::{InodeRef, InodeState};
use uxfs_journal::Grant;

/// A locked inode.
type Locked = (InodeRef, ArcRwLockWriteGuard<RawRwLock, InodeState>);

impl Tx<'_> {
    /// Locks an inode for change. Locking the same inode again returns the same slot.
    ///
    /// # Errors
    /// If the inode cannot be read, or is damaged or free.
    pub fn lock_inode(&mut self, ino: Ino) -> Result<InodeSlot> {
        if let Some(at) = self.inodes.iter().position(|held| held.guard.ino == ino) {
            return Ok(InodeSlot(at));
        }
        let [slot] = self.lock_inodes([ino])?;
        Ok(slot)
    }

    /// Locks several inodes in ascending order. Returns their slots in the order given.
    ///
    /// # Errors
    /// As [`Tx::lock_inode`].
    pub fn lock_inodes<const N: usize>(&mut self, inos: [Ino; N]) -> Result<[InodeSlot; N]> {
        let mut sorted = inos;
        sorted.sort_unstable();
        self.lock_sorted(&sorted)?;
        Ok(inos.map(|ino| {
            let at = self.inodes.iter().position(|i| i.guard.ino == ino);
            InodeSlot(at.unwrap_or_default())
        }))
    }

    /// Locks several inodes, given in ascending order.
    ///
    /// # Errors
    /// As [`Tx::lock_inode`].
    pub(crate) fn lock_sorted(&mut self, sorted: &[Ino]) -> Result<()> {
        debug_assert!(self.inodes.is_empty(), "inodes are locked all at once");
        let mut had = None;
        while let Some(ino) = self.try_inodes(sorted, had.take())? {
            had = self.wait_for_inode(ino)?;
        }
        Ok(())
    }

    /// Locks inodes given in ascending order, one of which may be locked already. If one is locked
    /// by another thread, unlocks all and returns that one.
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

    /// Waits for an inode that another thread has locked, outside the gate and without log space:
    /// the holder may be waiting for either. Returns it locked if the rest can be had without
    /// waiting.
    fn wait_for_inode(&mut self, ino: Ino) -> Result<Option<Locked>> {
        let cell = self.fs.inodes.get(self.fs, ino)?;
        let Some(journal) = &self.fs.journal else {
            let guard = uxfs_sync::write_arc(&cell);
            return Ok(Some((cell, guard)));
        };
        let freeze = self.freeze.take().is_some();
        self.gate = None;
        journal.release(core::mem::take(&mut self.granted));
        let guard = uxfs_sync::write_arc(&cell);
        if let Grant::Granted = journal.try_grant(None, self.link)? {
            self.granted = self.link;
            if freeze {
                self.freeze = self.fs.freeze.try_read_recursive();
            }
            if self.freeze.is_some() == freeze {
                self.gate = self.fs.gate.try_read_recursive();
            }
            if self.gate.is_some() {
                return Ok(Some((cell, guard)));
            }
        }
        // A thread that closes the gate may want to read the inode, and one that waits for log
        // space may want to push it.
        drop(guard);
        self.freeze = None;
        if self.granted == 0 {
            self.granted = journal.reserve(self.fs, self.link)?;
        }
        if freeze {
            self.freeze = self.fs.hold_off_freeze();
        }
        self.gate = Some(self.fs.gate.read());
        Ok(None)
    }

    /// Locks an unlinked inode while walking its list. Returns `None` if another thread has it
    /// locked, which may be waiting for what this transaction holds. The transaction then has to
    /// release its locks and start again.
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
