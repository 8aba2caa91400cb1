//! Workloads: random operations on a volume with a journal, and what the tree should be after
//! each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uxfs::format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs::{Error, Fs, NewInode, RenameFlags, Result, SetAttr, XattrMode};

use crate::history::{History, Node, Touch, Tree};
use crate::record::{Event, RecordDev};
use crate::rng::Rng;

/// Volumes that workloads run on, as options of mkfs.
pub const VOLUMES: &[&str] = &[
    "-l size=6m",
    "-m rmapbt=1 -l size=16m",
    "-b size=1k -l size=6m",
    "-m reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0 -l size=6m",
    "-n size=8k -i size=1024,nrext64=1 -l size=16m,su=32k",
    "-i exchange=1 -n parent=1 -m rmapbt=1 -l size=16m",
    "-s size=4096 -b size=4k -m rmapbt=1,reflink=1 -l size=16m",
];

/// Longest file.
const FILE_MAX: usize = 200_000;
/// Most names in the tree.
const NAMES_MAX: usize = 60;

/// A workload that is running.
pub(crate) struct Workload<'a> {
    fs: &'a Fs,
    dev: &'a RecordDev,
    rng: &'a mut Rng,
    tree: Tree,
    pub(crate) history: History,
    pub(crate) operations: BTreeSet<&'static str>,
    next_id: u64,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(fs: &'a Fs, dev: &'a RecordDev, rng: &'a mut Rng) -> Result<Self> {
        let tree = crate::history::read(fs)?;
        let mut history = History::default();
        history.moments.push(tree.clone());
        let operations = BTreeSet::new();
        Ok(Self { fs, dev, rng, tree, history, operations, next_id: 1 << 40 })
    }

    /// Does `count` steps.
    pub(crate) fn run(&mut self, count: usize) -> Result<()> {
        let mut told = 0;
        let mut tickets: Vec<(usize, uxfs::journal::Ticket)> = Vec::new();
        for step in 1..=count {
            self.dev.note(Event::Step(step));
            match self.step(step) {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(other) => return Err(other),
            }
            self.history.moments.push(self.tree.clone());
            tickets.push((step, self.fs.ticket()));
            if self.rng.one_in(9) {
                self.operations.insert("sync");
                self.fs.sync()?;
            }
            let done = tickets.iter().take_while(|(_, ticket)| self.fs.is_durable(*ticket));
            let done = done.last().map_or(told, |(step, _)| *step);
            if done > told {
                told = done;
                self.dev.note(Event::Durable(done));
                tickets.retain(|(step, _)| *step > done);
            }
        }
        Ok(())
    }

    fn of_kind(&self, kind: u16) -> Vec<Vec<u8>> {
        let wanted = |node: &&Node| node.mode & S_IFMT == kind;
        self.tree.iter().filter(|(_, node)| wanted(node)).map(|(path, _)| path.clone()).collect()
    }

    fn any(&mut self, kind: u16) -> Option<Vec<u8>> {
        let all = self.of_kind(kind);
        self.rng.pick(&all).cloned()
    }

    fn any_name(&mut self) -> Option<Vec<u8>> {
        let all: Vec<Vec<u8>> = self.tree.keys().filter(|path| !path.is_empty()).cloned().collect();
        self.rng.pick(&all).cloned()
    }

    fn new_path(&mut self) -> (Vec<u8>, Vec<u8>) {
        let parent = self.any(S_IFDIR).unwrap_or_default();
        let len = if self.rng.one_in(4) { 200 } else { 6 };
        let number = self.rng.below(1 << 40);
        let name = format!("{number:0len$x}").into_bytes();
        (parent, name)
    }

    fn step(&mut self, step: usize) -> Result<()> {
        let full = self.tree.len() > NAMES_MAX;
        match self.rng.below(16) {
            0..3 if !full => self.create(S_IFREG),
            3 if !full => self.create(S_IFDIR),
            4 if !full => self.create(S_IFLNK),
            5 if !full => self.link(),
            6..9 => self.write(step),
            9 => self.truncate(step),
            10 => self.rename(),
            11 | 12 => self.set_xattr(step),
            13 => self.set_attr(step),
            _ => self.remove(),
        }
    }

    fn node(&mut self, mode: u16) -> Node {
        self.next_id += 1;
        Node {
            id: self.next_id,
            mode,
            uid: 0,
            nlink: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            target: Vec::new(),
            content: Arc::default(),
            xattrs: Arc::default(),
        }
    }

    fn create(&mut self, kind: u16) -> Result<()> {
        let (parent, name) = self.new_path();
        let dir = self.fs.resolve(&parent, false)?;
        let mut node = self.node(kind | 0o640);
        if kind == S_IFLNK {
            self.operations.insert("symlink");
            let len = if self.rng.one_in(2) { 20 } else { 900 };
            node.target = vec![b't'; len];
            self.fs.symlink(dir, &name, &node.target, &NewInode::new(0o640))?;
        } else {
            self.operations.insert(if kind == S_IFDIR { "mkdir" } else { "create" });
            self.fs.create(dir, &name, &NewInode::new(node.mode))?;
        }
        if kind == S_IFDIR {
            self.change(&parent, |up| up.nlink += 1);
        }
        self.tree.insert([&parent[..], b"/", &name].concat(), node);
        Ok(())
    }

    /// Changes a file under all its names.
    fn change(&mut self, path: &[u8], change: impl Fn(&mut Node)) {
        let Some(id) = self.tree.get(path).map(|node| node.id) else { return };
        self.tree.values_mut().filter(|node| node.id == id).for_each(change);
    }

    fn link(&mut self) -> Result<()> {
        let Some(old) = self.any(S_IFREG) else { return Ok(()) };
        self.operations.insert("link");
        let (parent, name) = self.new_path();
        let (ino, dir) = (self.fs.resolve(&old, false)?, self.fs.resolve(&parent, false)?);
        self.fs.link(ino, dir, &name)?;
        self.change(&old, |node| node.nlink += 1);
        let node = self.tree[&old].clone();
        self.tree.insert([&parent[..], b"/", &name].concat(), node);
        Ok(())
    }

    fn write(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        self.operations.insert("write");
        let ino = self.fs.resolve(&path, false)?;
        let node = &self.tree[&path];
        let (id, size) = (node.id, node.content.len());
        let from = match self.rng.below(3) {
            0 => size,
            1 => self.rng.below(size as u64 + 1) as usize,
            _ => self.rng.below(FILE_MAX as u64 / 2) as usize,
        };
        let most = if self.rng.one_in(3) { 40_000 } else { 3000 };
        let len = 1 + self.rng.below(most) as usize;
        let to = (from + len).min(FILE_MAX);
        if from >= to {
            return Ok(());
        }
        let byte = (step % 255 + 1) as u8;
        self.history.touches.push(Touch { step, id, from, to, byte });
        if from > size {
            // The gap reads as zeroes.
            self.history.touches.push(Touch { step, id, from: size, to: from, byte: 0 });
        }
        self.fs.write_at(ino, from as u64, &vec![byte; to - from])?;
        let mut content = Vec::clone(&self.tree[&path].content);
        content.resize(content.len().max(to), 0);
        content[from..to].fill(byte);
        let content = Arc::new(content);
        self.change(&path, |node| node.content = content.clone());
        Ok(())
    }

    fn truncate(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        self.operations.insert("truncate");
        let ino = self.fs.resolve(&path, false)?;
        let node = &self.tree[&path];
        let (id, size) = (node.id, node.content.len());
        let new = self.rng.below(size as u64 * 5 / 4 + 2).min(FILE_MAX as u64) as usize;
        let (from, to) = (new.min(size), new.max(size));
        self.history.touches.push(Touch { step, id, from, to, byte: 0 });
        self.fs.truncate(ino, new as u64)?;
        let mut content = Vec::clone(&self.tree[&path].content);
        content.resize(new, 0);
        let content = Arc::new(content);
        self.change(&path, |node| node.content = content.clone());
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let Some(old) = self.any_name() else { return Ok(()) };
        self.operations.insert("rename");
        let (parent, name) = self.new_path();
        let inside = parent == old || parent.starts_with(&[&old[..], b"/"].concat());
        if inside {
            return Ok(());
        }
        let (up, last) = split(&old);
        let (from, to) = (self.fs.resolve(up, false)?, self.fs.resolve(&parent, false)?);
        self.fs.rename(from, last, to, &name, RenameFlags::Replace)?;
        let new = [&parent[..], b"/", &name].concat();
        let below = [&old[..], b"/"].concat();
        let moved: Vec<Vec<u8>> =
            self.tree.keys().filter(|p| **p == old || p.starts_with(&below)).cloned().collect();
        let is_dir = self.tree[&old].mode & S_IFMT == S_IFDIR;
        if is_dir && up != parent {
            let up = up.to_vec();
            self.change(&up, |node| node.nlink -= 1);
            self.change(&parent, |node| node.nlink += 1);
        }
        for path in moved {
            if let Some(node) = self.tree.remove(&path) {
                self.tree.insert([&new[..], &path[old.len()..]].concat(), node);
            }
        }
        Ok(())
    }

    fn set_xattr(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        if self.tree[&path].mode & S_IFMT == S_IFLNK {
            return Ok(());
        }
        let ino = self.fs.resolve(&path, false)?;
        let known: Vec<Vec<u8>> = self.tree[&path].xattrs.keys().cloned().collect();
        let mut xattrs = BTreeMap::clone(&self.tree[&path].xattrs);
        if let Some(name) = self.rng.pick(&known).filter(|_| known.len() > 6).cloned() {
            self.operations.insert("removexattr");
            self.fs.remove_xattr(ino, &name)?;
            xattrs.remove(&name);
        } else {
            self.operations.insert("setxattr");
            let name = format!("user.{}", self.rng.below(9)).into_bytes();
            let most = [30, 300, 3000, 20_000][self.rng.below(4) as usize];
            let value = vec![(step % 250) as u8; self.rng.below(most) as usize];
            self.fs.set_xattr(ino, &name, &value, XattrMode::Any)?;
            xattrs.insert(name, value);
        }
        let xattrs = Arc::new(xattrs);
        self.change(&path, |node| node.xattrs = xattrs.clone());
        Ok(())
    }

    fn set_attr(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        self.operations.insert("setattr");
        let ino = self.fs.resolve(&path, false)?;
        let permissions = (step % 0o777) as u16;
        let uid = step as u32;
        let change =
            SetAttr { permissions: Some(permissions), uid: Some(uid), ..SetAttr::default() };
        self.fs.set_attr(ino, &change)?;
        self.change(&path, |node| {
            node.mode = node.mode & S_IFMT | permissions;
            node.uid = uid;
        });
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        let (up, last) = split(&path);
        let up = up.to_vec();
        let dir = self.fs.resolve(&up, false)?;
        if self.tree[&path].mode & S_IFMT != S_IFDIR {
            self.operations.insert("unlink");
            self.fs.unlink(dir, last)?;
            self.change(&path, |node| node.nlink -= 1);
            self.tree.remove(&path);
            return Ok(());
        }
        self.operations.insert("rmdir");
        match self.fs.rmdir(dir, last) {
            Err(Error::NotEmpty) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => {
                self.tree.remove(&path);
                self.change(&up, |node| node.nlink -= 1);
                Ok(())
            }
        }
    }
}

/// A path's parent and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    (&path[..at], &path[(at + 1).min(path.len())..])
}
