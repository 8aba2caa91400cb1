//! The errors of the engine, each with its errno.

use std::io;

use uxfs_format::{Corrupt, Daddr, Place};

use crate::unwritten::Unwritten;

/// The engine's result.
pub type Result<T> = core::result::Result<T, Error>;

/// What went wrong. [`Error::errno`] tells what a system call would have said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A structure failed a check; nothing was changed.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device failed.
    #[error("{what} at daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Io {
        /// What was attempted, such as `reading`.
        what: &'static str,
        /// Where.
        daddr: Daddr,
        /// What the device said.
        source: io::Error,
    },
    /// The volume uses something that this version does not do; named.
    #[error("{0}")]
    Unsupported(String),
    /// Not an XFS volume at all.
    #[error("not an XFS file system: {0}")]
    NotXfs(String),
    /// The log holds changes that are not on the volume yet.
    #[error("the log is dirty: {0}")]
    DirtyLog(String),
    /// A change on a volume that is open for reading only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// No block or inode is left.
    #[error("no space left on the volume")]
    NoSpace,
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDir,
    /// A directory will not do.
    #[error("is a directory")]
    IsDir,
    /// A directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Longer than 255 bytes, or a link target longer than 1023.
    #[error("name too long")]
    NameTooLong,
    /// No more links to this inode are possible.
    #[error("too many links")]
    TooManyLinks,
    /// Too many symbolic links on the way.
    #[error("too many levels of symbolic links")]
    Loop,
    /// An argument makes no sense; said why.
    #[error("{0}")]
    Invalid(&'static str),
    /// No such attribute.
    #[error("no such attribute")]
    NoAttr,
    /// An attribute's value is longer than 64 KiB, or longer than the caller's room.
    #[error("attribute value too large")]
    AttrTooBig,
    /// Beyond the largest file size or extent count.
    #[error("file too large")]
    FileTooBig,
    /// The file's flags forbid it.
    #[error("operation not permitted on this file")]
    NotPermitted,
    /// The directory hands its project on, and the file belongs to another.
    #[error("the directory is for files of its own project only")]
    OtherProject,
    /// An earlier failure in the midst of a change has shut the volume down.
    #[error("the file system was shut down after an error: {0}")]
    Shutdown(String),
    /// The volume is closed, but not all of it is written. What the log holds is not lost: the next
    /// open applies it.
    #[error("{source}; {unwritten}")]
    Unwritten {
        /// What is not written.
        unwritten: Box<Unwritten>,
        /// Why.
        source: Box<Error>,
    },
}

/// XFS' errno for a damaged structure, "structure needs cleaning".
pub const EFSCORRUPTED: i32 = 117;

/// The errno of what the host said; EIO where it gave none.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    if uxfs_disk::host::is_lost(error) {
        return 5;
    }
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::StorageFull => 28,
        io::ErrorKind::QuotaExceeded => 122,
        io::ErrorKind::FileTooLarge => 27,
        _ => 5,
    })
}

impl Error {
    /// The Linux errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Corrupt(_) => EFSCORRUPTED,
            Self::Io { source, .. } => errno_of(source),
            Self::Unsupported(_) => 95,
            Self::NotXfs(_) | Self::Invalid(_) => 22,
            Self::DirtyLog(_) | Self::Shutdown(_) => 5,
            Self::Unwritten { source, .. } => source.errno(),
            Self::ReadOnly => 30,
            Self::NoSpace => 28,
            Self::NotFound => 2,
            Self::Exists => 17,
            Self::NotDir => 20,
            Self::IsDir => 21,
            Self::NotEmpty => 39,
            Self::NameTooLong => 36,
            Self::TooManyLinks => 31,
            Self::Loop => 40,
            Self::NoAttr => 61,
            Self::AttrTooBig => 7,
            Self::FileTooBig => 27,
            Self::NotPermitted => 1,
            Self::OtherProject => 18,
        }
    }

    /// Where it happened, if it was at one place.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Corrupt(corrupt) => Some(corrupt.place),
            Self::Io { daddr, .. } => Some(Place::Device(*daddr)),
            Self::Unwritten { source, .. } => source.place(),
            _ => None,
        }
    }

    /// The address on the device where it happened, if it was at one.
    pub(crate) fn daddr(&self) -> Option<Daddr> {
        match self.place() {
            Some(Place::Device(daddr)) => Some(daddr),
            _ => None,
        }
    }

    /// A failed check of `structure` at `place`.
    pub fn corrupt(structure: &'static str, place: Place, problem: impl Into<String>) -> Self {
        Corrupt::new(structure, place, problem).into()
    }
}
