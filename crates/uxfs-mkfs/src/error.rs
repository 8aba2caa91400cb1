//! Why a volume is not made.

use std::io;

/// Why a volume is not made. `mkfs.xfs` exits with 1 for all of these; [`MkfsError::is_usage`] tells
/// which of them it follows with its usage text.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The options cannot be parsed, contradict each other or are out of range.
    #[error("{0}")]
    Usage(String),
    /// The options are sound, but not with this device or with each other's consequences.
    #[error("{0}")]
    Geometry(String),
    /// Valid for `mkfs.xfs`, but not something this program makes.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// The option or feature by its name on the command line.
        what: &'static str,
        /// What to do instead, or why not.
        why: &'static str,
    },
    /// The device failed.
    #[error("cannot write the {what}: {source}")]
    Io {
        /// The structure that was to be written.
        what: &'static str,
        /// What the device reported.
        source: io::Error,
    },
    /// A structure failed its own verification before it was written.
    #[error("refusing to write: {0}")]
    Corrupt(#[from] uxfs_format::Corrupt),
}

impl MkfsError {
    /// Was the mistake in the options rather than in the device?
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Geometry(_) | Self::Unsupported { .. })
    }

    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Shorthand for a usage error.
pub(crate) fn usage<T>(text: impl Into<String>) -> Result<T, MkfsError> {
    Err(MkfsError::Usage(text.into()))
}

/// Shorthand for a geometry error.
pub(crate) fn geometry<T>(text: impl Into<String>) -> Result<T, MkfsError> {
    Err(MkfsError::Geometry(text.into()))
}
