//! Creates of empty files: through the library in this process, and by fs_mark on the kernel's XFS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::{Fs, NewInode, OpenOptions, mkfs};

use crate::host::{self, Scratch, is_root, run};
use crate::{BenchError, Report, Result, Row};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of files per round.
    pub files: u32,
}

const SIZE: u64 = 2 << 30;
const OWN: &str = "uxfs, in process, one thread, without the journal";
const NO_JOURNAL: &str = "uxfs' row writes no journal, as an import does: it is the cost of the library alone, and \
                          no volume in use; `bench fs-mark` compares volumes with journals";
const KERNEL: &str = "kernel XFS, fs_mark -S0 -s 0 -t 1";

/// Measures creates per second.
///
/// # Errors
/// If a step fails.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let scratch = Scratch::new(&options.dir)?;
    let mut own = Row::new(OWN, "in memory: lost with the power");
    let mut kernel = Row::new(KERNEL, "in memory: lost with the power, but for what was logged");
    let mut notes = vec![NO_JOURNAL.to_owned()];
    let with_kernel = is_root() && host::has("fs_mark") && host::has("mkfs.xfs");
    if !with_kernel {
        notes.push("the kernel's row needs root, mkfs.xfs and fs_mark: not measured".into());
    }
    for round in 1..=options.rounds {
        say(&format!("creates, round {round} of {}", options.rounds));
        own.samples.push(in_process(options, &scratch)?);
        if with_kernel {
            kernel.samples.push(fs_mark(options, &scratch)?);
        }
    }
    let base = if with_kernel { KERNEL } else { OWN };
    let mut rows = vec![own, kernel];
    rows.retain(|r| !r.samples.is_empty());
    let title = format!("creates of {} empty files", options.files);
    Ok(Report { title, unit: "/s", rows, base: base.into(), notes })
}

fn in_process(options: &Options, scratch: &Scratch) -> Result<f64> {
    let fail = |e: uxfs::Error| BenchError::new("creating", e);
    let image = scratch.file("creates.img");
    let dev = FileDev::open(&image, OpenMode::Create(SIZE))
        .map_err(|e| BenchError::new(image.display().to_string(), e))?;
    let dev: Arc<dyn BlockDev> = Arc::new(dev);
    let layout = mkfs::Layout::new(&mkfs::Options::default(), SIZE)
        .map_err(|e| BenchError::new("mkfs", e))?;
    let mut write_options = mkfs::WriteOptions::default();
    write_options.in_progress = true;
    mkfs::write(&layout, &*dev, &write_options).map_err(|e| BenchError::new("mkfs", e))?;
    // As an import opens a new image: without the log.
    let mut being_made = OpenOptions::default();
    being_made.unfinished = true;
    let fs = Fs::open(dev, being_made).map_err(fail)?;
    let start = Instant::now();
    let root = fs.root();
    // By default fs_mark fills one directory. The names have its length.
    for i in 0..options.files {
        let name = format!("{i:08}~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~");
        fs.create(root, name.as_bytes(), &NewInode::file(0o600)).map_err(fail)?;
    }
    let rate = f64::from(options.files) / start.elapsed().as_secs_f64();
    fs.close().map_err(fail)?;
    std::fs::remove_file(&image).map_err(|e| BenchError::new("removing the image", e))?;
    Ok(rate)
}

fn fs_mark(options: &Options, scratch: &Scratch) -> Result<f64> {
    let image = scratch.file("fs_mark.img");
    let made = std::fs::File::create(&image).and_then(|f| f.set_len(SIZE));
    made.map_err(|e| BenchError::new(image.display().to_string(), e))?;
    run("mkfs.xfs", &[&"-q", &image])?;
    run("mount", &[&"-o", &"loop", &image, &scratch.mnt()])?;
    let files = options.files.to_string();
    let log = scratch.file("fs_log.txt");
    let args: [&dyn AsRef<std::ffi::OsStr>; 13] = [
        &"-d",
        &scratch.mnt(),
        &"-n",
        &files,
        &"-s",
        &"0",
        &"-S",
        &"0",
        &"-t",
        &"1",
        &"-k",
        &"-l",
        &log,
    ];
    let out = run("fs_mark", &args);
    run("umount", &[&scratch.mnt()])?;
    std::fs::remove_file(&image).map_err(|e| BenchError::new("removing the image", e))?;
    // The last line that starts with five numbers: usage, count, size, files a second, overhead.
    let text = out?;
    let rate = text.lines().rev().find_map(|line| {
        let fields: Vec<f64> = line.split_whitespace().map_while(|f| f.parse().ok()).collect();
        (fields.len() >= 5).then(|| fields[3])
    });
    rate.ok_or_else(|| BenchError::new("fs_mark", "its output holds no rate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's XFS writes a journal, so the row without one says so, and so does the report.
    #[test]
    fn the_report_says_that_there_is_no_journal() {
        let dir = std::env::temp_dir();
        let report = run_all(&Options { dir, rounds: 1, files: 10 }, &mut |_| {}).unwrap();
        let row = report.rows.first().unwrap();
        assert!(row.name.contains("without the journal"), "{report}");
        assert!(report.notes.iter().any(|note| note.contains("no journal")), "{report}");
    }
}
