//! Workloads: random operations on a journaled volume, and the expected volume after each.
//!
//! Names and content follow from the operations. Other attributes are read from the volume after
//! each step, because here it only matters that they survive.

mod attributes;
mod data;
mod names;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uxfs::{Error, Fs, Result};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs_testkit::Rng;

use crate::content::File;
use crate::cut::{Mark, RecordDev};
use crate::history::{self, History, Moment, Node, Tree};

/// When data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataMode {
    /// By the operation itself.
    AtOnce,
    /// Later, or when it is synced.
    Delayed,
    /// With the epoch that shows it: every checkpoint is one moment.
    Ordered,
}

/// The style of a workload, by its seed.
#[derive(Clone, Copy, Debug)]
struct Style {
    names_max: usize,
    /// Most names go into one directory.
    wide: bool,
    /// Extent size hints are set.
    hints: bool,
    /// Number of steps between syncs of the volume, on average.
    sync: u64,
}

pub(crate) struct Workload<'a> {
    fs: &'a Fs,
    dev: &'a RecordDev,
    rng: &'a mut Rng,
    mode: DataMode,
    tree: Tree,
    label: Vec<u8>,
    style: Style,
    /// The file whose content this step changes.
    changed: Option<u64>,
    /// Open files, most of them unlinked.
    held: Vec<Ino>,
    /// Files whose attributes this step changes.
    renew: Vec<u64>,
    pub(crate) history: History,
    pub(crate) operations: BTreeSet<&'static str>,
    operation: &'static str,
    next_id: u64,
}

impl<'a> Workload<'a> {
    /// Starts on an open volume.
    pub(crate) fn new(
        fs: &'a Fs,
        dev: &'a RecordDev,
        rng: &'a mut Rng,
        mode: DataMode,
    ) -> Result<Self> {
        let wide = rng.once_in(6);
        let style = Style {
            names_max: if wide { 250 } else { 50 },
            wide,
            hints: rng.once_in(3),
            sync: 4 + rng.below(12),
        };
        let root = Node {
            id: 0,
            attributes: history::attributes(fs, fs.root())?,
            xattrs: Arc::new(history::xattrs(fs, fs.root())?),
            file: Arc::default(),
        };
        let root = Arc::new(root);
        let tree = Tree::from([(Vec::new(), Arc::clone(&root))]);
        let block = fs.geo.block_size as usize;
        let delayed = mode == DataMode::Delayed;
        let mut history = History { block, delayed, ..History::default() };
        history.in_place_writes.none = mode == DataMode::Ordered;
        let label = history::label(fs);
        let first = Moment { tree: tree.clone(), label: label.clone(), ..Moment::default() };
        history.version(&root);
        history.moments.push(first);
        let operations = BTreeSet::new();
        Ok(Self {
            fs,
            dev,
            rng,
            mode,
            tree,
            label,
            style,
            changed: None,
            held: Vec::new(),
            renew: Vec::new(),
            history,
            operations,
            operation: "",
            next_id: 0,
        })
    }

    /// Runs `count` steps, or fewer if the volume is full.
    pub(crate) fn run(&mut self, count: usize) -> Result<()> {
        let mut durable = 0;
        let mut tickets: Vec<(usize, uxfs::journal::Ticket)> = Vec::new();
        for step in 1..=count {
            self.dev.mark(Mark::Step(step));
            self.changed = None;
            match self.step(step) {
                Ok(()) => {}
                Err(
                    Error::NotPermitted
                    | Error::OtherProject
                    | Error::NotEmpty
                    | Error::Exists
                    | Error::IsDir
                    | Error::NotDir
                    | Error::Invalid(_),
                ) => self.refused(),
                // The step may be partly done; no further step follows.
                Err(Error::NoSpace) => {
                    self.record_operation("enospc");
                    self.moment()?;
                    return Ok(());
                }
                Err(other) => return Err(other),
            }
            self.moment()?;
            tickets.push((step, self.fs.ticket()));
            if self.rng.once_in(self.style.sync) {
                let all = self.make_durable(step)?;
                if all {
                    durable = step;
                    self.dev.mark(Mark::Durable(step));
                }
            }
            let done = tickets.iter().take_while(|(_, ticket)| self.fs.is_durable(*ticket));
            let done = done.last().map_or(durable, |(step, _)| *step);
            if done > durable {
                durable = done;
                self.dev.mark(Mark::Durable(done));
                tickets.retain(|(step, _)| *step > done);
            }
        }
        Ok(())
    }

    /// Makes a file or the volume durable. Returns whether everything is acknowledged as durable.
    fn make_durable(&mut self, step: usize) -> Result<bool> {
        if let Some(path) = self.any(S_IFREG).filter(|_| self.rng.once_in(3)) {
            self.record_operation("fsync");
            // In ordered mode this promises nothing but order.
            self.fs.fsync(self.ino(&path)?)?;
            self.history.synced.push((step, Some(self.tree[&path].id)));
            return Ok(false);
        }
        self.record_operation("sync");
        match self.mode {
            DataMode::Ordered => self.fs.wait(self.fs.durable()?)?,
            DataMode::AtOnce | DataMode::Delayed => self.fs.sync()?,
        }
        self.history.synced.push((step, None));
        Ok(true)
    }

    /// Checks at the end that the open volume has the expected state.
    pub(crate) fn agrees(&self) -> Result<core::result::Result<(), String>> {
        let recovered = history::read(self.fs)?;
        let last = self.history.moments.len() - 1;
        Ok(self.history.find(&recovered, last, last).map(|_| ()))
    }

    /// Records the operation of this step.
    fn record_operation(&mut self, operation: &'static str) {
        self.operations.insert(operation);
        self.operation = operation;
    }

    fn refused(&mut self) {
        self.changed = None;
        self.record_operation("refused");
    }

    /// Reads the attributes of every file, and records the moment.
    fn moment(&mut self) -> Result<()> {
        let mut known: HashMap<u64, Arc<Node>> = HashMap::new();
        let paths: Vec<Vec<u8>> = self.tree.keys().cloned().collect();
        for path in paths {
            let node = Arc::clone(&self.tree[&path]);
            let new = match known.get(&node.id) {
                Some(new) => Arc::clone(new),
                None => {
                    let ino = self.ino(&path)?;
                    let attributes = history::attributes(self.fs, ino)?;
                    let renew = self.renew.contains(&node.id);
                    let new = if attributes == node.attributes && !renew {
                        node
                    } else {
                        let mut new = Node::clone(&node);
                        new.attributes = attributes;
                        if renew {
                            new.xattrs = Arc::new(history::xattrs(self.fs, ino)?);
                        }
                        Arc::new(new)
                    };
                    known.insert(new.id, Arc::clone(&new));
                    new
                }
            };
            self.tree.insert(path, new);
        }
        for node in known.values() {
            self.history.version(node);
        }
        self.renew.clear();
        self.history.moments.push(Moment {
            tree: self.tree.clone(),
            label: self.label.clone(),
            changed: self.changed,
            operation: self.operation,
        });
        Ok(())
    }

    fn step(&mut self, step: usize) -> Result<()> {
        let full = self.tree.len() > self.style.names_max;
        if self.style.wide && !full && self.rng.once_in(2) {
            return self.create(S_IFREG);
        }
        match self.rng.below(40) {
            0..5 if !full => self.create(S_IFREG),
            5..7 if !full => self.create(S_IFDIR),
            7 if !full => self.create(S_IFLNK),
            8 if !full => self.make_node(),
            9 if !full => self.link(),
            10..15 => self.write(step),
            15 => self.write_atomic(step),
            16 | 17 => self.truncate(step),
            18..22 => self.fallocate(step),
            22 | 23 => self.share(step),
            24 => self.rename(),
            25 if self.rng.once_in(3) => self.whiteout(),
            25 => self.rename(),
            26 => self.exchange(),
            27..30 => self.set_xattr(step),
            30 => self.set_attr(step),
            31 => self.set_times(),
            32 => self.set_fsx(),
            33 if self.rng.once_in(4) => self.set_label(),
            33 => self.release(),
            34 if self.mode != DataMode::AtOnce => self.write_back(),
            35 | 36 => self.defrag(step),
            _ => self.remove(),
        }
    }

    fn ino(&self, path: &[u8]) -> Result<Ino> {
        self.fs.resolve(path, false)
    }

    fn kind(&self, path: &[u8]) -> u16 {
        self.tree[path].attributes.mode & S_IFMT
    }

    fn of_kind(&self, kind: u16) -> Vec<Vec<u8>> {
        let wanted = |node: &Node| node.attributes.mode & S_IFMT == kind;
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
        let dirs = self.of_kind(S_IFDIR);
        let use_last = self.style.wide && !self.rng.once_in(8);
        let parent = if use_last { dirs.last().cloned() } else { self.rng.pick(&dirs).cloned() };
        let len = if self.rng.once_in(4) { 200 } else { 6 };
        let number = self.rng.below(1 << 40);
        let name = format!("{number:0len$x}").into_bytes();
        (parent.unwrap_or_default(), name)
    }

    fn add(&mut self, parent: &[u8], name: &[u8]) -> Result<()> {
        self.next_id += 1;
        let path = join(parent, name);
        let ino = self.ino(&path)?;
        let node = Node {
            id: self.next_id,
            attributes: history::attributes(self.fs, ino)?,
            xattrs: Arc::new(BTreeMap::new()),
            file: Arc::default(),
        };
        self.tree.insert(path, Arc::new(node));
        Ok(())
    }

    /// Replaces the content of a file, under all its names.
    fn put_file(&mut self, id: u64, file: File) {
        let file = Arc::new(file);
        for node in self.tree.values_mut().filter(|node| node.id == id) {
            Arc::make_mut(node).file = Arc::clone(&file);
        }
        self.changed = Some(id);
    }
}

fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    [parent, b"/", name].concat()
}

/// A path's parent and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    (&path[..at], &path[(at + 1).min(path.len())..])
}
