//! The errors of the engine, each with its errno.

use std::io;

use uxfs_format::dquot::QuotaType;
use uxfs_format::{Check, Corrupt, Daddr, Place};

use crate::unwritten::Unwritten;

/// Result of the engine's functions.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the engine. [`Error::errno`] returns the errno of a system call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A structure failed a check; nothing was changed.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device failed.
    #[error("{what} at daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Io {
        /// The attempted operation, such as `reading`.
        what: &'static str,
        /// Its address.
        daddr: Daddr,
        /// The device's error.
        source: io::Error,
    },
    /// The volume uses a feature that this version does not support; the text names it.
    #[error("{0}")]
    Unsupported(String),
    /// The device does not hold an XFS volume.
    #[error("not an XFS file system: {0}")]
    NotXfs(String),
    /// The log holds changes that are not written in place.
    #[error("the log is dirty: {0}")]
    DirtyLog(String),
    /// A change on a volume that is open for reading only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// No free block or inode is left.
    #[error("no space left on the volume")]
    NoSpace,
    /// A user, a group or a project has used up its quota.
    #[error("the quota of the {} is used up", .0.name())]
    QuotaExceeded(QuotaType),
    /// No file has this name.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotDir,
    /// The operation does not work on a directory.
    #[error("is a directory")]
    IsDir,
    /// A directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name longer than 255 bytes, or a link target longer than 1023.
    #[error("name too long")]
    NameTooLong,
    /// The inode has the maximum number of links.
    #[error("too many links")]
    TooManyLinks,
    /// Too many symbolic links in a path.
    #[error("too many levels of symbolic links")]
    Loop,
    /// An invalid argument; the text says why.
    #[error("{0}")]
    Invalid(&'static str),
    /// No attribute has this name.
    #[error("no such attribute")]
    NoAttr,
    /// An attribute's value is longer than 64 KiB, or longer than the caller's buffer.
    #[error("attribute value too large")]
    AttrTooBig,
    /// The change exceeds the largest file size or extent count.
    #[error("file too large")]
    FileTooBig,
    /// The file's flags forbid the change.
    #[error("operation not permitted on this file")]
    NotPermitted,
    /// The directory passes on its project ID, and the file has another one.
    #[error("the directory accepts only files of its own project")]
    OtherProject,
    /// The volume is frozen already.
    #[error("the volume is frozen already")]
    Busy,
    /// The volume is shut down because an earlier change failed half-way.
    #[error("the file system was shut down after an error: {0}")]
    Shutdown(String),
    /// The volume is closed, but some data was not written. Changes in the log are not lost: the
    /// next open replays them.
    #[error("{source}; {unwritten}")]
    Unwritten {
        /// The summary of unwritten data.
        unwritten: Box<Unwritten>,
        /// The error that caused it.
        source: Box<Error>,
    },
}

/// The errno of XFS for a corrupt structure ("structure needs cleaning").
pub const EFSCORRUPTED: i32 = 117;

/// The errno of a host error; EIO if it has none.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    if uxfs_disk::host::is_lost(error) {
        return 5;
    }
    // Other systems number their errors in their own way.
    let raw = error.raw_os_error().filter(|_| cfg!(target_os = "linux"));
    raw.unwrap_or_else(|| match error.kind() {
        io::ErrorKind::StorageFull => 28,
        io::ErrorKind::QuotaExceeded => 122,
        io::ErrorKind::FileTooLarge => 27,
        _ => 5,
    })
}

impl From<uxfs_journal::InvalidOption> for Error {
    fn from(option: uxfs_journal::InvalidOption) -> Self {
        Self::Invalid(option.0)
    }
}

impl Error {
    /// The log device is needed and was not given.
    pub(crate) fn log_elsewhere() -> Self {
        let how = "the log is on another device: name it with logdev, or read the volume without the log \
                   (norecovery)";
        Self::Unsupported(how.into())
    }

    /// Returns the Linux errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Corrupt(_) => EFSCORRUPTED,
            Self::Io { source, .. } => errno_of(source),
            Self::Unsupported(_) => 95,
            Self::NotXfs(_) | Self::Invalid(_) => 22,
            Self::DirtyLog(_) | Self::Shutdown(_) => 5,
            Self::Unwritten { source, .. } => source.errno(),
            Self::ReadOnly => 30,
            // A full project is a full volume to its users, as in XFS.
            Self::NoSpace | Self::QuotaExceeded(QuotaType::Project) => 28,
            Self::QuotaExceeded(_) => 122,
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
            Self::Busy => 16,
        }
    }

    /// Returns the kind of the [`io::Error`] that a system call would return.
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Unwritten { source, .. } => source.kind(),
            Self::Unsupported(_) => Kind::Unsupported,
            Self::NotXfs(_) | Self::Invalid(_) => Kind::InvalidInput,
            Self::ReadOnly => Kind::ReadOnlyFilesystem,
            Self::NoSpace | Self::QuotaExceeded(QuotaType::Project) => Kind::StorageFull,
            Self::QuotaExceeded(_) => Kind::QuotaExceeded,
            Self::NotFound => Kind::NotFound,
            Self::Exists => Kind::AlreadyExists,
            Self::NotDir => Kind::NotADirectory,
            Self::IsDir => Kind::IsADirectory,
            Self::NotEmpty => Kind::DirectoryNotEmpty,
            Self::NameTooLong => Kind::InvalidFilename,
            Self::TooManyLinks => Kind::TooManyLinks,
            Self::AttrTooBig => Kind::ArgumentListTooLong,
            Self::FileTooBig => Kind::FileTooLarge,
            Self::NotPermitted => Kind::PermissionDenied,
            Self::OtherProject => Kind::CrossesDevices,
            Self::Busy => Kind::ResourceBusy,
            // Kinds that have no stable name, and errors that have no kind of their own.
            Self::Corrupt(_)
            | Self::DirtyLog(_)
            | Self::Shutdown(_)
            | Self::Loop
            | Self::NoAttr => Kind::Other,
        }
    }

    /// Returns where the error happened, if the location is known.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Corrupt(corrupt) => Some(corrupt.place),
            Self::Io { daddr, .. } => Some(Place::Device(*daddr)),
            Self::Unwritten { source, .. } => source.place(),
            _ => None,
        }
    }

    /// Returns the device address of the error, if it has one.
    pub(crate) fn daddr(&self) -> Option<Daddr> {
        match self.place() {
            Some(Place::Device(daddr)) => Some(daddr),
            _ => None,
        }
    }

    /// Creates the error for a failed check of `structure` at `place`.
    pub fn corrupt(
        structure: &'static str,
        place: Place,
        check: Check,
        detail: impl Into<String>,
    ) -> Self {
        Corrupt::new(structure, place, check, detail).into()
    }
}

impl From<Error> for io::Error {
    /// An error of the right kind that holds this one.
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
