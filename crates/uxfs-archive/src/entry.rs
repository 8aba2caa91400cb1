//! Entries: the files of a tree, independent of the tree's source.
//!
//! Invariants:
//! 1. A path is relative and normal: no leading `/`, no empty, `.` or `..` component, no NUL.
//!    The root of the tree is the empty path and always a directory.
//! 2. A sparse map's segments are ascending, non-empty and disjoint, do not touch, and end
//!    within the file's size.
//! 3. Extended attributes have distinct names and are sorted by name.
//!
//! Every [`Source`](crate::Source) makes entries; [`TarWriter`](crate::TarWriter) and the importers
//! of trees read them.

use smallvec::SmallVec;

/// A point in time with nanoseconds. Times before 1970 have negative seconds, and the nanoseconds
/// count forward: -0.5 s is `sec: -1, nsec: 500_000_000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub sec: i64,
    /// Nanoseconds after `sec`, below 1,000,000,000.
    pub nsec: u32,
}

/// The byte ranges of a file that hold data; the rest are holes and read as zeros.
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

    /// Makes a map of (offset, length) pairs in bytes, for a file of `size` bytes. Drops empty
    /// segments and merges segments that touch.
    ///
    /// # Errors
    /// A description, if segments overlap, descend, or extend beyond `size`.
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

    /// Bytes of data, without holes.
    pub fn data_len(&self) -> u64 {
        self.segments.iter().map(|(_, length)| length).sum()
    }

    /// Is a file of `size` bytes without holes?
    pub fn is_whole(&self, size: u64) -> bool {
        self.data_len() == size
    }
}

/// Type of an entry, with the fields that only this type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file. Its data follows: [`Source::read`](crate::Source::read).
    File {
        /// Size in bytes, holes included.
        size: u64,
        /// The ranges that hold data.
        map: SparseMap,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// The target path as stored, not normalised.
        target: Vec<u8>,
    },
    /// Another name of an earlier file of the same tree.
    Hardlink {
        /// The earlier name, a normal path like [`Entry::path`].
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

/// Flags, allocation hint and project of a file, as in Linux' `struct fsxattr`; zeros if the source does not
/// store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fsx {
    /// Flags with the values of `FS_XFLAG_*`, without those that describe how the file is stored.
    pub flags: u32,
    /// Bytes in which new space is allocated; 0 for no hint.
    pub extsize: u32,
    /// Project ID.
    pub project: u32,
}

/// Metadata that files of all types have.
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
    /// Time of the last access, if the source stores it.
    pub atime: Option<Time>,
    /// Time of the last change of the inode, if the source stores it.
    pub ctime: Option<Time>,
    /// Time of creation, if the source stores it.
    pub crtime: Option<Time>,
    /// Extended attributes with full names (`user.x`, `system.posix_acl_access`) and the values
    /// that Linux' `getxattr` returns.
    pub xattrs: Xattrs,
    /// Flags, allocation hint and project.
    pub fsx: Fsx,
    /// Bytes of space that a regular file without data has, beyond its end.
    pub reserve: u64,
    /// Name of the owner; empty if the source does not store it.
    pub uname: Vec<u8>,
    /// Name of the group; empty if the source does not store it.
    pub gname: Vec<u8>,
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path in the tree; the root has the empty path.
    pub path: Vec<u8>,
    /// Type of the entry.
    pub kind: Kind,
    /// The entry's metadata.
    pub meta: Meta,
}

/// Maximum length of a path in bytes; far above the limit of system calls, because a deep tree can
/// have longer paths.
pub(crate) const PATH_MAX: usize = 4 << 20;

/// Normalises a path (invariant 1).
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

/// Sorts attributes by name; of several with the same name, keeps the last (invariant 3).
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
    fn paths_are_normalised() {
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
    fn the_last_attribute_of_a_name_is_kept() {
        let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
        let mut xattrs = vec![pair("b", "1"), pair("a", "2"), pair("b", "3")];
        normal_xattrs(&mut xattrs);
        assert_eq!(xattrs, [pair("a", "2"), pair("b", "3")]);
    }
}
