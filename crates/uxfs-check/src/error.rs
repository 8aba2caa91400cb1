//! Why a volume could not be checked at all.

use std::io;

/// No check took place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The superblock could not be read.
    #[error("reading the superblock failed: {0}; see that this is the right device or image")]
    Read(#[source] io::Error),
    /// There is no XFS here.
    #[error("not an XFS volume: starts with {0:#010x}, not with XFSB")]
    NotXfs(u32),
    /// XFS, but of a kind that this check does not know.
    #[error("{0} cannot be checked; use xfs_repair -n of a version that knows it")]
    Unsupported(String),
}

impl CheckError {
    /// The exit code as fsck(8) has it: 8, an operational error.
    pub const fn exit_code(&self) -> u8 {
        8
    }
}
