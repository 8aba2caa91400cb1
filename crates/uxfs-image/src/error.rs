//! The errors of building and changing disk images.

use std::io;
use std::path::{Path, PathBuf};

use uxfs::import::ImportError;
use uxfs::resize::ResizeError;

use crate::fat::FatError;

/// Why an image was not made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The description of a disk is wrong.
    #[error("line {line}: {problem}")]
    Spec {
        /// Line of the description, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A partition could not be filled.
    #[error("partition {number} '{name}': {source}")]
    Partition {
        /// Number of the partition.
        number: usize,
        /// Its name.
        name: String,
        /// The error.
        source: Box<ImageError>,
    },
    /// The import of a tree failed.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A volume could not be resized.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// A FAT volume could not be made.
    #[error(transparent)]
    Fat(#[from] FatError),
    /// The host's file system returned an error.
    #[error("{}: {source}", path.display())]
    Host {
        /// Path on the host.
        path: PathBuf,
        /// The error of the host.
        source: io::Error,
    },
    /// The request is not possible.
    #[error("{0}")]
    Usage(String),
}

impl ImageError {
    pub(crate) fn host(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Host { path: path.to_owned(), source }
    }
}

pub(crate) type Result<T> = std::result::Result<T, ImageError>;
