//! The files of a volume in memory: to see whether two states are equal, to find what one lacks, and to
//! put a third together.
//!
//! 1. Two trees with one digest are equal to every program, except for inode numbers and the times
//!    that a program cannot set (ctime, atime).
//! 2. A node without a name is kept: its content is known when it gets one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

/// An inode's number.
pub type Ino = u64;

/// Most bytes of files that are held in memory: those of a tree, or of one file that grows.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<Vec<u8>, Ino>),
    Symlink(Vec<u8>),
    /// A device, pipe or socket.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    /// Tells the file from those that had its number before.
    pub generation: u64,
    /// A digest of what else a program sees.
    pub attributes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub root: Ino,
    pub nodes: BTreeMap<Ino, Node>,
}

impl Tree {
    /// This file, if the tree has it. One that has its number only is another.
    pub fn same(&self, ino: Ino, node: &Node) -> Option<&Node> {
        self.nodes.get(&ino).filter(|other| other.generation == node.generation)
    }

    /// The digest of all that has a name.
    pub fn digest(&self) -> u64 {
        let mut hasher = XxHash64::with_seed(0);
        let mut seen = BTreeMap::new();
        self.walk(&mut |path, ino, node| {
            path.hash(&mut hasher);
            // A second link counts as a link, not as a copy.
            let first = seen.len();
            let number = *seen.entry(ino).or_insert(first);
            number.hash(&mut hasher);
            (node.mode, node.attributes).hash(&mut hasher);
            match &node.kind {
                Kind::File(bytes) => (0, bytes).hash(&mut hasher),
                // The names come with the walk.
                Kind::Dir(names) => (1, names.len()).hash(&mut hasher),
                Kind::Symlink(target) => (2, target).hash(&mut hasher),
                Kind::Other => 3.hash(&mut hasher),
            }
        });
        hasher.finish()
    }

    /// Calls `f` for every name, parents first, with the path below the root.
    pub fn walk(&self, f: &mut dyn FnMut(&Path, Ino, &Node)) {
        let mut left = vec![(PathBuf::new(), self.root)];
        let mut dirs = BTreeSet::new();
        while let Some((path, ino)) = left.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            f(&path, ino, node);
            if let Kind::Dir(names) = &node.kind {
                // Each directory once, whatever a damaged tree says.
                if dirs.insert(ino) {
                    let below = names.iter().rev();
                    left.extend(
                        below.map(|(name, ino)| (path.join(OsStr::from_bytes(name)), *ino)),
                    );
                }
            }
        }
    }

    /// The first path of each node that has a name.
    pub fn paths(&self) -> BTreeMap<Ino, PathBuf> {
        let mut paths = BTreeMap::new();
        self.walk(&mut |path, ino, _| {
            paths.entry(ino).or_insert_with(|| path.to_owned());
        });
        paths
    }

    /// Makes the files in an empty directory of the host.
    ///
    /// # Errors
    /// Those of the host.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        let mut made: BTreeMap<Ino, PathBuf> = BTreeMap::new();
        let mut result = Ok(());
        self.walk(&mut |path, ino, node| {
            if result.is_ok() && ino != self.root {
                result = write_node(node, &dir.join(path), made.get(&ino));
                made.entry(ino).or_insert_with(|| dir.join(path));
            }
        });
        result
    }
}

fn write_node(node: &Node, path: &Path, other: Option<&PathBuf>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(other) = other {
        return std::fs::hard_link(other, path);
    }
    match &node.kind {
        Kind::File(bytes) => {
            std::fs::write(path, bytes.as_slice())?;
            let mode = std::fs::Permissions::from_mode(u32::from(node.mode & 0o7777));
            std::fs::set_permissions(path, mode)
        }
        Kind::Dir(_) => std::fs::create_dir(path),
        Kind::Symlink(target) => std::os::unix::fs::symlink(OsStr::from_bytes(target), path),
        Kind::Other => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn file(bytes: &[u8]) -> Node {
        Node {
            kind: Kind::File(Arc::new(bytes.to_vec())),
            mode: 0o100_644,
            generation: 0,
            attributes: 0,
        }
    }

    pub(crate) fn dir(names: &[(&str, Ino)]) -> Node {
        let names = names.iter().map(|(name, ino)| (name.as_bytes().to_vec(), *ino)).collect();
        Node { kind: Kind::Dir(names), mode: 0o40_755, generation: 0, attributes: 0 }
    }

    pub(crate) fn tree(nodes: Vec<(Ino, Node)>) -> Tree {
        Tree { root: 1, nodes: nodes.into_iter().collect() }
    }

    #[test]
    fn the_digest_tells_trees_apart_and_not_their_inode_numbers() {
        let one = tree(vec![(1, dir(&[("a", 2), ("b", 3)])), (2, file(b"x")), (3, file(b"x"))]);
        let other = tree(vec![(1, dir(&[("a", 7), ("b", 5)])), (7, file(b"x")), (5, file(b"x"))]);
        assert_eq!(one.digest(), other.digest());
        let linked = tree(vec![(1, dir(&[("a", 2), ("b", 2)])), (2, file(b"x"))]);
        let changed = tree(vec![(1, dir(&[("a", 2), ("b", 3)])), (2, file(b"x")), (3, file(b"y"))]);
        let renamed = tree(vec![(1, dir(&[("a", 2), ("c", 3)])), (2, file(b"x")), (3, file(b"x"))]);
        let digests = [&one, &linked, &changed, &renamed].map(Tree::digest);
        assert_eq!(digests.into_iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn a_tree_becomes_files_of_the_host() {
        let dir_ = tempfile::tempdir().unwrap();
        let link = Kind::Symlink(b"b".to_vec());
        let link = Node { kind: link, mode: 0o120_777, generation: 0, attributes: 0 };
        let names = dir(&[("a", 2), ("again", 2), ("sub", 3), ("link", 5)]);
        let tree = tree(vec![
            (1, names),
            (2, file(b"x")),
            (3, dir(&[("y", 4)])),
            (4, file(b"")),
            (5, link),
        ]);
        tree.write_to(dir_.path()).unwrap();
        let read = |name: &str| std::fs::read(dir_.path().join(name)).unwrap();
        assert_eq!((read("again"), read("sub/y")), (b"x".to_vec(), Vec::new()));
        assert_eq!(std::fs::read_link(dir_.path().join("link")).unwrap(), Path::new("b"));
        assert_eq!(tree.paths()[&4], Path::new("sub/y"));
    }
}
