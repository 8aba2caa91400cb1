//! Resident memory of a mount: of a small volume, and of one with ten times as many files, while
//! files are created, and while a fresh mount walks them.

use std::fs::File;
use std::path::Path;

use super::options::Options;
use super::served::Served;
use super::unsynced::Unsynced;
use crate::host::Scratch;
use crate::{BenchError, Report, Result, Row};

/// Default number of files of the larger volume.
const FILES: u32 = 200_000;
const FILES_PER_DIR: u32 = 500;
const READ: &str = "nothing written";

pub(super) fn run_all(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Report>> {
    let many = options.files.unwrap_or(FILES).max(10);
    let counts = [many / 10, many];
    let names = counts.map(|count| format!("{count} files"));
    let costs = [unsynced.of_metadata(), READ.into()];
    let mut rows = costs.map(|cost| names.clone().map(|name| Row::new(name, cost.clone())));
    for round in 1..=options.rounds {
        say(&format!("resident memory, round {round} of {}", options.rounds));
        for (at, count) in counts.into_iter().enumerate() {
            for (rows, peak) in rows.iter_mut().zip(peaks(options, scratch, count)?) {
                rows[at].samples.push(peak);
            }
        }
    }
    let titles = ["empty files made", "files walked after a fresh mount"];
    let reports = rows.into_iter().zip(titles).map(|(rows, what)| Report {
        title: format!("largest resident memory, {what}, -o {}", options.options),
        unit: "MiB",
        rows: rows.into(),
        base: names[0].clone(),
        notes: vec![
            "cache_bytes= bounds cached metadata, dirty_bytes= data to be written; \
             each inode in the kernel's cache adds some tens of bytes"
                .into(),
        ],
    });
    Ok(reports.collect())
}

/// Largest resident memory while files were created and while they were walked, in MiB.
fn peaks(options: &Options, scratch: &Scratch, count: u32) -> Result<[f64; 2]> {
    let peak = |served: &Served| served.memory_kib().unwrap_or(0) as f64 / 1024.0;
    let served = Served::volume(&options.uxfs, scratch, options.size, &options.options)?;
    let done = fill(&served.dir, count);
    let made = peak(&served);
    let served = served.again(&options.uxfs, scratch, &options.options)?;
    let seen = done.and_then(|()| walk(&served.dir));
    let walked = peak(&served);
    served.done()?;
    match seen? {
        seen if seen == count => Ok([made, walked]),
        seen => Err(BenchError::new("walking", format!("{seen} of {count} files"))),
    }
}

fn fill(root: &Path, count: u32) -> Result<()> {
    let fail = |e: std::io::Error| BenchError::new(root.display().to_string(), e);
    for n in 0..count {
        let dir = root.join(format!("directory-{:06}", n / FILES_PER_DIR));
        if n.is_multiple_of(FILES_PER_DIR) {
            std::fs::create_dir(&dir).map_err(fail)?;
        }
        File::create_new(dir.join(format!("file-{n:08}"))).map_err(fail)?;
    }
    Ok(())
}

/// Walks everything. Returns the number of files.
fn walk(root: &Path) -> Result<u32> {
    let fail = |e: std::io::Error| BenchError::new(root.display().to_string(), e);
    let mut files = 0;
    for dir in std::fs::read_dir(root).map_err(fail)? {
        for entry in std::fs::read_dir(dir.map_err(fail)?.path()).map_err(fail)? {
            let meta = entry.map_err(fail)?.metadata().map_err(fail)?;
            files += u32::from(meta.is_file());
        }
    }
    Ok(files)
}
