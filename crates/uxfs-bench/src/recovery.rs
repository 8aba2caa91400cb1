//! Recovery of a full log of the kernel: the kernel mounts one copy, uxfs opens another, until
//! everything that was logged is written in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::{Fs, OpenOptions};

use crate::host::{self, Scratch, drop_from_cache, is_root, read_into_cache, run, sync, timed};
use crate::kernel::{Kind, Mounted};
use crate::{BenchError, Report, Result, Row};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    pub rounds: u32,
    /// Number of files whose creates are in the log.
    pub files: u32,
    /// Size of the volumes in bytes.
    pub size: u64,
}

const OWN: &str = "uxfs, open";
const KERNEL: &str = "kernel xfs, mount";
const IN_PLACE: &str = "nothing: everything logged is written in place";

const PROGRAMS: &str = "the kernel's time is that of mount, findmnt and umount, programs among them; uxfs' of an open \
                        and a close in this process";

/// Measures recovery.
///
/// # Errors
/// If a step fails, or without root and its tools.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let tools = ["fs_mark", "mkfs.xfs", "xfs_io", "findmnt"];
    if !is_root() || !tools.iter().all(|tool| host::has(tool)) {
        let why = "needs root, fs_mark, mkfs.xfs and xfs_io: the kernel makes the log";
        return Err(BenchError::new("recovery", why));
    }
    let scratch = Scratch::new(&options.dir)?;
    let mut own = Row::new(OWN, IN_PLACE);
    let mut kernel = Row::new(KERNEL, IN_PLACE);
    let mut notes = Vec::new();
    say(&format!("the kernel logs {} creates and is stopped", options.files));
    let dirty = dirty_image(options, &scratch)?;
    let copy = scratch.file("copy.img");
    for round in 1..=options.rounds {
        say(&format!("recovery, round {round} of {}", options.rounds));
        // In turns; each is first in every other round.
        for turn in 0..2 {
            fresh_copy(&dirty, &copy)?;
            if (turn + round) % 2 == 0 {
                kernel.samples.push(timed(|| mount(&scratch, &copy))?.0);
            } else {
                let (seconds, what) = timed(|| open(&copy))?;
                own.samples.push(seconds);
                notes = vec![what];
            }
        }
    }
    notes.push(PROGRAMS.into());
    notes.push("an image of our own writing is never mounted: each copy is recovered once".into());
    let title = format!("recovery of a log of {} creates, -l size=128m", options.files);
    Ok(Report { title, unit: "s", rows: vec![own, kernel], base: KERNEL.into(), notes })
}

/// An image whose log holds all changes: shut down after the log was forced and before anything
/// else was written.
fn dirty_image(options: &Options, scratch: &Scratch) -> Result<PathBuf> {
    let mounted = Mounted::new(Kind::Xfs, scratch, options.size)?;
    let dir = mounted.dir.join("0");
    let (files, log) = (options.files.to_string(), scratch.file("fs_log.txt"));
    run("fs_mark", &[&"-S0", &"-s", &"0", &"-n", &files, &"-k", &"-l", &log, &"-d", &dir])?;
    // Forces the log, and writes nothing else.
    run("xfs_io", &[&"-x", &"-c", &"shutdown -f", &mounted.dir])?;
    mounted.unmount()
}

fn fresh_copy(from: &Path, to: &Path) -> Result<()> {
    run("cp", &[&"--sparse=always", &from, &to])?;
    sync(to)?;
    // Both read from the host's cache: the replay is measured.
    drop_from_cache(to)?;
    read_into_cache(to).map(|_| ())
}

fn mount(scratch: &Scratch, image: &Path) -> Result<()> {
    // The mount's writes must be durable for a fair end. So the unmount is measured too, and the programs
    // that do both: the notes say so.
    let mounted = Mounted::mount(Kind::Xfs, scratch, image.to_owned())?;
    mounted.unmount()?;
    sync(image)
}

fn open(image: &Path) -> Result<String> {
    let fail = |e: uxfs::Error| BenchError::new("recovering", e);
    let dev = FileDev::open(image, OpenMode::Write)
        .map_err(|e| BenchError::new(image.display().to_string(), e))?;
    let mut options = OpenOptions::default();
    options.journal = uxfs::journal::JournalOptions::default();
    let fs = Fs::open(Arc::new(dev), options).map_err(fail)?;
    let inodes = fs.inode_counts();
    fs.close().map_err(fail)?;
    sync(image)?;
    Ok(format!("recovered: {} inodes in use", inodes.0 - inodes.1))
}
