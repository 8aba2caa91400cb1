//! Inodes that a chain of transactions keeps locked between two of its links.
//!
//! Between its links a chain is outside the gate, so that others may shut transactions out, and it may
//! wait for log space. Its inodes stay locked, for others must not see them while steps that belong
//! to their change are owed. So that their way home has not to wait for that lock, the chain leaves
//! copies.
//!
//! 1. A copy is the inode as it was settled: the chain changes nothing while it is outside the gate.
//! 2. Copies come and go inside the gate only: while it is held alone, what is here stays.
//! 3. Whoever holds an inode's lock outside the gate has a copy of it here, or takes it only if that
//!    is to be had without waiting ([`crate::tx::Tx::lock_inodes`]).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uxfs_format::Ino;

use crate::hints::Hints;
use crate::inode::Changed;
use crate::inode::{InodeRef, InodeState};
use crate::mount::Mount;
use crate::sync::Mutex;

struct Copy {
    cell: InodeRef,
    state: InodeState,
    /// It went home as it is.
    push_lock: bool,
}

/// The copies.
#[derive(Default)]
pub(crate) struct RolledInodes {
    copies: Mutex<FxHashMap<u64, Copy>>,
}

impl RolledInodes {
    /// A chain leaves the gate with this inode locked.
    pub(crate) fn put(&self, cell: &InodeRef, state: &InodeState) {
        let copy = InodeState {
            core: state.core.clone(),
            literal: state.literal.clone(),
            hints: Hints::default(),
            ..*state
        };
        let copy = Copy { cell: Arc::clone(cell), state: copy, push_lock: false };
        self.copies.lock().insert(state.ino.0, copy);
    }

    /// A chain is inside again.
    pub(crate) fn take(&self, fs: &Mount, state: &mut InodeState) {
        let copy = self.copies.lock().remove(&state.ino.0);
        if copy.is_some_and(|copy| copy.push_lock) {
            mark_clean(fs, state);
        }
    }

    /// The inode as its chain left it, if it is between two links.
    pub(super) fn get(&self, ino: Ino, cell: &InodeRef) -> Option<Box<InodeState>> {
        let copies = self.copies.lock();
        let copy = copies.get(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell))?;
        Some(Box::new(copy.state.clone()))
    }

    /// An inode that went home, as it was when it changed in checkpoint `changed`, is locked. Is it
    /// by a chain that has not changed it since?
    pub(super) fn written_back(&self, ino: Ino, cell: &InodeRef, changed: u64) -> bool {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&ino.0).filter(|copy| Arc::ptr_eq(&copy.cell, cell));
        let Some(copy) = copy.filter(|copy| copy.state.log.changed == changed) else {
            return false;
        };
        copy.push_lock = true;
        true
    }
}

/// Nothing of an inode is left to be written.
pub(super) fn mark_clean(fs: &Mount, state: &mut InodeState) {
    state.log.parts = Changed::empty();
    state.log.unlinked = false;
    fs.inodes.written_back(state);
}
