//! The journal's options: XFS' mount options of the log, by their names.
//!
//! 1. A word is refused with an error that names it, or is not an option of the log, or has its
//!    effect. None is accepted and ignored.

use std::time::Duration;

use crate::pipeline::Options;
use crate::policy::FSYNC_POLICIES;

/// An option that is not valid; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOption(pub &'static str);

type Result<T> = core::result::Result<T, InvalidOption>;

/// When an operation of several steps rolls, so that a checkpoint may be cut inside it. The volume
/// is consistent after a power cut with each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RollPolicy {
    /// When the next step does not fit in the transaction.
    #[default]
    WhenFull,
    /// After each step.
    Always,
    /// After each step, and force a checkpoint there.
    AlwaysDurable,
}

/// Default size of a log buffer in bytes, unless the stripe unit is larger.
const BUFFER: u32 = 32 << 10;

/// The logging mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogMode {
    /// Delayed logging: a checkpoint holds many transactions, and logs each changed object once
    /// (`delaylog`).
    #[default]
    Delayed,
    /// Immediate logging: each transaction is written to the log on its own (`nodelaylog`).
    Immediate,
}

/// The options of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The logging mode (`delaylog`, `nodelaylog`).
    pub mode: LogMode,
    /// Make each change durable before its call returns (`wsync`).
    pub wsync: bool,
    /// Flush the device where order or durability needs it (`barrier`). Without flushes
    /// (`nobarrier`) a power cut may leave anything, unless the device has no volatile cache.
    pub barrier: bool,
    /// Number of log buffers, 2 to 8 (`logbufs=`): how many records may be in memory or in flight.
    pub buffers: u32,
    /// Size of a log buffer in bytes (`logbsize=`): a power of two from 16 KiB to 256 KiB that is a
    /// multiple of the log's stripe unit. 0 is XFS' default, 32 KiB or the stripe unit if that is
    /// larger.
    pub buffer: u32,
    /// When checkpoints are cut, how calls of fsync share flushes (`fsync_policy=`), and which
    /// flushes are elided (`flush_elision=`).
    pub pipeline: Options,
    /// When transactions roll. Tests turn it.
    #[doc(hidden)]
    pub roll_policy: RollPolicy,
    /// How long log writes, and transactions that wait for log space, are retried while the host is
    /// full, before the volume stops.
    pub host_full_timeout: Duration,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            mode: LogMode::Delayed,
            wsync: false,
            barrier: true,
            buffers: 8,
            buffer: 0,
            pipeline: Options::default(),
            roll_policy: RollPolicy::default(),
            host_full_timeout: Duration::from_secs(30),
        }
    }
}

impl JournalOptions {
    /// Applies one of XFS' mount options `delaylog`, `nodelaylog`, `logbufs=`, `logbsize=`,
    /// `wsync`, `barrier`, `nobarrier`, or uxfs' own `fsync_policy=` and `flush_elision=`. Returns
    /// `false` for any other word.
    ///
    /// # Errors
    /// [`InvalidOption`] for a value that the option does not have.
    pub fn apply(&mut self, word: &str) -> Result<bool> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("logbufs", value) => {
                const RANGE: &str = "logbufs= takes a number of log buffers from 2 to 8";
                let count = value.and_then(|v| v.parse().ok()).filter(|n| (2..=8).contains(n));
                self.buffers = count.ok_or(InvalidOption(RANGE))?;
            }
            ("logbsize", value) => {
                let size = value.and_then(bytes).filter(|n| valid_buffer(*n));
                self.buffer = size.ok_or(InvalidOption(BUFFER_RANGE))?;
            }
            ("fsync_policy", value) => {
                let policy = value.and_then(|value| value.parse().ok());
                self.pipeline.fsync = policy.ok_or(InvalidOption(FSYNC_POLICIES))?;
            }
            ("flush_elision", value) => {
                const WORDS: &str = "flush_elision= takes both, covered, clean or none";
                let (covered, clean) = match value {
                    Some("both") => (true, true),
                    Some("covered") => (true, false),
                    Some("clean") => (false, true),
                    Some("none") => (false, false),
                    _ => return Err(InvalidOption(WORDS)),
                };
                self.pipeline.elide_covered = covered;
                self.pipeline.elide_clean = clean;
            }
            ("delaylog", None) => self.mode = LogMode::Delayed,
            ("nodelaylog", None) => self.mode = LogMode::Immediate,
            ("wsync", None) => self.wsync = true,
            ("barrier", None) => self.barrier = true,
            ("nobarrier", None) => self.barrier = false,
            ("delaylog" | "nodelaylog" | "wsync" | "barrier" | "nobarrier", Some(_)) => {
                return Err(InvalidOption(
                    "delaylog, nodelaylog, wsync, barrier and nobarrier take no value",
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Uses forced writes (FUA) if the device has them.
    pub fn with_fua(mut self, has: bool) -> Self {
        self.pipeline.fua |= has;
        self
    }

    /// Size of a log buffer in bytes on a volume whose log has this stripe unit.
    ///
    /// # Errors
    /// [`InvalidOption`] if the options do not fit the stripe unit, or are out of range.
    pub fn buffer_for(&self, unit: u32) -> Result<u32> {
        if !(2..=8).contains(&self.buffers) {
            return Err(InvalidOption("logbufs= takes 2 to 8"));
        }
        if self.buffer == 0 {
            return Ok(BUFFER.max(unit));
        }
        if !valid_buffer(self.buffer) {
            return Err(InvalidOption(BUFFER_RANGE));
        }
        if unit > 1 && !self.buffer.is_multiple_of(unit) {
            return Err(InvalidOption(
                "logbsize= must be a multiple of the log's stripe unit (xfs_info shows it as \
                 sunit of the log)",
            ));
        }
        Ok(self.buffer)
    }
}

const BUFFER_RANGE: &str = "logbsize= takes 16k, 32k, 64k, 128k or 256k";

fn valid_buffer(bytes: u32) -> bool {
    bytes.is_power_of_two() && (16 << 10..=256 << 10).contains(&bytes)
}

/// Parses a number of bytes with an optional suffix `k` or `m`.
fn bytes(text: &str) -> Option<u32> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<u32>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use crate::policy::{Fixed, FsyncPolicy};

    use super::*;

    #[test]
    fn each_word_is_applied_refused_or_not_a_log_option() {
        let mut options = JournalOptions::default();
        for word in ["nodelaylog", "wsync", "nobarrier", "logbufs=2", "logbsize=256k"] {
            assert!(options.apply(word).unwrap(), "{word}");
        }
        let expected = JournalOptions {
            mode: LogMode::Immediate,
            wsync: true,
            barrier: false,
            buffers: 2,
            buffer: 256 << 10,
            ..JournalOptions::default()
        };
        assert_eq!(options, expected);
        for word in ["delaylog", "barrier", "logbsize=65536", "logbufs=8"] {
            assert!(options.apply(word).unwrap(), "{word}");
        }
        assert_eq!((options.mode, options.barrier), (LogMode::Delayed, true));
        assert_eq!((options.buffers, options.buffer), (8, 64 << 10));
        for word in ["fsync_policy=overlap:4", "flush_elision=clean"] {
            assert!(options.apply(word).unwrap(), "{word}");
        }
        assert_eq!(options.pipeline.fsync, FsyncPolicy::Fixed(Fixed::Overlap(4)));
        assert!(options.pipeline.elide_clean && !options.pipeline.elide_covered);
        for word in ["noatime", "logdev=/dev/sdb", "", "logb", "quota"] {
            assert!(!options.apply(word).unwrap(), "{word}");
        }
        let before = options;
        for word in [
            "logbufs=1",
            "logbufs=9",
            "logbufs=",
            "logbufs",
            "logbsize=8k",
            "logbsize=48k",
            "logbsize=512k",
            "logbsize=k",
            "logbsize=4294967295k",
            "wsync=1",
            "delaylog=",
            "fsync_policy",
            "fsync_policy=",
            "fsync_policy=jbd2",
            "fsync_policy=overlap",
            "fsync_policy=fixed:-1",
            "flush_elision=yes",
        ] {
            let error = options.apply(word).unwrap_err();
            let name = word.split('=').next().unwrap();
            assert!(error.to_string().contains(name), "{word}: {error}");
        }
        assert_eq!(options, before);
    }

    #[test]
    fn buffers_fit_the_stripe_unit() {
        let mut options = JournalOptions::default();
        assert_eq!(options.buffer_for(1).unwrap(), 32 << 10);
        assert_eq!(options.buffer_for(96 << 10).unwrap(), 96 << 10);
        options.buffer = 64 << 10;
        assert_eq!(options.buffer_for(4096).unwrap(), 64 << 10);
        assert!(options.buffer_for(12 << 10).is_err());
        assert!(options.buffer_for(128 << 10).is_err());
    }
}
