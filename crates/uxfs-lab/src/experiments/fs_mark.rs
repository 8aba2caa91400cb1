//! Creates in memory, delayed and immediate logging, 1 to 8 clients: [`posts::DELAYED_LOGGING`].

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, at_most, between, like};
use crate::work::fs_mark::{self, Load, Sync};

const THREADS: [u32; 4] = [1, 2, 4, 8];
const MODES: [&str; 2] = ["nodelaylog", "delaylog"];
type Seen = (u32, [f64; 2], [(f64, f64); 2]);
/// Threads; creates a second without and with delayed logging; requests and megabytes a second
/// without, and with.
const POST: [Seen; 4] = [
    (1, [17e3, 19e3], [(1000.0, 280.0), (50.0, 10.0)]),
    (2, [30e3, 35e3], [(2000.0, 460.0), (100.0, 20.0)]),
    (4, [42e3, 63e3], [(2500.0, 520.0), (300.0, 50.0)]),
    (8, [39e3, 97e3], [(3700.0, 480.0), (900.0, 150.0)]),
];

fn post(group: &str, name: &str, key: &str) -> Option<f64> {
    let (_, rates, io) = POST.iter().find(|row| group == row.0.to_string())?;
    let mode = MODES.iter().position(|mode| *mode == name)?;
    match key {
        "rate" => Some(rates[mode]),
        "iops" => Some(io[mode].0),
        "log_mb_s" => Some(io[mode].1),
        "log_b" => Some(io[mode].1 * 1e6 / rates[mode]),
        _ => None,
    }
}

/// Files per client: enough to wrap the log several times.
fn files(mode: &str) -> u32 {
    if mode == "delaylog" { 12_000 } else { 2_000 }
}

fn row(how: &How, threads: u32, mode: &'static str) -> Result<Job> {
    let disk = disks::named("array-2010")?;
    let mut setup = Setup::new(&disk, how.seed).mkfs('d', "agcount=16").mount(&["nobarrier", mode]);
    setup.cuts = how.cuts;
    let load = Load { threads, files: files(mode), size: 0, sync: Sync::Never };
    Ok(Job::new(threads.to_string(), mode, move || {
        let ran = setup.run(|lab| {
            let files = fs_mark::run(lab, load)?;
            lab.sync()?;
            Ok(files)
        })?;
        let mut found = Found::of(&ran, &setup);
        let seconds = ran.seconds();
        found.set("rate", ran.value as f64 / seconds);
        if let Some(bytes) = found.get("log_bytes") {
            found.set("log_b", bytes / ran.value as f64);
            // As the post's: what is not written by the end belongs to the work too.
            found.set("log_mb_s", bytes / seconds / 1e6);
        }
        found.store_throughput(&ran, 20);
        Ok(found)
    }))
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut jobs = Vec::new();
    for threads in THREADS {
        for mode in MODES {
            jobs.push(row(how, threads, mode)?);
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("fs-mark", "fs_mark -S0 -s 0: empty files in memory", how);
    out.about =
        "Clients make empty files, each in a directory of its own, and sync nothing. What is \
                 compared is how much log it takes: with immediate logging every transaction is \
                 written, with delayed logging an object that changed a hundred times is written \
                 once. Processors are stated, not measured, so this says nothing of how fast the \
                 engine itself is: that is `uxfs bench fs-mark`."
            .into();
    out.source = posts::DELAYED_LOGGING.to_string();
    out.disks = vec![note(&disks::named("array-2010")?)];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("threads".into(), "logging".into());
    out.columns = vec![
        Column::new("rate", "files/s", 0, Best::High),
        Column::new("iops", "requests/s", 0, Best::None),
        Column::new("log_mb_s", "log MB/s", 1, Best::Low),
        Column::new("log_b", "log B/file", 0, Best::Low),
        Column::new("cpu", "processors %", 0, Best::None),
    ];
    out.rows = rows.table(how, "fs-mark", &out.columns, post);
    out.charts = charts(&rows);
    out.shapes = shapes(&rows);
    out.notes = vec![
        "log B/file and log MB/s include the log writes of a sync after the run".into(),
        "the post's runs were of 100,000 files a thread; here they are of 12,000 with delayed and 2,000 with immediate \
         logging"
            .into(),
    ];
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let (eight_d, eight_n) = (("8", "delaylog"), ("8", "nodelaylog"));
    vec![
        Shape::goal(
            "with 8 clients delayed logging makes at least 2.5 times as many files",
            "2.5x",
            rows.ratio("rate", eight_d, eight_n),
            "x",
            at_least(2.5),
        ),
        Shape::goal(
            "… at no more than 1/3.5 of the log's throughput",
            "3.2x less (480 and 150 MB/s)",
            rows.ratio("log_mb_s", eight_n, eight_d),
            "x less",
            at_least(3.5),
        ),
        Shape::new(
            "immediate logging turns over: 8 clients make no more than the best of fewer",
            "39k after 42k: 0.93x",
            turned(rows),
            "x",
            at_most(1.0),
            Some(like(0.93)),
        ),
        Shape::new(
            "delayed logging goes on: 8 clients make more than 4",
            "1.54x",
            rows.ratio("rate", eight_d, ("4", "delaylog")),
            "x",
            at_least(1.05),
            Some(like(1.54)),
        ),
        Shape::new(
            "with 1 client the difference is small",
            "1.12x",
            rows.ratio("rate", ("1", "delaylog"), ("1", "nodelaylog")),
            "x",
            between(0.95, 1.5),
            Some(like(1.12)),
        ),
    ]
}

/// The rate of 8 clients with immediate logging, relative to the best of fewer.
fn turned(rows: &Rows) -> Option<f64> {
    let rate = |threads: &str| rows.get(threads, "nodelaylog", "rate");
    let before = ["1", "2", "4"].into_iter().filter_map(rate).reduce(f64::max)?;
    Some(rate("8")? / before)
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let line = |mode: &str, key: &str, of_post: bool| Series {
        name: if of_post { format!("{mode} (post)") } else { mode.into() },
        points: THREADS
            .iter()
            .filter_map(|threads| {
                let group = threads.to_string();
                let value =
                    if of_post { post(&group, mode, key) } else { rows.get(&group, mode, key) };
                Some((f64::from(*threads), crate::plan::rounded(value?)))
            })
            .collect(),
        post: of_post,
        worth: if of_post { String::new() } else { rows.worth(|row| row.name == mode) },
    };
    let chart = |title: &str, up: &str, key: &str, log| Chart {
        title: title.into(),
        axes: ("threads".into(), up.into()),
        log: (true, log),
        drawn: Drawn::Lines,
        series: MODES
            .iter()
            .flat_map(|mode| [line(mode, key, false), line(mode, key, true)])
            .collect(),
    };
    let mut all = vec![
        chart("Files a second over clients", "files/s", "rate", false),
        chart("The log's throughput over clients", "log MB/s", "log_mb_s", true),
    ];
    let flow = |key: &'static str| {
        MODES.iter().filter_map(move |mode| {
            let row = rows.0.iter().find(|row| row.group == "8" && row.name == *mode)?;
            let points = row.found.points.get(key)?.clone();
            let worth = rows.worth(|other| other.group == "8" && other.name == *mode);
            Some(Series { name: (*mode).into(), points, post: false, worth })
        })
    };
    for (key, up) in [("iops", "requests/s"), ("mb_s", "MB/s")] {
        all.push(Chart {
            title: format!("{up} of the disk over time, 8 clients"),
            axes: ("seconds".into(), up.into()),
            log: (false, false),
            drawn: Drawn::Lines,
            series: flow(key).collect(),
        });
    }
    all
}
