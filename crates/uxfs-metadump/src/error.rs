//! The errors of dumping, restoring and copying.

use std::io;

use uxfs_format::Daddr;

/// Why a volume is not dumped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The device could not be read where the dump cannot go on, or was to end at the first error.
    #[error("reading daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Read {
        /// The device address.
        daddr: Daddr,
        /// The error of the device.
        source: io::Error,
    },
    /// The dump could not be written.
    #[error("writing the dump: {0}")]
    Write(#[source] io::Error),
    /// The device holds no XFS volume.
    #[error("not an XFS volume: starts with {0:#010x}, not with XFSB")]
    NotXfs(u32),
    /// The superblock does not say where the metadata is.
    #[error("{0}: it takes xfs_repair of xfsprogs to get at this volume")]
    Superblock(#[from] uxfs_format::Corrupt),
    /// The volume has a version or features whose metadata this does not know.
    #[error("{0}: use xfs_metadump of xfsprogs")]
    Unsupported(String),
}

/// Why a volume is not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source could not be read.
    #[error("reading daddr {daddr} (byte {}): {source}", daddr.bytes())]
    Read {
        /// The device address.
        daddr: Daddr,
        /// The error of the device.
        source: io::Error,
    },
    /// The source holds no XFS volume.
    #[error("not an XFS volume: starts with {0:#010x}, not with XFSB")]
    NotXfs(u32),
    /// What says which blocks are in use is damaged.
    #[error("{0}: repair the volume with xfs_repair of xfsprogs first")]
    Corrupt(#[from] uxfs_format::Corrupt),
    /// The log holds changes that are not in place, which a copy with another UUID cannot keep.
    #[error("the log is dirty: mount the volume, or run uxfs log quiesce, and copy it then")]
    DirtyLog,
    /// The log is damaged, so that it cannot be left clean in a copy with another UUID.
    #[error("{0}")]
    Log(#[from] uxfs_journal::recovery::Error),
    /// The volume has a version or parts that are not copied.
    #[error("{0}")]
    Unsupported(String),
    /// A target has no room.
    #[error("the volume has {wanted} bytes, but the target has {len}")]
    TooSmall {
        /// Bytes of the volume.
        wanted: u64,
        /// Bytes of the target.
        len: u64,
    },
    /// A target could not be written.
    #[error("writing the target at byte {at}: {source}")]
    Write {
        /// Offset on the target.
        at: u64,
        /// The error of the device.
        source: io::Error,
    },
}

/// Why a dump is not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The dump could not be read.
    #[error("reading the dump: {0}")]
    Read(#[source] io::Error),
    /// It ends in the middle.
    #[error("the dump is cut off at byte {at}: get all of it")]
    CutOff {
        /// Bytes that there are.
        at: u64,
    },
    /// It is no dump.
    #[error(
        "this is no dump of an XFS volume: it starts with {0:#010x}, neither with XFSM nor with XMD2"
    )]
    NotDump(u32),
    /// It is damaged.
    #[error("the dump is damaged at byte {at}: {problem}")]
    Damaged {
        /// Offset in the dump.
        at: u64,
        /// What is wrong.
        problem: String,
    },
    /// It holds what is not restored.
    #[error("{0}: use xfs_mdrestore of xfsprogs")]
    Unsupported(String),
    /// The target has no room.
    #[error("the volume has {wanted} bytes, but the target has {len}")]
    TooSmall {
        /// Bytes of the volume.
        wanted: u64,
        /// Bytes of the target.
        len: u64,
    },
    /// The target could not be written.
    #[error("writing the target at byte {at}: {source}")]
    Write {
        /// Offset on the target.
        at: u64,
        /// The error of the device.
        source: io::Error,
    },
}
