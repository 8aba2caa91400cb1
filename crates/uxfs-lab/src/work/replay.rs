//! Replays a [`Recording`] on a volume, by one client in its own directory.
//!
//! 1. The recorded operations on names and bytes are repeated in their order. The content of a file is
//!    a word that identifies it.
//! 2. A read of bytes that were written or read before costs only processor time, as with a page cache.
//!    Other reads go to the disk.
//! 3. A synced file is acknowledged until it changes again. After the final sync of the volume, all
//!    remaining files are acknowledged.
//! 4. A step on a file that does not exist (one removed while it was open) is skipped and counted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uxfs::format::Ino;
use uxfs::{Fs, NewInode, RenameFlags, Result, SetAttr};
use uxfs_testkit::Rng;

use super::recording::{PathNo, Recording, Step};
use super::word;
use crate::durability::{Ack, Fsyncs};
use crate::history::{Change, Kind, Written};
use crate::setup::Lab;

/// Clients begin at random times within this many nanoseconds.
const START_NS: u64 = 200_000_000;
/// The largest read or write, in bytes.
const PIECE: u64 = 64 << 10;

/// The processor time of a step, in addition to the volume's own work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    /// The recorded program's own, in microseconds.
    Us(u64),
    /// A name created, changed or removed.
    Name,
    Change,
    Look,
    /// A read or write of this many bytes.
    Call(u64),
    Sync,
}

/// The environment of a replay: the lab in virtual time, or real time.
pub(crate) trait ReplayHost {
    fn fs(&self) -> &Arc<Fs>;
    /// The time in nanoseconds.
    fn now(&self) -> u64;
    fn cost(&self, cost: Cost);
    fn ack(&self, ack: Ack);
    /// Withdraws the acknowledgements of this name.
    fn touch(&self, dir: &str, name: &str);
    /// Records the latency of an operation that began at `since`.
    fn took(&self, since: u64);
    /// Are uncached reads sent to the volume?
    fn reads(&self) -> bool;

    /// Do fsync and fdatasync reach the volume?
    fn syncs(&self) -> bool {
        true
    }

    /// Does something to the volume. It may record what that changed.
    fn recorded<R>(
        &self,
        act: impl FnOnce(&Fs) -> Result<R>,
        _change: impl FnOnce(&R) -> Change,
    ) -> Result<R> {
        act(self.fs())
    }
}

impl ReplayHost for Lab {
    fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    fn now(&self) -> u64 {
        Lab::now(self)
    }

    fn cost(&self, cost: Cost) {
        match cost {
            Cost::Us(us) => self.sim.work(Duration::from_micros(us)),
            Cost::Name => self.name(),
            Cost::Change => self.change(),
            Cost::Look => self.lookup_cost(),
            Cost::Call(bytes) => self.call(bytes as usize),
            Cost::Sync => self.sim.work(Duration::from_nanos((self.cpu.sync_us * 1e3) as u64)),
        }
    }

    fn ack(&self, ack: Ack) {
        Lab::ack(self, ack);
    }

    fn touch(&self, dir: &str, name: &str) {
        Lab::touch(self, dir, name);
    }

    fn took(&self, since: u64) {
        Lab::took(self, since);
    }

    fn reads(&self) -> bool {
        true
    }

    fn syncs(&self) -> bool {
        self.fsyncs() != Fsyncs::Ignored
    }

    fn recorded<R>(
        &self,
        act: impl FnOnce(&Fs) -> Result<R>,
        change: impl FnOnce(&R) -> Change,
    ) -> Result<R> {
        Lab::recorded(self, act, change)
    }
}

/// The bytes at an offset of a file that repeats a word.
fn fill_at(word: u64, at: u64, len: usize) -> Vec<u8> {
    let bytes = word.to_le_bytes();
    (0..len).map(|i| bytes[((at + i as u64) % 8) as usize]).collect()
}

/// Creates what existed before the recording, in a directory of this name.
///
/// # Errors
/// An error of the volume.
pub fn populate(fs: &Fs, recording: &Recording, top: &str) -> Result<()> {
    let home = fs.create(fs.root(), top.as_bytes(), &NewInode::dir(0o755))?;
    let mut dirs = FxHashMap::from_iter([(0, home)]);
    for (path, size) in &recording.before {
        let (parent, name) = &recording.paths[*path as usize];
        let Some(dir) = dirs.get(parent).copied() else { continue };
        match size {
            None => {
                dirs.insert(*path, fs.create(dir, name.as_bytes(), &NewInode::dir(0o755))?);
            }
            Some(size) => {
                let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o644))?;
                for at in (0..*size).step_by(PIECE as usize) {
                    let len = PIECE.min(size - at) as usize;
                    fs.write_at(ino, at, &fill_at(word(u64::from(*path)), at, len))?;
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
struct FileState {
    ino: Ino,
    /// The word that fills the file; 0 if several words do.
    word: u64,
    size: u64,
    /// Bytes from its beginning that a page cache would hold.
    warm: u64,
    /// The start of the oldest change that is not acknowledged.
    changed: Option<u64>,
    names: Vec<PathNo>,
    /// A directory above the file was renamed, so its own fsync does not make its path durable.
    carried: bool,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Dir(Ino),
    File(usize),
    Link,
}

/// The files that exist after a replay.
pub(crate) struct Left {
    top: String,
    files: Vec<FileState>,
}

/// Acknowledges all remaining files. The caller has synced the volume.
pub(crate) fn acknowledge<A: ReplayHost>(host: &A, recording: &Recording, mut left: Left) {
    for file in &mut left.files {
        acknowledge_file(host, recording, &left.top, file);
    }
}

fn full(recording: &Recording, top: &str, path: PathNo) -> (Arc<str>, String) {
    let (parent, name) = &recording.paths[path as usize];
    let above = recording.path_of(*parent);
    let dir = if above.is_empty() { top.to_owned() } else { format!("{top}/{above}") };
    (dir.into(), name.clone())
}

/// Acknowledges each name of a synced file that changed since its last acknowledgement.
fn acknowledge_file<A: ReplayHost>(
    host: &A,
    recording: &Recording,
    top: &str,
    file: &mut FileState,
) {
    let Some(began) = file.changed.take() else { return };
    for path in &file.names {
        let (dir, name) = full(recording, top, *path);
        // No page holds a whole word, so the check cannot look for it.
        let word = if file.size < 8 { 0 } else { file.word };
        let (at, until, size) = (host.now(), u64::MAX, file.size);
        host.ack(Ack {
            began,
            at,
            until,
            synced: true,
            dir,
            name,
            from: 0,
            size,
            word,
            logged: true,
        });
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub done: u64,
    /// Steps skipped, because their file did not exist.
    pub left_out: u64,
    /// Calls of fsync and fdatasync among the steps done.
    pub syncs: u64,
}

/// A client that replays a recording.
pub(crate) struct Player<'a, A> {
    host: &'a A,
    recording: &'a Recording,
    top: String,
    number: u64,
    nodes: Vec<Option<Node>>,
    files: Vec<FileState>,
    children: FxHashMap<(PathNo, &'a str), PathNo>,
    words: u64,
    played: Played,
}

impl<'a, A: ReplayHost> Player<'a, A> {
    /// The client of this number, in a directory that [`populate`] made.
    pub(crate) fn new(
        host: &'a A,
        recording: &'a Recording,
        top: &str,
        number: u32,
    ) -> Result<Self> {
        let fs = host.fs();
        let home = fs.lookup(fs.root(), top.as_bytes())?;
        let mut nodes = vec![None; recording.paths.len()];
        nodes[0] = Some(Node::Dir(home));
        let children = (0..).zip(&recording.paths).skip(1);
        let children =
            children.map(|(no, (parent, name))| ((*parent, name.as_str()), no)).collect();
        let (files, played) = (Vec::new(), Played::default());
        let (top, number) = (top.to_owned(), u64::from(number));
        let mut new =
            Self { host, recording, top, number, nodes, files, children, words: 0, played };
        for (path, size) in &recording.before {
            let Some((dir, name)) = new.parent(*path) else { continue };
            let ino = fs.lookup(dir, name.as_bytes())?;
            new.nodes[*path as usize] = Some(match size {
                None => Node::Dir(ino),
                Some(size) => {
                    let names = vec![*path];
                    // The trace of the disk does not hold the initial content, so it cannot be checked.
                    let (word, size) = (0, *size);
                    new.files.push(FileState {
                        ino,
                        word,
                        size,
                        warm: 0,
                        changed: None,
                        names,
                        carried: false,
                    });
                    Node::File(new.files.len() - 1)
                }
            });
        }
        Ok(new)
    }

    pub(crate) fn play(&mut self) -> Result<Played> {
        for step in &self.recording.steps {
            let done = self.step(step)?.is_some();
            self.played.done += u64::from(done);
            self.played.left_out += u64::from(!done);
        }
        Ok(self.played)
    }

    /// The remaining files, for [`acknowledge`] after a sync.
    pub(crate) fn left(self) -> Left {
        Left { top: self.top, files: self.files }
    }

    /// The parent directory of a path, if it exists, and the name in it.
    fn parent(&self, path: PathNo) -> Option<(Ino, &'a str)> {
        let (parent, name) = &self.recording.paths[path as usize];
        match self.nodes[*parent as usize] {
            Some(Node::Dir(ino)) if path != 0 => Some((ino, name)),
            _ => None,
        }
    }

    fn node(&self, path: PathNo) -> Option<Node> {
        self.nodes[path as usize]
    }

    fn file(&self, path: PathNo) -> Option<usize> {
        match self.node(path) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        }
    }

    fn full(&self, path: PathNo) -> (Arc<str>, String) {
        full(self.recording, &self.top, path)
    }

    fn next_word(&mut self) -> u64 {
        self.words += 1;
        // Above the words of the initial files.
        word(1 << 34 | (self.number & 0xff) << 26 | self.words & 0x3ff_ffff)
    }

    /// Marks a file as changed, and withdraws its acknowledgements.
    fn changes(&mut self, file: usize) {
        let now = self.host.now();
        let state = &mut self.files[file];
        if state.changed.is_some() {
            return;
        }
        state.changed = Some(now);
        for path in &self.files[file].names {
            let (dir, name) = self.full(*path);
            self.host.touch(&dir, &name);
        }
    }

    fn step(&mut self, step: &Step) -> Result<Option<()>> {
        let host = self.host;
        match *step {
            Step::Work { us } => host.cost(Cost::Us(us)),
            Step::Make(path) => return self.make(path),
            Step::MakeDir(path) => return self.make_dir(path),
            Step::Symlink { path, len } => return self.symlink(path, len),
            Step::Read { path, at, len } => return self.read(path, at, len),
            Step::Write { path, at, len } => return self.write(path, at, len),
            Step::Cut { path, size } => return self.cut(path, size),
            Step::Sync { path, data } => return self.sync(path, data),
            Step::Rename(path, to) => return self.rename(path, to),
            Step::Link(path, to) => return self.link(path, to),
            Step::Unlink(path) => return self.unlink(path),
            Step::RemoveDir(path) => return self.remove_dir(path),
            Step::Attr(path) => return self.attr(path),
            Step::List(path) => {
                let Some(Node::Dir(ino)) = self.node(path) else { return Ok(None) };
                host.cost(Cost::Call(4096));
                host.fs().read_dir(ino, 0, &mut |_| ControlFlow::Continue(()))?;
            }
            Step::Open(path) | Step::Look(path) | Step::Miss(path) => {
                host.cost(Cost::Look);
                // If the directory is missing too, an earlier lookup found that.
                let Some((dir, name)) = self.parent(path) else { return Ok(Some(())) };
                match host.fs().lookup(dir, name.as_bytes()) {
                    Ok(_) | Err(uxfs::Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Step::Close(_) => host.cost(Cost::Look),
        }
        Ok(Some(()))
    }

    fn make(&mut self, path: PathNo) -> Result<Option<()>> {
        if self.node(path).is_some() {
            return self.cut(path, 0);
        }
        let Some((dir, name)) = self.parent(path) else { return Ok(None) };
        let changed = Some(self.host.now());
        self.host.cost(Cost::Name);
        let ino = self.host.recorded(
            |fs| fs.create(dir, name.as_bytes(), &NewInode::file(0o644)),
            |ino| Change::Made { dir, name: name.to_owned(), ino: *ino, kind: Kind::File },
        )?;
        let (word, names) = (self.next_word(), vec![path]);
        self.files.push(FileState { ino, word, size: 0, warm: 0, changed, names, carried: false });
        self.nodes[path as usize] = Some(Node::File(self.files.len() - 1));
        Ok(Some(()))
    }

    fn make_dir(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), None) = (self.parent(path), self.node(path)) else {
            return Ok(None);
        };
        self.host.cost(Cost::Name);
        let ino = self.host.recorded(
            |fs| fs.create(dir, name.as_bytes(), &NewInode::dir(0o755)),
            |ino| Change::Made { dir, name: name.to_owned(), ino: *ino, kind: Kind::Dir },
        )?;
        self.nodes[path as usize] = Some(Node::Dir(ino));
        Ok(Some(()))
    }

    fn symlink(&mut self, path: PathNo, len: u64) -> Result<Option<()>> {
        let (Some((dir, name)), None) = (self.parent(path), self.node(path)) else {
            return Ok(None);
        };
        self.host.cost(Cost::Name);
        let target = vec![b'x'; len as usize];
        self.host.recorded(
            |fs| fs.symlink(dir, name.as_bytes(), &target, &NewInode::file(0o777)),
            |ino| {
                let kind = Kind::Symlink(target.clone());
                Change::Made { dir, name: name.to_owned(), ino: *ino, kind }
            },
        )?;
        self.nodes[path as usize] = Some(Node::Link);
        Ok(Some(()))
    }

    fn read(&mut self, path: PathNo, at: u64, len: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        let state = &mut self.files[file];
        let end = at.saturating_add(len);
        let cold = end > state.warm && self.host.reads();
        state.warm = state.warm.max(end);
        let mut at = at;
        while at < end {
            let piece = PIECE.min(end - at);
            self.host.cost(Cost::Call(piece));
            if cold {
                self.host.fs().read_at(state.ino, at, &mut vec![0; piece as usize])?;
            }
            at += piece;
        }
        Ok(Some(()))
    }

    fn write(&mut self, path: PathNo, at: u64, len: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        if self.files[file].changed.is_none() {
            self.changes(file);
            // Synced content remains where this write does not replace it.
            self.files[file].word =
                if at == 0 && len >= self.files[file].size { self.next_word() } else { 0 };
        }
        let state = &mut self.files[file];
        if at > state.size {
            state.word = 0;
        }
        let end = at.saturating_add(len);
        state.size = state.size.max(end);
        state.warm = state.warm.max(end);
        // Content with several words is not checked, so any word will do.
        let word = if state.word == 0 { word(1 << 33 | self.number) } else { state.word };
        let mut at = at;
        while at < end {
            let piece = PIECE.min(end - at);
            self.host.cost(Cost::Call(piece));
            let (ino, bytes) = (state.ino, fill_at(word, at, piece as usize));
            self.host.recorded(
                |fs| fs.write_at(ino, at, &bytes),
                |()| Change::Wrote { ino, at, bytes: Written::new(&bytes) },
            )?;
            at += piece;
        }
        Ok(Some(()))
    }

    fn cut(&mut self, path: PathNo, size: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        self.changes(file);
        self.host.cost(Cost::Change);
        let ino = self.files[file].ino;
        self.host.recorded(|fs| fs.truncate(ino, size), |()| Change::Cut { ino, size })?;
        let fresh = self.next_word();
        let state = &mut self.files[file];
        state.word = match size {
            0 => fresh,
            size if size > state.size => 0,
            _ => state.word,
        };
        (state.size, state.warm) = (size, state.warm.min(size));
        Ok(Some(()))
    }

    fn sync(&mut self, path: PathNo, data: bool) -> Result<Option<()>> {
        let since = self.host.now();
        let (ino, file) = match self.node(path) {
            Some(Node::Dir(ino)) => (ino, None),
            Some(Node::File(file)) => (self.files[file].ino, Some(file)),
            Some(Node::Link) | None => return Ok(None),
        };
        self.host.cost(Cost::Sync);
        let fs = self.host.fs();
        let waits = self.host.syncs();
        if waits && data {
            fs.fdatasync(ino)?;
        } else if waits {
            fs.fsync(ino)?;
        }
        self.played.syncs += 1;
        self.host.took(since);
        // fdatasync does not make names durable.
        if let (Some(file), false) = (file.filter(|file| !self.files[*file].carried), data) {
            acknowledge_file(self.host, self.recording, &self.top, &mut self.files[file]);
        }
        Ok(Some(()))
    }

    fn rename(&mut self, from: PathNo, to: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some((to_dir, to_name))) = (self.parent(from), self.parent(to))
        else {
            return Ok(None);
        };
        if self.node(from).is_none() || from == to {
            return Ok(None);
        }
        self.drop_name(to);
        // Withdraw acknowledgements before the rename, so that no check expects the old name.
        self.moved(from, to);
        self.host.cost(Cost::Name);
        self.host.recorded(
            |fs| {
                let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
                fs.rename(dir, name, to_dir, to_name, RenameFlags::default())
            },
            |()| {
                let (name, to_name) = (name.to_owned(), to_name.to_owned());
                Change::Renamed { dir, name, to_dir, to_name }
            },
        )?;
        Ok(Some(()))
    }

    /// Updates the paths of a renamed node and of everything below it.
    fn moved(&mut self, from: PathNo, to: PathNo) {
        let mut moves = vec![(from, Some(to))];
        while let Some((path, new)) = moves.pop() {
            let Some(node) = self.nodes[path as usize].take() else { continue };
            match node {
                Node::File(file) => {
                    self.changes(file);
                    let state = &mut self.files[file];
                    match new {
                        Some(new) => {
                            for name in &mut state.names {
                                *name = if *name == path { new } else { *name };
                            }
                            state.carried |= path != from;
                        }
                        // The recording does not use the new name.
                        None => state.names.retain(|name| *name != path),
                    }
                }
                Node::Link => {}
                Node::Dir(_) => {
                    let below = (0..).zip(&self.recording.paths).skip(1);
                    let below = below.filter(|(_, (parent, _))| *parent == path);
                    moves.extend(below.map(|(below, (_, name))| {
                        let known = |new| self.children.get(&(new, name.as_str())).copied();
                        (below, new.and_then(known))
                    }));
                }
            }
            if let Some(new) = new {
                self.nodes[new as usize] = Some(node);
            }
        }
    }

    /// Withdraws a name that is about to be removed or replaced.
    fn drop_name(&mut self, path: PathNo) {
        if let Some(file) = self.file(path) {
            let (dir, name) = self.full(path);
            self.host.touch(&dir, &name);
            self.files[file].names.retain(|name| *name != path);
        }
    }

    fn link(&mut self, path: PathNo, to: PathNo) -> Result<Option<()>> {
        let (Some(file), Some((dir, name)), None) =
            (self.file(path), self.parent(to), self.node(to))
        else {
            return Ok(None);
        };
        self.changes(file);
        self.host.cost(Cost::Name);
        let ino = self.files[file].ino;
        self.host.recorded(
            |fs| fs.link(ino, dir, name.as_bytes()),
            |()| Change::Linked { ino, dir, name: name.to_owned() },
        )?;
        self.files[file].names.push(to);
        self.nodes[to as usize] = Some(Node::File(file));
        Ok(Some(()))
    }

    fn unlink(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some(Node::File(_) | Node::Link)) =
            (self.parent(path), self.node(path))
        else {
            return Ok(None);
        };
        self.drop_name(path);
        self.host.cost(Cost::Name);
        self.host.recorded(
            |fs| fs.unlink(dir, name.as_bytes()),
            |()| Change::Removed { dir, name: name.to_owned() },
        )?;
        self.nodes[path as usize] = None;
        Ok(Some(()))
    }

    fn remove_dir(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some(Node::Dir(_))) = (self.parent(path), self.node(path)) else {
            return Ok(None);
        };
        self.host.cost(Cost::Name);
        self.host.recorded(
            |fs| fs.rmdir(dir, name.as_bytes()),
            |()| Change::Removed { dir, name: name.to_owned() },
        )?;
        self.nodes[path as usize] = None;
        Ok(Some(()))
    }

    fn attr(&mut self, path: PathNo) -> Result<Option<()>> {
        let ino = match self.node(path) {
            Some(Node::Dir(ino)) => ino,
            Some(Node::File(file)) => self.files[file].ino,
            Some(Node::Link) | None => return Ok(None),
        };
        self.host.cost(Cost::Change);
        let now = Some(self.host.fs().now());
        self.host.fs().set_attr(ino, &SetAttr { mtime: now, ..SetAttr::default() })?;
        Ok(Some(()))
    }
}

/// Seconds of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Until the last client finished its last step.
    pub work_s: f64,
    /// From then until everything was on stable storage.
    pub sync_s: f64,
    /// The sum of all clients' counters.
    pub played: Played,
}

pub fn client_dir(number: u32) -> String {
    format!("client{number}")
}

/// Replays a recording with several clients at the same time, each in its populated directory, then syncs
/// the volume.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, recording: &Arc<Recording>, clients: u32) -> Result<Timings> {
    let sum = Arc::new(parking_lot::Mutex::new((Played::default(), Vec::new())));
    let its = Arc::clone(recording);
    lab.begin();
    let begun = lab.now();
    let (all, recording) = (Arc::clone(&sum), Arc::clone(recording));
    super::clients(lab, clients, move |lab, number| {
        // Clients that began at the same time would stay in step, and results would depend on luck.
        let mut rng = Rng::spread(lab.seed ^ u64::from(number) << 20);
        lab.sim.rest(Duration::from_nanos(rng.scaled(START_NS)));
        let mut player = Player::new(&**lab, &recording, &client_dir(number), number)?;
        let played = player.play()?;
        let mut all = all.lock();
        all.0.done += played.done;
        all.0.left_out += played.left_out;
        all.0.syncs += played.syncs;
        all.1.push(player.left());
        Ok(())
    })?;
    let worked = lab.now();
    lab.sync()?;
    lab.end();
    let (played, left) = core::mem::take(&mut *sum.lock());
    for left in left {
        acknowledge(&**lab, &its, left);
    }
    let s = |from: u64, to: u64| (to - from) as f64 / 1e9;
    Ok(Timings { work_s: s(begun, worked), sync_s: s(worked, lab.now()), played })
}
