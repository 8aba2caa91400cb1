//! The pattern of fs_mark: many threads create files, each in its own directory. Runs in this
//! process, and on the kernel's file systems.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use uxfs::{Fs, NewInode};
use uxfs_testkit::Rng;

use crate::host::{self, Scratch, is_root, run};
use crate::in_process::{self, InProcess};
use crate::kernel::{Kind, Mounted};
use crate::settings::{DELAYLOG, KERNEL, Setting, settings_of_round};
use crate::table::{Run, Table};
use crate::traffic::{Durability, Traffic};
use crate::{BenchError, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// This many by each thread.
    Each(u32),
    /// This many in all, shared among the threads.
    Total(u32),
}

impl Files {
    /// Number of files of each of `threads` threads.
    fn each(self, threads: u32) -> u32 {
        match self {
            Self::Each(files) => files,
            Self::Total(files) => (files / threads.max(1)).max(1),
        }
    }
}

impl core::fmt::Display for Files {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Each(files) => write!(f, "-n {files}"),
            Self::Total(files) => write!(f, "-n {files}/threads"),
        }
    }
}

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    pub rounds: u32,
    pub threads: Vec<u32>,
    pub files: Files,
    /// Files of 4 KiB, each on stable storage before the next is created (`-S1 -s 4096`), instead
    /// of empty files in memory (`-S0 -s 0`).
    pub durable: bool,
    /// Measures only settings whose name contains this.
    pub only: String,
    /// Size of the volumes in bytes.
    pub size: u64,
    /// Log options of uxfs' rows, except for what their names say.
    pub journal: uxfs::journal::JournalOptions,
}

/// Refuses a place whose directories' names are too long for fs_mark, before anything is measured.
pub(crate) fn check_dirs(mnt: &Path, threads: &[u32]) -> Result<()> {
    let most = threads.iter().max().map_or(0, |threads| threads.saturating_sub(1));
    let longest = thread_dir(mnt, most);
    let bytes = longest.as_os_str().len();
    if bytes <= DIR_MAX {
        return Ok(());
    }
    let what = format!(
        "takes directories of at most {DIR_MAX} bytes, and {} has {bytes}: measure in a directory with a \
         shorter name (--dir)",
        longest.display()
    );
    Err(BenchError::new("fs_mark", what))
}

/// The directory of a thread.
fn thread_dir(dir: &Path, thread: u32) -> PathBuf {
    dir.join(thread.to_string())
}

const FILE: usize = 4096;
/// Bytes of the longest directory's name that fs_mark 3.3 takes: it refuses 40, and 39 overflow a buffer.
const DIR_MAX: usize = 38;

/// Measures creates per second.
///
/// # Errors
/// If a step fails.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Table> {
    let scratch = Scratch::new(&options.dir)?;
    let mut notes = vec![
        "log bytes of ext4 are averages from jbd2; its log IOPS are transactions".to_owned(),
        "data in memory only is lost with the process by uxfs, with the machine by the kernel"
            .into(),
    ];
    let tools = ["fs_mark", "mkfs.xfs", "mkfs.ext4", "findmnt"];
    let with_kernel = is_root() && tools.iter().all(|tool| host::has(tool));
    let mut wanted = settings_of_round(1, &options.only, with_kernel);
    if wanted.any(|(_, setting)| matches!(setting, Setting::Kernel(_))) {
        check_dirs(&scratch.mnt(), &options.threads)?;
    }
    if !with_kernel {
        let what = "the kernel's rows need root, fs_mark, mkfs.xfs and mkfs.ext4: not measured";
        notes.push(what.into());
    }
    let pattern = if options.durable { "-S1 -s 4096" } else { "-S0 -s 0" };
    let base = if with_kernel { KERNEL } else { DELAYLOG };
    let title = format!(
        "fs_mark {pattern} {}, a directory each; -l size=128m -d agcount=16, logbsize=262144",
        options.files
    );
    let (axis, unit, step, lines) = ("threads", "files/s", "file", Vec::new());
    let mut table = Table { title, axis, unit, step, lines, base, notes };
    for &threads in &options.threads {
        for round in 1..=options.rounds {
            say(&format!("{pattern}, {threads} threads, round {round} of {}", options.rounds));
            for (name, setting) in settings_of_round(round, &options.only, with_kernel) {
                let (run, age) = match setting {
                    Setting::Own(word) => {
                        let journal = in_process::journal(options.journal, word)?;
                        let age = journal.pipeline.age_max.as_secs() as u32;
                        (in_process(options, threads, &scratch, journal)?, age)
                    }
                    Setting::Kernel(kind) => fs_mark(options, threads, &scratch, kind)?,
                };
                table.add(threads, name, options.durability(age), run);
            }
        }
    }
    Ok(table)
}

impl Options {
    fn durability(&self, age: u32) -> Durability {
        if self.durable { Durability::Each } else { Durability::Within(age) }
    }
}

fn in_process(
    options: &Options,
    threads: u32,
    scratch: &Scratch,
    journal: uxfs::journal::JournalOptions,
) -> Result<Run> {
    let fail = |e: uxfs::Error| BenchError::new("making files", e);
    let own = InProcess::new(scratch, options.size, journal, None)?;
    let fs = &own.fs;
    let ready = Barrier::new(threads as usize + 1);
    let (before, start, during) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || {
                    let name = thread.to_string();
                    let made = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o777));
                    ready.wait();
                    make_files(fs, made?, options, threads)
                })
            })
            .collect();
        let before = own.traffic();
        let start = Instant::now();
        ready.wait();
        for worker in workers {
            worker
                .join()
                .map_err(|_| BenchError::new("making files", "a thread panicked"))?
                .map_err(fail)?;
        }
        Ok((before, start.elapsed(), own.traffic()))
    })?;
    let seconds = start.as_secs_f64();
    fs.sync().map_err(fail)?;
    let all = own.traffic() - before;
    let steps = u64::from(threads) * u64::from(options.files.each(threads));
    own.done()?;
    let rate = steps as f64 / seconds;
    Ok(Run { rate, worst_ms: None, seconds, steps, during: during - before, all })
}

fn make_files(
    fs: &Fs,
    dir: uxfs::format::Ino,
    options: &Options,
    threads: u32,
) -> uxfs::Result<()> {
    let data = [0x5a; FILE];
    let mut rng = Rng::new(dir.0);
    for number in 0..options.files.each(threads) {
        let name = file_name(number, &mut rng);
        let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o666))?;
        if options.durable {
            fs.write_at(ino, 0, &data)?;
            fs.fsync(ino)?;
        }
    }
    Ok(())
}

/// A name of fs_mark's form: 40 bytes, the last 24 of them random.
pub fn file_name(number: u32, rng: &mut Rng) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    let mut name = format!("{number:08x}~~~~~~~~");
    for _ in 0..24 {
        name.push(DIGITS[rng.scaled(32) as usize].into());
    }
    name
}

fn fs_mark(options: &Options, threads: u32, scratch: &Scratch, kind: Kind) -> Result<(Run, u32)> {
    let mounted = Mounted::new(kind, scratch, options.size)?;
    let age = mounted.age();
    let run = fs_mark_mounted(options, threads, scratch, &mounted);
    mounted.done()?;
    Ok((run?, age))
}

fn fs_mark_mounted(
    options: &Options,
    threads: u32,
    scratch: &Scratch,
    mounted: &Mounted,
) -> Result<Run> {
    let files = options.files.each(threads);
    let steps = u64::from(threads) * u64::from(files);
    let mark = || run_fs_mark(scratch, &mounted.dir, threads, files, options.durable);
    measured(steps, || mounted.traffic(), || mounted.sync(), mark)
}

/// A run of fs_mark. Its own rate leaves out what it does before and after its files. The traffic is that
/// of the whole process, and so is the time that the traffic is divided by.
pub(crate) fn measured(
    steps: u64,
    traffic: impl Fn() -> Result<Traffic>,
    sync: impl Fn() -> Result<()>,
    mark: impl FnOnce() -> Result<f64>,
) -> Result<Run> {
    let before = traffic()?;
    let (seconds, rate) = host::timed(mark)?;
    let during = traffic()? - before;
    sync()?;
    let all = traffic()? - before;
    Ok(Run { rate, worst_ms: None, seconds, steps, during, all })
}

/// Runs fs_mark in a directory. Returns files per second.
pub(crate) fn run_fs_mark(
    scratch: &Scratch,
    dir: &Path,
    threads: u32,
    files: u32,
    durable: bool,
) -> Result<f64> {
    let (sync, size) = if durable { ("1", "4096") } else { ("0", "0") };
    let files = files.to_string();
    let mut args: Vec<OsString> =
        ["-S", sync, "-s", size, "-n", &files, "-k", "-l"].map(OsString::from).into();
    args.push(scratch.file("fs_log.txt").into());
    for thread in 0..threads {
        args.push("-d".into());
        args.push(thread_dir(dir, thread).into());
    }
    let refs: Vec<&dyn AsRef<OsStr>> = args.iter().map(|a| a as &dyn AsRef<OsStr>).collect();
    let text = run("fs_mark", &refs)?;
    // The last line that starts with five numbers: usage, count, size, files a second, overhead.
    let rate = text.lines().rev().find_map(|line| {
        let fields: Vec<f64> = line.split_whitespace().map_while(|f| f.parse().ok()).collect();
        (fields.len() >= 5).then(|| fields[3])
    });
    rate.ok_or_else(|| BenchError::new("fs_mark", "its output holds no rate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An fs_mark that works before its own clock starts, and whose rate says a microsecond.
    #[test]
    fn the_traffic_of_a_whole_process_is_divided_by_the_time_of_the_whole_process() {
        let before = std::time::Duration::from_millis(50);
        let slow = || {
            std::thread::sleep(before);
            Ok(1e9)
        };
        let bytes = std::cell::Cell::new(0);
        let traffic = || {
            bytes.set(bytes.get() + 1000);
            Ok(Traffic { log_bytes: bytes.get(), ..Traffic::default() })
        };
        let run = measured(1000, traffic, || Ok(()), slow).unwrap();
        assert!(run.seconds >= before.as_secs_f64(), "{run:?}");
        assert_eq!((run.rate, run.during.log_bytes, run.all.log_bytes), (1e9, 1000, 2000));
    }

    #[test]
    fn directories_that_fs_mark_does_not_take_are_refused() {
        let mnt = Path::new("/").join("l".repeat(DIR_MAX - 3));
        check_dirs(&mnt, &[1, 10]).unwrap();
        let error = check_dirs(&mnt, &[1, 16]).unwrap_err().to_string();
        assert!(error.contains("lll/15 has 39") && error.contains("--dir"), "{error}");
    }

    #[test]
    fn names_are_of_forty_bytes_and_differ() {
        let mut rng = Rng::new(1);
        let names: Vec<String> = (0..100).map(|n| file_name(n, &mut rng)).collect();
        assert!(names.iter().all(|name| name.len() == 40));
        assert!(names[0][16..] != names[1][16..]);
    }
}
