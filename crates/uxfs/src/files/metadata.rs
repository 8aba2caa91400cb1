//! The attributes of a file: type, permissions, times.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uxfs_core::Stat;
use uxfs_format::dir::FileType as Stored;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

/// The type of a file, as [`std::fs::FileType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(u16);

impl FileType {
    pub(super) fn of_mode(mode: u16) -> Self {
        Self(mode & S_IFMT)
    }

    /// From a directory entry; `None` if the entry does not say.
    pub(super) fn of_entry(stored: Stored) -> Option<Self> {
        Some(Self(match stored {
            Stored::Regular => S_IFREG,
            Stored::Directory => S_IFDIR,
            Stored::CharDevice => S_IFCHR,
            Stored::BlockDevice => S_IFBLK,
            Stored::Fifo => S_IFIFO,
            Stored::Socket => S_IFSOCK,
            Stored::Symlink => S_IFLNK,
            Stored::Unknown | Stored::Whiteout => return None,
        }))
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.0 == S_IFDIR
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.0 == S_IFREG
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.0 == S_IFLNK
    }

    /// The type bits of `st_mode`.
    pub fn bits(&self) -> u16 {
        self.0
    }
}

/// The permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions(u16);

impl Permissions {
    /// From the lowest 12 bits of a mode: permissions, set-ID bits, sticky bit.
    pub fn from_mode(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// The lowest 12 bits of the mode.
    pub fn mode(&self) -> u32 {
        self.0.into()
    }

    /// May no one write?
    pub fn readonly(&self) -> bool {
        self.0 & 0o222 == 0
    }

    /// Takes the right to write from everyone, or gives it to everyone.
    pub fn set_readonly(&mut self, readonly: bool) {
        if readonly { self.0 &= !0o222 } else { self.0 |= 0o222 }
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }
}

/// The attributes of a file, as [`std::fs::Metadata`] with its Unix extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) stat: Stat,
    pub(super) block_size: u32,
}

impl Metadata {
    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.stat.mode)
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Length in bytes; of a symbolic link, that of its target.
    pub fn len(&self) -> u64 {
        self.stat.size
    }

    /// Is the length 0?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions(self.stat.mode & 0o7777)
    }

    /// Time of the last change of content.
    ///
    /// # Errors
    /// If this machine's times do not reach so far.
    pub fn modified(&self) -> io::Result<SystemTime> {
        system_time(self.stat.mtime)
    }

    /// Time of the last access.
    ///
    /// # Errors
    /// As [`Metadata::modified`].
    pub fn accessed(&self) -> io::Result<SystemTime> {
        system_time(self.stat.atime)
    }

    /// Time of creation.
    ///
    /// # Errors
    /// As [`Metadata::modified`].
    pub fn created(&self) -> io::Result<SystemTime> {
        system_time(self.stat.crtime)
    }

    /// Type and permissions, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        self.stat.mode.into()
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.stat.ino.0
    }

    /// Number of names.
    pub fn nlink(&self) -> u64 {
        self.stat.nlink.into()
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.stat.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.stat.gid
    }

    /// Major and minor number of a device.
    pub fn rdev(&self) -> (u32, u32) {
        self.stat.rdev
    }

    /// Bytes in a block of the volume.
    pub fn blksize(&self) -> u64 {
        self.block_size.into()
    }

    /// Space taken, in units of 512 bytes, as in `st_blocks`.
    pub fn blocks(&self) -> u64 {
        self.stat.blocks.saturating_mul(u64::from(self.block_size) / 512)
    }

    /// All attributes, with times as the volume keeps them.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }
}

/// Times to set, as [`std::fs::FileTimes`]. A time that is not given stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    pub(super) accessed: Option<Timestamp>,
    pub(super) modified: Option<Timestamp>,
}

impl FileTimes {
    /// No time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, time: SystemTime) -> Self {
        self.accessed = Some(timestamp(time));
        self
    }

    /// Sets the time of the last change of content.
    #[must_use]
    pub fn set_modified(mut self, time: SystemTime) -> Self {
        self.modified = Some(timestamp(time));
        self
    }

    /// Sets both times as the volume keeps them.
    #[must_use]
    pub fn stamps(accessed: Option<Timestamp>, modified: Option<Timestamp>) -> Self {
        Self { accessed, modified }
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { sec: seconds(since.as_secs()), nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (sec, nsec) = (-seconds(before.as_secs()), before.subsec_nanos());
            match nsec {
                0 => Timestamp { sec, nsec },
                _ => Timestamp { sec: sec.saturating_sub(1), nsec: 1_000_000_000 - nsec },
            }
        }
    }
}

fn seconds(whole: u64) -> i64 {
    i64::try_from(whole).unwrap_or(i64::MAX)
}

fn system_time(stamp: Timestamp) -> io::Result<SystemTime> {
    let whole = Duration::from_secs(stamp.sec.unsigned_abs());
    let second =
        if stamp.sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let moment = second.and_then(|at| at.checked_add(Duration::from_nanos(stamp.nsec.into())));
    moment.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the time is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_both_ways() {
        for (sec, nsec) in [(0, 0), (1, 5), (-1, 999_999_999), (-2, 0), (1 << 33, 1), (-9, 1)] {
            let stamp = Timestamp { sec, nsec };
            assert_eq!(timestamp(system_time(stamp).unwrap()), stamp);
        }
    }
}
