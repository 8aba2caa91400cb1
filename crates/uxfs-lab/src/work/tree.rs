//! Trees of files with the sizes of sources, and their extraction as by tar and star.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs::archive::Kind;
use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::{NewInode, Result, SetAttr};
use uxfs_testkit::Rng;

use super::{fill, word};
use crate::LabError;
use crate::durability::Ack;
use crate::setup::Lab;

/// Sizes of a kernel's source files: percentile, and its size in bytes.
const SIZES: [(u32, u32); 10] = [
    (1, 80),
    (10, 700),
    (25, 1_800),
    (50, 4_800),
    (75, 12_300),
    (90, 28_000),
    (95, 45_000),
    (99, 130_000),
    (100, 400_000),
    (101, 400_000),
];

/// A tree, in the order of an archive.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Directories: parent and name. The first is the tree's top, in the root.
    pub dirs: Vec<(usize, String)>,
    /// Files: directory, name and size in bytes.
    pub files: Vec<(usize, String, u32)>,
}

impl Tree {
    /// A tree of `files` files, about 18 in a directory, as in a kernel's sources.
    pub fn new(name: &str, files: u32, seed: u64) -> Self {
        let mut rng = Rng::spread(seed ^ 0x7472_6565);
        let mut tree = Self { dirs: vec![(0, name.into())], files: Vec::new() };
        while (tree.files.len() as u32) < files {
            let dir = tree.dirs.len();
            let parent = rng.scaled(dir as u64) as usize;
            tree.dirs.push((parent, format!("dir{dir:04}")));
            let count = 1 + rng.scaled(35) as u32;
            for number in 0..count.min(files - tree.files.len() as u32) {
                let size = size(&mut rng);
                tree.files.push((dir, format!("file{number:03}.c"), size));
            }
        }
        tree
    }

    /// The directories and files of an archive or a directory, in its order, below a directory of this
    /// name; and the number of entries of other types, which are left out.
    ///
    /// # Errors
    /// If it cannot be read, holds no file, or holds a file of 4 GiB or more.
    pub fn of_archive(path: &Path, name: &str) -> core::result::Result<(Self, u32), LabError> {
        let failed = |e: &dyn core::fmt::Display| LabError::new(path.display().to_string(), e);
        let mut source = uxfs::archive::open(path).map_err(|e| failed(&e))?;
        let mut tree = Self { dirs: vec![(0, name.into())], files: Vec::new() };
        let mut known = FxHashMap::from_iter([(String::new(), 0)]);
        let mut left_out = 0;
        while let Some(entry) = source.next().map_err(|e| failed(&e))? {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            match entry.kind {
                Kind::Dir => {
                    tree.dir(&path, &mut known);
                }
                Kind::File { size, .. } => {
                    let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
                    let size = u32::try_from(size).map_err(|_| {
                        failed(&format!(
                            "{path} has {size} bytes; the lab extracts only files below 4 GiB"
                        ))
                    })?;
                    let dir = tree.dir(above, &mut known);
                    tree.files.push((dir, name.to_owned(), size));
                }
                _ => left_out += 1,
            }
        }
        if tree.files.is_empty() {
            return Err(failed(&"it holds no file"));
        }
        // An archive can hold a name several times; here each file is created once.
        let mut seen = FxHashSet::default();
        tree.files.retain(|(dir, name, _)| seen.insert((*dir, name.clone())));
        Ok((tree, left_out))
    }

    /// The number of the directory at this path. Adds it and missing parents.
    fn dir(&mut self, path: &str, known: &mut FxHashMap<String, usize>) -> usize {
        let mut at = path.len();
        let mut dir = loop {
            if let Some(dir) = known.get(&path[..at]) {
                break *dir;
            }
            // The map always holds the empty path.
            at = path[..at].rfind('/').unwrap_or(0);
        };
        while at < path.len() {
            let name = at + usize::from(path[at..].starts_with('/'));
            at = path[name..].find('/').map_or(path.len(), |len| name + len);
            self.dirs.push((dir, path[name..at].to_owned()));
            dir = self.dirs.len() - 1;
            known.insert(path[..at].to_owned(), dir);
        }
        dir
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.2)).sum()
    }

    /// The path of a directory, relative to the root.
    pub fn path(&self, dir: usize) -> String {
        let mut parts = vec![self.dirs[dir].1.as_str()];
        let mut at = dir;
        while at != 0 {
            at = self.dirs[at].0;
            parts.push(&self.dirs[at].1);
        }
        parts.reverse();
        parts.join("/")
    }
}

fn size(rng: &mut Rng) -> u32 {
    let part = rng.scaled(100_000) as u32;
    let mut before = (0, 8);
    for (percent, bytes) in SIZES {
        if part < percent * 1000 {
            let span = u64::from(percent - before.0) * 1000;
            let inside = u64::from(part - before.0 * 1000);
            let more = u64::from(bytes - before.1) * inside / span;
            return before.1 + u32::try_from(more).unwrap_or(0);
        }
        before = (percent, bytes);
    }
    before.1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// One sync of the volume after the last file (GNU tar, then sync).
    End,
    /// fsync of each file before the next is begun (star).
    Each,
    /// The sync of each file begins when it is written; the client waits for all after the last.
    Tickets,
}

/// Seconds of an extraction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Until the last file was written.
    pub extract_s: f64,
    /// From then until everything was on stable storage.
    pub sync_s: f64,
    /// Dirty bytes in memory when the last file was written.
    pub dirty: u64,
}

/// Extracts a tree.
///
/// # Errors
/// An error of the volume.
pub fn extract(lab: &Arc<Lab>, tree: &Tree, sync: Sync, numbers: u64) -> Result<Timings> {
    let times = SetAttr {
        atime: Some(Timestamp { sec: 1_259_812_262, nsec: 0 }),
        mtime: Some(Timestamp { sec: 1_259_812_262, nsec: 0 }),
        ..SetAttr::default()
    };
    let begun = lab.now();
    let mut inos: Vec<Ino> = Vec::with_capacity(tree.dirs.len());
    let mut paths: Vec<Arc<str>> = Vec::with_capacity(tree.dirs.len());
    let mut made = Vec::new();
    let mut next_dir = 0;
    for (number, (dir, name, size)) in tree.files.iter().enumerate() {
        while next_dir <= *dir {
            let (parent, dir_name) = &tree.dirs[next_dir];
            let parent = inos.get(*parent).copied().unwrap_or_else(|| lab.fs.root());
            inos.push(lab.create(parent, dir_name, &NewInode::dir(0o755))?);
            paths.push(tree.path(next_dir).into());
            next_dir += 1;
        }
        let word = word(numbers + number as u64);
        let began = lab.now();
        let ino = lab.create(inos[*dir], name, &NewInode::file(0o644))?;
        let content = fill(word, *size as usize);
        for (at, piece) in (0..).zip(content.chunks(64 << 10)) {
            lab.write(ino, at * (64 << 10), piece)?;
        }
        let ack = Ack {
            began,
            at: 0,
            until: u64::MAX,
            synced: true,
            dir: Arc::clone(&paths[*dir]),
            name: name.clone(),
            from: 0,
            size: u64::from(*size),
            word,
            logged: true,
        };
        match sync {
            Sync::Each => {
                lab.fsync(ino)?;
                lab.ack(Ack { at: lab.now(), ..ack });
                lab.took(began);
            }
            Sync::Tickets => made.push((Some(lab.begin_fsync(ino)?), ack)),
            Sync::End => made.push((None, ack)),
        }
        lab.change();
        lab.fs.set_attr(ino, &times)?;
    }
    let written = lab.now();
    let dirty = lab.fs.dirty_bytes();
    if sync == Sync::End {
        lab.sync()?;
    }
    for (ticket, ack) in made {
        if let Some(ticket) = ticket {
            lab.fs.wait(ticket)?;
        }
        lab.ack(Ack { at: lab.now(), ..ack });
    }
    if sync == Sync::Each {
        lab.end();
        lab.sync()?;
    }
    let s = |from: u64, to: u64| (to - from) as f64 / 1e9;
    Ok(Timings { extract_s: s(begun, written), sync_s: s(written, lab.now()), dirty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_archive_gives_names_sizes_and_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("top/sub/empty")).unwrap();
        std::fs::write(at("top/sub/one"), [1; 5000]).unwrap();
        std::fs::write(at("top/two"), []).unwrap();
        std::os::unix::fs::symlink("two", at("top/link")).unwrap();
        let made = std::process::Command::new("tar")
            .args(["czf", "t.tar.gz", "--sort=name", "top"])
            .current_dir(dir.path())
            .status()
            .unwrap();
        assert!(made.success());
        let (tree, left_out) = Tree::of_archive(&at("t.tar.gz"), "all").unwrap();
        let mut files: Vec<(String, u32)> = tree
            .files
            .iter()
            .map(|(d, name, n)| (format!("{}/{name}", tree.path(*d)), *n))
            .collect();
        files.sort();
        assert_eq!(files, [("all/top/sub/one".to_owned(), 5000), ("all/top/two".to_owned(), 0)]);
        assert_eq!((tree.dirs.len(), tree.bytes(), left_out), (4, 5000, 1), "{tree:?}");
        // Parents come before their children.
        assert!(tree.dirs.iter().enumerate().skip(1).all(|(at, dir)| dir.0 < at), "{tree:?}");
        let error = Tree::of_archive(&at("nothing"), "all").unwrap_err().to_string();
        assert!(error.contains("nothing"), "{error}");
        assert!(Tree::of_archive(&at("top/sub/empty"), "all").is_err());
    }
}
