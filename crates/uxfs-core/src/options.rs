//! Options for opening a volume.

use uxfs_journal::JournalOptions;

use crate::clock::Clock;
use crate::delalloc::WritebackOptions;

/// Options for opening a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Refuse all changes, and never write to the device.
    pub read_only: bool,
    /// Read a volume with a dirty log as it is on the device, without replay. Requires `read_only`.
    pub norecovery: bool,
    /// The volume is being made. It may be marked as unfinished (`inprogress`), and may be written
    /// back at any time, because no reader uses it before it is finished.
    pub unfinished: bool,
    /// The source of timestamps.
    pub clock: Clock,
    /// Seed of inode generations; `None` derives one from the time.
    pub seed: Option<u64>,
    /// Target for clean metadata in memory, in bytes. Dirty metadata may reach 1.5 times this size,
    /// plus an inode for each KiB of it; with a log worker twice that, and the worker starts
    /// writing at the limit that holds without it.
    pub cache_bytes: usize,
    /// The length of the volume is being changed, and it is marked as needing repair because of
    /// that.
    pub(crate) resuming: bool,
    /// Number of recoveries so far. A log that is still dirty after the second one stays dirty.
    pub(crate) recovered: u8,
    /// How changes are logged, so that they survive a power cut (the default). With `None` changes
    /// stay in memory until a sync writes all of them in place, and the volume is marked as needing
    /// repair meanwhile. Ignored on volumes that are `unfinished`.
    pub journal: Option<JournalOptions>,
    /// Delayed allocation: keep written data in memory, and allocate its blocks at write-back.
    /// Requires the journal. `None` writes data to the device at once.
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
    /// Options for reading only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
