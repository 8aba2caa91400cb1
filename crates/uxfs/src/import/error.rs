//! The errors of an import.

use std::io;
use std::path::{Path, PathBuf};

use uxfs_archive::ArchiveError;
use uxfs_core::BulkError;
use uxfs_mkfs as mkfs;
use uxfs_selinux::ContextsError;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source could not be read or is damaged.
    #[error(transparent)]
    Source(ArchiveError),
    /// A new file system could not be created.
    #[error(transparent)]
    Mkfs(#[from] mkfs::MkfsError),
    /// The volume returned an error for one entry.
    #[error("{}: {source}", path.escape_ascii())]
    Entry {
        /// Path of the entry.
        path: Vec<u8>,
        /// The error of the volume.
        source: uxfs_core::Error,
    },
    /// A hard link to a file that no earlier entry made.
    #[error("{}: is another name of {}, which is not there", path.escape_ascii(), target.escape_ascii())]
    Link {
        /// Path of the entry.
        path: Vec<u8>,
        /// The path that it names.
        target: Vec<u8>,
    },
    /// The volume's names compare without case, and one of the path is there in another spelling.
    #[error(
        "{}: there is already \"{}\", and names of this volume that differ by case only are the same",
        path.escape_ascii(), stored.escape_ascii()
    )]
    Spelling {
        /// Path of the entry, to the name in question.
        path: Vec<u8>,
        /// The existing name.
        stored: Vec<u8>,
    },
    /// The volume returned an error that concerns no single entry.
    #[error(transparent)]
    Volume(#[from] uxfs_core::Error),
    /// The host's file system returned an error.
    #[error("{}: {source}", path.display())]
    Host {
        /// Path on the host.
        path: PathBuf,
        /// The error of the host.
        source: io::Error,
    },
    /// Copying file data failed.
    #[error(transparent)]
    Data(#[from] BulkError),
    /// The rules for SELinux labels could not be read or applied.
    #[error(transparent)]
    Labels(#[from] ContextsError),
    /// The request does not fit the image or the source.
    #[error("{0}")]
    Usage(String),
}

impl ImportError {
    pub(super) fn host(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Host { path: path.to_owned(), source }
    }

    /// Names the image where writing its data failed.
    pub(super) fn of_image(self, image: &Path) -> Self {
        match self {
            Self::Data(BulkError::Device(source)) => Self::Host { path: image.to_owned(), source },
            other => other,
        }
    }
}

impl From<ArchiveError> for ImportError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Other(inner) => match inner.downcast::<ContextsError>() {
                Ok(labels) => Self::Labels(*labels),
                Err(inner) => Self::Source(ArchiveError::Other(inner)),
            },
            other => Self::Source(other),
        }
    }
}
