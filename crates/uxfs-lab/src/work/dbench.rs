//! dbench's load: clients of a file server, each in its own directory, for a fixed number of steps.
//!
//! Operations are mapped as dbench maps them: a flush is an `fsync`, and a missing name is looked up
//! again without regard to case. Reads and writes count as throughput. Reads cost only processor time,
//! as with a page cache.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::{Error, NewInode, SetAttr};
use uxfs_bench::loadfile::{Disposition, Handle, Op};

use super::{clients, fill, word};
use crate::bed::Lab;
use crate::durability::Ack;

/// Processor time of dbench itself for each operation: reading its line and accounting.
pub const STEP: Duration = Duration::from_micros(20);

/// Removes the filler files from a load: 25 MB per client, created at the beginning, removed at the
/// end, and not used in between.
pub fn without_filler(load: Vec<Op>) -> Vec<Op> {
    let is_filler = |name: &[Box<[u8]>]| {
        name.last().is_some_and(|last| last.to_ascii_lowercase().starts_with(b"filler."))
    };
    let mut left_out = FxHashSet::default();
    let mut kept = Vec::with_capacity(load.len());
    for op in load {
        let drop = match &op {
            Op::Open { name, handle, .. } => {
                let filler = is_filler(name);
                if filler {
                    left_out.insert(*handle)
                } else {
                    left_out.remove(handle)
                };
                filler
            }
            Op::Unlink(name) | Op::QueryPath(name) | Op::Rename(name, _) => is_filler(name),
            Op::Close(handle)
            | Op::Flush(handle)
            | Op::QueryFile(handle)
            | Op::SetFile(handle)
            | Op::Read { handle, .. }
            | Op::Write { handle, .. } => left_out.contains(handle),
            _ => false,
        };
        if !drop {
            kept.push(op);
        }
    }
    kept
}

/// The work of clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations.
    pub steps: u64,
    /// Flushes among the operations.
    pub flushes: u64,
}

/// The lab's own load, for machines without dbench's: a file server's client creates, fills, flushes,
/// renames and removes documents in a few directories.
pub fn own_load() -> Vec<Op> {
    let name = |parts: &[&str]| -> Vec<Box<[u8]>> {
        parts.iter().map(|part| Box::from(part.as_bytes())).collect()
    };
    let mut ops = vec![Op::Deltree(name(&["docs"])), Op::Mkdir(name(&["docs"]))];
    for dir in 0..4u32 {
        let dir_name = format!("dir{dir}");
        ops.push(Op::Mkdir(name(&["docs", &dir_name])));
        for file in 0..24u32 {
            let handle = 1000 + dir * 100 + file;
            let (draft, last) = (format!("draft{file}.tmp"), format!("report{file}.doc"));
            let draft = name(&["docs", &dir_name, &draft]);
            let last = name(&["docs", &dir_name, &last]);
            ops.push(Op::QueryPath(last.clone()));
            ops.push(Op::Open {
                name: draft.clone(),
                directory: false,
                how: Disposition::Create,
                handle,
            });
            ops.push(Op::QueryFs);
            let pieces = 1 + (file * 7 + dir) % 9;
            for piece in 0..pieces {
                ops.push(Op::Write { handle, offset: u64::from(piece) << 16, len: 1 << 16 });
            }
            if file % 3 == 0 {
                ops.push(Op::Flush(handle));
            }
            for piece in 0..pieces {
                ops.push(Op::Read { handle, offset: u64::from(piece) << 16, len: 1 << 16 });
            }
            ops.push(Op::SetFile(handle));
            ops.push(Op::Close(handle));
            ops.push(Op::Rename(draft, last.clone()));
            ops.push(Op::QueryPath(last));
        }
        ops.push(Op::Find(name(&["docs", &dir_name, "*.doc"])));
    }
    for dir in 0..4u32 {
        for file in (0..24u32).step_by(2) {
            let (dir_name, last) = (format!("dir{dir}"), format!("report{file}.doc"));
            ops.push(Op::Unlink(name(&["docs", &dir_name, &last])));
        }
    }
    ops
}

/// In dbench's own load, the operations at the start that create the files for the rest.
pub const PREPARES: usize = 1000;

/// Plays a load with `count` clients. Each first does `prepares` operations, which take no time and
/// only set file sizes instead of writing. Then it does `steps` operations, which are counted.
///
/// # Errors
/// An error of the volume.
pub fn run(
    lab: &Arc<Lab>,
    load: &Arc<Vec<Op>>,
    count: u32,
    prepares: usize,
    steps: usize,
) -> uxfs::Result<Moved> {
    let mut all = Vec::new();
    for number in 0..count {
        let name = format!("client{number}");
        lab.fs.create(lab.fs.root(), name.as_bytes(), &NewInode::dir(0o700))?;
        let mut client = Client::new(lab, number)?;
        client.prepares = true;
        for op in load.iter().take(prepares) {
            client.step(op)?;
        }
        client.prepares = false;
        client.moved = Moved::default();
        all.push(Mutex::new(Some(client)));
    }
    let ticket = lab.fs.begin_sync()?;
    lab.fs.wait(ticket)?;
    lab.forget();
    lab.begin();
    let moved: Arc<Mutex<Moved>> = Arc::default();
    let (load, sums) = (Arc::clone(load), Arc::clone(&moved));
    clients(lab, count, move |_, number| {
        let Some(mut client) = all[number as usize].lock().take() else { return Ok(()) };
        for op in load.iter().cycle().skip(prepares).take(steps) {
            client.step(op)?;
        }
        let mut sum = sums.lock();
        sum.bytes += client.moved.bytes;
        sum.steps += client.moved.steps;
        sum.flushes += client.moved.flushes;
        Ok(())
    })?;
    lab.end();
    let moved = *moved.lock();
    Ok(moved)
}

struct Open {
    ino: Ino,
    /// The directory and name of a file.
    place: Option<(Arc<str>, String)>,
    word: u64,
    /// The start of the oldest unflushed change.
    changed: Option<u64>,
}

struct Client {
    lab: Arc<Lab>,
    home: Ino,
    path: String,
    open: FxHashMap<Handle, Open>,
    /// The client prepares: its operations take no time.
    prepares: bool,
    moved: Moved,
    next: u64,
    number: u32,
}

impl Client {
    fn new(lab: &Arc<Lab>, number: u32) -> uxfs::Result<Self> {
        let path = format!("client{number}");
        let home = lab.fs.lookup(lab.fs.root(), path.as_bytes())?;
        let moved = Moved::default();
        let (lab, open) = (Arc::clone(lab), FxHashMap::default());
        Ok(Self { lab, home, path, open, prepares: false, moved, next: 0, number })
    }

    /// Does one operation. Errors that a file server reports to its client, such as a missing name, are
    /// not errors here.
    fn step(&mut self, op: &Op) -> uxfs::Result<()> {
        let since = self.lab.now();
        if !self.prepares {
            self.lab.sim.work(STEP);
        }
        let bytes = match self.attempt(op) {
            Ok(bytes) => bytes,
            Err(
                Error::NotFound | Error::Exists | Error::NotDir | Error::IsDir | Error::NotEmpty,
            ) => 0,
            Err(error) => return Err(error),
        };
        if !self.prepares {
            self.moved.bytes += bytes;
            self.moved.steps += 1;
            self.moved.flushes += u64::from(matches!(op, Op::Flush(_)));
            self.lab.took(since);
        }
        Ok(())
    }

    fn attempt(&mut self, op: &Op) -> uxfs::Result<u64> {
        let lab = &Arc::clone(&self.lab);
        match op {
            Op::Open { name, directory, how, handle } => {
                let open = self.open(name, *directory, *how)?;
                self.open.insert(*handle, open);
            }
            Op::Close(handle) => {
                self.open.remove(handle);
                lab.look();
            }
            Op::Read { handle, len, .. } => {
                self.held(*handle)?;
                lab.call(*len as usize);
                return Ok(u64::from(*len));
            }
            Op::Write { handle, offset, len } => {
                let now = lab.now();
                let open = self.open.get_mut(handle).ok_or(Error::NotFound)?;
                open.changed.get_or_insert(now);
                if self.prepares {
                    let end = (offset + u64::from(*len)).max(lab.fs.stat(open.ino)?.size);
                    lab.fs.truncate(open.ino, end)?;
                    return Ok(0);
                }
                let content = fill(open.word, *len as usize);
                lab.write(open.ino, *offset, &content)?;
                return Ok(u64::from(*len));
            }
            Op::Flush(_) if self.prepares => {}
            Op::Flush(handle) => self.flush(*handle)?,
            Op::Unlink(name) => {
                let (dir, path, name) = self.find(name)?;
                lab.touch(&path, &name);
                lab.unlink(dir, &name)?;
            }
            Op::Rename(from, to) => {
                let (dir, path, from) = self.find(from)?;
                let (to_dir, to_path, to) = match self.find(to) {
                    Ok(found) => found,
                    Err(_) => self.parent(to)?,
                };
                lab.touch(&path, &from);
                lab.touch(&to_path, &to);
                lab.rename(dir, &from, to_dir, &to)?;
            }
            Op::Mkdir(name) => {
                let (dir, _, name) = self.parent(name)?;
                lab.create(dir, &name, &NewInode::dir(0o777))?;
            }
            Op::Deltree(name) => {
                let (dir, path, last) = self.find(name)?;
                let ino = lab.fs.lookup(dir, last.as_bytes())?;
                self.deltree(ino, &format!("{path}/{last}"))?;
            }
            Op::QueryPath(name) => {
                let (dir, _, name) = self.find(name)?;
                lab.fs.stat(lab.fs.lookup(dir, name.as_bytes())?)?;
            }
            Op::QueryFile(handle) => {
                lab.look();
                lab.fs.stat(self.held(*handle)?.ino)?;
            }
            Op::QueryFs => {
                lab.look();
                lab.fs.statfs();
            }
            Op::SetFile(handle) => {
                let ino = self.held(*handle)?.ino;
                lab.change();
                let now = Timestamp { nsec: 0, ..lab.fs.now() };
                let times = SetAttr { atime: Some(now), mtime: Some(now), ..SetAttr::default() };
                lab.fs.set_attr(ino, &times)?;
            }
            Op::Find(pattern) => {
                let (dir, ..) = match self.find(pattern) {
                    Ok(found) => found,
                    Err(_) => self.parent(pattern)?,
                };
                lab.call(4096);
                lab.fs.read_dir(dir, 0, &mut |_| ControlFlow::Continue(()))?;
            }
            Op::Lock => {}
        }
        Ok(0)
    }

    fn flush(&mut self, handle: Handle) -> uxfs::Result<()> {
        let open = self.open.get_mut(&handle).ok_or(Error::NotFound)?;
        let (place, changed, ino) = (open.place.clone(), open.changed.take(), open.ino);
        self.lab.fsync(ino)?;
        // Without a change since the last flush there is nothing new to acknowledge.
        if let (Some((dir, name)), Some(began)) = (place, changed) {
            let at = self.lab.now();
            self.lab.ack(Ack {
                began,
                at,
                until: u64::MAX,
                synced: true,
                dir,
                name,
                from: 0,
                size: 0,
                word: 0,
                logged: true,
            });
        }
        Ok(())
    }

    fn held(&self, handle: Handle) -> uxfs::Result<&Open> {
        self.open.get(&handle).ok_or(Error::NotFound)
    }

    fn open(
        &mut self,
        name: &[Box<[u8]>],
        directory: bool,
        how: Disposition,
    ) -> uxfs::Result<Open> {
        let lab = &Arc::clone(&self.lab);
        lab.look();
        if name.is_empty() {
            return Ok(Open { ino: self.home, place: None, word: 0, changed: None });
        }
        self.next += 1;
        let word = word(u64::from(self.number) << 24 | self.next & 0xff_ffff);
        match self.find(name) {
            Ok((dir, path, name)) => {
                let ino = lab.fs.lookup(dir, name.as_bytes())?;
                if how == Disposition::Overwrite && !directory {
                    lab.touch(&path, &name);
                    lab.change();
                    lab.fs.truncate(ino, 0)?;
                }
                let place = (!directory).then(|| (path.into(), name));
                Ok(Open { ino, place, word, changed: None })
            }
            Err(Error::NotFound) if how != Disposition::Open => {
                let (dir, path, name) = self.parent(name)?;
                let began = lab.now();
                let new = if directory { NewInode::dir(0o700) } else { NewInode::file(0o600) };
                let ino = lab.create(dir, &name, &new)?;
                let place = (!directory).then(|| (path.into(), name));
                Ok(Open { ino, place, word, changed: Some(began) })
            }
            Err(error) => Err(error),
        }
    }

    /// The parent directory of a path, that directory's path, and the last name.
    fn parent(&self, name: &[Box<[u8]>]) -> uxfs::Result<(Ino, String, String)> {
        let (last, above) = name.split_last().ok_or(Error::NotFound)?;
        let (mut dir, mut path) = (self.home, self.path.clone());
        for part in above {
            self.lab.look();
            dir = self.lab.fs.lookup(dir, part)?;
            path = format!("{path}/{}", String::from_utf8_lossy(part));
        }
        Ok((dir, path, String::from_utf8_lossy(last).into_owned()))
    }

    /// The same for an existing name, without regard to case.
    fn find(&self, name: &[Box<[u8]>]) -> uxfs::Result<(Ino, String, String)> {
        let (dir, path, last) = self.parent(name)?;
        self.lab.look();
        match self.lab.fs.lookup(dir, last.as_bytes()) {
            Ok(_) => return Ok((dir, path, last)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        let mut found = None;
        self.lab.call(4096);
        self.lab.fs.read_dir(dir, 0, &mut |entry| {
            if entry.name.eq_ignore_ascii_case(last.as_bytes()) {
                found = Some(String::from_utf8_lossy(entry.name).into_owned());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        found.map(|name| (dir, path, name)).ok_or(Error::NotFound)
    }

    fn deltree(&self, dir: Ino, path: &str) -> uxfs::Result<()> {
        let mut entries = Vec::new();
        self.lab.fs.read_dir(dir, 0, &mut |entry| {
            if !entry.is_dot() {
                entries.push((entry.ino, String::from_utf8_lossy(entry.name).into_owned()));
            }
            ControlFlow::Continue(())
        })?;
        for (ino, name) in entries {
            self.lab.touch(path, &name);
            if self.lab.fs.stat(ino)?.mode & 0o170_000 == 0o040_000 {
                self.deltree(ino, &format!("{path}/{name}"))?;
                self.lab.change();
                self.lab.fs.rmdir(dir, name.as_bytes())?;
            } else {
                self.lab.unlink(dir, &name)?;
            }
        }
        Ok(())
    }
}
