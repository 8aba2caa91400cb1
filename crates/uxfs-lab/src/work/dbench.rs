//! dbench's load: clients of a file server, each in its own directory, for a fixed number of steps.
//!
//! [`uxfs_bench::player`] maps the operations to the file system's. Reads and writes count as
//! throughput. Reads cost only processor time, as with a page cache.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uxfs::format::Ino;
use uxfs::{Fs, NewInode};
use uxfs_bench::loadfile::{Disposition, Op};
use uxfs_bench::player::{Call, Deltree, Player, Server, new_inode};

use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

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

#[derive(Clone, Copy, Debug, Default)]
pub struct Throughput {
    /// Bytes read and written.
    pub bytes: u64,
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
) -> uxfs::Result<Throughput> {
    let mut all = Vec::new();
    for number in 0..count {
        let name = format!("client{number}");
        lab.fs.create(lab.fs.root(), name.as_bytes(), &NewInode::dir(0o700))?;
        let mut player = Player::new(Simulated::new(lab, number)?);
        player.server.prepares = true;
        for op in load.iter().take(prepares) {
            step(&mut player, op)?;
        }
        player.server.prepares = false;
        all.push(Mutex::new(Some(player)));
    }
    let ticket = lab.fs.begin_sync()?;
    lab.fs.wait(ticket)?;
    lab.forget();
    lab.begin();
    let moved: Arc<Mutex<Throughput>> = Arc::default();
    let (load, sums) = (Arc::clone(load), Arc::clone(&moved));
    clients(lab, count, move |_, number| {
        let Some(mut player) = all[number as usize].lock().take() else { return Ok(()) };
        for op in load.iter().cycle().skip(prepares).take(steps) {
            step(&mut player, op)?;
        }
        let (mut sum, moved) = (sums.lock(), player.server.moved);
        sum.bytes += moved.bytes;
        sum.steps += moved.steps;
        sum.flushes += moved.flushes;
        Ok(())
    })?;
    lab.end();
    let moved = *moved.lock();
    Ok(moved)
}

struct Open {
    ino: Ino,
    /// The directory and name of a file.
    path: Option<(Arc<str>, String)>,
    word: u64,
    /// The start of the oldest unflushed change.
    changed: Option<u64>,
}

/// A directory and its path.
struct Dir {
    ino: Ino,
    path: String,
}

/// Serves one client with the lab's calls, which take virtual time.
struct Simulated {
    lab: Arc<Lab>,
    home: Ino,
    path: String,
    /// The client prepares: its operations take no time and are not counted.
    prepares: bool,
    moved: Throughput,
    opens: u64,
    number: u32,
}

impl Simulated {
    fn new(lab: &Arc<Lab>, number: u32) -> uxfs::Result<Self> {
        let path = format!("client{number}");
        let home = lab.fs.lookup(lab.fs.root(), path.as_bytes())?;
        let (lab, moved) = (Arc::clone(lab), Throughput::default());
        Ok(Self { lab, home, path, prepares: false, moved, opens: 0, number })
    }

    /// The word that fills what the client writes through the newest open file.
    fn word(&self) -> u64 {
        word(u64::from(self.number) << 24 | self.opens & 0xff_ffff)
    }

    /// Spends the processor time that precedes an operation's calls.
    fn begin(&mut self, op: &Op) {
        if !self.prepares {
            self.lab.sim.work(STEP);
        }
        if matches!(op, Op::Open { .. } | Op::Close(_) | Op::QueryFile(_) | Op::QueryFs) {
            self.lab.lookup_cost();
        }
        if matches!(op, Op::Open { name, .. } if !name.is_empty()) {
            self.opens += 1;
        }
    }
}

/// Carries out and counts one operation.
fn step(player: &mut Player<Simulated>, op: &Op) -> uxfs::Result<()> {
    let since = player.server.lab.now();
    player.server.begin(op);
    let bytes = player.play(op)?;
    let client = &mut player.server;
    if !client.prepares {
        client.moved.bytes += bytes;
        client.moved.steps += 1;
        client.moved.flushes += u64::from(matches!(op, Op::Flush(_)));
        client.lab.took(since);
    }
    Ok(())
}

fn text(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name)
}

impl Server for Simulated {
    type Dir = Dir;
    type File = Open;

    // dbench's load names the client's own directory. Its files stay: the lab's passes overwrite them.
    const DELTREE: Deltree = Deltree::IgnoreCase;

    fn fs(&self) -> &Fs {
        &self.lab.fs
    }

    fn home(&self) -> Dir {
        Dir { ino: self.home, path: self.path.clone() }
    }

    fn subdir(&self, parent: &Dir, name: &[u8], ino: Ino) -> Dir {
        Dir { ino, path: format!("{}/{}", parent.path, text(name)) }
    }

    fn dir_ino(dir: &Dir) -> Ino {
        dir.ino
    }

    fn file_ino(file: &Open) -> Ino {
        file.ino
    }

    fn last_name(part: &[u8]) -> Vec<u8> {
        // Acknowledgements name files in UTF-8.
        text(part).into_owned().into_bytes()
    }

    fn before(&self, call: Call) {
        match call {
            Call::Lookup => self.lab.lookup_cost(),
            Call::ReadDir => self.lab.call(4096),
            Call::Name => self.lab.name(),
            Call::Change => self.lab.change(),
        }
    }

    fn invalidate(&self, dir: &Dir, name: &[u8]) {
        self.lab.touch(&dir.path, &text(name));
    }

    fn open_home(&mut self) -> Open {
        Open { ino: self.home, path: None, word: 0, changed: None }
    }

    fn open(&mut self, dir: Dir, name: Vec<u8>, ino: Ino, directory: bool) -> uxfs::Result<Open> {
        let path = (!directory).then(|| (dir.path.into(), text(&name).into_owned()));
        Ok(Open { ino, path, word: self.word(), changed: None })
    }

    fn create(&mut self, dir: Dir, name: Vec<u8>, directory: bool) -> uxfs::Result<Open> {
        let (began, name) = (self.lab.now(), text(&name).into_owned());
        let ino = self.lab.create(dir.ino, &name, &new_inode(directory))?;
        let path = (!directory).then(|| (dir.path.into(), name));
        Ok(Open { ino, path, word: self.word(), changed: Some(began) })
    }

    fn read(&mut self, _file: &Open, _offset: u64, len: u32) -> uxfs::Result<u64> {
        self.lab.call(len as usize);
        Ok(u64::from(len))
    }

    fn write(&mut self, file: &mut Open, offset: u64, len: u32) -> uxfs::Result<u64> {
        let lab = &self.lab;
        file.changed.get_or_insert(lab.now());
        if self.prepares {
            let end = (offset + u64::from(len)).max(lab.fs.stat(file.ino)?.size);
            lab.fs.truncate(file.ino, end)?;
            return Ok(0);
        }
        lab.write(file.ino, offset, &fill(file.word, len as usize))?;
        Ok(u64::from(len))
    }

    fn fsync(&mut self, file: &mut Open) -> uxfs::Result<()> {
        if self.prepares {
            return Ok(());
        }
        let changed = file.changed.take();
        self.lab.fsync(file.ino)?;
        // Without a change since the last flush there is nothing new to acknowledge.
        if let (Some((dir, name)), Some(began)) = (file.path.clone(), changed) {
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
}
