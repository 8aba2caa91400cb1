//! How a volume is opened.

use crate::clock::Clock;
use crate::delalloc::WritebackOptions;
use crate::journal::JournalOptions;

/// How to open a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Refuse all changes, and never write to the device.
    pub read_only: bool,
    /// Read a volume whose log is dirty as it lies there, without what the log holds. Goes with
    /// `read_only`.
    pub norecovery: bool,
    /// The volume is being made: nobody looks at it before it is finished, so it may be unfinished
    /// (`inprogress`) now and be written back at any time.
    pub unfinished: bool,
    /// Where times of changes come from.
    pub clock: Clock,
    /// Seed of inode generations; `None` takes one from the time.
    pub seed: Option<u64>,
    /// About how many bytes of clean metadata to keep in memory. Half as much again may wait to be
    /// written, and an inode for each KiB; twice that at most while a service looks after the journal,
    /// which begins to bring it home from the same limit on.
    pub cache_bytes: usize,
    /// The volume is in the midst of a change of its length, and marked as needing repair by it.
    pub(crate) resuming: bool,
    /// How often recovery was done: a log that is not clean after the second time will not become so.
    pub(crate) recovered: u8,
    /// How changes are logged, so that they survive a power cut: the default. With `None` they are in
    /// memory until a sync writes all of them in place, and the volume is marked as needing repair
    /// meanwhile. Without effect on volumes that are `unfinished`.
    pub journal: Option<JournalOptions>,
    /// Let written data gather in memory, and choose blocks for it when it is written back; needs
    /// the journal. `None` writes data to the device at once.
    pub writeback: Option<WritebackOptions>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            norecovery: false,
            unfinished: false,
            clock: Clock::Real,
            seed: None,
            cache_bytes: 64 << 20,
            resuming: false,
            recovered: 0,
            journal: Some(JournalOptions::default()),
            writeback: None,
        }
    }
}

impl OpenOptions {
    /// For reading only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
