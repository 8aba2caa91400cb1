//! What `stat` says of a file, as far as trees and operations need it.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A file as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The device of its file system.
    pub(crate) dev: (u32, u32),
    pub(crate) ino: u64,
    /// The time at which it was made: it tells the file from those that had its number before.
    pub(crate) generation: u64,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) links: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: (u32, u32),
    pub(crate) changed: (i64, u32),
}

impl Seen {
    /// The file of this path; a last symbolic link is not followed.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Self::with(path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The file to which this path leads.
    pub(crate) fn followed(path: &Path) -> io::Result<Self> {
        Self::with(path, AtFlags::empty())
    }

    fn with(path: &Path, flags: AtFlags) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = statx(CWD, path, flags, wanted)?;
        let made = &found.stx_btime;
        let seconds = u64::try_from(made.tv_sec).unwrap_or(0);
        Ok(Self {
            dev: (found.stx_dev_major, found.stx_dev_minor),
            ino: found.stx_ino,
            generation: seconds.wrapping_mul(1_000_000_000).wrapping_add(made.tv_nsec.into()),
            mode: found.stx_mode,
            size: found.stx_size,
            links: found.stx_nlink,
            owner: (found.stx_uid, found.stx_gid),
            rdev: (found.stx_rdev_major, found.stx_rdev_minor),
            changed: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    pub(crate) fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    pub(crate) fn is_symlink(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}
