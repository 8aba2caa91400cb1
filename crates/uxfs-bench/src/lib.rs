//! Benchmarks: uxfs against today's alternatives, on the same host file system, in one run.
//!
//! 1. Alternatives are measured in turns, round by round, so that changes of the machine affect
//!    all. Tables of several numbers of threads or clients reverse the order in every other round.
//! 2. Reports show medians and spread, and ratios: of medians, or in those tables the median of the
//!    rounds' ratios.
//! 3. Each row names its durability: what a power cut right after it would cost.
//! 4. Measurements that need root (for mounts) are omitted without root, and the report says so.

pub mod check;
pub mod creates;
pub mod dbench;
pub mod fs_mark;
mod host;
pub mod import;
mod in_process;
mod kernel;
pub mod loadfile;
pub mod mount;
pub mod player;
pub mod recovery;
mod report;
mod settings;
mod table;
mod traffic;

pub use host::{Scratch, has, is_root, sync_fs};
pub use kernel::{Kind, Mounted};
pub use report::{Report, Row};
pub use table::{Line, Run, Table};
pub use traffic::{Durability, Traffic, crash_cost};

/// The error of a benchmark that could not run.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct BenchError {
    pub what: String,
    pub why: String,
}

impl BenchError {
    pub(crate) fn new(what: impl Into<String>, why: impl core::fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

pub type Result<T> = core::result::Result<T, BenchError>;
