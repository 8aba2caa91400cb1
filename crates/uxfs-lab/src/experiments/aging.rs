//! Even behaviour over a file system's aging: [`posts::SPINDLE`].

use std::sync::Arc;

use parking_lot::Mutex;
use uxfs::Fs;
use uxfs_models::Description;

use super::blank::{blank, note};
use super::concat::flat;
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, rounded, run as run_jobs};
use crate::posts;
use crate::setup::{Prepare, Setup};
use crate::verdict::{at_least, at_most, like};
use crate::work::age::{AgedFile, Aging, age};
use crate::work::build::{Load, populate, run as build};
use crate::work::tree::Tree;

const DISK: &str = "hdd-7200";
const MONTHS: [u32; 4] = [0, 1, 3, 6];
const FILL: u64 = 80;
/// Bytes of the volume: a part of the disk, so that filling it takes files by the thousand, not million.
const SIZE: &str = "size=16g,agcount=8";
const SPREAD: &str = "spread over groups";
const PACKED: &str = "packed in one";
const LOAD: Load = Load { clients: 8, jobs: 12, reads: 10, makes: 8, work_us: 3_000, flat: false };
const COLUMNS: usize = 128;

/// Runs of bytes and their owners.
type Runs = Vec<(u64, u64, usize)>;

const OWNERS: [&str; 5] = [
    "the tree that is read",
    "files of the last month",
    "of months before",
    "of the first day",
    "the log",
];

/// The state of a volume after a part of its aging.
#[derive(Debug, Default)]
struct State {
    /// Mean number of extents per file: of files that aged there, and of the tree's.
    old_runs: f64,
    tree_runs: f64,
    /// Pieces of free space per GB of it.
    gaps: f64,
    map: Vec<Vec<(f64, f64)>>,
}

fn runs_of(fs: &Fs, inos: &[(uxfs::format::Ino, usize)], runs: &mut Runs) -> uxfs::Result<f64> {
    let before = runs.len();
    for (ino, owner) in inos {
        for extent in fs.extents(*ino)? {
            let at = fs.geo.fsb_daddr(extent.start).bytes();
            runs.push((at, extent.len << fs.geo.block_log, *owner));
        }
    }
    Ok((runs.len() - before) as f64 / inos.len().max(1) as f64)
}

/// Records the layout of the volume.
fn survey(fs: &Fs, tree: &Tree, old: &[AgedFile], months: u32) -> uxfs::Result<State> {
    let mut state = State::default();
    let mut inos = Vec::new();
    for (dir, name, _) in &tree.files {
        let path = format!("/{}/{name}", tree.path(*dir));
        inos.push((fs.resolve(path.as_bytes(), false)?, 0));
    }
    let mut runs = Runs::new();
    state.tree_runs = runs_of(fs, &inos, &mut runs)?;
    let owner = |file: &AgedFile| match file.month {
        0 => 3,
        month if month == months => 1,
        _ => 2,
    };
    let inos: Vec<_> = old.iter().map(|file| (file.ino, owner(file))).collect();
    state.old_runs = runs_of(fs, &inos, &mut runs)?;
    let log = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
    runs.push((log, u64::from(fs.geo.log_blocks) << fs.geo.block_log, 4));
    runs.sort_unstable();
    let size = fs.geo.dblocks << fs.geo.block_log;
    let (mut gaps, mut free, mut at) = (0u64, 0u64, 0u64);
    for (start, len, _) in runs.iter().chain([&(size, 0, 0)]) {
        if *start > at {
            gaps += 1;
            free += start - at;
        }
        at = at.max(start + len);
    }
    state.gaps = gaps as f64 / (free.max(1) as f64 / 1e9);
    state.map = map(&runs, size);
    Ok(state)
}

/// For each owner, its fraction of each column of the volume.
fn map(runs: &Runs, size: u64) -> Vec<Vec<(f64, f64)>> {
    let wide = size.div_ceil(COLUMNS as u64).max(1);
    let mut parts = vec![vec![0u64; COLUMNS]; OWNERS.len()];
    for (start, len, owner) in runs {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let column = ((at / wide) as usize).min(COLUMNS - 1);
            let stop = end.min((at / wide + 1) * wide);
            parts[*owner][column] += stop - at;
            at = stop;
        }
    }
    let point = |(at, bytes): (usize, &u64)| {
        let place = (at as u64 * wide) as f64 / 1e9;
        (rounded(place), rounded(*bytes as f64 / wide as f64 * 100.0))
    };
    parts.iter().map(|columns| columns.iter().enumerate().map(point).collect()).collect()
}

fn group(months: u32) -> String {
    match months {
        0 => "new".into(),
        1 => "after 1 month".into(),
        n => format!("after {n} months"),
    }
}

fn job(how: &How, disk: &Description, months: u32, name: &'static str, tree: &Arc<Tree>) -> Job {
    let packed = name == PACKED;
    let tree = if packed { Arc::new(flat(tree)) } else { Arc::clone(tree) };
    let mut setup = Setup::new(disk, how.seed).mkfs('d', SIZE);
    setup.cuts = how.cuts.min(4);
    let aging = Aging { months, dirs: if packed { 1 } else { 64 }, fill: FILL, seed: how.seed };
    let state = Arc::new(Mutex::new(State::default()));
    let (source, seen) = (Arc::clone(&tree), Arc::clone(&state));
    let prepare: Prepare = Arc::new(move |fs| {
        let old = age(fs, aging)?;
        populate(fs, &source, 0)?;
        *seen.lock() = survey(fs, &source, &old, months)?;
        Ok(())
    });
    setup.prepare = Some(prepare);
    Job::new(group(months), name, move || {
        let ran = setup.run(|lab| build(lab, &tree, Load { flat: packed, ..LOAD }))?;
        let mut found = Found::of(&ran, &setup);
        let state = state.lock();
        if months > 0 {
            found.set("old_runs", state.old_runs);
        }
        found.set("tree_runs", state.tree_runs);
        found.set("gaps", state.gaps);
        for (owner, points) in OWNERS.iter().zip(&state.map) {
            found.points.insert(format!("map {owner}"), points.clone());
        }
        Ok(found)
    })
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let disk = disks::named(DISK)?;
    let tree = Arc::new(Tree::new("git", 2_000, 2015));
    let mut jobs = Vec::new();
    for months in MONTHS {
        for name in [SPREAD, PACKED] {
            jobs.push(job(how, &disk, months, name, &tree));
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("aging", "work on a cold tree, on a new and on an aged volume", how);
    out.about = "A volume of 16 GB is filled to 80 % with files of 4 KiB to 16 MiB. In each month \
                 half of the files are replaced and as many grow, in random order. Then a tree \
                 of 2,000 files is written, and eight clients run the load that `spindle` calls \
                 git's tests on it. Spread is XFS with 64 directories in 8 allocation groups. \
                 Packed has one directory for all files, which keeps XFS in as few groups as \
                 possible: it stands for file systems that fill a disk from its start, which are \
                 not modelled."
        .into();
    out.source = posts::SPINDLE.to_string();
    out.disks = vec![note(&disk)];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("age".into(), "placement".into());
    out.columns = vec![
        Column::new("seconds", "seconds", 2, Best::Low),
        Column::new("seek_gb", "mean distance GB", 2, Best::Low),
        Column::new("tree_runs", "runs a file, tree", 2, Best::Low),
        Column::new("old_runs", "runs a file, old", 2, Best::Low),
        Column::new("gaps", "gaps a free GB", 0, Best::Low),
    ];
    out.rows = rows.table(how, "aging", &out.columns, |_, _, _| None);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        "aging runs outside the simulation: only work on the aged volume is measured".into(),
        "gaps are the spaces between extents of files: free space, and metadata in it".into(),
    ];
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let last = group(MONTHS[3]);
    let new = group(0);
    let slower = |name: &str| rows.ratio("seconds", (&last, name), (&new, name));
    let both = slower(PACKED).zip(slower(SPREAD));
    vec![
        Shape::new(
            "spread: after six months it is about as fast as when it was new",
            "\"roughly the same performance as when the filesystem is empty\"",
            slower(SPREAD),
            "x the time",
            at_most(1.25),
            None,
        ),
        Shape::new(
            "packed loses more by age than spread does",
            "\"all the other filesystem will have degraded to be much worse\"",
            both.map(|(packed, spread)| packed / spread),
            "x as much",
            at_least(1.05),
            None,
        ),
        Shape::new(
            "new, packed is faster than spread",
            "2.9x (ext4 to XFS)",
            rows.ratio("seconds", (&new, SPREAD), (&new, PACKED)),
            "x",
            at_least(1.02),
            Some(like(2.86)),
        ),
        Shape::new(
            "after six months, free space is in more pieces where all is packed",
            "\"hence doesn't fragment free space nearly as badly\"",
            rows.ratio("gaps", (&last, PACKED), (&last, SPREAD)),
            "x as many",
            at_least(1.05),
            None,
        ),
    ]
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let line = |name: &str| {
        let point = |months: &u32| {
            Some((f64::from(*months), rounded(rows.get(&group(*months), name, "seconds")?)))
        };
        let worth = rows.worth(|row| row.name == name);
        let points = MONTHS.iter().filter_map(point).collect();
        Series { name: name.into(), points, post: false, worth }
    };
    let mut all = vec![Chart {
        title: "Seconds for the same work, over the volume's aging".into(),
        axes: ("months".into(), "seconds".into()),
        log: (false, false),
        drawn: Drawn::Lines,
        series: [SPREAD, PACKED].map(line).into(),
    }];
    let last = group(MONTHS[3]);
    for name in [SPREAD, PACKED] {
        let Some(row) = rows.0.iter().find(|row| row.group == last && row.name == name) else {
            continue;
        };
        let owned = |owner: &&str| {
            let points = row.found.points.get(&format!("map {owner}"))?.clone();
            let worth = rows.worth(|other| other.group == last && other.name == name);
            Some(Series { name: (*owner).into(), points, post: false, worth })
        };
        all.push(Chart {
            title: format!("Whose the volume is, {last}: {name}"),
            axes: ("GB from the start of the volume".into(), "% of that place".into()),
            log: (false, false),
            drawn: Drawn::Shares,
            series: OWNERS.iter().filter_map(owned).collect(),
        });
    }
    all.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    all
}
