//! The error type of this crate.
//!
//! Every variant says what failed and where: the entry and, if known, the byte offset in the
//! uncompressed archive.

use std::io;

/// Reason why a tree could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its file.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The compressed stream of the archive is damaged or truncated.
    #[error(
        "{name}: the {format} stream is damaged or cut short ({source}); \
         {offset} bytes came out of it before that"
    )]
    Compression {
        /// The input file.
        name: String,
        /// `gzip`, `xz` or `zstd`.
        format: &'static str,
        /// Uncompressed bytes delivered before the error.
        offset: u64,
        /// The decompressor's error.
        #[source]
        source: io::Error,
    },
    /// The input is not a tar archive.
    #[error("{name}: {what}")]
    NotTar {
        /// The input file.
        name: String,
        /// What is wrong, or what the input seems to be.
        what: String,
    },
    /// The archive ends before it is complete.
    #[error("the archive is cut short: it ends at byte {offset}, inside {entry}")]
    Truncated {
        /// The entry or header that is incomplete.
        entry: String,
        /// Offset of the end of the input in the uncompressed archive, in bytes.
        offset: u64,
    },
    /// A header or its extension is invalid.
    #[error("damaged archive at byte {offset}, {entry}: {what}")]
    Damaged {
        /// The entry of the header, or the entry before it.
        entry: String,
        /// Offset of the header in the uncompressed archive, in bytes.
        offset: u64,
        /// The problem with the header.
        what: String,
    },
    /// A line of a manifest is invalid.
    #[error("{name}, line {line}: {what}")]
    Manifest {
        /// The manifest.
        name: String,
        /// Number of the line, starting at 1.
        line: u64,
        /// The problem with the line.
        what: String,
    },
    /// An OCI image is damaged or has no suitable content.
    #[error("{path}: {what}")]
    Layout {
        /// The directory, or the file in it.
        path: String,
        /// What is wrong, and what the user can do.
        what: String,
    },
    /// An entry cannot be represented, for example `..` in its path or values beyond Linux' limits.
    #[error("{entry}: {what}")]
    Refused {
        /// The entry.
        entry: String,
        /// The problem, and what the user can do.
        what: String,
    },
    /// What stands between a source and its consumer failed.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl ArchiveError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(crate) fn refused(path: &[u8], what: impl Into<String>) -> Self {
        Self::Refused { entry: show(path), what: what.into() }
    }
}

/// Formats a path for messages. Bytes that are not UTF-8 or not printable are escaped, so an
/// archive cannot send control sequences to a terminal. At most 200 characters.
pub(crate) fn show(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    format!("'{}'", text.escape_debug())
}

/// Warnings not fetched yet. Bounded, because a hostile archive could cause one for each entry.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    pending: Vec<String>,
    dropped: u64,
    once: std::collections::BTreeSet<String>,
}

impl Warnings {
    const PENDING_MAX: usize = 1000;
    const ONCE_MAX: usize = 256;

    pub(crate) fn push(&mut self, text: String) {
        if self.pending.len() < Self::PENDING_MAX {
            self.pending.push(text);
        } else {
            self.dropped += 1;
        }
    }

    /// Adds a warning unless the same text was added before.
    pub(crate) fn push_once(&mut self, text: String) {
        if self.once.len() < Self::ONCE_MAX && self.once.insert(text.clone()) {
            self.push(text);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        if self.dropped > 0 {
            self.pending.push(format!("{} more warnings were dropped", self.dropped));
            self.dropped = 0;
        }
        std::mem::take(&mut self.pending)
    }
}
