//! Copies of the inodes of rolling transactions, for the AIL push.
//!
//! Between two rolls a transaction is outside the gate. Its inodes stay locked, because others must not see
//! them while steps that belong to their change are owed. So that a push need not wait for these locks, the
//! transaction leaves copies.
//!
//! 1. A copy is the inode as it was committed: the transaction changes nothing while it is outside the gate.
//! 2. Copies are added and removed inside the gate only: while the gate is closed, the set does not change.
//! 3. A thread that holds an inode's lock outside the gate has a copy of it here, or took the lock without
//!    waiting ([`crate::tx::Tx::lock_inodes`]).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uxfs_format::Ino;
use uxfs_sync::Mutex;

#[derive(Debug)]
struct Copy<C, S> {
    cell: Arc<C>,
    state: S,
    /// The copy was written in place.
    written: bool,
}

/// The set of copies: `C` is an inode in memory, `S` its state.
#[derive(Debug)]
pub(crate) struct RolledInodes<C, S> {
    copies: Mutex<FxHashMap<u64, Copy<C, S>>>,
}

impl<C, S> Default for RolledInodes<C, S> {
    fn default() -> Self {
        Self { copies: Mutex::default() }
    }
}

impl<C, S: Clone> RolledInodes<C, S> {
    /// Adds a copy of a locked inode, whose transaction leaves the gate.
    pub(crate) fn put(&self, ino: Ino, cell: &Arc<C>, state: S) {
        let copy = Copy { cell: Arc::clone(cell), state, written: false };
        self.copies.lock().insert(ino.0, copy);
    }

    /// Removes the copy, because the transaction entered the gate again. Returns whether it was
    /// written in place.
    pub(crate) fn take(&self, ino: Ino) -> bool {
        self.copies.lock().remove(&ino.0).is_some_and(|copy| copy.written)
    }

    /// The copy of an inode whose transaction is between two rolls.
    pub(crate) fn get(&self, ino: Ino, cell: &Arc<C>) -> Option<Box<S>> {
        let copies = self.copies.lock();
        let copy = copies.get(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell))?;
        Some(Box::new(copy.state.clone()))
    }

    /// Notes that an inode was written in place, if its state is still the one that was written.
    /// Returns whether it is locked by a rolling transaction that has not changed it since.
    pub(crate) fn written_back(
        &self,
        ino: Ino,
        cell: &Arc<C>,
        unchanged: impl FnOnce(&S) -> bool,
    ) -> bool {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell));
        let Some(copy) = copy.filter(|copy| unchanged(&copy.state)) else {
            return false;
        };
        copy.written = true;
        true
    }
}
