//! The same workloads on a real disk in real time: uxfs in this process, compared with file systems
//! of the host, on files in the same directory.
//!
//! 1. Rows run one after the other, each on a file system made for it.
//! 2. What a kernel mounts was made by its own tools; never a volume that uxfs wrote.
//! 3. Files, loop devices and mounts are removed again, however this process ends
//!    ([`uxfs_bench::Scratch`]).
//! 4. For uxfs the trace of requests is recorded, judged and cut as in virtual time. For others
//!    only the promise of their calls is stated, and that it is unchecked.

mod peer;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;
mod volume;
mod workloads;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use uxfs_bench::{Kind, Mounted, Scratch};

use crate::durability::judge;
use crate::experiments::blank::blank;
use crate::outcome::{Best, Column, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::{LabError, Result};
pub use peer::Peer;
use volume::{Own, Volume};
use workloads::{Variant, Workload};

/// The file system of a row.
#[derive(Clone, Debug)]
enum FileSystem {
    Uxfs(PathBuf),
    Kernel(Kind, PathBuf),
    Dir(PathBuf),
}

/// The directories, and the file system measured in each; uxfs first.
fn places(how: &How) -> Vec<(PathBuf, Vec<FileSystem>)> {
    let mut all: Vec<(PathBuf, Vec<FileSystem>)> = Vec::new();
    for peer in &how.on {
        let (dir, fs) = match peer {
            Peer::Kernel(kind) => (&how.dir, FileSystem::Kernel(*kind, how.dir.clone())),
            Peer::Dir(dir) => (dir, FileSystem::Dir(dir.clone())),
        };
        match all.iter_mut().find(|place| place.0 == *dir) {
            Some(place) => place.1.push(fs),
            None => all.push((dir.clone(), vec![FileSystem::Uxfs(dir.clone()), fs])),
        }
    }
    all
}

impl FileSystem {
    fn name(&self, variant: &Variant) -> String {
        match self {
            Self::Uxfs(_) if variant.tickets() => "uxfs, waiting at the end".into(),
            Self::Uxfs(_) => "uxfs, in process".into(),
            Self::Kernel(kind, _) => Peer::Kernel(*kind).to_string(),
            Self::Dir(path) => Peer::Dir(path.clone()).to_string(),
        }
    }

    /// Does it support this variant?
    fn can(&self, variant: &Variant) -> bool {
        match self {
            Self::Uxfs(_) => true,
            Self::Kernel(..) => !variant.tickets(),
            // Its mount options cannot be changed.
            Self::Dir(_) => !variant.tickets() && variant.barrier,
        }
    }

    fn run(&self, work: &Workload, variant: &Variant, cuts: u32, seed: u64) -> Result<Found> {
        let failed = |e: uxfs_bench::BenchError| LabError::new(e.what, e.why);
        let words: &[&str] = if variant.barrier { &[] } else { &["nobarrier"] };
        let mut mounted = None;
        let (dir, scratch) = match self {
            Self::Uxfs(dir) | Self::Kernel(_, dir) | Self::Dir(dir) => {
                (dir, Scratch::new(dir).map_err(failed)?)
            }
        };
        let volume = match self {
            Self::Uxfs(_) => Volume::Own(Box::new(Own::new(&scratch, words)?)),
            Self::Kernel(kind, _) => {
                match Mounted::with(*kind, &scratch, volume::SIZE, &words.join(",")) {
                    Ok(new) => Volume::Host(mounted.insert(new).dir.clone()),
                    // Newer kernels do not know it any more; the row says so.
                    Err(error) if !variant.barrier => {
                        let why = error.why.lines().next().unwrap_or_default().to_owned();
                        let worth = format!("not run: does not mount with nobarrier ({why})");
                        return Ok(Found { worth: Some(worth), ..Found::default() });
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
            Self::Dir(_) => {
                let files = scratch.file("files");
                std::fs::create_dir(&files)
                    .map_err(|e| LabError::new(dir.display().to_string(), e))?;
                Volume::Host(files)
            }
        };
        // Unwritten data of others is not measured here.
        volume.sync()?;
        let before = mounted.as_ref().and_then(|m| m.traffic().ok());
        let mut found = work.run(&volume, variant, seed)?;
        let span = (found.get("begun").unwrap_or(0.0), found.get("ended").unwrap_or(0.0));
        let after = mounted.as_ref().and_then(|m| m.traffic().ok());
        if let (Some(before), Some(after)) = (before, after) {
            found.set("flushes", (after - before).flushes as f64);
        }
        match volume.end((span.0 as u64, span.1 as u64))? {
            Some(ran) => {
                let durability = judge(&ran, cuts, seed);
                found.set("flushes", durability.flushes as f64);
                found.durability = Some(durability);
            }
            None => found.worth = Some(variant.promise().into()),
        }
        match mounted {
            Some(mounted) => mounted.done().map_err(failed)?,
            None => drop(scratch),
        }
        Ok(found)
    }
}

/// Runs the experiment of this name beside the peers.
///
/// # Errors
/// If the experiment has no real-time variant, a peer cannot be used, or a row cannot be run.
pub(crate) fn run(name: &str, how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let work = Workload::named(name, how)?.ok_or_else(|| {
        let why =
            "runs only on modelled disks; --on takes fs-mark, tar-star, barriers, git and compile";
        LabError::new(name, why)
    })?;
    how.on.iter().try_for_each(Peer::ready)?;
    let work = std::sync::Arc::new(work);
    let mut jobs = Vec::new();
    let places = places(how);
    for (dir, systems) in &places {
        for variant in work.variants() {
            for fs in systems.iter().filter(|fs| fs.can(&variant)) {
                let group = match places.len() {
                    1 => variant.group.clone(),
                    _ => format!("{}, in {}", variant.group, dir.display()),
                };
                let (work, fs, variant) = (work.clone(), fs.clone(), variant.clone());
                let (cuts, seed, name) = (how.cuts, how.seed, fs.name(&variant));
                jobs.push(Job::new(group, name, move || fs.run(&work, &variant, cuts, seed)));
            }
        }
    }
    let mut alone = how.clone();
    alone.jobs = NonZeroUsize::MIN;
    let rows = run_jobs(&alone, jobs, progress)?;
    Ok(outcome(&work, how, &rows, places.iter().map(|place| place.0.as_path())))
}

fn outcome<'a>(
    work: &Workload,
    how: &How,
    rows: &Rows,
    places: impl Iterator<Item = &'a Path>,
) -> Experiment {
    let name = format!("{}-real", work.name);
    let mut out = blank(&name, &format!("{}, in real time on a real disk", work.title), how);
    out.about = format!(
        "REAL TIME, not repeatable: results depend on this machine, its disk, and their other work. {} \
         uxfs works in this process, on a file. File systems of the kernel are used through system \
         calls, on a loop device over a file in the same directory; dir: through system calls in a \
         directory. The requests of uxfs are judged and cut as in virtual time, assuming a volatile \
         cache; for others the row states what their calls promise.",
        work.about
    );
    out.source = format!("{} in real time", work.name);
    out.heads = ("what".into(), "on".into());
    out.columns = vec![
        match work.rated() {
            true => Column::new("rate", "files/s", 0, Best::High),
            false => Column::new("total_s", "seconds", 2, Best::Low),
        },
        Column::new("extract_s", "of it until the sync", 2, Best::None),
        Column::new("p50_ms", "p50 ms", 3, Best::None),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("flushes", "flushes", 0, Best::None),
    ];
    out.rows = rows.table(how, &name, &out.columns, |_, _, _| None);
    let on: Vec<String> = how.on.iter().map(Peer::to_string).collect();
    for row in &mut out.rows {
        row.repeat = format!(
            "uxfs lab run {} --on {} --dir {} --seed {} --only '{} / {}'",
            work.name,
            on.join(","),
            how.dir.display(),
            how.seed,
            row.group,
            row.name
        );
    }
    out.shapes = shapes(work, rows);
    out.notes = vec!["real time: digits differ between runs".into()];
    out.notes.extend(work.note.clone());
    out.notes.extend(places.map(|dir| format!("files were in {}", dir.display())));
    out.notes.push(
        "for uxfs each write is also kept in memory for the cuts; its times include that".into(),
    );
    out
}

/// The claims that a run in real time can judge.
fn shapes(work: &Workload, rows: &Rows) -> Vec<Shape> {
    if work.name != "tar-star" {
        return Vec::new();
    }
    let (tickets, end) = ("uxfs, waiting at the end", "uxfs, in process");
    let of = |group: &str, name: &str| rows.get(group, name, "total_s");
    let ratio = of(workloads::TICKETS, tickets).zip(of(workloads::END, end)).map(|(a, b)| a / b);
    vec![Shape::goal(
        "uxfs: waiting for all at the end costs at most 3 times tar, with every file on stable storage",
        "35x to 1,300x for an fsync each",
        ratio,
        "x",
        crate::verdict::at_most(3.0),
    )]
}
