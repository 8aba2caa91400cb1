//! Options for opening a volume.

use std::time::Duration;

use uxfs_format::dquot::QuotaFlags;
use uxfs_journal::{InvalidOption, JournalOptions, LogMode};

use crate::clock::Clock;
use crate::delalloc::WritebackOptions;

/// Shortest [`SyncMode::Ordered::loss`].
const LEAST_LOSS: Duration = Duration::from_secs(1);

/// What fsync and its kin wait for (`sync=` of a mount).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// Until the data is on stable storage.
    #[default]
    Durable,
    /// For nothing: order is kept without a wait. After a crash the volume, file contents included, is
    /// that of one earlier moment.
    Ordered {
        /// How much time a crash may take back, at most, unless the device needs longer than half of
        /// it to write and flush what changed in the other half.
        loss: Duration,
    },
}

impl SyncMode {
    /// Five seconds.
    pub const DEFAULT_LOSS: Duration = Duration::from_secs(5);

    /// Is this [`SyncMode::Ordered`]?
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::Ordered { .. })
    }
}

/// Options for opening a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Refuse all changes, and never write to the device.
    pub read_only: bool,
    /// Read a volume with a dirty log as it is on the device, without replay. Requires `read_only`.
    pub norecovery: bool,
    /// The volume is being made. It may be marked as unfinished (`inprogress`), and may be written
    /// back at any time, because no reader uses it before it is finished. Its changes are not
    /// logged.
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
    /// Changes are not logged: see [`OpenOptions::unlogged`].
    pub(crate) unlogged: bool,
    /// How changes are logged, so that they survive a power cut.
    pub journal: JournalOptions,
    /// Delayed allocation: keep written data in memory, and allocate its blocks at write-back.
    /// `None` writes data to the device at once. Ignored where changes are not logged.
    pub writeback: Option<WritebackOptions>,
    /// What fsync waits for. [`SyncMode::Ordered`] needs a journal with delayed logging and flushes, and
    /// implies delayed allocation.
    pub sync: SyncMode,
    /// The quotas to account and to enforce; `None` for those that the volume's superblock names. Ignored
    /// where changes are not logged.
    pub quota: Option<QuotaFlags>,
    /// Remember the files that write-back splits, for [`crate::Fs::defrag_pass`].
    pub defrag: bool,
    /// In ordered mode, write most dirty data before writers are kept out for the rest. Tests turn it.
    #[doc(hidden)]
    pub ahead: bool,
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
            unlogged: false,
            journal: JournalOptions::default(),
            writeback: None,
            sync: SyncMode::Durable,
            quota: None,
            defrag: false,
            ahead: true,
        }
    }
}

impl OpenOptions {
    /// Options for reading only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// Options for `uxfs::resize`, which changes the length that the log relies on. Changes are not
    /// logged: they stay in memory until a sync writes all of them in place, and the volume is
    /// marked as needing repair meanwhile, so a power cut during the sync leaves a volume that only
    /// `xfs_repair` opens.
    #[doc(hidden)]
    pub fn unlogged() -> Self {
        Self { unlogged: true, ..Self::default() }
    }

    /// The options with what [`OpenOptions::sync`] implies for the others.
    ///
    /// # Errors
    /// [`InvalidOption`] if they contradict each other.
    pub(crate) fn settled(mut self) -> Result<Self, InvalidOption> {
        let SyncMode::Ordered { loss } = self.sync else { return Ok(self) };
        if loss < LEAST_LOSS {
            return Err(InvalidOption("loss= takes a second or more"));
        }
        if self.journal.mode == LogMode::Immediate {
            return Err(InvalidOption("sync=ordered needs delayed logging (delaylog)"));
        }
        if self.journal.wsync {
            return Err(InvalidOption("sync=ordered and wsync contradict each other"));
        }
        if !self.journal.barrier {
            return Err(InvalidOption("sync=ordered needs flushes (barrier)"));
        }
        // One half for what waits to be cut, one for its way to stable storage.
        let age = loss / 2;
        let centisecs = u32::try_from(age.as_millis() / 10).unwrap_or(u32::MAX);
        let tick = centisecs / 4;
        self.writeback = Some(WritebackOptions {
            dirty_expire_centisecs: centisecs - tick,
            dirty_writeback_centisecs: tick,
            ..self.writeback.unwrap_or_default().for_epochs()
        });
        self.journal.pipeline.epochs = true;
        self.journal.pipeline.age_max = age;
        Ok(self)
    }

    /// Are changes logged, if the volume has a log of its own?
    pub(crate) fn logs(&self) -> bool {
        !self.read_only && !self.unlogged && !self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_ordered_mode_are_refused() {
        let ordered = |loss| OpenOptions {
            sync: SyncMode::Ordered { loss: Duration::from_millis(loss) },
            ..OpenOptions::default()
        };
        let settled = ordered(4000).settled().unwrap();
        assert!(settled.journal.pipeline.epochs);
        assert_eq!(settled.journal.pipeline.age_max, Duration::from_secs(2));
        let limits = settled.writeback.unwrap();
        assert_eq!(limits.dirty_expire_centisecs + limits.dirty_writeback_centisecs, 200);
        let refused = |options: OpenOptions| options.settled().unwrap_err().to_string();
        assert!(refused(ordered(999)).contains("loss="));
        for (word, named) in
            [("nodelaylog", "delaylog"), ("wsync", "wsync"), ("nobarrier", "barrier")]
        {
            let mut options = ordered(1000);
            options.journal.apply(word).unwrap();
            assert!(refused(options).contains(named), "{word}");
        }
    }
}
