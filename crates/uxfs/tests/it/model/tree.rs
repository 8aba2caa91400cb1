//! The model: the expected content of a volume.

use std::collections::{BTreeMap, HashMap};

use uxfs::{Fs, Fsx, Stat, Xflags};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT};
use uxfs_format::timestamp::Timestamp;

use super::content::Content;
use crate::listing;

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Content),
    Dir { entries: BTreeMap<Vec<u8>, Ino>, parent: Ino },
    Link(Vec<u8>),
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) projid: u32,
    pub(super) nlink: u32,
    pub(super) rdev: (u32, u32),
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) crtime: Timestamp,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Flags and hints; the project is above.
    pub(super) fsx: Fsx,
}

#[derive(Default)]
pub(super) struct Tree {
    pub(super) nodes: HashMap<Ino, Node>,
    pub(super) root: Ino,
    pub(super) now: i64,
    pub(super) block_size: u32,
    /// Can times lie beyond 2038?
    pub(super) bigtime: bool,
}

impl Tree {
    pub(super) fn new(fs: &Fs) -> Self {
        let root = fs.root();
        let stat = fs.stat(root).unwrap();
        let mut tree = Self {
            root,
            now: fs.now().sec,
            block_size: fs.geo.block_size,
            bigtime: fs.superblock().incompat().contains(uxfs_format::features::Incompat::BIGTIME),
            ..Self::default()
        };
        let body = Body::Dir { entries: BTreeMap::new(), parent: root };
        let mut node = tree.node(body, stat.mode);
        (node.atime, node.mtime) = (stat.atime, stat.mtime);
        (node.ctime, node.crtime) = (stat.ctime, stat.crtime);
        tree.nodes.insert(root, node);
        tree
    }

    pub(super) fn stamp(&self) -> Timestamp {
        Timestamp { sec: self.now, nsec: 123_456_789 }
    }

    /// A node created at this moment.
    pub(super) fn node(&self, body: Body, mode: u16) -> Node {
        let now = self.stamp();
        Node {
            nlink: if matches!(body, Body::Dir { .. }) { 2 } else { 1 },
            body,
            mode,
            uid: 0,
            gid: 0,
            projid: 0,
            rdev: (0, 0),
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            xattrs: BTreeMap::new(),
            fsx: Fsx::default(),
        }
    }

    pub(super) fn get(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap()
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.get(ino).body, Body::Dir { .. })
    }

    pub(super) fn entries(&self, dir: Ino) -> &BTreeMap<Vec<u8>, Ino> {
        match &self.get(dir).body {
            Body::Dir { entries, .. } => entries,
            _ => panic!("{dir:?} is no directory"),
        }
    }

    pub(super) fn entries_mut(&mut self, dir: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match &mut self.get_mut(dir).body {
            Body::Dir { entries, .. } => entries,
            _ => panic!("{dir:?} is no directory"),
        }
    }

    pub(super) fn parent(&self, dir: Ino) -> Ino {
        match &self.get(dir).body {
            Body::Dir { parent, .. } => *parent,
            _ => panic!("{dir:?} is no directory"),
        }
    }

    pub(super) fn set_parent(&mut self, dir: Ino, to: Ino) {
        if let Body::Dir { parent, .. } = &mut self.get_mut(dir).body {
            *parent = to;
        }
    }

    /// Is `ino` this directory, or one above it?
    pub(super) fn above(&self, ino: Ino, mut dir: Ino) -> bool {
        while dir != ino {
            if dir == self.root {
                return false;
            }
            dir = self.parent(dir);
        }
        true
    }

    /// Marks a directory's content as changed.
    pub(super) fn touch(&mut self, dir: Ino) {
        let now = self.stamp();
        let node = self.get_mut(dir);
        (node.mtime, node.ctime) = (now, now);
    }

    pub(super) fn change(&mut self, ino: Ino) {
        self.get_mut(ino).ctime = self.stamp();
    }

    /// Takes a link from an inode that has lost a name.
    pub(super) fn drop_link(&mut self, ino: Ino) {
        self.change(ino);
        let dir = self.is_dir(ino);
        let node = self.get_mut(ino);
        node.nlink -= 1;
        if dir || node.nlink == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// Passes if the volume holds exactly this.
    pub(super) fn compare(&self, fs: &Fs, at: &str) {
        let fail = |ino: Ino, what: &str| -> ! { panic!("{at}: inode {ino:?}: {what}") };
        for (ino, node) in &self.nodes {
            let stat = fs.stat(*ino).unwrap_or_else(|e| fail(*ino, &e.to_string()));
            if let Some(what) = self.stat_differs(node, &stat) {
                fail(*ino, &what);
            }
            let found = fs.get_fsx(*ino).unwrap_or_else(|e| fail(*ino, &e.to_string()));
            let told = Xflags::PREALLOC | Xflags::HASATTR;
            let flags = (found.xflags - told, found.extsize, found.cowextsize);
            let fsx = node.fsx;
            if flags != (fsx.xflags, fsx.extsize, fsx.cowextsize) {
                fail(*ino, &format!("flags and hints {flags:?}, not {fsx:?}"));
            }
            match &node.body {
                Body::Dir { entries, parent } => {
                    let mut found =
                        listing::names(fs, *ino).unwrap_or_else(|e| fail(*ino, &e.to_string()));
                    found.sort();
                    let wanted: Vec<_> = entries.iter().map(|(n, i)| (n.clone(), *i)).collect();
                    if found != wanted {
                        fail(*ino, &format!("{} names, not {}", found.len(), wanted.len()));
                    }
                    for (name, child) in entries {
                        assert_eq!(
                            fs.lookup(*ino, name).unwrap(),
                            *child,
                            "{at}: a name in {ino:?}"
                        );
                    }
                    assert_eq!(fs.lookup(*ino, b"..").unwrap(), *parent, "{at}: .. of {ino:?}");
                }
                Body::Link(target) => assert_eq!(fs.readlink(*ino).unwrap(), *target, "{at}"),
                Body::File(content) => compare_content(fs, *ino, content, at),
                Body::Other => {}
            }
            let mut names = fs.list_xattrs(*ino).unwrap_or_else(|e| fail(*ino, &e.to_string()));
            names.sort();
            if !names.iter().eq(node.xattrs.keys()) {
                fail(*ino, &format!("{} attributes, not {}", names.len(), node.xattrs.len()));
            }
            for (name, value) in &node.xattrs {
                if fs.get_xattr(*ino, name).unwrap_or_else(|e| fail(*ino, &e.to_string())) != *value
                {
                    fail(*ino, &format!("the value of {}", name.escape_ascii()));
                }
            }
        }
        let (all, free) = fs.inode_counts();
        // Beside the tree there are two realtime inodes without a name.
        assert_eq!(all - free, self.nodes.len() as u64 + 2, "{at}: inodes in use");
    }

    fn stat_differs(&self, node: &Node, stat: &Stat) -> Option<String> {
        let found = (stat.mode, stat.uid, stat.gid, stat.nlink, stat.projid, stat.rdev);
        let wanted = (node.mode, node.uid, node.gid, node.nlink, node.projid, node.rdev);
        if found != wanted {
            return Some(format!("mode, owner, links, project, device {found:?}, not {wanted:?}"));
        }
        let found = (stat.atime, stat.mtime, stat.ctime, stat.crtime);
        let wanted = (node.atime, node.mtime, node.ctime, node.crtime);
        if found != wanted {
            return Some(format!("times {found:?}, not {wanted:?}"));
        }
        let size = match &node.body {
            Body::File(content) => content.size,
            Body::Link(target) => target.len() as u64,
            Body::Dir { .. } => stat.size,
            Body::Other => 0,
        };
        assert_eq!(stat.mode & S_IFMT == S_IFDIR, matches!(node.body, Body::Dir { .. }));
        (stat.size != size).then(|| format!("size {}, not {size}", stat.size))
    }
}

/// Passes if a file holds exactly this.
pub(super) fn compare_content(fs: &Fs, ino: Ino, content: &Content, at: &str) {
    let segments = fs.segments(ino).unwrap_or_else(|e| panic!("{at}: {ino:?}: {e}"));
    let ours = segments.iter().filter(|s| s.device.is_some()).map(|s| (s.offset, s.len));
    let (mut found, mut wanted) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    for (start, len) in ours.chain(content.data()) {
        let mut done = 0;
        while done < len {
            let step = (len - done).min(1 << 16) as usize;
            let from = start + done;
            assert_eq!(fs.read_at(ino, from, &mut found[..step]).unwrap(), step, "{at}");
            assert_eq!(content.read(from, &mut wanted[..step]), step, "{at}: end of {ino:?}");
            if let Some(bad) = (0..step).find(|i| found[*i] != wanted[*i]) {
                let (f, w) = (found[bad], wanted[bad]);
                panic!(
                    "{at}: {ino:?}: byte {} of {} is {f}, not {w}",
                    from + bad as u64,
                    content.size
                );
            }
            done += step as u64;
        }
    }
}
