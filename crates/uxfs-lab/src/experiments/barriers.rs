//! A tree extracted on a mirror of two disks, barriers and write cache on or off:
//! [`posts::BARRIERS`].

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, at_most, like};
use crate::work::tree::{Sync, Tree, extract};

/// Files of linux-2.6.27.8, about.
const FILES: u32 = 24_000;
/// Barrier, cache; seconds.
const POST: [(&str, &str, f64); 4] = [
    ("barrier", "cache on", 79.53),
    ("barrier", "cache off", 83.59),
    ("nobarrier", "cache on", 21.35),
    ("nobarrier", "cache off", 42.90),
];

/// The logging of that time, and today's.
const LOGGING: [&str; 2] = ["nodelaylog", "delaylog"];

fn name(barrier: &str, cache: &str) -> String {
    format!("{barrier}, {cache}")
}

fn post(group: &str, row: &str, key: &str) -> Option<f64> {
    let (.., seconds) = POST.iter().find(|seen| row == name(seen.0, seen.1))?;
    (key == "seconds" && group == LOGGING[0]).then_some(*seconds)
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let disk = disks::named("mirror-2008")?;
    let tree = std::sync::Arc::new(Tree::new("linux-2.6.27.8", FILES, 2008));
    let mut jobs = Vec::new();
    for (logging, (barrier, cache, _)) in LOGGING.iter().flat_map(|l| POST.map(|seen| (*l, seen))) {
        let disk = disks::with_cache(&disk, cache == "cache on");
        let mut setup = Setup::new(&disk, how.seed).mount(&[logging, barrier]);
        setup.cuts = how.cuts;
        // A machine of 8 GB keeps a tenth of it dirty, as Linux 2.6.27 did.
        if let Some(writeback) = &mut setup.writeback {
            writeback.dirty_bytes = 800 << 20;
            writeback.dirty_background_bytes = 400 << 20;
        }
        let tree = std::sync::Arc::clone(&tree);
        jobs.push(Job::new(logging, name(barrier, cache), move || {
            let ran = setup.run(|lab| extract(lab, &tree, Sync::End, 0))?;
            let mut found = Found::of(&ran, &setup);
            found.set("extract_s", ran.value.extract_s);
            found.store_offsets(&ran);
            Ok(found)
        }));
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("barriers", "tar xf linux-2.6.27.8.tar; sync, on a mirror", how);
    out.about = "A tree like that kernel's (24,000 files, the same each time) is extracted and \
                 synced. A barrier is a flush of the disks' caches. Without it nothing keeps the \
                 log and the changes that it describes in order at a power cut, unless the \
                 caches are off. The cost of barriers is the number of flushes times what the \
                 disk has to write at each."
        .into();
    out.source = posts::BARRIERS.to_string();
    out.disks = vec![note(&disk)];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("logging".into(), "barriers and write cache".into());
    out.columns = vec![
        Column::new("seconds", "seconds", 2, Best::Low),
        Column::new("extract_s", "of it extracting", 2, Best::None),
        Column::new("flushes", "flushes", 0, Best::None),
        Column::new("requests", "requests", 0, Best::None),
        Column::new("cpu", "processors %", 1, Best::None),
    ];
    out.rows = rows.table(how, "barriers", &out.columns, post);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let mut all = Vec::new();
    for logging in LOGGING {
        let time = |over: usize, under: usize| {
            let of = |row: usize| rows.get(logging, &name(POST[row].0, POST[row].1), "seconds");
            Some(of(over)? / of(under)?)
        };
        let (b_on, b_off, n_on, n_off) = (0, 1, 2, 3);
        let order = [
            ("without barriers a cache is faster than none", 2.01, time(n_off, n_on)),
            ("with a cache barriers cost something", 3.73, time(b_on, n_on)),
            ("with barriers no cache is no faster than one", 1.05, time(b_off, b_on)),
            ("barriers with a cache cost no less than no cache", 1.85, time(b_on, n_off)),
        ];
        for (claim, then, ours) in order {
            let (claim, seen) = (format!("{logging}: {claim}"), format!("{then}x"));
            all.push(Shape::new(claim, &seen, ours, "x", at_least(1.0), Some(like(then))));
        }
        all.push(Shape::goal(
            format!("{logging}: barriers cost at most half of what they did then"),
            "3.73x, so 1.86x",
            time(b_on, n_on),
            "x",
            at_most(1.86),
        ));
    }
    all
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let series = rows.0.iter().filter_map(|row| {
        let points = row.found.points.get("places")?.clone();
        let worth = rows.worth(|other| other.group == row.group && other.name == row.name);
        let name = format!("{}, {}", row.group, row.name);
        Some(Series { name, points, post: false, worth })
    });
    vec![Chart {
        title: "Where the disk was asked, and when".into(),
        axes: ("seconds".into(), "GB from the start of the disk".into()),
        log: (false, false),
        drawn: Drawn::Points,
        series: series.collect(),
    }]
}
