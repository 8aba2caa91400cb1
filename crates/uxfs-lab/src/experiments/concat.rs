//! All the disks of a concat kept busy: [`posts::SPINDLE`].

use std::sync::Arc;

use uxfs_models::{Description, Model};

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::{RunResult, Setup};
use crate::sim::Kind;
use crate::verdict::{at_least, at_most, like};
use crate::work::build::{Load, populate, run as build};
use crate::work::tree::Tree;

const COUNT: u32 = 4;
/// Bytes after every sixteenth file that belong to other files: the volume is in use.
const FILLER: u64 = 600 << 20;
const SPREAD: &str = "spread over groups";
const PACKED: &str = "packed in one";
const LOAD: Load = Load { clients: 64, jobs: 4, reads: 16, makes: 2, work_us: 500, flat: false };

/// This many disks, concatenated.
fn concat(disk: &Description, count: u32) -> Description {
    let mut all = disk.clone();
    all.name = format!("{count} x {}", disk.name);
    all.about = format!("{count} in a row, one behind the other, of: {}", disk.about);
    all.disk = Model::Concat { count, disk: Box::new(disk.disk.clone()) };
    all
}

/// The fraction of requests of the busiest disk, and the number of disks with at least a tenth of
/// their fair share.
fn shares<R>(ran: &RunResult<R>, disk: u64, count: u32) -> (f64, f64) {
    let mut asked = vec![0u64; count as usize];
    for event in ran.trace.events.iter().filter(|e| e.kind != Kind::Flush && e.asked >= ran.begun) {
        let at = ((event.at / disk.max(1)) as usize).min(asked.len() - 1);
        // The log lies on one disk in any case.
        if !ran.log.contains(&event.at) {
            asked[at] += 1;
        }
    }
    let all = asked.iter().sum::<u64>().max(1) as f64;
    let busiest = asked.iter().copied().max().unwrap_or(0) as f64 / all;
    let fair = all / f64::from(count);
    (busiest * 100.0, asked.iter().filter(|n| **n as f64 >= fair / 10.0).count() as f64)
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let one = disks::named("hdd-7200")?;
    let size = one.build(1).map_err(|e| crate::LabError::new("disk", e))?.capacity();
    let tree = Arc::new(Tree::new("src", 4_000, 2015));
    let mut jobs = Vec::new();
    for count in [1, COUNT] {
        let disk = concat(&one, count);
        for name in [SPREAD, PACKED] {
            let mut setup =
                Setup::new(&disk, how.seed).mkfs('d', &format!("agcount={}", 4 * count));
            setup.cuts = how.cuts;
            let source = Arc::clone(&tree);
            let packed = name == PACKED;
            setup.prepare = Some(Arc::new(move |fs| match packed {
                false => populate(fs, &source, FILLER),
                true => populate(fs, &flat(&source), FILLER),
            }));
            let tree = Arc::new(if packed { flat(&tree) } else { (*tree).clone() });
            jobs.push(Job::new(disk.name.clone(), name, move || {
                let ran = setup.run(|lab| build(lab, &tree, Load { flat: packed, ..LOAD }))?;
                let mut found = Found::of(&ran, &setup);
                let (busiest, busy) = shares(&ran, size, count);
                found.set("rate", found.get("requests").unwrap_or(0.0) / ran.seconds());
                found.set("busiest", busiest);
                found.set("busy", busy);
                found.store_offsets(&ran);
                Ok(found)
            }));
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("concat", "64 clients on a row of disks", how);
    out.about =
        "The same kind of work as `spindle` does, by 64 clients, on one disk and on four in a row. \
                 XFS gives each new directory another allocation group, so the disks of a row are \
                 all in use from the first day; what packs everything into the first group has one \
                 disk at work, whatever hangs behind it. Packed is played with one directory for \
                 everything, which is what keeps XFS in one group."
            .into();
    out.source = posts::SPINDLE.to_string();
    out.disks = vec![note(&concat(&one, COUNT))];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disks".into(), "placement".into());
    out.columns = vec![
        Column::new("seconds", "seconds", 2, Best::Low),
        Column::new("rate", "requests/s", 0, Best::High),
        Column::new("busy", "disks in use", 0, Best::High),
        Column::new("busiest", "busiest disk %", 0, Best::Low),
        Column::new("seek_gb", "mean distance GB", 1, Best::None),
    ];
    out.rows = rows.table(how, "concat", &out.columns, |_, _, _| None);
    out.shapes = shapes(&rows, &concat(&one, COUNT).name, &concat(&one, 1).name);
    out.charts = charts(&rows, &concat(&one, COUNT).name);
    Ok(out)
}

/// All files of a tree in its first directory.
pub(super) fn flat(tree: &Tree) -> Tree {
    let files = tree.files.iter().enumerate();
    let files =
        files.map(|(number, (_, name, size))| (0, format!("{number}-{name}"), *size)).collect();
    Tree { dirs: tree.dirs[..1].to_vec(), files }
}

fn shapes(rows: &Rows, four: &str, one: &str) -> Vec<Shape> {
    vec![
        Shape::new(
            "spread, all disks of the row are in use",
            "\"lots of disks busy\"",
            rows.get(four, SPREAD, "busy"),
            " disks",
            at_least(f64::from(COUNT)),
            None,
        ),
        Shape::new(
            "packed, only one is",
            "\"only hit the first disk\"",
            rows.get(four, PACKED, "busy"),
            " disks",
            at_most(1.0),
            None,
        ),
        Shape::new(
            "four disks spread are faster than four packed",
            "not measured",
            rows.ratio("seconds", (four, PACKED), (four, SPREAD)),
            "x",
            at_least(1.1),
            None,
        ),
        Shape::new(
            "four disks are faster than one, spread",
            "\"by the number of disks\"",
            rows.ratio("seconds", (one, SPREAD), (four, SPREAD)),
            "x",
            at_least(1.05),
            Some(like(f64::from(COUNT))),
        ),
    ]
}

fn charts(rows: &Rows, four: &str) -> Vec<Chart> {
    vec![Chart {
        title: "Where the row of disks was asked, and when (each is 1,000 GB)".into(),
        axes: ("seconds".into(), "GB from the start of the first".into()),
        log: (false, false),
        drawn: Drawn::Points,
        series: rows.series(four, "places"),
    }]
}
