//! Options of a check, and its progress.

use std::num::NonZeroUsize;

use uxfs_format::Lsn;

/// Options of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Number of threads; by default the number of processors, at most 8.
    pub threads: usize,
    /// Bytes of memory for the cross checks. Beyond the limit, some cross checks are skipped and
    /// the report is marked incomplete. About 24 bytes are needed for an extent, 20 for an inode.
    pub memory_limit: u64,
    /// Maximum number of findings to keep; further ones are only counted.
    pub max_findings: usize,
    /// How the caller handled a dirty log.
    pub replay: Replay,
}

/// How the caller handled a dirty log before the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// The log was not replayed. The volume is checked as it is on the device, and a dirty log is
    /// reported.
    #[default]
    None,
    /// The device shows the volume with its log replayed. The log on the device is still dirty.
    Done {
        /// LSN at which the next log record would be written.
        head: Lsn,
        /// Why pending intents in the log were not finished; `None` if they were.
        unfinished: Option<String>,
    },
    /// The device shows a volume in use, as of a moment at which all metadata was in place. The log is
    /// written to meanwhile, and is not read.
    InUse {
        /// LSN at which the next log record would have been written at that moment.
        head: Lsn,
    },
    /// The log is dirty and cannot be replayed, for this reason. The device shows the volume
    /// without it.
    Failed(String),
}

impl Default for CheckOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(8);
        Self { threads, memory_limit: 768 << 20, max_findings: 10_000, replay: Replay::None }
    }
}

/// Phase of the check.
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

/// Progress of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Pieces of work completed in this phase.
    pub done: u64,
    /// All pieces of work in this phase.
    pub total: u64,
}
