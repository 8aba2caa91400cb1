//! Checkpoints that are cut, on their way to the log; and the memory they leave for later ones.

use std::collections::VecDeque;
use std::ops::Range;

use uxfs_journal::{Sealed, Seq};

use super::item::Handle;

/// What only the driving thread needs.
#[derive(Default)]
pub(crate) struct Driver {
    /// The checkpoint on its way, and the one behind it if that is cut already.
    pub(super) checkpoints: VecDeque<CutCheckpoint>,
    /// Memory of earlier checkpoints, for later ones.
    pub(super) spares: Vec<Vec<u8>>,
    /// Likewise, of their copies.
    pub(super) slabs: Vec<Vec<u8>>,
    /// Position of the last record written.
    pub(super) last: Option<u64>,
}

impl Driver {
    /// Position of the last record written.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// A record was written at this position.
    pub(super) fn wrote(&mut self, position: u64) {
        self.last = Some(position);
    }
}

/// A checkpoint that is cut.
pub(super) struct CutCheckpoint {
    pub(super) seq: Seq,
    pub(super) objects: Vec<Handle>,
    pub(super) gone: Vec<Handle>,
    /// Numbers of the intents in it, and of those that it says are done.
    pub(super) intents: Vec<u64>,
    pub(super) dones: Vec<u64>,
    pub(super) sealed: Option<Sealed>,
    pub(super) parts: Vec<Range<usize>>,
    /// Position of its first record.
    pub(super) head: u64,
}
