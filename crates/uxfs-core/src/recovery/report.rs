//! The report that a recovery returns to the caller that opened the volume.

use uxfs_journal::recovery::{Bounds, Report};

/// What a recovery did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// The head and tail of the log as they were found.
    pub bounds: Bounds,
    /// The report of the replay.
    pub replay: Report,
    /// Number of pending intents that were completed.
    pub intents: u64,
    /// Number of unlinked inodes that were freed.
    pub unlinked: u64,
    /// Number of leftover CoW staging blocks that were freed.
    pub staged: u64,
    /// The changes exist only in memory.
    pub in_memory: bool,
}

impl Recovery {
    /// A recovery that has replayed the log, and has completed nothing yet.
    pub(super) fn of_replay(bounds: Bounds, replay: &Report, in_memory: bool) -> Self {
        Self { bounds, replay: replay.clone(), intents: 0, unlinked: 0, staged: 0, in_memory }
    }
}
