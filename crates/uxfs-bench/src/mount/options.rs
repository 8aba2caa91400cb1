//! The options of the mount benchmark.

use std::path::PathBuf;

/// What to measure, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    /// The command `uxfs`.
    pub uxfs: PathBuf,
    /// How often.
    pub rounds: u32,
    /// Which parts.
    pub parts: Vec<Part>,
    /// Numbers of threads, of the parts that make files; `None` for the usual ones.
    pub threads: Option<Vec<u32>>,
    /// Files of a run, all threads together; `None` for the usual number.
    pub files: Option<u32>,
    /// Entries of the large directory.
    pub entries: u32,
    /// Bytes of the large file.
    pub bytes: u64,
    /// Mount options, besides.
    pub options: String,
    /// Size of the volumes in bytes.
    pub size: u64,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Empty files in memory, by several threads.
    Creates,
    /// Files of 4 KiB on stable storage each, by several threads.
    Durable,
    /// A large file written and read from end to end.
    Streams,
    /// A large directory.
    Directory,
    /// What is resident, of a small volume and of a large one.
    Memory,
}
