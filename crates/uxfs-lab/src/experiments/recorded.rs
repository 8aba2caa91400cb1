//! Recorded work of real programs, replayed: git, and a configured build.

use std::sync::Arc;

use super::blank::{blank, note};
use super::disks;
use super::rungs::{self, EATMYDATA, ORDERED, RUNGS};
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::setup::Setup;
use crate::verdict::at_most;
use crate::work::recording::Recording;
use crate::work::replay::{client_dir, populate, run as play};

const DISKS: [&str; 2] = ["hdd-7200", "ssd-2015"];
const CLIENTS: [u32; 2] = [1, 4];
const NODELAYLOG: &str = "nodelaylog";
const DELAYLOG: &str = "delaylog";

fn group(disk: &str, clients: u32) -> String {
    format!("{disk}, {clients} client{}", if clients == 1 { "" } else { "s" })
}

/// The recording of an experiment.
pub(crate) fn recording(name: &str, how: &How) -> Result<Recording> {
    match &how.trace {
        Some(path) => Recording::read(path),
        None => Recording::named(name),
    }
}

/// The description of an experiment with this recording.
pub(crate) fn title(name: &str, how: &How, recording: &Recording) -> String {
    match (&how.trace, name) {
        (Some(_), _) => format!("a recording of one's own: {}", recording.about),
        (None, "git") => "git as it was recorded: a clone, five commits, gc".into(),
        (None, _) => "a build as it was recorded: GNU hello configured and made".into(),
    }
}

/// Runs `git`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run_git(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    run("git", how, progress)
}

/// Runs `compile`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run_compile(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    run("compile", how, progress)
}

fn run(name: &str, how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let recording = Arc::new(recording(name, how)?);
    let mut out = blank(name, &title(name, how, &recording), how);
    let mut jobs = Vec::new();
    for disk in DISKS {
        let described = disks::named(disk)?;
        out.disks.push(note(&described));
        for clients in CLIENTS {
            let modes = [NODELAYLOG, DELAYLOG].map(|mode| (mode, None));
            let others = RUNGS.iter().map(|rung| (rung.name, Some(rung)));
            for (mode, rung) in modes.into_iter().chain(others) {
                let mut setup = Setup::new(&described, how.seed);
                setup = match rung {
                    Some(rung) => rung.apply(setup),
                    None => setup.mount(&[mode]),
                };
                setup.cuts = how.cuts.min(4);
                let source = Arc::clone(&recording);
                setup.prepare = Some(Arc::new(move |fs| {
                    (0..clients).try_for_each(|number| populate(fs, &source, &client_dir(number)))
                }));
                let recording = Arc::clone(&recording);
                jobs.push(Job::new(group(disk, clients), mode, move || {
                    let ran = setup.run(|lab| play(lab, &recording, clients))?;
                    let mut found = Found::of(&ran, &setup);
                    let took = ran.value;
                    found.set("total_s", took.work_s + took.sync_s);
                    found.set("sync_s", took.sync_s);
                    found.set("log_mb", found.get("log_bytes").unwrap_or(0.0) / 1e6);
                    found.set("fsyncs", took.played.syncs as f64);
                    found.set("left_out", took.played.left_out as f64);
                    found.store_throughput(&ran, 60);
                    Ok(found)
                }));
            }
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    out.about = "The calls of real programs on a tree of files were recorded, with the processor \
                 time between them. Each client replays them in its own directory, with the real \
                 names, sizes and order. Then everything is synced. Bytes that were read or \
                 written before are read from memory, as with a page cache; what the tree held \
                 before is cold."
        .into();
    out.source = "no post: recorded by tools/record-trace".into();
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disk and clients".into(), "logging".into());
    out.columns = vec![
        Column::new("total_s", "seconds", 2, Best::Low),
        Column::new("sync_s", "of it syncing", 2, Best::None),
        Column::new("fsyncs", "fsyncs", 0, Best::None),
        Column::new("requests", "requests", 0, Best::Low),
        Column::new("log_mb", "log MB", 2, Best::Low),
        Column::new("cpu", "processors %", 0, Best::None),
    ];
    out.rows = rows.table(how, name, &out.columns, |_, _, _| None);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes.push(format!(
        "the recording: {}; {} calls of each client, {:.1} s of work between them, on the processor \
         it was recorded on",
        recording.about,
        recording.calls(),
        recording.work_s()
    ));
    out.notes.push("clients begin within 200 ms, at random".into());
    out.notes.push(rungs::NOTE.into());
    let left_out = rows.0.iter().filter_map(|row| row.found.get("left_out")).fold(0.0, f64::max);
    out.notes.push(format!(
        "{left_out} calls at most were left out, because what they were of was not there any more"
    ));
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let groups = DISKS.iter().flat_map(|disk| CLIENTS.map(|clients| group(disk, clients)));
    let of = |group: String| {
        let ratio = |key| rows.ratio(key, (&group, DELAYLOG), (&group, NODELAYLOG));
        [
            Shape::goal(
                format!("{group}: delayed logging takes no longer than immediate"),
                "",
                ratio("total_s"),
                "x",
                at_most(1.01),
            ),
            Shape::goal(
                format!("{group}: it logs at most half as much"),
                "",
                ratio("log_mb"),
                "x",
                at_most(0.5),
            ),
            Shape::goal(
                format!(
                    "{group}: on an ordered mount it takes at most 1.05 times as long as under eatmydata"
                ),
                "",
                rows.ratio("total_s", (&group, ORDERED), (&group, EATMYDATA)),
                "x",
                at_most(1.05),
            ),
        ]
    };
    groups.flat_map(of).collect()
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let of = group(DISKS[0], CLIENTS[1]);
    let series = rows.series(&of, "iops");
    if series.is_empty() {
        return Vec::new();
    }
    vec![Chart {
        title: format!("Requests a second over time: {of}"),
        axes: ("seconds".into(), "requests/s".into()),
        log: (false, false),
        drawn: Drawn::Lines,
        series,
    }]
}
