//! How a check is to be run, and how far it has come.

use std::num::NonZeroUsize;

use uxfs_format::Lsn;

/// How a check is to be run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Threads to use; by default as many as the machine has, 8 at most.
    pub threads: usize,
    /// Bytes that may be kept for the checks of all things against each other. Beyond it, some of
    /// those are left out and the report says so. About 24 for an extent, 20 for an inode.
    pub memory_limit: u64,
    /// Findings to keep; the rest are only counted.
    pub max_findings: usize,
    /// What the caller did about a dirty log.
    pub replay: Replay,
}

/// What the caller did about a dirty log before the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Nothing: the volume is judged as it lies on the device, and a dirty log is found by the check.
    #[default]
    None,
    /// The device shows the volume with the log replayed. The log on it is still dirty.
    Done {
        /// Where the log's next record would go.
        head: Lsn,
        /// Why what the log announced was not finished, if it was not.
        unfinished: Option<String>,
    },
    /// The log is dirty and cannot be replayed, for this reason. The device shows the volume without
    /// it.
    Failed(String),
}

impl Default for CheckOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(8);
        Self { threads, memory_limit: 768 << 20, max_findings: 10_000, replay: Replay::None }
    }
}

/// What the check is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Headers and btrees of the allocation groups.
    Groups,
    /// Inodes, with their directories and attributes.
    Inodes,
    /// Owners of blocks, group by group.
    Blocks,
    /// Links between inodes, and counters.
    Links,
}

/// How far the check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// Pieces done in this phase.
    pub done: u64,
    /// Pieces in this phase.
    pub total: u64,
}
