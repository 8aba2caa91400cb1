//! Checkpoints that are cut and being written, and the memory that later checkpoints reuse.

use std::collections::VecDeque;
use std::ops::Range;

use uxfs_journal::{Sealed, Seq};

use super::item::Handle;

/// The state of the driver.
#[derive(Default)]
pub(crate) struct Driver {
    /// The checkpoint being written, and the next one if it is cut already.
    pub(super) checkpoints: VecDeque<CutCheckpoint>,
    /// Record buffers for later checkpoints.
    pub(super) spares: Vec<Vec<u8>>,
    /// Slabs for the copies of later checkpoints.
    pub(super) slabs: Vec<Vec<u8>>,
    /// Position of the last record written.
    pub(super) last: Option<u64>,
}

impl Driver {
    /// Position of the last record written.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Notes that a record was written at this position.
    pub(super) fn wrote(&mut self, position: u64) {
        self.last = Some(position);
    }
}

/// A checkpoint that is cut.
pub(super) struct CutCheckpoint {
    pub(super) seq: Seq,
    pub(super) objects: Vec<Handle>,
    pub(super) gone: Vec<Handle>,
    /// Ids of its intents, and of the intents whose done items it holds.
    pub(super) intents: Vec<u64>,
    pub(super) dones: Vec<u64>,
    pub(super) sealed: Option<Sealed>,
    pub(super) parts: Vec<Range<usize>>,
    /// Position of its first record.
    pub(super) head: u64,
}
