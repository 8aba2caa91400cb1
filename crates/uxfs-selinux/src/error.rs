//! The errors of this crate: each names the file, and the line if there is one.

use std::io;
use std::path::PathBuf;

/// Why rules could not be read or applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextsError {
    /// A file of rules could not be read.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error of reading it.
        source: io::Error,
    },
    /// A line is not a rule.
    #[error("{}, line {line}: {what}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The problem with it.
        what: String,
    },
    /// A regular expression took too long for a path.
    #[error(
        "{}, line {line}: matching '{}' with this regular expression failed: {what}",
        file.display(),
        path.escape_ascii()
    )]
    Match {
        /// The file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The path.
        path: Vec<u8>,
        /// The error of the regular expression engine.
        what: String,
    },
    /// The tree holds no policy.
    #[error("the tree has no SELinux policy: {0}; name a file of rules instead of 'auto'")]
    NoPolicy(String),
}
