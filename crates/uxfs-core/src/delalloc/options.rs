//! Limits of dirty data: how much, and for how long.

/// Limits of dirty data in memory. The fields have the names of Linux' limits in `/proc/sys/vm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritebackOptions {
    /// Maximum bytes of data in memory that are not on the device. A writer that would exceed it
    /// first writes data back.
    pub dirty_bytes: u64,
    /// Above this number of dirty bytes, [`crate::Fs::writeback_tick`] writes back the oldest data. In
    /// ordered mode ([`crate::SyncMode`]) it is half of `dirty_bytes`, and all data is written then.
    pub dirty_background_bytes: u64,
    /// A tick writes back data that has been dirty for this long, in hundredths of a second.
    pub dirty_expire_centisecs: u32,
    /// Time between two ticks in hundredths of a second, for [`crate::Fs::writeback_alarm`].
    pub dirty_writeback_centisecs: u32,
}

impl WritebackOptions {
    /// The background limit in effect: low enough that write-back starts before writers have to
    /// wait.
    pub(super) fn background(&self) -> u64 {
        self.dirty_background_bytes.min(self.dirty_bytes / 2)
    }

    /// The limits of ordered mode, where write-back before the epoch moves what it writes: it starts as late
    /// as it can, and then writes everything, because blocks that are written together stay together.
    pub(crate) fn for_epochs(self) -> Self {
        Self { dirty_background_bytes: self.dirty_bytes / 2, ..self }
    }
}

impl Default for WritebackOptions {
    /// 64 MiB, 16 MiB, 30 s, 5 s.
    fn default() -> Self {
        Self {
            dirty_bytes: 64 << 20,
            dirty_background_bytes: 16 << 20,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
        }
    }
}
