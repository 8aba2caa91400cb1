//! Why reading or writing a tree failed.
//!
//! Every variant says what went wrong and where: the entry, and the byte offset in the
//! uncompressed archive where one is known.

use std::io;

/// Why a tree could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The operating system refused a read or write.
    #[error("{what}: {source}")]
    Io {
        /// The operation and the file it was done to.
        what: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The compressed stream around the archive is damaged or cut short.
    #[error(
        "{name}: the {format} stream is damaged or cut short ({source}); \
         {offset} bytes came out of it before that"
    )]
    Compression {
        /// The input file.
        name: String,
        /// `gzip`, `xz` or `zstd`.
        format: &'static str,
        /// Uncompressed bytes handed out before the error.
        offset: u64,
        /// What the decompressor said.
        #[source]
        source: io::Error,
    },
    /// The input is no tar archive at all.
    #[error("{name}: {what}")]
    NotTar {
        /// The input file.
        name: String,
        /// What it seems to be instead.
        what: String,
    },
    /// The archive ends in the middle of something.
    #[error("the archive is cut short: it ends at byte {offset}, inside {entry}")]
    Truncated {
        /// The entry, or the header, that is incomplete.
        entry: String,
        /// Where the input ended, in bytes of the uncompressed archive.
        offset: u64,
    },
    /// A header or its extension makes no sense.
    #[error("damaged archive at byte {offset}, {entry}: {what}")]
    Damaged {
        /// The entry it belongs to, or the one before it.
        entry: String,
        /// Where the header lies, in bytes of the uncompressed archive.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A line of a manifest makes no sense.
    #[error("{name}, line {line}: {what}")]
    Manifest {
        /// The manifest.
        name: String,
        /// The line, from 1 on.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// An OCI image is damaged, or has nothing that could be taken.
    #[error("{path}: {what}")]
    Layout {
        /// The directory or the file in it.
        path: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// An entry that can not be represented: `..` in its path, values beyond Linux' limits.
    #[error("{entry}: {what}")]
    Refused {
        /// The entry.
        entry: String,
        /// What about it is refused, and what to do.
        what: String,
    },
}

impl ArchiveError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(crate) fn refused(path: &[u8], what: impl Into<String>) -> Self {
        Self::Refused { entry: show(path), what: what.into() }
    }
}

/// A path for people: what is not UTF-8 or not printable is escaped, so that an archive can
/// not send control sequences to a terminal. At most 200 characters.
pub(crate) fn show(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    format!("'{}'", text.escape_debug())
}

/// Warnings not yet fetched. Bounded: a hostile archive could give one for each entry.
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

    /// A warning that is worth saying only the first time.
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
