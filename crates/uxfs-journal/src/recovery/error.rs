//! Why a log cannot be replayed.

use std::io;

use uxfs_format::{Corrupt, Daddr, Lsn};

/// This crate's result.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a log cannot be read, replayed or left clean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{what} at daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// Where.
        daddr: Daddr,
        /// What the device said.
        source: io::Error,
    },
    /// A record, or the row of records, is not what it has to be.
    #[error("the log is damaged at its block {block}: {problem}")]
    Damaged {
        /// Basic block, from the log's start.
        block: u64,
        /// What is wrong.
        problem: String,
    },
    /// An item of a committed transaction cannot be replayed.
    #[error("the log cannot be replayed, transaction at {}:{}: {problem}", lsn.cycle(), lsn.block())]
    Item {
        /// Where the transaction starts.
        lsn: Lsn,
        /// What is wrong.
        problem: String,
    },
    /// A structure is damaged after all that the log says of it was replayed.
    #[error("after replay of the log, {0}")]
    Corrupt(#[from] Corrupt),
    /// The changes take more memory than is allowed, or more room than the log has.
    #[error("{0}")]
    TooBig(String),
}

impl Error {
    pub(crate) fn damaged(block: u64, problem: impl Into<String>) -> Self {
        Self::Damaged { block, problem: problem.into() }
    }

    pub(crate) fn item(lsn: Lsn, problem: impl ToString) -> Self {
        Self::Item { lsn, problem: problem.to_string() }
    }
}
