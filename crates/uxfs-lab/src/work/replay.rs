//! A [`Recording`] played again on a volume, by one client, in a directory of its own.
//!
//! 1. What the recording's calls did to names and bytes is done again, in their order; contents are
//!    words that tell whose they are.
//! 2. A read of bytes that were written or read before costs processor time alone, as with a page
//!    cache; any other goes to the disk.
//! 3. A file that was synced is acknowledged until it changes again, and everything that is left at
//!    the end once the volume was synced.
//! 4. A step on something that is not there (a file removed while it was open) is left out and counted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uxfs::format::Ino;
use uxfs::{Fs, NewInode, RenameFlags, Result, SetAttr};

use super::recording::{PathNo, Recording, Step};
use super::word;
use crate::bed::Lab;
use crate::durability::Ack;
use crate::rng::Rng;

/// Clients begin within so many nanoseconds.
const START_NS: u64 = 200_000_000;
/// Most bytes of one call.
const PIECE: u64 = 64 << 10;

/// What a step costs, besides what the volume does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    /// Work of the programs.
    Us(u64),
    /// A name made, changed or removed.
    Name,
    /// Another change.
    Change,
    /// A look.
    Look,
    /// A call that moves bytes.
    Call(u64),
    /// A sync.
    Sync,
}

/// Around a volume: the lab in virtual time, or real time.
pub(crate) trait Around {
    /// The volume.
    fn fs(&self) -> &Arc<Fs>;
    /// Nanoseconds.
    fn now(&self) -> u64;
    /// Lets something cost what it does.
    fn cost(&self, cost: Cost);
    /// Something was acknowledged.
    fn ack(&self, ack: Ack);
    /// What was acknowledged of this name no longer counts.
    fn touch(&self, dir: &str, name: &str);
    /// An operation took since then.
    fn took(&self, since: u64);
    /// Are reads of what was not read before done?
    fn reads(&self) -> bool;
}

impl Around for Lab {
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
            Cost::Look => self.look(),
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
}

/// Bytes of a word as they stand at an offset of a file that repeats it.
fn fill_at(word: u64, at: u64, len: usize) -> Vec<u8> {
    let bytes = word.to_le_bytes();
    (0..len).map(|i| bytes[((at + i as u64) % 8) as usize]).collect()
}

/// Plants what was there before, in a directory of this name.
///
/// # Errors
/// Those of the volume.
pub fn plant(fs: &Fs, recording: &Recording, top: &str) -> Result<()> {
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
    /// What fills it; 0 if more than one word does.
    word: u64,
    size: u64,
    /// Bytes from its beginning that are in memory.
    warm: u64,
    /// When the first change began that was not acknowledged.
    changed: Option<u64>,
    names: Vec<PathNo>,
    /// A directory above it was renamed: its own fsync says nothing of where it is.
    carried: bool,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Dir(Ino),
    File(usize),
    Link,
}

/// What a client left.
pub(crate) struct Left {
    top: String,
    files: Vec<FileState>,
}

/// All that was left has been synced.
pub(crate) fn acknowledge<A: Around>(around: &A, recording: &Recording, mut left: Left) {
    for file in &mut left.files {
        told(around, recording, &left.top, file);
    }
}

fn full(recording: &Recording, top: &str, path: PathNo) -> (Arc<str>, String) {
    let (parent, name) = &recording.paths[path as usize];
    let above = recording.path_of(*parent);
    let dir = if above.is_empty() { top.to_owned() } else { format!("{top}/{above}") };
    (dir.into(), name.clone())
}

/// A file was synced: each of its names is acknowledged, if anything changed since the last time.
fn told<A: Around>(around: &A, recording: &Recording, top: &str, file: &mut FileState) {
    let Some(began) = file.changed.take() else { return };
    for path in &file.names {
        let (dir, name) = full(recording, top, *path);
        // A word that is not whole on any page is not found there.
        let word = if file.size < 8 { 0 } else { file.word };
        let (at, until, size) = (around.now(), u64::MAX, file.size);
        around.ack(Ack {
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

/// What was played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Steps done.
    pub done: u64,
    /// Steps left out, because what they were of was not there.
    pub left_out: u64,
    /// fsyncs among them.
    pub syncs: u64,
}

/// A client that plays a recording.
pub(crate) struct Player<'a, A> {
    around: &'a A,
    recording: &'a Recording,
    top: String,
    number: u64,
    nodes: Vec<Option<Node>>,
    files: Vec<FileState>,
    children: FxHashMap<(PathNo, &'a str), PathNo>,
    words: u64,
    played: Played,
}

impl<'a, A: Around> Player<'a, A> {
    /// The client of this number, in a directory where [`plant`] has been.
    pub(crate) fn new(
        around: &'a A,
        recording: &'a Recording,
        top: &str,
        number: u32,
    ) -> Result<Self> {
        let fs = around.fs();
        let home = fs.lookup(fs.root(), top.as_bytes())?;
        let mut nodes = vec![None; recording.paths.len()];
        nodes[0] = Some(Node::Dir(home));
        let children = (0..).zip(&recording.paths).skip(1);
        let children =
            children.map(|(no, (parent, name))| ((*parent, name.as_str()), no)).collect();
        let (files, played) = (Vec::new(), Played::default());
        let (top, number) = (top.to_owned(), u64::from(number));
        let mut new =
            Self { around, recording, top, number, nodes, files, children, words: 0, played };
        for (path, size) in &recording.before {
            let Some((dir, name)) = new.place(*path) else { continue };
            let ino = fs.lookup(dir, name.as_bytes())?;
            new.nodes[*path as usize] = Some(match size {
                None => Node::Dir(ino),
                Some(size) => {
                    let names = vec![*path];
                    // Initial files are in no trace of the disk, so they are not looked up.
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

    /// Plays all of it.
    pub(crate) fn play(&mut self) -> Result<Played> {
        for step in &self.recording.steps {
            let done = self.step(step)?.is_some();
            self.played.done += u64::from(done);
            self.played.left_out += u64::from(!done);
        }
        Ok(self.played)
    }

    /// What is there when all was played; [`acknowledge`] tells of it once it was synced.
    pub(crate) fn left(self) -> Left {
        Left { top: self.top, files: self.files }
    }

    /// The directory that a path is in, if that is there, and its name in it.
    fn place(&self, path: PathNo) -> Option<(Ino, &'a str)> {
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
        // Behind those of what was planted.
        word(1 << 34 | (self.number & 0xff) << 26 | self.words & 0x3ff_ffff)
    }

    /// A file changes: what was said of it no longer counts.
    fn changes(&mut self, file: usize) {
        let now = self.around.now();
        let state = &mut self.files[file];
        if state.changed.is_some() {
            return;
        }
        state.changed = Some(now);
        for path in &self.files[file].names {
            let (dir, name) = self.full(*path);
            self.around.touch(&dir, &name);
        }
    }

    fn step(&mut self, step: &Step) -> Result<Option<()>> {
        let around = self.around;
        match *step {
            Step::Work { us } => around.cost(Cost::Us(us)),
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
                around.cost(Cost::Call(4096));
                around.fs().read_dir(ino, 0, &mut |_| ControlFlow::Continue(()))?;
            }
            Step::Open(path) | Step::Look(path) | Step::Miss(path) => {
                around.cost(Cost::Look);
                // Where its directory is missing, too, that was found out before.
                let Some((dir, name)) = self.place(path) else { return Ok(Some(())) };
                match around.fs().lookup(dir, name.as_bytes()) {
                    Ok(_) | Err(uxfs::Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Step::Close(_) => around.cost(Cost::Look),
        }
        Ok(Some(()))
    }

    fn make(&mut self, path: PathNo) -> Result<Option<()>> {
        if self.node(path).is_some() {
            return self.cut(path, 0);
        }
        let Some((dir, name)) = self.place(path) else { return Ok(None) };
        let changed = Some(self.around.now());
        self.around.cost(Cost::Name);
        let ino = self.around.fs().create(dir, name.as_bytes(), &NewInode::file(0o644))?;
        let (word, names) = (self.next_word(), vec![path]);
        self.files.push(FileState { ino, word, size: 0, warm: 0, changed, names, carried: false });
        self.nodes[path as usize] = Some(Node::File(self.files.len() - 1));
        Ok(Some(()))
    }

    fn make_dir(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), None) = (self.place(path), self.node(path)) else {
            return Ok(None);
        };
        self.around.cost(Cost::Name);
        let ino = self.around.fs().create(dir, name.as_bytes(), &NewInode::dir(0o755))?;
        self.nodes[path as usize] = Some(Node::Dir(ino));
        Ok(Some(()))
    }

    fn symlink(&mut self, path: PathNo, len: u64) -> Result<Option<()>> {
        let (Some((dir, name)), None) = (self.place(path), self.node(path)) else {
            return Ok(None);
        };
        self.around.cost(Cost::Name);
        let target = vec![b'x'; len as usize];
        let fs = self.around.fs();
        fs.symlink(dir, name.as_bytes(), &target, &NewInode::file(0o777))?;
        self.nodes[path as usize] = Some(Node::Link);
        Ok(Some(()))
    }

    fn read(&mut self, path: PathNo, at: u64, len: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        let state = &mut self.files[file];
        let end = at.saturating_add(len);
        let cold = end > state.warm && self.around.reads();
        state.warm = state.warm.max(end);
        let mut at = at;
        while at < end {
            let piece = PIECE.min(end - at);
            self.around.cost(Cost::Call(piece));
            if cold {
                self.around.fs().read_at(state.ino, at, &mut vec![0; piece as usize])?;
            }
            at += piece;
        }
        Ok(Some(()))
    }

    fn write(&mut self, path: PathNo, at: u64, len: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        if self.files[file].changed.is_none() {
            self.changes(file);
            // What was synced stays where this does not overwrite it.
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
        // Any content will do where it is not checked.
        let word = if state.word == 0 { word(1 << 33 | self.number) } else { state.word };
        let mut at = at;
        while at < end {
            let piece = PIECE.min(end - at);
            self.around.cost(Cost::Call(piece));
            self.around.fs().write_at(state.ino, at, &fill_at(word, at, piece as usize))?;
            at += piece;
        }
        Ok(Some(()))
    }

    fn cut(&mut self, path: PathNo, size: u64) -> Result<Option<()>> {
        let Some(file) = self.file(path) else { return Ok(None) };
        self.changes(file);
        self.around.cost(Cost::Change);
        self.around.fs().truncate(self.files[file].ino, size)?;
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
        let since = self.around.now();
        let (ino, file) = match self.node(path) {
            Some(Node::Dir(ino)) => (ino, None),
            Some(Node::File(file)) => (self.files[file].ino, Some(file)),
            Some(Node::Link) | None => return Ok(None),
        };
        self.around.cost(Cost::Sync);
        let fs = self.around.fs();
        if data {
            let mut cursor = fs.error_cursor(ino);
            let ticket = fs.begin_fsync(ino, uxfs::SyncKind::Data, &mut cursor)?;
            fs.wait(ticket)?;
        } else {
            fs.fsync(ino)?;
        }
        self.played.syncs += 1;
        self.around.took(since);
        // fdatasync says nothing of names.
        if let (Some(file), false) = (file.filter(|file| !self.files[*file].carried), data) {
            told(self.around, self.recording, &self.top, &mut self.files[file]);
        }
        Ok(Some(()))
    }

    fn rename(&mut self, from: PathNo, to: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some((to_dir, to_name))) = (self.place(from), self.place(to))
        else {
            return Ok(None);
        };
        if self.node(from).is_none() || from == to {
            return Ok(None);
        }
        self.name_goes(to);
        // Before the volume knows, so that nothing is looked for where it may not be any more.
        self.moved(from, to);
        self.around.cost(Cost::Name);
        let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
        self.around.fs().rename(dir, name, to_dir, to_name, RenameFlags::default())?;
        Ok(Some(()))
    }

    /// A name, and all that is below it, is known by another.
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
                        // Its new name does not occur again.
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

    /// A name is about to be taken from whatever bears it.
    fn name_goes(&mut self, path: PathNo) {
        if let Some(file) = self.file(path) {
            let (dir, name) = self.full(path);
            self.around.touch(&dir, &name);
            self.files[file].names.retain(|name| *name != path);
        }
    }

    fn link(&mut self, path: PathNo, to: PathNo) -> Result<Option<()>> {
        let (Some(file), Some((dir, name)), None) =
            (self.file(path), self.place(to), self.node(to))
        else {
            return Ok(None);
        };
        self.changes(file);
        self.around.cost(Cost::Name);
        self.around.fs().link(self.files[file].ino, dir, name.as_bytes())?;
        self.files[file].names.push(to);
        self.nodes[to as usize] = Some(Node::File(file));
        Ok(Some(()))
    }

    fn unlink(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some(Node::File(_) | Node::Link)) =
            (self.place(path), self.node(path))
        else {
            return Ok(None);
        };
        self.name_goes(path);
        self.around.cost(Cost::Name);
        self.around.fs().unlink(dir, name.as_bytes())?;
        self.nodes[path as usize] = None;
        Ok(Some(()))
    }

    fn remove_dir(&mut self, path: PathNo) -> Result<Option<()>> {
        let (Some((dir, name)), Some(Node::Dir(_))) = (self.place(path), self.node(path)) else {
            return Ok(None);
        };
        self.around.cost(Cost::Name);
        self.around.fs().rmdir(dir, name.as_bytes())?;
        self.nodes[path as usize] = None;
        Ok(Some(()))
    }

    fn attr(&mut self, path: PathNo) -> Result<Option<()>> {
        let ino = match self.node(path) {
            Some(Node::Dir(ino)) => ino,
            Some(Node::File(file)) => self.files[file].ino,
            Some(Node::Link) | None => return Ok(None),
        };
        self.around.cost(Cost::Change);
        let now = Some(self.around.fs().now());
        self.around.fs().set_attr(ino, &SetAttr { mtime: now, ..SetAttr::default() })?;
        Ok(Some(()))
    }
}

/// Seconds of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// Until the last client had done its last step.
    pub work_s: f64,
    /// Then, until everything was on stable storage.
    pub sync_s: f64,
    /// What all clients did.
    pub played: Played,
}

/// The directory of a client.
pub fn home(number: u32) -> String {
    format!("client{number}")
}

/// So many clients play a recording at once, each where it was planted; then all is synced.
///
/// # Errors
/// Those of the volume.
pub fn run(lab: &Arc<Lab>, recording: &Arc<Recording>, clients: u32) -> Result<Took> {
    let sum = Arc::new(parking_lot::Mutex::new((Played::default(), Vec::new())));
    let its = Arc::clone(recording);
    lab.begin();
    let begun = lab.now();
    let (all, recording) = (Arc::clone(&sum), Arc::clone(recording));
    super::clients(lab, clients, move |lab, number| {
        // Who begin together keep step, and then one way or another wins by luck.
        let mut rng = Rng::new(lab.seed ^ u64::from(number) << 20);
        lab.sim.rest(Duration::from_nanos(rng.below(START_NS)));
        let mut player = Player::new(&**lab, &recording, &home(number), number)?;
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
    Ok(Took { work_s: s(begun, worked), sync_s: s(worked, lab.now()), played })
}
