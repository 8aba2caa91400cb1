//! Translates between FUSE and the engine: inode numbers, attributes, times.
//!
//! 1. FUSE's number of the root is 1; every other inode keeps its own number. No XFS inode has
//!    number 1, because the superblock lies there.
//! 2. A time that the volume cannot store becomes the nearest one that it can.

use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use uxfs::format::timestamp::Timestamp;
use uxfs::format::{Ino, dir};
use uxfs::{Fs, Stat};
use uxfs_transport::{Attr, Kind, Node, SetTime, Statx, Time};

use crate::settings::TTL;

/// The inode of a FUSE node number.
pub(crate) fn ino_of(fs: &Fs, node: Node) -> Ino {
    if node == Node::ROOT { fs.root() } else { Ino(node.0) }
}

/// The kind of a directory entry, and the type in the mode of its inode.
pub(crate) fn entry_kind(kind: dir::FileType) -> (Kind, u16) {
    match kind {
        dir::FileType::Directory => (Kind::Directory, S_IFDIR),
        dir::FileType::Symlink => (Kind::Symlink, S_IFLNK),
        dir::FileType::CharDevice => (Kind::CharDevice, S_IFCHR),
        dir::FileType::BlockDevice => (Kind::BlockDevice, S_IFBLK),
        dir::FileType::Fifo => (Kind::Fifo, S_IFIFO),
        dir::FileType::Socket => (Kind::Socket, S_IFSOCK),
        _ => (Kind::Regular, S_IFREG),
    }
}

/// The attributes of an inode, for FUSE.
pub(crate) fn attr_of(fs: &Fs, stat: &Stat) -> Attr {
    Attr {
        ino: stat.ino.0,
        size: stat.size,
        blocks: stat.blocks << (fs.geo.block_log - 9),
        atime: to_wire(stat.atime),
        mtime: to_wire(stat.mtime),
        ctime: to_wire(stat.ctime),
        mode: stat.mode.into(),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        // As XFS: the unit of efficient I/O.
        blksize: fs.geo.block_size.max(4096),
    }
}

/// The attributes of an inode, and when it was made, for as long as the kernel may use them.
pub(crate) fn statx_of(fs: &Fs, stat: &Stat) -> Statx {
    Statx { attr: attr_of(fs, stat), btime: Some(to_wire(stat.crtime)), ttl: TTL }
}

/// Attributes of an inode of which only number and type are known. The kernel asks for the rest.
pub(crate) fn bare_attr(ino: Ino, mode: u16) -> Attr {
    Attr { ino: ino.0, mode: mode.into(), nlink: 1, blksize: 4096, ..Attr::default() }
}

fn to_wire(time: Timestamp) -> Time {
    Time { sec: time.sec, nsec: time.nsec }
}

/// The nearest time that the volume can store.
pub(crate) fn moment(fs: &Fs, time: SetTime) -> Timestamp {
    let time = match time {
        SetTime::Now => return fs.now(),
        SetTime::To(Time { sec, nsec }) => Timestamp { sec, nsec },
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
