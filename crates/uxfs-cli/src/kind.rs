//! Kinds of failures for `--json`. A kind has the same word in all commands, whether the volume or the
//! host reports the failure.
//!
//! docs/JSON.md lists the words. Their meaning never changes.

use std::io;

use uxfs::Error;
use uxfs::quota::QuotaType;

/// The host's error for too many symbolic links.
#[cfg(unix)]
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// ERROR_CANT_RESOLVE_FILENAME.
#[cfg(not(unix))]
const LOOP: i32 = 1921;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any failure without a kind of its own.
    Failed,
    Corrupt,
    Io,
    Unsupported,
    NotXfs,
    DirtyLog,
    ReadOnly,
    NoSpace,
    Quota,
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NameTooLong,
    TooManyLinks,
    Loop,
    Invalid,
    NoAttribute,
    TooLarge,
    NotPermitted,
    CrossDevice,
    Busy,
    Shutdown,
    /// The reader of standard output closed the pipe. Never reported.
    Pipe,
}

impl Kind {
    /// The word in JSON documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Unsupported => "unsupported",
            Self::NotXfs => "not-xfs",
            Self::DirtyLog => "dirty-log",
            Self::ReadOnly => "read-only",
            Self::NoSpace => "no-space",
            Self::Quota => "quota",
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::NotDirectory => "not-a-directory",
            Self::IsDirectory => "is-a-directory",
            Self::NotEmpty => "not-empty",
            Self::NameTooLong => "name-too-long",
            Self::TooManyLinks => "too-many-links",
            Self::Loop => "loop",
            Self::Invalid => "invalid",
            Self::NoAttribute => "no-attribute",
            Self::TooLarge => "too-large",
            Self::NotPermitted => "not-permitted",
            Self::CrossDevice => "cross-device",
            Self::Busy => "busy",
            Self::Shutdown => "shutdown",
            Self::Pipe => "pipe",
        }
    }

    /// The kind of a failure that the volume reports.
    pub(crate) fn of_volume(error: &Error) -> Self {
        match error {
            Error::Corrupt(_) => Self::Corrupt,
            Error::Io { source, .. } => Self::of_host(source),
            Error::Unsupported(_) => Self::Unsupported,
            Error::NotXfs(_) => Self::NotXfs,
            Error::DirtyLog(_) => Self::DirtyLog,
            Error::ReadOnly => Self::ReadOnly,
            Error::NoSpace => Self::NoSpace,
            Error::QuotaExceeded(QuotaType::Project) => Self::NoSpace,
            Error::QuotaExceeded(_) => Self::Quota,
            Error::NotFound => Self::NotFound,
            Error::Exists => Self::Exists,
            Error::NotDir => Self::NotDirectory,
            Error::IsDir => Self::IsDirectory,
            Error::NotEmpty => Self::NotEmpty,
            Error::NameTooLong => Self::NameTooLong,
            Error::TooManyLinks => Self::TooManyLinks,
            Error::Loop => Self::Loop,
            Error::Invalid(_) => Self::Invalid,
            Error::NoAttr => Self::NoAttribute,
            Error::AttrTooBig | Error::FileTooBig => Self::TooLarge,
            Error::NotPermitted => Self::NotPermitted,
            Error::OtherProject => Self::CrossDevice,
            Error::Shutdown(_) => Self::Shutdown,
            _ => Self::Failed,
        }
    }

    /// The kind of a failure that the host reports.
    pub(crate) fn of_host(error: &io::Error) -> Self {
        use io::ErrorKind as Host;
        // `ErrorKind` has no stable variant for too many symbolic links.
        if error.raw_os_error() == Some(LOOP) {
            return Self::Loop;
        }
        match error.kind() {
            Host::NotFound => Self::NotFound,
            Host::PermissionDenied => Self::NotPermitted,
            Host::AlreadyExists => Self::Exists,
            Host::NotADirectory => Self::NotDirectory,
            Host::IsADirectory => Self::IsDirectory,
            Host::DirectoryNotEmpty => Self::NotEmpty,
            Host::InvalidFilename => Self::NameTooLong,
            Host::TooManyLinks => Self::TooManyLinks,
            Host::ReadOnlyFilesystem => Self::ReadOnly,
            Host::StorageFull => Self::NoSpace,
            Host::QuotaExceeded => Self::Quota,
            Host::FileTooLarge => Self::TooLarge,
            Host::ResourceBusy => Self::Busy,
            Host::CrossesDevices => Self::CrossDevice,
            Host::Unsupported => Self::Unsupported,
            Host::InvalidInput => Self::Invalid,
            Host::InvalidData => Self::Corrupt,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 24] = [
        Kind::Failed,
        Kind::Corrupt,
        Kind::Io,
        Kind::Unsupported,
        Kind::NotXfs,
        Kind::DirtyLog,
        Kind::ReadOnly,
        Kind::NoSpace,
        Kind::Quota,
        Kind::NotFound,
        Kind::Exists,
        Kind::NotDirectory,
        Kind::IsDirectory,
        Kind::NotEmpty,
        Kind::NameTooLong,
        Kind::TooManyLinks,
        Kind::Loop,
        Kind::Invalid,
        Kind::NoAttribute,
        Kind::TooLarge,
        Kind::NotPermitted,
        Kind::CrossDevice,
        Kind::Busy,
        Kind::Shutdown,
    ];

    #[test]
    fn the_page_lists_each_kind_once_and_no_other() {
        let page = include_str!("../../../docs/JSON.md");
        // Skip the table of keys.
        let (_, kinds) = page.split_once("| kind |").unwrap();
        let rows = kinds.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut listed: Vec<&str> = rows.collect();
        let mut known: Vec<&str> = ALL.iter().map(|kind| kind.name()).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    // The errors are numbers of Unix.
    #[cfg(unix)]
    #[test]
    fn volume_and_host_errors_have_the_same_kind() {
        use rustix::io::Errno;
        for (volume, host) in [
            (Error::NotFound, Errno::NOENT),
            (Error::Exists, Errno::EXIST),
            (Error::NotDir, Errno::NOTDIR),
            (Error::IsDir, Errno::ISDIR),
            (Error::NotEmpty, Errno::NOTEMPTY),
            (Error::NameTooLong, Errno::NAMETOOLONG),
            (Error::TooManyLinks, Errno::MLINK),
            (Error::Loop, Errno::LOOP),
            (Error::NoSpace, Errno::NOSPC),
            (Error::ReadOnly, Errno::ROFS),
            (Error::QuotaExceeded(QuotaType::User), Errno::DQUOT),
            (Error::QuotaExceeded(QuotaType::Project), Errno::NOSPC),
            (Error::FileTooBig, Errno::FBIG),
            (Error::NotPermitted, Errno::PERM),
            (Error::OtherProject, Errno::XDEV),
        ] {
            assert_eq!(Kind::of_volume(&volume), Kind::of_host(&host.into()), "{volume}");
        }
    }
}
