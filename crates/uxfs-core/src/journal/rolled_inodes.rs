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

use crate::hints::Hints;
use crate::inode::Changed;
use crate::inode::{InodeRef, InodeState};
use crate::mount::Mount;

struct Copy {
    cell: InodeRef,
    state: InodeState,
    /// The copy was written in place.
    written: bool,
}

/// The set of copies.
#[derive(Default)]
pub(crate) struct RolledInodes {
    copies: Mutex<FxHashMap<u64, Copy>>,
}

impl RolledInodes {
    /// Adds a copy of a locked inode, whose transaction leaves the gate.
    pub(crate) fn put(&self, cell: &InodeRef, state: &InodeState) {
        let copy = InodeState {
            core: state.core.clone(),
            literal: state.literal.clone(),
            hints: Hints::default(),
            ..*state
        };
        let copy = Copy { cell: Arc::clone(cell), state: copy, written: false };
        self.copies.lock().insert(state.ino.0, copy);
    }

    /// Removes the copy, because the transaction entered the gate again.
    pub(crate) fn take(&self, fs: &Mount, state: &mut InodeState) {
        let copy = self.copies.lock().remove(&state.ino.0);
        if copy.is_some_and(|copy| copy.written) {
            mark_clean(fs, state);
        }
    }

    /// The copy of an inode whose transaction is between two rolls.
    pub(super) fn get(&self, ino: Ino, cell: &InodeRef) -> Option<Box<InodeState>> {
        let copies = self.copies.lock();
        let copy = copies.get(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell))?;
        Some(Box::new(copy.state.clone()))
    }

    /// Notes that an inode was written in place in its state of checkpoint `changed`. Returns
    /// whether it is locked by a rolling transaction that has not changed it since.
    pub(super) fn written_back(&self, ino: Ino, cell: &InodeRef, changed: u64) -> bool {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell));
        let Some(copy) = copy.filter(|copy| copy.state.log.changed == changed) else {
            return false;
        };
        copy.written = true;
        true
    }
}

/// Marks an inode as having no unwritten changes.
pub(super) fn mark_clean(fs: &Mount, state: &mut InodeState) {
    state.log.parts = Changed::empty();
    state.log.unlinked = false;
    fs.inodes.written_back(state);
}
