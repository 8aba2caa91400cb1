//! How much may be dirty, and for how long.

/// How data gathers in memory before it is written; the fields bear the names that Linux gives
/// these limits below `/proc/sys/vm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritebackOptions {
    /// Most bytes of data in memory that are not on the device. A writer that would exceed it
    /// writes back first.
    pub dirty_bytes: u64,
    /// Bytes beyond which [`crate::Fs::writeback_tick`] writes back what is oldest.
    pub dirty_background_bytes: u64,
    /// Hundredths of a second after which a tick writes back what has been dirty for that long.
    pub dirty_expire_centisecs: u32,
    /// Hundredths of a second between two ticks, as [`crate::Fs::writeback_alarm`] asks for them.
    pub dirty_writeback_centisecs: u32,
}

impl WritebackOptions {
    /// Bytes beyond which data is written back while writers go on: never so many that they would
    /// have to wait before.
    pub(super) fn background(&self) -> u64 {
        self.dirty_background_bytes.min(self.dirty_bytes / 2)
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
