//! The moments of a workload, and whether a tree is that of one of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs::{Fs, Result};

/// A file, as anyone sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Number by which hard links are known; from the workload, or the inode's.
    pub(crate) id: u64,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) nlink: u32,
    pub(crate) target: Vec<u8>,
    pub(crate) content: Arc<Vec<u8>>,
    pub(crate) xattrs: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// Paths, and what is there. The root is the empty path.
pub(crate) type Tree = BTreeMap<Vec<u8>, Node>;

/// A step that changed the content of a file, or its length.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) step: usize,
    /// The file's number.
    pub(crate) id: u64,
    /// What was written, and where; no bytes where the file was cut or grown.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) byte: u8,
}

/// All moments: the tree after each step, that before the first included.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) moments: Vec<Tree>,
    pub(crate) touches: Vec<Touch>,
}

impl History {
    /// Which moment from `durable` to `begun` the tree is of.
    ///
    /// # Errors
    /// How it differs from the nearest.
    pub(crate) fn find(
        &self,
        tree: &Tree,
        durable: usize,
        begun: usize,
    ) -> core::result::Result<usize, String> {
        let mut nearest: Option<(usize, String)> = None;
        for moment in (durable..=begun.min(self.moments.len() - 1)).rev() {
            let differences = self.differences(tree, moment, begun);
            let Some(first) = differences.first() else { return Ok(moment) };
            if nearest.as_ref().is_none_or(|(count, _)| differences.len() < *count) {
                nearest = Some((differences.len(), format!("after step {moment}: {first}")));
            }
        }
        let told =
            nearest.map_or_else(String::new, |(count, text)| format!("{text} ({count} in all)"));
        Err(format!("the tree is of no moment from step {durable} to {begun}; nearest {told}"))
    }

    fn differences(&self, tree: &Tree, moment: usize, begun: usize) -> Vec<String> {
        let expected = &self.moments[moment];
        let mut found = Vec::new();
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        for path in tree.keys().filter(|path| !expected.contains_key(*path)) {
            found.push(format!("{} should not be there", shown(path)));
        }
        let mut ids = BTreeMap::new();
        for (path, want) in expected {
            let Some(have) = tree.get(path) else {
                found.push(format!("{} is missing", shown(path)));
                continue;
            };
            if *ids.entry(want.id).or_insert(have.id) != have.id {
                found.push(format!("{} is another file than its other name", shown(path)));
            }
            let plain = |n: &Node| (n.mode, n.uid, n.nlink, n.target.clone(), n.xattrs.clone());
            if plain(have) != plain(want) {
                found.push(format!("{}: {:?}, not {:?}", shown(path), plain(have), plain(want)));
            } else if let Some(problem) = self.content(have, want, moment, begun) {
                found.push(format!("{}: {problem}", shown(path)));
            }
        }
        found
    }

    /// What is wrong with a file's content.
    fn content(&self, have: &Node, want: &Node, moment: usize, begun: usize) -> Option<String> {
        let later: Vec<&Touch> = self
            .touches
            .iter()
            .filter(|t| t.id == want.id && t.step > moment && t.step <= begun)
            .collect();
        let (len, right) = (have.content.len(), want.content.len());
        if len != right {
            // A long write shows piece by piece.
            let next = later.iter().find(|t| t.step == moment + 1);
            let growing = next.is_some_and(|t| len > right && len <= t.to);
            if !growing {
                return Some(format!("{len} bytes, not {right}"));
            }
        }
        for (at, byte) in have.content.iter().enumerate() {
            let fits = want.content.get(at) == Some(byte)
                || later.iter().any(|t| t.from <= at && at < t.to && t.byte == *byte)
                // What is cut off is zeroed first.
                || (*byte == 0 && later.iter().any(|t| t.byte == 0 && at >= t.from));
            if !fits {
                return Some(format!("byte {at} is {byte:#04x}, which was never written there"));
            }
        }
        None
    }
}

/// The tree of an open volume.
pub(crate) fn read(fs: &Fs) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut todo = vec![(fs.root(), Vec::new())];
    while let Some((ino, path)) = todo.pop() {
        let node = node(fs, ino)?;
        let is_dir = node.mode & S_IFMT == S_IFDIR;
        tree.insert(path.clone(), node);
        if !is_dir {
            continue;
        }
        fs.read_dir(ino, 0, &mut |entry| {
            if !entry.is_dot() {
                todo.push((entry.ino, [&path[..], b"/", entry.name].concat()));
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(tree)
}

fn node(fs: &Fs, ino: Ino) -> Result<Node> {
    let stat = fs.stat(ino)?;
    let mut content = Vec::new();
    let mut target = Vec::new();
    match stat.mode & S_IFMT {
        S_IFREG => {
            content.resize(stat.size as usize, 0);
            fs.read_at(ino, 0, &mut content)?;
        }
        S_IFLNK => target = fs.readlink(ino)?,
        _ => {}
    }
    let mut xattrs = BTreeMap::new();
    for name in fs.list_xattrs(ino)? {
        let value = fs.get_xattr(ino, &name)?;
        xattrs.insert(name, value);
    }
    Ok(Node {
        id: ino.0,
        mode: stat.mode,
        uid: stat.uid,
        nlink: stat.nlink,
        target,
        content: Arc::new(content),
        xattrs: Arc::new(xattrs),
    })
}
