//! Benchmarks: uxfs beside what people use today, on the same host file system, in one run.
//!
//! 1. Alternatives are measured in turns, round by round, so that a machine's moods fall on all; where a
//!    table has several numbers of threads or clients, every other round the other way round.
//! 2. What is reported is the median and the spread, and ratios: of medians, or in those tables the
//!    median of the rounds' ratios.
//! 3. No figure stands without what it was bought at: each row says what a power cut right after it
//!    would cost.
//! 4. What needs root (mounting) is left out without it, and the report says so.

pub mod check;
pub mod creates;
pub mod dbench;
pub mod fs_mark;
mod host;
pub mod import;
mod kernel;
pub mod loadfile;
pub mod mount;
mod own;
pub mod recovery;
mod report;
mod settings;
mod table;
mod traffic;

pub use host::{Scratch, has, is_root, sync_fs};
pub use kernel::{Kind, Mounted};
pub use report::{Report, Row};
pub use table::{Line, Run, Table};
pub use traffic::{Promise, Traffic, at_stake};

/// Why a benchmark could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct BenchError {
    /// What was attempted.
    pub what: String,
    /// What stood in the way.
    pub why: String,
}

impl BenchError {
    pub(crate) fn new(what: impl Into<String>, why: impl core::fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// The result of a benchmark.
pub type Result<T> = core::result::Result<T, BenchError>;
