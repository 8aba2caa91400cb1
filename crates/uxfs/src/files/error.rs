//! The error of a call with a path: which call, which path, and why.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use uxfs_core::Error;

/// Why a call failed, before its path is known.
#[derive(Debug)]
pub(super) enum Fault {
    /// The volume's error.
    Volume(Error),
    /// The host's error for the image.
    Host(io::Error),
    /// The call is refused with this errno.
    Refused(i32, &'static str),
    #[cfg(feature = "mkfs")]
    Mkfs(uxfs_mkfs::MkfsError),
}

impl Fault {
    pub(super) const NOT_FOUND: Self = Self::Volume(Error::NotFound);
    pub(super) const CLOSED: Self = Self::Refused(9, "the volume is closed");
    pub(super) const FORKED: Self =
        Self::Refused(9, "the volume belongs to the process that forked this one");

    pub(super) fn invalid(text: &'static str) -> Self {
        Self::Volume(Error::Invalid(text))
    }

    fn errno(&self) -> i32 {
        match self {
            Self::Volume(error) => error.errno(),
            Self::Host(error) => host_errno(error),
            Self::Refused(errno, _) => *errno,
            #[cfg(feature = "mkfs")]
            Self::Mkfs(uxfs_mkfs::MkfsError::Io { source, .. }) => host_errno(source),
            #[cfg(feature = "mkfs")]
            Self::Mkfs(_) => 22,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Volume(error) => error.kind(),
            Self::Host(error) => error.kind(),
            Self::Refused(1, _) => io::ErrorKind::PermissionDenied,
            Self::Refused(16, _) => io::ErrorKind::ResourceBusy,
            Self::Refused(..) => io::ErrorKind::Other,
            #[cfg(feature = "mkfs")]
            Self::Mkfs(uxfs_mkfs::MkfsError::Io { source, .. }) => source.kind(),
            #[cfg(feature = "mkfs")]
            Self::Mkfs(_) => io::ErrorKind::InvalidInput,
        }
    }
}

/// The Linux errno of a host error: its own on Linux; that of its kind, or EIO, if it has none or the
/// host has other numbers.
fn host_errno(error: &io::Error) -> i32 {
    let own = if cfg!(target_os = "linux") { error.raw_os_error() } else { None };
    own.unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => 2,
        io::ErrorKind::PermissionDenied => 13,
        io::ErrorKind::ResourceBusy => 16,
        io::ErrorKind::AlreadyExists => 17,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => 22,
        io::ErrorKind::NotADirectory => 20,
        io::ErrorKind::IsADirectory => 21,
        io::ErrorKind::FileTooLarge => 27,
        io::ErrorKind::StorageFull => 28,
        io::ErrorKind::ReadOnlyFilesystem => 30,
        io::ErrorKind::BrokenPipe => 32,
        io::ErrorKind::Unsupported => 95,
        _ => 5,
    })
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

#[cfg(feature = "mkfs")]
impl From<uxfs_mkfs::MkfsError> for Fault {
    fn from(error: uxfs_mkfs::MkfsError) -> Self {
        Self::Mkfs(error)
    }
}

/// The result of a call with a path.
pub type Result<T> = core::result::Result<T, PathError>;

/// The error of a call with a path. [`io::Error`] can be made from it, with the kind that `std::fs`
/// would report; the error is then its [`io::Error::get_ref`].
#[derive(Debug)]
pub struct PathError {
    call: &'static str,
    path: PathBuf,
    fault: Fault,
}

impl PathError {
    pub(super) fn new(call: &'static str, path: &Path, fault: Fault) -> Self {
        Self { call, path: path.to_owned(), fault }
    }

    /// The name of the method, such as `rename`.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The path that the caller gave; of two paths, the first one. For errors of opening and closing
    /// a volume, the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The Linux errno that a system call would return.
    pub fn errno(&self) -> i32 {
        self.fault.errno()
    }

    /// The kind that `std::fs` would report.
    pub fn kind(&self) -> io::ErrorKind {
        self.fault.kind()
    }

    /// The engine's error, with the damaged structure and its place; `None` if the host failed, or if
    /// the call was refused before it reached the engine.
    pub fn engine(&self) -> Option<&Error> {
        match &self.fault {
            Fault::Volume(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.call, self.path.display())?;
        match &self.fault {
            Fault::Volume(error) => error.fmt(f),
            Fault::Host(error) => error.fmt(f),
            Fault::Refused(_, text) => f.write_str(text),
            #[cfg(feature = "mkfs")]
            Fault::Mkfs(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Volume(error) => Some(error),
            Fault::Host(error) => Some(error),
            Fault::Refused(..) => None,
            #[cfg(feature = "mkfs")]
            Fault::Mkfs(error) => Some(error),
        }
    }
}

impl From<PathError> for io::Error {
    fn from(error: PathError) -> Self {
        Self::new(error.kind(), error)
    }
}
