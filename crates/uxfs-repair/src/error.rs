//! Why a volume was not repaired.

use std::io;

use uxfs_check::CheckError;

/// The result of functions of this crate.
pub type Result<T> = core::result::Result<T, RepairError>;

/// Why a volume was not repaired, or not undone. The volume is unchanged, unless a variant says
/// otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The device failed while the plan was made.
    #[error("{what} at byte {offset}: {source}")]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// Where on the device, in bytes.
        offset: u64,
        /// The error of the device.
        source: io::Error,
    },
    /// No volume was found, or one that is not checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The volume has something that is not repaired here.
    #[error("{0} cannot be repaired: use xfs_repair of xfsprogs")]
    Unsupported(String),
    /// The log holds changes and cannot be replayed.
    #[error(
        "the log holds changes and cannot be replayed: {0}; -L drops these changes and makes the log anew"
    )]
    Log(String),
    /// The damage is beyond repair.
    #[error("{0}; nothing was changed")]
    Beyond(String),
    /// The repaired volume was not found to be sound in memory, so the repair is not offered.
    #[error("the volume would not be sound after the repair: {0}; nothing was changed")]
    Unsound(String),
    /// The engine failed on the volume in memory.
    #[error("{what}: {source}; nothing was changed")]
    Engine {
        /// What was to be done.
        what: String,
        /// The error of the engine.
        source: uxfs_core::Error,
    },
    /// A plan or an undo file does not fit the image.
    #[error("{0}")]
    Mismatch(String),
    /// A plan or an undo file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// The error of the host.
        source: io::Error,
    },
    /// Writing to the volume failed in the midst of a repair. The undo file is complete: repair
    /// again, or undo.
    #[error(
        "the repair stopped at byte {offset}: {source}; repair again, or undo with the undo file"
    )]
    Stopped {
        /// Where on the device, in bytes.
        offset: u64,
        /// The error of the device.
        source: io::Error,
    },
}
