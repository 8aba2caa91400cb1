//! What a server returns of an inode: attributes, entries, times.

use std::time::Duration;

use crate::abi::{AttrOut, EntryOut, StatxOut, StatxTime, WireAttr};

/// An inode's number in the protocol. The root is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

impl Node {
    pub const ROOT: Self = Self(1);
}

/// The number that a server gave an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A moment: seconds since 1970, and nanoseconds that count forward, also before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

/// A moment that a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    To(Time),
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// The major and the minor number of a device node: 12 and 20 bits.
    pub rdev: (u32, u32),
    /// Bytes of efficient I/O.
    pub blksize: u32,
}

/// An entry of a directory. The kernel then holds its inode until it forgets it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The number of the root, or the inode's own; 0 for a name that does not exist, which the
    /// kernel may cache.
    pub node: Node,
    pub generation: u64,
    /// How long the kernel may use name and attributes.
    pub ttl: Duration,
    pub attr: Attr,
}

/// Attributes, and when the inode was made.
#[derive(Clone, Copy, Debug)]
pub struct Statx {
    pub attr: Attr,
    /// `None` if that is not known.
    pub btime: Option<Time>,
    /// How long the kernel may use the attributes.
    pub ttl: Duration,
}

impl Statx {
    pub(crate) fn wire(&self) -> StatxOut {
        const BASIC: u32 = 0x7ff;
        const BTIME: u32 = 0x800;
        let time = |time: Time| StatxTime { sec: time.sec, nsec: time.nsec, unused: 0 };
        let Attr { ino, size, blocks, mode, nlink, uid, gid, rdev, blksize, .. } = self.attr;
        StatxOut {
            valid: self.ttl.as_secs(),
            valid_nsec: self.ttl.subsec_nanos(),
            mask: BASIC | if self.btime.is_some() { BTIME } else { 0 },
            blksize,
            nlink,
            uid,
            gid,
            mode: (mode & 0xffff) as u16,
            ino,
            size,
            blocks,
            atime: time(self.attr.atime),
            btime: time(self.btime.unwrap_or_default()),
            ctime: time(self.attr.ctime),
            mtime: time(self.attr.mtime),
            rdev_major: rdev.0,
            rdev_minor: rdev.1,
            ..StatxOut::default()
        }
    }
}

impl Attr {
    pub(crate) fn wire(&self) -> WireAttr {
        WireAttr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.sec.cast_unsigned(),
            mtime: self.mtime.sec.cast_unsigned(),
            ctime: self.ctime.sec.cast_unsigned(),
            atime_nsec: self.atime.nsec,
            mtime_nsec: self.mtime.nsec,
            ctime_nsec: self.ctime.nsec,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: encode_rdev(self.rdev),
            blksize: self.blksize,
            flags: 0,
        }
    }

    pub(crate) fn reply(&self, ttl: Duration) -> AttrOut {
        AttrOut {
            valid: ttl.as_secs(),
            valid_nsec: ttl.subsec_nanos(),
            unused: 0,
            attr: self.wire(),
        }
    }
}

impl Entry {
    pub(crate) fn wire(&self) -> EntryOut {
        let (sec, nsec) = (self.ttl.as_secs(), self.ttl.subsec_nanos());
        EntryOut {
            node: self.node.0,
            generation: self.generation,
            entry_valid: sec,
            attr_valid: sec,
            entry_valid_nsec: nsec,
            attr_valid_nsec: nsec,
            attr: self.attr.wire(),
        }
    }
}

/// A device number on the wire: the low 8 bits of the minor number, 12 bits of the major number, the
/// other 12 bits of the minor number.
fn encode_rdev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// Major and minor number of a device number on the wire.
pub(crate) fn decode_rdev(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
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
}
