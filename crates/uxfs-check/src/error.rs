//! The error for a volume that cannot be checked at all.

use std::io;

/// Reason why no check took place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The superblock could not be read.
    #[error("reading the superblock failed: {0}; see that this is the right device or image")]
    Read(#[source] io::Error),
    /// The device holds no XFS volume.
    #[error("not an XFS volume: starts with {0:#010x}, not with XFSB")]
    NotXfs(u32),
    /// The XFS volume has a version or features that this check does not support.
    #[error("{0} cannot be checked; use xfs_repair -n of a version that supports it")]
    Unsupported(String),
}

impl CheckError {
    /// The exit code by the convention of fsck(8): 8, an operational error.
    pub const fn exit_code(&self) -> u8 {
        8
    }
}
