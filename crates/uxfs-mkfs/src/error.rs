//! The error type of this crate.

use std::io;

/// Reason why a volume is not made. `mkfs.xfs` exits with 1 for all of these. For some it also
/// prints its usage text, see [`MkfsError::is_usage`].
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The options cannot be parsed, contradict each other or are out of range.
    #[error("{0}")]
    Usage(String),
    /// The options are valid, but not for this device or not in combination.
    #[error("{0}")]
    Geometry(String),
    /// `mkfs.xfs` supports the option, but this program does not.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// Name of the option or feature on the command line.
        what: &'static str,
        /// The reason, or an alternative.
        why: &'static str,
    },
    /// The device failed.
    #[error("cannot write the {what}: {source}")]
    Io {
        /// The structure that could not be written.
        what: &'static str,
        /// The device's error.
        source: io::Error,
    },
    /// A structure failed its verification before it was written.
    #[error("refusing to write: {0}")]
    Corrupt(#[from] uxfs_format::Corrupt),
}

impl MkfsError {
    /// Is the mistake in the options, not in the device?
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Geometry(_) | Self::Unsupported { .. })
    }

    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Makes a usage error.
pub(crate) fn usage<T>(text: impl Into<String>) -> Result<T, MkfsError> {
    Err(MkfsError::Usage(text.into()))
}

/// Makes a geometry error.
pub(crate) fn geometry<T>(text: impl Into<String>) -> Result<T, MkfsError> {
    Err(MkfsError::Geometry(text.into()))
}
