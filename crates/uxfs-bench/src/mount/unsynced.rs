//! What the mount's options say about changes that no program has synced.

use core::fmt;
use std::time::Duration;

use super::options::Options;
use crate::traffic::Durability;
use crate::{BenchError, Result};

/// How long a change may stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// It is on stable storage when the call returns.
    Zero,
    Seconds(u32),
    /// Until something needs its place.
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unsynced {
    /// Longest time of a logged change, in seconds.
    commit: u32,
    metadata: Age,
    data: Age,
    /// What is written is on stable storage.
    flushes: bool,
}

impl Unsynced {
    /// That of the mount.
    ///
    /// # Errors
    /// Its options are wrong.
    pub(super) fn new(options: &Options) -> Result<Self> {
        Self::parse(&options.options)
    }

    fn parse(words: &str) -> Result<Self> {
        let options = uxfs_fuse::Options::parse(words)
            .map_err(|why| BenchError::new("options of the mount", why))?;
        if options.mode.is_ordered() {
            let why = "sync=ordered: the rows of this benchmark say that fsync means the disk";
            return Err(BenchError::new("options of the mount", why));
        }
        let commit = seconds(options.journal.pipeline.age_max);
        let data = match options.writeback {
            _ if options.sync => Age::Zero,
            // It is written at once, and flushed with the next checkpoint.
            None => Age::Seconds(commit),
            Some(limits) if limits.dirty_writeback_centisecs == 0 => Age::Any,
            Some(limits) => {
                let (expire, tick) =
                    (limits.dirty_expire_centisecs, limits.dirty_writeback_centisecs);
                Age::Seconds(expire.saturating_add(tick).div_ceil(100))
            }
        };
        let metadata = if options.sync || options.wsync { Age::Zero } else { Age::Seconds(commit) };
        Ok(Self { commit, metadata, data, flushes: options.journal.barrier })
    }

    /// The durability of changes without data, in words.
    pub(super) fn of_metadata(self) -> String {
        self.words(match self.metadata {
            Age::Zero => "on stable storage".into(),
            age => format!("in memory for {age}"),
        })
    }

    /// The durability of files with their data, in words.
    pub(super) fn of_files(self) -> String {
        self.words(match (self.metadata, self.data) {
            (Age::Zero, Age::Zero) => "on stable storage".into(),
            (Age::Zero, data) => format!("metadata on stable storage, data in memory for {data}"),
            (metadata, data) => format!("in memory: metadata for {metadata}, data for {data}"),
        })
    }

    /// What is sure, unless the mount does not flush.
    pub(super) fn words(self, sure: String) -> String {
        if self.flushes { sure } else { format!("{sure}; nothing is flushed") }
    }

    /// The durability of steps without data, whose log is counted.
    pub(super) fn of_steps(self) -> Durability {
        match self.metadata {
            Age::Zero => Durability::Each,
            Age::Seconds(_) | Age::Any => Durability::Within(self.commit),
        }
    }

    /// The same of steps with data.
    pub(super) fn of_steps_with_data(self) -> Durability {
        if self.data == Age::Zero { Durability::Each } else { Durability::Within(self.commit) }
    }
}

fn seconds(age: Duration) -> u32 {
    u32::try_from(age.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("no time"),
            Self::Seconds(seconds) => write!(f, "{seconds} s at most"),
            Self::Any => f.write_str("any time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_follow_the_options() {
        for (options, files, metadata) in [
            (
                "rw",
                "in memory: metadata for 1 s at most, data for 4 s at most",
                "in memory for 1 s at most",
            ),
            (
                "commit=7,dirty_expire_centisecs=3000",
                "in memory: metadata for 7 s at most, data for 31 s at most",
                "in memory for 7 s at most",
            ),
            (
                "dirty_bytes=0",
                "in memory: metadata for 1 s at most, data for 1 s at most",
                "in memory for 1 s at most",
            ),
            (
                "wsync,dirty_writeback_centisecs=0",
                "metadata on stable storage, data in memory for any time",
                "on stable storage",
            ),
            (
                "sync,nobarrier",
                "on stable storage; nothing is flushed",
                "on stable storage; nothing is flushed",
            ),
        ] {
            let unsynced = Unsynced::parse(options).unwrap();
            let words = (unsynced.of_files(), unsynced.of_metadata());
            assert_eq!(words, (files.to_owned(), metadata.to_owned()), "{options}");
        }
        let steps =
            |options| Unsynced::parse(options).map(|it| (it.of_steps(), it.of_steps_with_data()));
        assert_eq!(steps("commit=5").unwrap(), (Durability::Within(5), Durability::Within(5)));
        assert_eq!(steps("wsync").unwrap(), (Durability::Each, Durability::Within(1)));
        assert_eq!(steps("sync").unwrap(), (Durability::Each, Durability::Each));
        assert!(steps("sync=ordered").unwrap_err().to_string().contains("sync=ordered"));
        assert!(steps("nosuch").unwrap_err().to_string().contains("nosuch"));
    }
}
