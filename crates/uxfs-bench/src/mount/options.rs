//! The options of the mount benchmark.

use std::path::PathBuf;

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    pub uxfs: PathBuf,
    pub rounds: u32,
    pub parts: Vec<Part>,
    /// Numbers of threads for the parts that create files; `None` for the defaults.
    pub threads: Option<Vec<u32>>,
    /// Files per run, of all threads together; `None` for the default.
    pub files: Option<u32>,
    /// Entries of the large directory.
    pub entries: u32,
    /// Bytes of the file of the streams, and of the random accesses; `None` for the default.
    pub bytes: Option<u64>,
    /// Numbers of clients of dbench.
    pub clients: Vec<u32>,
    /// Seconds of a run of dbench, and of the program that computes.
    pub seconds: u32,
    /// An uncompressed tarball for the programs; `None` for a tree made from a seed.
    pub tree: Option<PathBuf>,
    pub options: String,
    /// Size of the volumes in bytes.
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Empty files in memory, by several threads.
    Creates,
    /// Durable files of 4 KiB, by several threads.
    Durable,
    /// A large file written and read from end to end.
    Streams,
    /// Blocks of a file, read and written in random order.
    Random,
    /// dbench.
    Dbench,
    /// tar, find, git and rm on a tree of source files.
    Programs,
    /// A program that computes while others create files.
    Beside,
    Directory,
    /// Resident memory, of a small and of a large volume.
    Memory,
}
