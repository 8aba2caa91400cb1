//! The files that go into a FAT volume, read from directories and named one by one.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use super::name::{self, Name, ShortNames};

/// Bytes in a directory entry.
pub(super) const ENTRY: u64 = 32;
/// Most entries of a directory.
const ENTRIES_MAX: u64 = 65_536;
/// Deepest directory; firmware does not go far.
const DEPTH_MAX: usize = 64;

/// A file or directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Dir(Dir),
    File {
        path: PathBuf,
        len: u64,
        /// Seconds since 1970.
        mtime: i64,
    },
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    nodes: BTreeMap<String, Node>,
    /// The names of `nodes` by what FAT takes for the same name.
    folded: HashMap<String, String>,
    /// Seconds since 1970; `None` for a directory that no directory of the host stands for.
    pub(super) mtime: Option<i64>,
}

/// A tree that FAT can hold.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub(super) root: Dir,
}

fn refused(path: &Path, problem: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {problem}", path.display()))
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the content of a directory of the host, or a file or directory at `place`, a path in the
    /// volume. Directories on the way are made. Symbolic links are followed only for `path` itself.
    ///
    /// # Errors
    /// The errors of the host; [`io::ErrorKind::InvalidInput`] for what FAT cannot hold, and for names
    /// that are taken.
    pub fn add(&mut self, place: &str, path: &Path) -> io::Result<()> {
        let names: Vec<&str> = place.split('/').filter(|name| !name.is_empty()).collect();
        if names.iter().any(|name| matches!(*name, "." | "..")) || names.len() > DEPTH_MAX {
            return Err(refused(Path::new(place), "not a path in a volume"));
        }
        let at =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let node = read(path, &std::fs::metadata(path).map_err(at)?, names.len())?;
        let Some((last, dirs)) = names.split_last() else {
            return match node {
                Node::Dir(dir) => self.root.merge(dir, Path::new("")),
                Node::File { .. } => Err(refused(path, "is not a directory")),
            };
        };
        let mut dir = &mut self.root;
        for name in dirs {
            check(name, Path::new(place))?;
            let node = match dir.key(name) {
                Some(key) => dir.nodes.get_mut(&key),
                None => Some(dir.put((*name).to_owned(), Node::Dir(Dir::default()))),
            };
            match node {
                Some(Node::Dir(next)) => dir = next,
                _ => return Err(refused(Path::new(place), "goes through a file")),
            }
        }
        dir.insert((*last).to_owned(), node, Path::new(place))
    }
}

fn check(name: &str, path: &Path) -> io::Result<()> {
    name::problem(name).map_or(Ok(()), |problem| Err(refused(path, problem)))
}

fn mtime(meta: &Metadata) -> i64 {
    uxfs_host::Stat::of(meta).mtime.0
}

/// Reads a file or directory of the host.
fn read(path: &Path, meta: &Metadata, depth: usize) -> io::Result<Node> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if depth > DEPTH_MAX {
        return Err(refused(path, "a tree too deep for FAT"));
    }
    if meta.is_file() {
        if meta.len() > u64::from(u32::MAX) {
            return Err(refused(path, "a file of 4 GiB or more, which FAT cannot hold"));
        }
        return Ok(Node::File { path: path.to_owned(), len: meta.len(), mtime: mtime(meta) });
    }
    if !meta.is_dir() {
        return Err(refused(path, "FAT holds only files and directories"));
    }
    let mut dir = Dir { mtime: Some(mtime(meta)), ..Dir::default() };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(at)? {
        paths.push(entry.map_err(at)?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(OsStr::to_str);
        let name = name.ok_or_else(|| refused(&path, "a name that is not UTF-8"))?.to_owned();
        let meta = std::fs::symlink_metadata(&path)?;
        dir.insert(name, read(&path, &meta, depth + 1)?, &path)?;
    }
    Ok(Node::Dir(dir))
}

impl Dir {
    /// The name under which an entry is there already, in whatever case.
    fn key(&self, name: &str) -> Option<String> {
        self.folded.get(&name::folded(name)).cloned()
    }

    /// Adds a name that is not there.
    fn put(&mut self, name: String, node: Node) -> &mut Node {
        self.folded.insert(name::folded(&name), name.clone());
        self.nodes.entry(name).or_insert(node)
    }

    fn insert(&mut self, name: String, node: Node, path: &Path) -> io::Result<()> {
        check(&name, path)?;
        match (self.key(&name), node) {
            (None, node) => {
                if self.nodes.len() as u64 >= ENTRIES_MAX {
                    return Err(refused(path, "one of too many names in its directory for FAT"));
                }
                self.put(name, node);
                Ok(())
            }
            (Some(key), Node::Dir(dir)) => match self.nodes.get_mut(&key) {
                Some(Node::Dir(there)) => there.merge(dir, path),
                _ => Err(refused(path, format!("the volume has a file '{key}' already"))),
            },
            (Some(key), Node::File { .. }) => {
                Err(refused(path, format!("the volume has '{key}' already; FAT ignores case")))
            }
        }
    }

    fn merge(&mut self, other: Self, path: &Path) -> io::Result<()> {
        self.mtime = self.mtime.or(other.mtime);
        other.nodes.into_iter().try_for_each(|(name, node)| {
            let path = path.join(&name);
            self.insert(name, node, &path)
        })
    }

    /// The entries in their order, with their names.
    pub(super) fn entries(&self) -> io::Result<Vec<(Name, &Node)>> {
        let mut names = ShortNames::default();
        let mut entries = Vec::with_capacity(self.nodes.len());
        for (name, node) in &self.nodes {
            let short = names.add(name);
            let named = short.ok_or_else(|| refused(Path::new(name), "too many similar names"))?;
            entries.push((named, node));
        }
        let count: u64 = entries.iter().map(|(name, _)| name.entries()).sum();
        if count + 3 > ENTRIES_MAX {
            return Err(refused(Path::new(""), "a directory with too many names for FAT"));
        }
        Ok(entries)
    }

    /// Bytes of the directory's own content; `extra` entries are `.`, `..` or the label.
    pub(super) fn len(entries: &[(Name, &Node)], extra: u64) -> u64 {
        (entries.iter().map(|(name, _)| name.entries()).sum::<u64>() + extra) * ENTRY
    }
}
