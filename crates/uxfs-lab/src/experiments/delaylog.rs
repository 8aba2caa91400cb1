//! Log bytes and disk requests of work on names only: [`posts::DELAYED_LOGGING`].

use std::sync::Arc;

use uxfs::NewInode;
use uxfs_bench::fs_mark::file_name;
use uxfs_testkit::Rng;

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, rounded, run as run_jobs};
use crate::posts;
use crate::setup::{Lab, Setup};
use crate::verdict::at_least;
use crate::work::clients;

const MODES: [&str; 2] = ["nodelaylog", "delaylog"];
/// Kinds of work.
const KINDS: [&str; 3] = ["create", "create and remove", "times"];
const THREADS: u32 = 8;

/// Runs operations on names in each client's own directory. Returns their number.
fn work(lab: &Arc<Lab>, kind: &'static str, steps: u32) -> uxfs::Result<u64> {
    for thread in 0..THREADS {
        let dir =
            lab.fs.create(lab.fs.root(), thread.to_string().as_bytes(), &NewInode::dir(0o755))?;
        if kind == KINDS[2] {
            for file in 0..64u32 {
                lab.fs.create(dir, file.to_string().as_bytes(), &NewInode::file(0o644))?;
            }
        }
    }
    let ticket = lab.fs.ticket();
    lab.fs.wait(ticket)?;
    lab.begin();
    clients(lab, THREADS, move |lab, thread| {
        let dir = lab.fs.lookup(lab.fs.root(), thread.to_string().as_bytes())?;
        let mut rng = Rng::spread(lab.seed ^ u64::from(thread));
        for step in 0..steps {
            match kind {
                "create" => {
                    lab.create(dir, &file_name(step, &mut rng), &NewInode::file(0o644))?;
                }
                "create and remove" => {
                    let name = file_name(step / 2, &mut Rng::spread(u64::from(step / 2)));
                    match step % 2 {
                        0 => {
                            lab.create(dir, &name, &NewInode::file(0o644))?;
                        }
                        _ => lab.unlink(dir, &name)?,
                    }
                }
                _ => {
                    let ino = lab.fs.lookup(dir, rng.scaled(64).to_string().as_bytes())?;
                    lab.change();
                    let now = Some(lab.fs.now());
                    let times = uxfs::SetAttr { mtime: now, ..uxfs::SetAttr::default() };
                    lab.fs.set_attr(ino, &times)?;
                }
            }
        }
        Ok(())
    })?;
    lab.end();
    lab.sync()?;
    Ok(u64::from(THREADS) * u64::from(steps))
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let disk = disks::named("array-2010")?;
    let mut jobs = Vec::new();
    for kind in KINDS {
        for mode in MODES {
            let mut setup =
                Setup::new(&disk, how.seed).mkfs('d', "agcount=16").mount(&["nobarrier", mode]);
            setup.cuts = how.cuts;
            let steps = if mode == MODES[0] { 1_500 } else { 6_000 };
            jobs.push(Job::new(kind, mode, move || {
                let ran = setup.run(|lab| work(lab, kind, steps))?;
                let mut found = Found::of(&ran, &setup);
                found.set("rate", ran.value as f64 / ran.seconds());
                let bytes = found.get("log_bytes").unwrap_or(0.0);
                found.set("log_b", bytes / ran.value as f64);
                found.store_throughput(&ran, 24);
                Ok(found)
            }));
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("delaylog", "the log traffic of 8 clients' work on names", how);
    out.about = "The log's bytes, requests and throughput for three kinds of work: files created; \
                 files created and removed again; timestamps of the same 64 files changed \
                 repeatedly. The more often the same object changes, the fewer of its changes \
                 delayed logging writes. Immediate logging writes every transaction."
        .into();
    out.source = posts::DELAYED_LOGGING.to_string();
    out.disks = vec![note(&disk)];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("work".into(), "logging".into());
    out.columns = vec![
        Column::new("rate", "operations/s", 0, Best::High),
        Column::new("log_b", "log B/operation", 1, Best::Low),
        Column::new("log_mb_s", "log MB/s", 2, Best::Low),
        Column::new("log_iops", "log requests/s", 0, Best::Low),
        Column::new("iops", "requests/s", 0, Best::None),
    ];
    out.rows = rows.table(how, "delaylog", &out.columns, |_, _, _| None);
    out.notes = vec![
        "log B/operation includes the log writes of a sync after the work; log MB/s and log requests/s are of the \
         work itself"
            .into(),
    ];
    out.shapes = shapes(&rows);
    out.charts =
        [("iops", "requests/s"), ("mb_s", "MB/s")].map(|(k, up)| chart(&rows, k, up)).into();
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let less = |kind: &str| rows.ratio("log_b", (kind, MODES[0]), (kind, MODES[1]));
    vec![
        Shape::goal(
            "a created file takes at most 1/3.5 of the log",
            "8x less (12.3 and 1.5 kB)",
            less(KINDS[0]),
            "x less",
            at_least(3.5),
        ),
        Shape::new(
            "files created and removed again take even less",
            "not measured",
            less(KINDS[1]),
            "x less",
            at_least(less(KINDS[0]).unwrap_or(1.0)),
            None,
        ),
        Shape::new(
            "repeated changes of the same files nearly vanish",
            "not measured",
            less(KINDS[2]),
            "x less",
            at_least(50.0),
            None,
        ),
    ]
}

fn chart(rows: &Rows, key: &str, up: &str) -> Chart {
    let series = rows.0.iter().filter(|row| row.group == KINDS[0]).filter_map(|row| {
        let points = row.found.points.get(key)?.iter().map(|p| (rounded(p.0), p.1)).collect();
        let worth = rows.worth(|other| other.group == row.group && other.name == row.name);
        let name = format!("{}: {}", row.group, row.name);
        Some(Series { name, points, post: false, worth })
    });
    Chart {
        title: format!("{up} of the disk over time"),
        axes: ("seconds".into(), up.into()),
        log: (false, false),
        drawn: Drawn::Lines,
        series: series.collect(),
    }
}
