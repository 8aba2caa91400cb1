//! Translates between FUSE and the engine: inode numbers, attributes, times.
//!
//! 1. FUSE's number of the root is 1; every other inode keeps its own number. No XFS inode has
//!    number 1, because the superblock lies there.
//! 2. Times are exact, also before 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK};
use uxfs::format::timestamp::Timestamp;
use uxfs::format::{Ino, dir};
use uxfs::{Fs, Stat};

/// The inode of a FUSE node number.
pub(crate) fn ino_of(fs: &Fs, node: INodeNo) -> Ino {
    if node == INodeNo::ROOT { fs.root() } else { Ino(node.0) }
}

pub(crate) fn kind_of(mode: u16) -> FileType {
    match mode & S_IFMT {
        S_IFDIR => FileType::Directory,
        S_IFLNK => FileType::Symlink,
        S_IFCHR => FileType::CharDevice,
        S_IFBLK => FileType::BlockDevice,
        S_IFIFO => FileType::NamedPipe,
        S_IFSOCK => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// The file type of a directory entry.
pub(crate) fn entry_kind(kind: dir::FileType) -> FileType {
    match kind {
        dir::FileType::Directory => FileType::Directory,
        dir::FileType::Symlink => FileType::Symlink,
        dir::FileType::CharDevice => FileType::CharDevice,
        dir::FileType::BlockDevice => FileType::BlockDevice,
        dir::FileType::Fifo => FileType::NamedPipe,
        dir::FileType::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// The attributes of an inode, for FUSE.
pub(crate) fn attr_of(fs: &Fs, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.ino.0),
        size: stat.size,
        blocks: stat.blocks << (fs.geo.block_log - 9),
        atime: to_system(stat.atime),
        mtime: to_system(stat.mtime),
        ctime: to_system(stat.ctime),
        crtime: to_system(stat.crtime),
        kind: kind_of(stat.mode),
        perm: stat.mode & !S_IFMT,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: encode_rdev(stat.rdev),
        // As XFS: the unit of efficient I/O.
        blksize: fs.geo.block_size.max(4096),
        flags: 0,
    }
}

/// Attributes of an inode of which only number and type are known. The kernel asks for the rest.
pub(crate) fn bare_attr(ino: Ino, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// A device number as FUSE encodes it: 12 bits for the major number, 20 for the minor.
fn encode_rdev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor number.
pub(crate) fn decode_rdev(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

fn to_system(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let start = if time.sec < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    start + Duration::from_nanos(time.nsec.into())
}

/// A time from the kernel, as `fuser` decodes it: for times before 1970 it takes the nanoseconds as
/// counting backwards, which is corrected here.
fn from_system(time: SystemTime) -> Timestamp {
    let sec = |whole: u64| i64::try_from(whole).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { sec: sec(since.as_secs()), nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { sec: -sec(before.as_secs()), nsec: before.subsec_nanos() }
        }
    }
}

/// The nearest time that the volume can store.
pub(crate) fn moment(fs: &Fs, time: TimeOrNow) -> Timestamp {
    let time = match time {
        TimeOrNow::Now => return fs.now(),
        TimeOrNow::SpecificTime(time) => from_system(time),
    };
    nearest(time, if fs.geo.has_bigtime() { BIGTIME_MAX } else { i32::MAX.into() })
}

/// The last second that the kernel lets XFS store: quotas share the limit and drop its lowest two
/// bits.
const BIGTIME_MAX: i64 = ((u64::MAX / 1_000_000_000) & !3) as i64 - (1 << 31);

/// The time if it lies between the first second and `last`, or the nearer limit.
fn nearest(time: Timestamp, last: i64) -> Timestamp {
    let first = i64::from(i32::MIN);
    match time.sec {
        sec if sec >= last => Timestamp { sec: last, nsec: 0 },
        sec if sec <= first => Timestamp { sec: first, nsec: 0 },
        _ => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_round_trip() {
        for pair in [(0, 0), (8, 1), (253, 300), (4095, 0x3_ffff)] {
            assert_eq!(decode_rdev(encode_rdev(pair)), pair);
        }
    }

    #[test]
    fn times_before_1970_are_exact() {
        let time = Timestamp { sec: -2, nsec: 500_000_000 };
        assert_eq!(to_system(time), UNIX_EPOCH - Duration::from_millis(1500));
        // -1.5 s, as fuser makes it of what the kernel sends.
        let sent = UNIX_EPOCH - Duration::new(2, 500_000_000);
        assert_eq!(from_system(sent), time);
    }
}
