//! The report that a recovery returns to the caller that opened the volume.

use uxfs_journal::recovery::Bounds;

/// What a recovery did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// The head and tail of the log as they were found.
    pub bounds: Bounds,
    /// The report of the replay.
    pub replay: uxfs_journal::recovery::Report,
    /// Number of pending intents that were completed.
    pub intents: u64,
    /// Number of unlinked inodes that were freed.
    pub unlinked: u64,
    /// Number of leftover CoW staging blocks that were freed.
    pub staged: u64,
    /// The changes exist only in memory.
    pub in_memory: bool,
}
