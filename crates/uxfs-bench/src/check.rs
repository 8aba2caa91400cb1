//! Checks of volumes: `uxfs check` against `xfs_repair -n`, with the memory of both.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::{Fs, NewInode, OpenOptions, mkfs};

use crate::host::{self, Scratch, peak_memory_kib, read_into_cache, timed};
use crate::{BenchError, Report, Result, Row};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sound volumes, which are only read.
    pub images: Vec<PathBuf>,
    /// Number of files of a volume that is made for the measurement; none for 0.
    pub files: u32,
    /// A directory on the host file system for that volume.
    pub dir: PathBuf,
    pub uxfs: PathBuf,
    pub rounds: u32,
}

const OWN: &str = "uxfs check";
const REPAIR: &str = "xfs_repair -n";
const READ_ONLY: &str = "reads only";
/// Number of files per directory of the volume that is made.
const FILES_PER_DIR: u32 = 1000;
/// Bytes per file (inodes may take a quarter), and bytes for everything else.
const FILE_BYTES: u64 = 4096;
const OTHER_BYTES: u64 = 512 << 20;

/// Measures checks; one report per volume. The host caches each volume as far as it fits.
///
/// # Errors
/// If a step fails, or a volume is not sound.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Report>> {
    let scratch = Scratch::new(&options.dir)?;
    let mut reports = Vec::new();
    for image in &options.images {
        reports.push(one(options, image, image.display().to_string(), say)?);
    }
    if options.files > 0 {
        say(&format!("making a volume of {} files", options.files));
        let image = scratch.file("files.img");
        make(&image, options.files)?;
        let name = format!("a volume of {} empty files", options.files);
        reports.push(one(options, &image, name, say)?);
    }
    Ok(reports)
}

fn one(options: &Options, image: &Path, name: String, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut rows = vec![Row::new(OWN, READ_ONLY), Row::new(REPAIR, READ_ONLY)];
    let mut notes = Vec::new();
    if !host::has("xfs_repair") {
        notes.push("xfs_repair is not installed: not measured".to_owned());
        rows.truncate(1);
    }
    read_into_cache(image)?;
    for round in 1..=options.rounds {
        say(&format!("{name}, round {round} of {}", options.rounds));
        for row in &mut rows {
            let (program, args) = match row.name == OWN {
                true => (options.uxfs.clone(), ["check", "-q"]),
                false => (host::program("xfs_repair"), ["-n", "-f"]),
            };
            let mut command = Command::new(program);
            command.args(args).arg(image).stdin(Stdio::null());
            let (seconds, memory) = timed(|| {
                let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                peak_memory_kib(child.map_err(|e| BenchError::new(&row.name, e))?, &row.name)
            })?;
            row.samples.push(seconds);
            row.memory_kib = row.memory_kib.max(Some(memory));
        }
    }
    let base = rows.last().map_or(OWN, |row| if row.name == OWN { OWN } else { REPAIR }).to_owned();
    Ok(Report { title: format!("checking {name}"), unit: "s", rows, base, notes })
}

fn make(image: &Path, files: u32) -> Result<()> {
    let fail = |e: uxfs::Error| BenchError::new("filling a volume", e);
    let size = OTHER_BYTES + u64::from(files) * FILE_BYTES;
    let dev = FileDev::open(image, OpenMode::Create(size))
        .map_err(|e| BenchError::new(image.display().to_string(), e))?;
    let layout = mkfs::Layout::new(&mkfs::Options::default(), size)
        .map_err(|e| BenchError::new("mkfs", e))?;
    let mut how = mkfs::WriteOptions::default();
    how.zero_log = true;
    mkfs::write(&layout, &dev, &how).map_err(|e| BenchError::new("mkfs", e))?;
    let dev: Arc<dyn BlockDev> = Arc::new(dev);
    let fs = Fs::open(dev, OpenOptions::default()).map_err(fail)?;
    for first in (0..files).step_by(FILES_PER_DIR as usize) {
        let name = format!("dir{first}");
        let dir = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755)).map_err(fail)?;
        for number in first..files.min(first + FILES_PER_DIR) {
            let name = format!("file{number}");
            fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).map_err(fail)?;
        }
    }
    fs.close().map_err(fail)
}
