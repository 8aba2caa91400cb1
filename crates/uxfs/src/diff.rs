//! What differs between two trees: paths, and how many bytes of content.
//!
//! 1. Metadata decides as far as it can: content is read only where both trees have data that is not known to
//!    be the same. Of two children of one image, data that both share is not read.
//! 2. Paths come in the order of names, a directory before what is in it. A tree that only one side has comes
//!    as one difference.
//! 3. Times of access and of inode changes, inode numbers and where blocks lie do not count; nor does the
//!    time or length of a directory.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

use uxfs_core::{Fs, Result, Segment, Stat};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Bytes that are compared at a time.
const WINDOW: usize = 256 << 10;

/// Ranges of two disks that may differ, in bytes. Everything else is the same on both.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Ends by starts. Ranges may overlap, but none begins where another does.
    ranges: BTreeMap<u64, u64>,
    longest: u64,
}

impl Changed {
    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) {
        let end = self.ranges.entry(range.start).or_insert(range.end);
        *end = range.end.max(*end);
        self.longest = self.longest.max(*end - range.start);
    }

    /// Does a range contain changed bytes?
    fn overlaps(&self, range: &Range<u64>) -> bool {
        let from = range.start.saturating_sub(self.longest);
        self.ranges.range(from..range.end).any(|(_, end)| *end > range.start)
    }
}

/// In which way a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Removed,
    /// Both have it.
    Changed,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path from the roots of the trees, with a leading slash.
    pub path: Vec<u8>,
    /// In which way it differs.
    pub kind: Kind,
    /// Bytes of content that differ; for a tree that only one side has, the length of its files.
    pub bytes: u64,
    /// What differs: `type`, `content`, `target`, `mode`, `owner`, `group`, `project`, `mtime`, `device`,
    /// `xattr`. Empty unless both trees have the path.
    pub what: Vec<&'static str>,
    /// Is it a directory, in the tree that has it?
    pub dir: bool,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Paths that differ.
    pub paths: u64,
    /// Bytes of content that differ.
    pub bytes: u64,
    /// Bytes of data that were read, of both trees.
    pub read: u64,
}

/// A tree: a volume and a directory or file in it.
pub type Tree<'a> = (&'a Fs, Ino);

/// Compares two trees, and calls `on` for each path that differs. `changed` says where their disks may
/// differ; without it all data that both have is read.
///
/// # Errors
/// Those of reading the volumes; of `on`.
pub fn diff<E: From<uxfs_core::Error>>(
    first: Tree<'_>,
    second: Tree<'_>,
    changed: Option<&Changed>,
    on: &mut dyn FnMut(Difference) -> std::result::Result<(), E>,
) -> std::result::Result<Summary, E> {
    let work = Work { first: first.0, second: second.0, changed };
    let mut summary = Summary::default();
    // Content that differs, of pairs of files with several names.
    let mut known: HashMap<(Ino, Ino), u64> = HashMap::new();
    let mut left = vec![(Vec::new(), Some(first.1), Some(second.1))];
    while let Some((path, one, other)) = left.pop() {
        let shown = if path.is_empty() { b"/".to_vec() } else { path.clone() };
        let found = match (one, other) {
            (Some(one), Some(other)) => {
                let found = work.both(shown, one, other, &mut known, &mut summary.read)?;
                if let (Found::Dirs, _) = &found {
                    // The last one is taken first.
                    left.extend(work.entries(&path, one, other)?.into_iter().rev());
                }
                found.1
            }
            (Some(one), None) => Some(only(work.first, one, shown, Kind::Removed)?),
            (None, Some(other)) => Some(only(work.second, other, shown, Kind::Added)?),
            (None, None) => None,
        };
        if let Some(difference) = found {
            summary.paths += 1;
            summary.bytes += difference.bytes;
            on(difference)?;
        }
    }
    Ok(summary)
}

/// What both trees have at a path.
enum Found {
    Dirs,
    Other,
}

struct Work<'a> {
    first: &'a Fs,
    second: &'a Fs,
    changed: Option<&'a Changed>,
}

type Pending = (Vec<u8>, Option<Ino>, Option<Ino>);

fn kind_of(stat: &Stat) -> u16 {
    stat.mode & S_IFMT
}

/// The entries of a directory, in the order of their names.
fn names(fs: &Fs, dir: Ino) -> Result<BTreeMap<Vec<u8>, Ino>> {
    let mut found = BTreeMap::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            found.insert(entry.name.to_vec(), entry.ino);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A tree that only one side has.
fn only(fs: &Fs, ino: Ino, path: Vec<u8>, kind: Kind) -> Result<Difference> {
    let dir = kind_of(&fs.stat(ino)?) == S_IFDIR;
    let (mut bytes, mut left) = (0_u64, vec![ino]);
    while let Some(ino) = left.pop() {
        let stat = fs.stat(ino)?;
        match kind_of(&stat) {
            S_IFDIR => left.extend(names(fs, ino)?.into_values()),
            S_IFREG => bytes = bytes.saturating_add(stat.size),
            _ => {}
        }
    }
    Ok(Difference { path, kind, bytes, what: Vec::new(), dir })
}

impl Work<'_> {
    fn entries(&self, path: &[u8], one: Ino, other: Ino) -> Result<Vec<Pending>> {
        let mut merged: BTreeMap<Vec<u8>, (Option<Ino>, Option<Ino>)> = BTreeMap::new();
        for (name, ino) in names(self.first, one)? {
            merged.entry(name).or_default().0 = Some(ino);
        }
        for (name, ino) in names(self.second, other)? {
            merged.entry(name).or_default().1 = Some(ino);
        }
        let pending =
            |(name, (one, other)): (Vec<u8>, _)| ([path, b"/", &name].concat(), one, other);
        Ok(merged.into_iter().map(pending).collect())
    }

    /// Compares two files of the same path.
    fn both(
        &self,
        path: Vec<u8>,
        one: Ino,
        other: Ino,
        known: &mut HashMap<(Ino, Ino), u64>,
        read: &mut u64,
    ) -> Result<(Found, Option<Difference>)> {
        let (a, b) = (self.first.stat(one)?, self.second.stat(other)?);
        let dir = kind_of(&b) == S_IFDIR;
        let mut what = Vec::new();
        let mut bytes = 0;
        if kind_of(&a) != kind_of(&b) {
            what.push("type");
        } else {
            match kind_of(&a) {
                S_IFREG => {
                    bytes = match known.get(&(one, other)) {
                        Some(bytes) => *bytes,
                        None => self.content((one, a.size), (other, b.size), read)?,
                    };
                    if a.nlink > 1 || b.nlink > 1 {
                        known.insert((one, other), bytes);
                    }
                    if bytes > 0 || a.size != b.size {
                        what.push("content");
                    }
                }
                S_IFLNK if self.first.readlink(one)? != self.second.readlink(other)? => {
                    what.push("target");
                }
                _ => {}
            }
            let differ = [
                ("mode", a.mode != b.mode),
                ("owner", a.uid != b.uid),
                ("group", a.gid != b.gid),
                ("project", a.projid != b.projid),
                ("mtime", !dir && a.mtime != b.mtime),
                ("device", a.rdev != b.rdev),
                ("xattr", self.xattrs_differ(one, other)?),
            ];
            what.extend(differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name));
        }
        let dirs = dir && kind_of(&a) == S_IFDIR;
        let kind = Kind::Changed;
        let found = (!what.is_empty()).then_some(Difference { path, kind, bytes, what, dir });
        Ok((if dirs { Found::Dirs } else { Found::Other }, found))
    }

    fn xattrs_differ(&self, one: Ino, other: Ino) -> Result<bool> {
        let (mut ours, mut theirs) =
            (self.first.list_xattrs(one)?, self.second.list_xattrs(other)?);
        ours.sort_unstable();
        theirs.sort_unstable();
        if ours != theirs {
            return Ok(true);
        }
        for name in ours {
            if self.first.get_xattr(one, &name)? != self.second.get_xattr(other, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of content that differ. What only the longer file has, differs.
    fn content(
        &self,
        (one, one_size): (Ino, u64),
        (other, other_size): (Ino, u64),
        read: &mut u64,
    ) -> Result<u64> {
        let (ours, theirs) = (self.first.segments(one)?, self.second.segments(other)?);
        let common = one_size.min(other_size);
        let mut bytes = one_size.max(other_size) - common;
        let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
        let mut at = 0;
        while at < common {
            while ours.next_if(|segment| segment.offset + segment.len <= at).is_some() {}
            while theirs.next_if(|segment| segment.offset + segment.len <= at).is_some() {}
            let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) else { break };
            let end = (a.offset + a.len).min(b.offset + b.len).min(common);
            if end <= at {
                break;
            }
            if !self.is_same(a, b, at, end) {
                bytes += self.compare(one, other, at, end, read)?;
            }
            at = end;
        }
        Ok(bytes)
    }

    /// Is the content known to be the same from `at` to `end`, which both segments contain?
    fn is_same(&self, a: &Segment, b: &Segment, at: u64, end: u64) -> bool {
        match (a.device, b.device, self.changed) {
            (None, None, _) => true,
            (Some(from), Some(to), Some(changed)) if !a.realtime && !b.realtime => {
                let (from, to) = (from + (at - a.offset), to + (at - b.offset));
                from == to && !changed.overlaps(&(from..from + (end - at)))
            }
            _ => false,
        }
    }

    fn compare(&self, one: Ino, other: Ino, from: u64, end: u64, read: &mut u64) -> Result<u64> {
        let (mut a, mut b) = (vec![0; WINDOW], vec![0; WINDOW]);
        let (mut at, mut bytes) = (from, 0);
        while at < end {
            // At most `WINDOW`.
            let len = (end - at).min(WINDOW as u64) as usize;
            let got = self.first.read_at(one, at, &mut a[..len])?;
            let got = got.min(self.second.read_at(other, at, &mut b[..len])?);
            if got == 0 {
                break;
            }
            *read += 2 * got as u64;
            if a[..got] != b[..got] {
                let differ = a[..got].iter().zip(&b[..got]).filter(|(a, b)| a != b);
                bytes += differ.count() as u64;
            }
            at += got as u64;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_ranges_are_found_where_they_lie() {
        let mut changed = Changed::default();
        changed.add(100..200);
        changed.add(100..150);
        changed.add(120..130);
        changed.add(500..501);
        for (range, found) in [
            (0..100, false),
            (0..101, true),
            (199..200, true),
            (200..500, false),
            (140..145, true),
            (500..600, true),
            (501..600, false),
        ] {
            assert_eq!(changed.overlaps(&range), found, "{range:?}");
        }
    }
}
