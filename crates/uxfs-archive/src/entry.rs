//! One file of a tree, whatever the tree comes from.
//!
//! Invariants:
//! 1. A path is relative and normal: no leading `/`, no empty, `.` or `..` component, no NUL.
//!    The root of the tree is the empty path, and always a directory.
//! 2. A sparse map's segments are ascending, non-empty, disjoint, do not touch, and end
//!    within the file's size.
//! 3. Extended attributes have distinct names and are sorted by them.
//!
//! Made by every [`Source`](crate::Source); read by [`TarWriter`](crate::TarWriter) and by
//! whoever imports a tree.

use smallvec::SmallVec;

/// A point in time, nanoseconds exact. Times before 1970 have negative seconds and the
/// nanoseconds still count forward: -0.5 s is `sec: -1, nsec: 500_000_000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub sec: i64,
    /// Nanoseconds after `sec`; below 1 000 000 000.
    pub nsec: u32,
}

/// Which byte ranges of a file hold data; the rest are holes and read as zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseMap {
    segments: SmallVec<[(u64, u64); 1]>,
}

impl SparseMap {
    /// The map of a file of `size` bytes without holes.
    pub fn whole(size: u64) -> Self {
        let mut map = Self::default();
        if size > 0 {
            map.segments.push((0, size));
        }
        map
    }

    /// A map from (offset, length) pairs in bytes, for a file of `size` bytes. Empty segments
    /// are dropped and touching ones merged.
    ///
    /// # Errors
    /// Says what is wrong when segments overlap, descend, or reach beyond `size`.
    pub fn from_segments(
        size: u64,
        segments: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<Self, String> {
        let mut map = Self::default();
        for (offset, length) in segments {
            let end = offset.checked_add(length).filter(|end| *end <= size).ok_or_else(|| {
                format!("data segment at {offset}, {length} bytes, is beyond the size {size}")
            })?;
            match map.segments.last_mut() {
                Some((last, len)) if offset < *last + *len => {
                    return Err(format!("data segment at {offset} overlaps the one at {last}"));
                }
                _ if length == 0 => {}
                Some((last, len)) if offset == *last + *len => *len = end - *last,
                _ => map.segments.push((offset, length)),
            }
        }
        Ok(map)
    }

    /// The data segments as (offset, length) in bytes.
    pub fn segments(&self) -> &[(u64, u64)] {
        &self.segments
    }

    /// Bytes of data, that is without the holes.
    pub fn data_len(&self) -> u64 {
        self.segments.iter().map(|(_, length)| length).sum()
    }

    /// Whether a file of `size` bytes has no hole.
    pub fn is_whole(&self, size: u64) -> bool {
        self.data_len() == size
    }
}

/// What kind of file an entry is, with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file. Its data follows: [`Source::read`](crate::Source::read).
    File {
        /// Size in bytes, holes included.
        size: u64,
        /// Where the data lies within the file.
        map: SparseMap,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// What it points to, as it is stored: not normalised.
        target: Vec<u8>,
    },
    /// Another name of a file that came earlier in the same tree.
    Hardlink {
        /// The earlier name, a normal path as [`Entry::path`].
        target: Vec<u8>,
    },
    /// A character device.
    Char {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    Block {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A Unix domain socket.
    Socket,
}

/// Extended attributes: full name and value.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What every kind of file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits with setuid, setgid and sticky: `0o7777`.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last access, where the source has it.
    pub atime: Option<Time>,
    /// Time of the last change of the inode, where the source has it.
    pub ctime: Option<Time>,
    /// Time of birth, where the source has it.
    pub crtime: Option<Time>,
    /// Extended attributes with their full names (`user.x`, `system.posix_acl_access`),
    /// values as Linux' `getxattr` gives them.
    pub xattrs: Xattrs,
    /// Name of the owner; empty where the source has none.
    pub uname: Vec<u8>,
    /// Name of the group; empty where the source has none.
    pub gname: Vec<u8>,
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies in the tree; the empty path is the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its metadata.
    pub meta: Meta,
}

/// Longest path accepted, in bytes: far longer than system calls take, since trees may be deeper than
/// any path that is written at once.
pub(crate) const PATH_MAX: usize = 4 << 20;

/// Brings a path into normal form (invariant 1).
pub(crate) fn normal_path(raw: &[u8]) -> Result<Vec<u8>, &'static str> {
    if raw.len() > PATH_MAX {
        return Err("the path is longer than 4 MiB");
    }
    if raw.contains(&0) {
        return Err("the path contains a NUL byte");
    }
    let mut path = Vec::with_capacity(raw.len());
    for component in raw.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("the path contains '..', which could lead out of the tree"),
            name => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }
    Ok(path)
}

/// Sorts attributes by name and keeps the last of those with the same name (invariant 3).
pub(crate) fn normal_xattrs(xattrs: &mut Xattrs) {
    if xattrs.len() < 2 {
        return;
    }
    xattrs.reverse();
    xattrs.sort_by(|a, b| a.0.cmp(&b.0));
    xattrs.dedup_by(|later, kept| later.0 == kept.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_normal() {
        let normal = |raw: &str| normal_path(raw.as_bytes()).map(|p| String::from_utf8(p).unwrap());
        assert_eq!(normal("./a/b/"), Ok("a/b".into()));
        assert_eq!(normal("//a/.//b"), Ok("a/b".into()));
        assert_eq!(normal("./"), Ok(String::new()));
        assert_eq!(normal("..."), Ok("...".into()));
        assert!(normal("a/../b").is_err());
        assert!(normal("..").is_err());
        assert!(normal("a\0b").is_err());
    }

    #[test]
    fn sparse_maps_are_checked() {
        let map = |size, s: &[(u64, u64)]| SparseMap::from_segments(size, s.iter().copied());
        assert_eq!(map(10, &[(0, 4), (4, 6)]), Ok(SparseMap::whole(10)));
        assert_eq!(map(10, &[(2, 2), (10, 0)]).unwrap().segments(), [(2, 2)]);
        assert!(map(10, &[(0, 11)]).is_err());
        assert!(map(10, &[(u64::MAX, 2)]).is_err());
        assert!(map(10, &[(4, 2), (5, 1)]).is_err());
        assert!(map(10, &[(4, 2), (0, 1)]).is_err());
    }

    #[test]
    fn the_last_attribute_of_a_name_stays() {
        let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
        let mut xattrs = vec![pair("b", "1"), pair("a", "2"), pair("b", "3")];
        normal_xattrs(&mut xattrs);
        assert_eq!(xattrs, [pair("a", "2"), pair("b", "3")]);
    }
}
