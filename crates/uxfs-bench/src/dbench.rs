//! dbench's load: clients of a file server, each in its own directory. Runs in this process, and by
//! the real dbench on the kernel's file systems.
//!
//! [`crate::player`] maps the operations to the file system's. Reads and writes count as throughput,
//! from the end of the warm-up.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uxfs::format::Ino;
use uxfs::{Fs, NewInode, WritebackOptions};

use crate::host::{self, Scratch, is_root};
use crate::in_process::{self, InProcess};
use crate::kernel::Mounted;
use crate::loadfile::{self, Op};
use crate::player::{Deltree, Player, Server, new_inode};
use crate::settings::{DELAYLOG, KERNEL, Setting, settings_of_round};
use crate::table::{Run, Table};
use crate::traffic::{Durability, Traffic};
use crate::{BenchError, Result};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    pub rounds: u32,
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
        "log bytes of ext4 are averages from jbd2; its log IOPS are transactions".to_owned(),
        "files that a flush (fsync) named are on stable storage in every row; the rest can be lost"
            .into(),
        "all settings keep written data in memory; its metadata is logged up to \
         dirty_expire_centisecs (30 s) later"
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
            for (name, setting) in settings_of_round(round, &options.only, with_kernel) {
                let (run, age) = match setting {
                    Setting::Own(word) => {
                        let journal = in_process::journal(options.journal, word)?;
                        let age = journal.pipeline.age_max.as_secs() as u32;
                        // As with the kernel, where dbench writes into the page cache.
                        let data = Some(WritebackOptions::default());
                        let own = InProcess::new(&scratch, options.size, journal, data)?;
                        let run = in_process(options, clients, &ops, &own);
                        own.done()?;
                        (run?, age)
                    }
                    Setting::Kernel(kind) => {
                        let mounted = Mounted::new(kind, &scratch, options.size)?;
                        let load = Load {
                            file: &options.load,
                            seconds: options.seconds,
                            clients,
                            dir: &mounted.dir,
                        };
                        let run = load.run(|| mounted.traffic(), || mounted.sync());
                        let age = mounted.age();
                        mounted.done()?;
                        (run?, age)
                    }
                };
                table.add(clients, name, Durability::Within(age), run);
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

fn in_process(options: &Options, clients: u32, ops: &[Op], own: &InProcess) -> Result<Run> {
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
            (0..clients).map(|number| scope.spawn(move || client(stage, number))).collect();
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

/// Plays the load as one client until the stage stops.
fn client(stage: &Stage<'_>, number: u32) -> uxfs::Result<()> {
    let fs = stage.fs;
    let name = format!("client{number}");
    let home = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o700));
    stage.ready.wait();
    let mut player = Player::new(Volume { fs, home: home?, buffer: Vec::new() });
    while !stage.stop.load(Ordering::Relaxed) {
        for op in stage.ops {
            if stage.stop.load(Ordering::Relaxed) {
                break;
            }
            let start = Instant::now();
            let moved = player.play(op)?;
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

/// Serves one client with the calls of a file server, on a volume in this process.
struct Volume<'a> {
    fs: &'a Fs,
    home: Ino,
    buffer: Vec<u8>,
}

impl Server for Volume<'_> {
    type Dir = Ino;
    type File = Ino;

    // dbench removes the client's files at the start of each pass.
    const DELTREE: Deltree = Deltree::Exact;

    fn fs(&self) -> &Fs {
        self.fs
    }

    fn home(&self) -> Ino {
        self.home
    }

    fn subdir(&self, _parent: &Ino, _name: &[u8], ino: Ino) -> Ino {
        ino
    }

    fn dir_ino(dir: &Ino) -> Ino {
        *dir
    }

    fn file_ino(file: &Ino) -> Ino {
        *file
    }

    fn open_home(&mut self) -> Ino {
        self.home
    }

    fn open(&mut self, _dir: Ino, _name: Vec<u8>, ino: Ino, _directory: bool) -> uxfs::Result<Ino> {
        self.fs.stat(ino)?;
        Ok(ino)
    }

    fn create(&mut self, dir: Ino, name: Vec<u8>, directory: bool) -> uxfs::Result<Ino> {
        let ino = self.fs.create(dir, &name, &new_inode(directory))?;
        self.fs.stat(ino)?;
        Ok(ino)
    }

    fn read(&mut self, file: &Ino, offset: u64, len: u32) -> uxfs::Result<u64> {
        self.buffer.resize(len as usize, 0);
        Ok(self.fs.read_at(*file, offset, &mut self.buffer)? as u64)
    }

    fn write(&mut self, file: &mut Ino, offset: u64, len: u32) -> uxfs::Result<u64> {
        self.buffer.resize(len as usize, 0);
        self.fs.write_at(*file, offset, &self.buffer)?;
        Ok(u64::from(len))
    }

    fn fsync(&mut self, file: &mut Ino) -> uxfs::Result<()> {
        self.fs.fsync(*file)
    }
}

/// A run of the real dbench in a directory.
pub(crate) struct Load<'a> {
    /// The load, in dbench's format.
    pub(crate) file: &'a Path,
    pub(crate) seconds: u32,
    pub(crate) clients: u32,
    pub(crate) dir: &'a Path,
}

impl Load<'_> {
    /// Runs it. `traffic` returns that to the device so far; `sync` makes everything durable.
    pub(crate) fn run(
        &self,
        traffic: impl Fn() -> Result<Traffic>,
        sync: impl Fn() -> Result<()>,
    ) -> Result<Run> {
        let fail = |e: std::io::Error| BenchError::new("dbench", e);
        let mut child = Command::new("dbench")
            .arg("-c")
            .arg(self.file)
            .args(["-t", &self.seconds.to_string()])
            .args([OsStr::new("-D"), self.dir.as_os_str()])
            .arg(self.clients.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fail)?;
        let out = child.stdout.take().ok_or_else(|| BenchError::new("dbench", "has no output"))?;
        let mut before = traffic()?;
        let mut start = Instant::now();
        let (mut executing, mut during) = (false, None);
        let (mut rate, mut worst, mut steps) = (None::<f64>, None, 0);
        for line in BufReader::new(out).lines() {
            let line = line.map_err(fail)?;
            if line.contains(" warmup ") || (line.contains(" execute ") && !executing) {
                executing = line.contains(" execute ");
                (before, start) = (traffic()?, Instant::now());
            } else if line.contains(" cleanup ") && during.is_none() {
                during = Some((traffic()?, start.elapsed().as_secs_f64()));
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
            return Err(BenchError::new("dbench", format!("{status}, or no throughput printed")));
        };
        if rate <= 0.0 {
            return Err(BenchError::new("dbench", "measured nothing: give it more seconds"));
        }
        sync()?;
        let all = traffic()? - before;
        Ok(Run { rate, worst_ms: worst, seconds, steps, during: during - before, all })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uxfs::Error;
    use uxfs::disk::MemDev;
    use uxfs::mkfs;

    use crate::loadfile::{Disposition, Name};

    use super::*;

    fn volume() -> Fs {
        let (size, dev) = (300 << 20, MemDev::new(300 << 20));
        let layout = mkfs::Layout::new(&mkfs::Options::default(), size).unwrap();
        mkfs::write(&layout, &dev, &mkfs::WriteOptions::default()).unwrap();
        Fs::open(Arc::new(dev), uxfs::OpenOptions::default()).unwrap()
    }

    fn name(path: &str) -> Name {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| Box::from(part.as_bytes())).collect()
    }

    fn open(path: &str, how: Disposition, handle: u32) -> Op {
        Op::Open { name: name(path), directory: false, how, handle }
    }

    /// The size of a file, if it exists.
    fn size(fs: &Fs, path: &str) -> Option<u64> {
        let walk = |dir, part: &str| fs.lookup(dir, part.as_bytes());
        match path.split('/').try_fold(fs.root(), walk) {
            Ok(ino) => Some(fs.stat(ino).unwrap().size),
            Err(Error::NotFound) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    #[test]
    fn operations_change_the_volume_as_a_file_server_would() {
        let fs = volume();
        let home = fs.create(fs.root(), b"client0", &NewInode::dir(0o700)).unwrap();
        let mut player = Player::new(Volume { fs: &fs, home, buffer: Vec::new() });
        let mut play = |op: Op| player.play(&op).unwrap();
        play(Op::Mkdir(name("Dir")));
        play(Op::Mkdir(name("Dir/Sub")));
        play(open("Dir/a.txt", Disposition::Create, 4));
        assert_eq!(play(Op::Write { handle: 4, offset: 10, len: 9000 }), 9000);
        assert_eq!(play(Op::Read { handle: 4, offset: 9000, len: 4096 }), 10);
        for op in [Op::Flush(4), Op::SetFile(4), Op::QueryFile(4), Op::QueryFs, Op::Lock] {
            assert_eq!(play(op), 0);
        }
        assert_eq!(size(&fs, "client0/Dir/a.txt"), Some(9010));
        // The case of the last part of a name is ignored, that of its directories is not.
        play(open("Dir/A.TXT", Disposition::Create, 5));
        assert_eq!(size(&fs, "client0/Dir/A.TXT"), None);
        play(open("dir/new", Disposition::Create, 6));
        assert_eq!(size(&fs, "client0/dir"), None);
        play(open("Dir/A.TXT", Disposition::Overwrite, 5));
        assert_eq!(size(&fs, "client0/Dir/a.txt"), Some(0));
        play(Op::Write { handle: 5, offset: 0, len: 7 });
        play(Op::Rename(name("Dir/A.txt"), name("Dir/Sub/b")));
        assert_eq!(size(&fs, "client0/Dir/Sub/b"), Some(7));
        assert_eq!(size(&fs, "client0/Dir/a.txt"), None);
        // A file server reports these errors to its client, which goes on.
        play(Op::Close(5));
        assert_eq!(play(Op::Read { handle: 5, offset: 0, len: 7 }), 0);
        play(open("Dir/missing", Disposition::Open, 7));
        play(Op::Unlink(name("Dir/Sub")));
        play(Op::Find(name("Dir/*.txt")));
        play(Op::QueryPath(name("Dir/missing")));
        assert_eq!(size(&fs, "client0/Dir/Sub/b"), Some(7));
        play(Op::Unlink(name("Dir/Sub/B")));
        assert_eq!(size(&fs, "client0/Dir/Sub/b"), None);
        // The empty name is the client's own directory.
        play(Op::Deltree(name("DIR")));
        assert!(size(&fs, "client0/Dir/Sub").is_some());
        play(Op::Deltree(name("")));
        assert_eq!(size(&fs, "client0/Dir"), None);
        assert!(size(&fs, "client0").is_some());
    }
}
