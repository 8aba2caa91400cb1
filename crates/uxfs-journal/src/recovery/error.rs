//! The errors of recovery.

use std::io;

use uxfs_format::{Corrupt, Daddr, Lsn};

/// The result of functions of this module.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a log cannot be read, replayed or left clean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{what} at daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The device address.
        daddr: Daddr,
        /// The error of the device.
        source: io::Error,
    },
    /// A record or the sequence of records is invalid.
    #[error("the log is damaged at its block {block}: {problem}")]
    Damaged {
        /// Basic block, counted from the start of the log.
        block: u64,
        /// What is wrong.
        problem: String,
    },
    /// An item of a committed transaction cannot be replayed.
    #[error("the log cannot be replayed, transaction at {}:{}: {problem}", lsn.cycle(), lsn.block())]
    Item {
        /// LSN at which the transaction starts.
        lsn: Lsn,
        /// What is wrong.
        problem: String,
    },
    /// A structure is damaged although all that the log has of it was replayed.
    #[error("after replay of the log, {0}")]
    Corrupt(#[from] Corrupt),
    /// The changes exceed the memory limit, or do not fit in the log.
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
