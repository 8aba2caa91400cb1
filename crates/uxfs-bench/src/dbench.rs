//! dbench's load: clients of a file server, each in its own directory. Runs in this process, and by
//! the real dbench on the kernel's file systems.
//!
//! Operations are mapped as dbench maps them: a flush is an `fsync`; a name that is not found is
//! looked up again, ignoring case, by reading its directory; locks of ranges do not reach the file
//! system. Reads and writes count as throughput, from the end of the warm-up.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::{Error, Fs, NewInode, RenameFlags, SetAttr, WritebackOptions};

use crate::host::{self, Scratch, is_root};
use crate::kernel::Mounted;
use crate::loadfile::{self, Disposition, Handles, Op};
use crate::own::{self, Own};
use crate::settings::{DELAYLOG, KERNEL, Setting, of_round};
use crate::table::{Run, Table};
use crate::traffic::Promise;
use crate::{BenchError, Result};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    /// Number of rounds.
    pub rounds: u32,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// The load, in dbench's format.
    pub load: PathBuf,
    /// Seconds per run; the warm-up takes a fifth more.
    pub seconds: u32,
    /// Measures only settings whose name contains this.
    pub only: String,
    /// Size of the volumes in bytes.
    pub size: u64,
    /// Log options of uxfs' rows, except for what their names say.
    pub journal: uxfs::journal::JournalOptions,
}

/// Measures throughput in MB/s.
///
/// # Errors
/// If a step fails.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Table> {
    let ops = loadfile::read(&options.load)?;
    let scratch = Scratch::new(&options.dir)?;
    let mut notes = vec![
        "log bytes of ext4 are averages that jbd2 tells, its log IOPS are transactions".to_owned(),
        "what a flush (fsync) named is on stable storage in every row; the rest is at stake".into(),
        "written data gathers in memory everywhere; before what it stands in is logged, it may lie \
         there for dirty_expire_centisecs (30 s) more"
            .into(),
    ];
    let tools = ["dbench", "mkfs.xfs", "mkfs.ext4", "findmnt"];
    let with_kernel = is_root() && tools.iter().all(|tool| host::has(tool));
    if !with_kernel {
        let what = "the kernel's rows need root, dbench, mkfs.xfs and mkfs.ext4: not measured";
        notes.push(what.into());
    }
    let base = if with_kernel { KERNEL } else { DELAYLOG };
    let title = format!(
        "dbench, {} s of {}; -l size=128m -d agcount=16, logbsize=262144",
        options.seconds,
        options.load.display()
    );
    let (axis, unit, step, lines) = ("clients", "MB/s", "op", Vec::new());
    let mut table = Table { title, axis, unit, step, lines, base, notes };
    for &clients in &options.clients {
        for round in 1..=options.rounds {
            say(&format!("dbench, {clients} clients, round {round} of {}", options.rounds));
            for (name, setting) in of_round(round, &options.only, with_kernel) {
                let (run, age) = match setting {
                    Setting::Own(word) => {
                        let journal = own::journal(options.journal, word)?;
                        let age = journal.pipeline.age_max.as_secs() as u32;
                        // As with the kernel, where dbench writes into the page cache.
                        let data = Some(WritebackOptions::default());
                        let own = Own::new(&scratch, options.size, journal, data)?;
                        let run = in_process(options, clients, &ops, &own);
                        own.done()?;
                        (run?, age)
                    }
                    Setting::Kernel(kind) => {
                        let mounted = Mounted::new(kind, &scratch, options.size)?;
                        let run = dbench(options, clients, &mounted);
                        let age = mounted.age();
                        mounted.done()?;
                        (run?, age)
                    }
                };
                table.add(clients, name, Promise::Within(age), run);
            }
        }
    }
    Ok(table)
}

/// The state that all clients share.
struct Stage<'a> {
    fs: &'a Fs,
    ops: &'a [Op],
    ready: Barrier,
    measuring: AtomicBool,
    stop: AtomicBool,
    bytes: AtomicU64,
    steps: AtomicU64,
    worst_ns: AtomicU64,
}

fn in_process(options: &Options, clients: u32, ops: &[Op], own: &Own) -> Result<Run> {
    let stage = Stage {
        fs: &own.fs,
        ops,
        ready: Barrier::new(clients as usize + 1),
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        bytes: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        worst_ns: AtomicU64::new(0),
    };
    let length = Duration::from_secs(options.seconds.into());
    let measured = std::thread::scope(|scope| {
        let stage = &stage;
        let workers: Vec<_> =
            (0..clients).map(|client| scope.spawn(move || Client::run(stage, client))).collect();
        stage.ready.wait();
        std::thread::sleep(length / 5);
        let before = own.traffic();
        let start = Instant::now();
        stage.measuring.store(true, Ordering::Relaxed);
        std::thread::sleep(length);
        stage.measuring.store(false, Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let during = own.traffic();
        stage.stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let ended =
                worker.join().map_err(|_| BenchError::new("dbench", "a client panicked"))?;
            ended.map_err(|e| BenchError::new("dbench", e))?;
        }
        Ok((before, during, seconds))
    });
    let (before, during, seconds) = measured?;
    own.fs.sync().map_err(|e| BenchError::new("syncing", e))?;
    let all = own.traffic() - before;
    let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
    Ok(Run {
        rate: get(&stage.bytes) as f64 / seconds / f64::from(1 << 20),
        worst_ms: Some(get(&stage.worst_ns) as f64 / 1e6),
        seconds,
        steps: get(&stage.steps),
        during: during - before,
        all,
    })
}

/// One client.
struct Client<'a> {
    fs: &'a Fs,
    home: Ino,
    open: Handles<Ino>,
    buffer: Vec<u8>,
}

impl<'a> Client<'a> {
    fn run(stage: &'a Stage<'a>, number: u32) -> uxfs::Result<()> {
        let fs = stage.fs;
        let name = format!("client{number}");
        let home = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o700));
        stage.ready.wait();
        let mut client = Self { fs, home: home?, open: Handles::default(), buffer: Vec::new() };
        while !stage.stop.load(Ordering::Relaxed) {
            for op in stage.ops {
                if stage.stop.load(Ordering::Relaxed) {
                    break;
                }
                let start = Instant::now();
                let moved = client.step(op)?;
                let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                if stage.measuring.load(Ordering::Relaxed) {
                    stage.bytes.fetch_add(moved, Ordering::Relaxed);
                    stage.steps.fetch_add(1, Ordering::Relaxed);
                    stage.worst_ns.fetch_max(took, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Carries out one operation and returns the bytes that it moved. A refusal that a client may
    /// meet is not an error.
    fn step(&mut self, op: &Op) -> uxfs::Result<u64> {
        match self.attempt(op) {
            Ok(moved) => Ok(moved),
            Err(
                Error::NotFound | Error::Exists | Error::NotDir | Error::IsDir | Error::NotEmpty,
            ) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn attempt(&mut self, op: &Op) -> uxfs::Result<u64> {
        match op {
            Op::Open { name, directory, how, handle } => {
                let ino = self.open(name, *directory, *how)?;
                self.open.insert(*handle, ino);
            }
            Op::Close(handle) => {
                self.open.remove(handle);
            }
            Op::Read { handle, offset, len } => {
                let ino = self.held(*handle)?;
                self.buffer.resize(*len as usize, 0);
                return Ok(self.fs.read_at(ino, *offset, &mut self.buffer)? as u64);
            }
            Op::Write { handle, offset, len } => {
                let ino = self.held(*handle)?;
                self.buffer.resize(*len as usize, 0);
                self.fs.write_at(ino, *offset, &self.buffer)?;
                return Ok(u64::from(*len));
            }
            Op::Flush(handle) => self.fs.fsync(self.held(*handle)?)?,
            Op::Unlink(name) => {
                let (dir, name) = self.find(name)?;
                self.fs.unlink(dir, &name)?;
            }
            Op::Rename(from, to) => {
                let (dir, from) = self.find(from)?;
                let (to_dir, to_name) = match self.find(to) {
                    Ok(found) => found,
                    Err(_) => self.parent(to)?,
                };
                self.fs.rename(dir, &from, to_dir, &to_name, RenameFlags::default())?;
            }
            Op::Mkdir(name) => {
                let (dir, name) = self.parent(name)?;
                self.fs.create(dir, &name, &NewInode::dir(0o777))?;
            }
            Op::Deltree(name) => {
                let dir = self.walk(name)?;
                self.deltree(dir)?;
            }
            Op::QueryPath(name) => {
                let (dir, name) = self.find(name)?;
                self.fs.stat(self.fs.lookup(dir, &name)?)?;
            }
            Op::QueryFile(handle) => {
                self.fs.stat(self.held(*handle)?)?;
            }
            Op::QueryFs => {
                self.fs.statfs();
            }
            Op::SetFile(handle) => {
                let ino = self.held(*handle)?;
                let now = Timestamp { nsec: 0, ..self.fs.now() };
                let times = SetAttr { atime: Some(now), mtime: Some(now), ..SetAttr::default() };
                self.fs.set_attr(ino, &times)?;
            }
            Op::Find(pattern) => {
                // The pattern itself may be a name.
                let (dir, _) = match self.find(pattern) {
                    Ok(found) => found,
                    Err(_) => self.parent(pattern)?,
                };
                self.fs.read_dir(dir, 0, &mut |_| ControlFlow::Continue(()))?;
            }
            Op::Lock => {}
        }
        Ok(0)
    }

    fn held(&self, handle: loadfile::Handle) -> uxfs::Result<Ino> {
        self.open.get(&handle).copied().ok_or(Error::NotFound)
    }

    fn open(&mut self, name: &[Box<[u8]>], directory: bool, how: Disposition) -> uxfs::Result<Ino> {
        if name.is_empty() {
            return Ok(self.home);
        }
        match self.find(name) {
            Ok((dir, name)) => {
                let ino = self.fs.lookup(dir, &name)?;
                if how == Disposition::Overwrite && !directory {
                    self.fs.truncate(ino, 0)?;
                }
                self.fs.stat(ino)?;
                Ok(ino)
            }
            Err(Error::NotFound) if how != Disposition::Open => {
                let (dir, name) = self.parent(name)?;
                let new = if directory { NewInode::dir(0o700) } else { NewInode::file(0o600) };
                let ino = self.fs.create(dir, &name, &new)?;
                self.fs.stat(ino)?;
                Ok(ino)
            }
            Err(error) => Err(error),
        }
    }

    fn walk(&self, parts: &[Box<[u8]>]) -> uxfs::Result<Ino> {
        parts.iter().try_fold(self.home, |dir, part| self.fs.lookup(dir, part))
    }

    /// The directory of a name, and the name in it.
    fn parent(&self, name: &[Box<[u8]>]) -> uxfs::Result<(Ino, Vec<u8>)> {
        let (last, above) = name.split_last().ok_or(Error::NotFound)?;
        Ok((self.walk(above)?, last.to_vec()))
    }

    /// The same for an existing name, ignoring case.
    fn find(&self, name: &[Box<[u8]>]) -> uxfs::Result<(Ino, Vec<u8>)> {
        let (dir, last) = self.parent(name)?;
        match self.fs.lookup(dir, &last) {
            Ok(_) => return Ok((dir, last)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        let mut found = None;
        self.fs.read_dir(dir, 0, &mut |entry| {
            if entry.name.eq_ignore_ascii_case(&last) {
                found = Some(entry.name.to_vec());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        found.map(|name| (dir, name)).ok_or(Error::NotFound)
    }

    fn deltree(&self, dir: Ino) -> uxfs::Result<()> {
        let mut entries = Vec::new();
        self.fs.read_dir(dir, 0, &mut |entry| {
            if !entry.is_dot() {
                entries.push((entry.ino, entry.name.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        for (ino, name) in entries {
            if self.fs.stat(ino)?.mode & 0o170_000 == 0o040_000 {
                self.deltree(ino)?;
                self.fs.rmdir(dir, &name)?;
            } else {
                self.fs.unlink(dir, &name)?;
            }
        }
        Ok(())
    }
}

/// Runs the real dbench.
fn dbench(options: &Options, clients: u32, mounted: &Mounted) -> Result<Run> {
    let fail = |e: std::io::Error| BenchError::new("dbench", e);
    let mut child = Command::new("dbench")
        .arg("-c")
        .arg(&options.load)
        .args(["-t", &options.seconds.to_string()])
        .args([OsStr::new("-D"), mounted.dir.as_os_str()])
        .arg(clients.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fail)?;
    let out = child.stdout.take().ok_or_else(|| BenchError::new("dbench", "has no output"))?;
    let mut before = mounted.traffic()?;
    let mut start = Instant::now();
    let (mut executing, mut during) = (false, None);
    let (mut rate, mut worst, mut steps) = (None, None, 0);
    for line in BufReader::new(out).lines() {
        let line = line.map_err(fail)?;
        if line.contains(" warmup ") || (line.contains(" execute ") && !executing) {
            executing = line.contains(" execute ");
            (before, start) = (mounted.traffic()?, Instant::now());
        } else if line.contains(" cleanup ") && during.is_none() {
            during = Some((mounted.traffic()?, start.elapsed().as_secs_f64()));
        }
        // `NAME COUNT AVERAGE MAXIMUM`, in the table at the end.
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["Throughput", mb, ..] => {
                rate = mb.parse().ok();
                let last = line.split("max_latency=").nth(1);
                worst = last.and_then(|l| l.trim_end_matches(" ms").trim().parse().ok());
            }
            [_, count, average, _] if average.contains('.') => {
                steps += count.parse::<u64>().unwrap_or(0);
            }
            _ => {}
        }
    }
    let status = child.wait().map_err(fail)?;
    let (Some(rate), true, Some((during, seconds))) = (rate, status.success(), during) else {
        return Err(BenchError::new("dbench", format!("{status}, or no throughput told")));
    };
    mounted.sync()?;
    let all = mounted.traffic()? - before;
    Ok(Run { rate, worst_ms: worst, seconds, steps, during: during - before, all })
}
