//! Many threads that call fsync, and five ways to share flushes: [`posts::FSYNC_COORDINATION`].

use uxfs_models::Description;

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, at_most, like};
use crate::work::syncs::{Load, run as sync};

/// The policies, their names in the post, and transactions per second on its host elm3a4.
const POLICIES: [(&str, &str, Option<f64>); 7] = [
    ("own", "own (\"old\")", Some(145.84)),
    ("journal", "journal (\"jbd2\")", Some(184.06)),
    ("average", "average (\"avg\")", Some(181.58)),
    ("fixed:1", "fixed:1", Some(152.39)),
    ("fixed:500", "fixed:500", Some(158.19)),
    ("greedy", "greedy", None),
    ("auto", "auto", None),
];
const DISKS: [(&str, &str); 4] = [
    ("hdd-7200", "flush of 8 ms and more"),
    ("ssd-2015", "flush of 3 ms"),
    ("nvme", "flush of 1 ms"),
    ("nvme-plp", "flush of nothing"),
];
const CLIENTS: [u32; 2] = [1, 16];
/// The post's `directio`: data is written to the disk at once, and fsync finds it there.
const DIRECT: &str = ", direct I/O";

fn group(disk: &str, about: &str, clients: u32) -> String {
    format!("{disk} ({about}), {clients} thread{}", if clients == 1 { "" } else { "s" })
}

/// A run on a disk, with a policy and with data written directly or not.
fn setup(how: &How, disk: &Description, policy: &str, direct: bool) -> Setup {
    let mut setup = Setup::new(disk, how.seed).mount(&[&format!("fsync_policy={policy}")]);
    setup.cuts = how.cuts.min(4);
    if direct {
        // Nothing is kept in memory: each write is on the disk, or in its cache, when it returns.
        setup.writeback = None;
    }
    setup
}

fn post(of: &str, name: &str, key: &str) -> Option<f64> {
    let host = of == group(DISKS[0].0, DISKS[0].1, 16);
    let policy = POLICIES.iter().find(|policy| policy.1 == name)?;
    policy.2.filter(|_| host && key == "rate")
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut jobs = Vec::new();
    for (disk, about) in DISKS {
        let described = disks::named(disk)?;
        for (clients, direct) in [(1, ""), (16, ""), (1, DIRECT), (16, DIRECT)] {
            for (word, name, _) in POLICIES {
                let setup = setup(how, &described, word, !direct.is_empty());
                let load = Load { clients, syncs: 200, warmup: 100, think_us: 500 };
                let group = group(disk, about, clients) + direct;
                jobs.push(Job::new(group, name, move || {
                    let ran = setup.run(|lab| sync(lab, load))?;
                    let mut found = Found::of(&ran, &setup);
                    found.set("rate", ran.value);
                    let syncs = f64::from(load.clients * load.syncs);
                    found.set("flushes_sync", found.get("flushes").unwrap_or(0.0) / syncs);
                    found.store_latencies(&ran);
                    Ok(found)
                }));
            }
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("fsync-coordination", "threads that call fsync, coordinated or not", how);
    out.about = "Each thread repeatedly appends 4 KiB to its own file and syncs it, with half a \
                 millisecond of think time between. The variants are uxfs' `fsync_policy=`; the \
                 first five are the post's. With each of them the file's inode goes through the \
                 log, so the fsyncs of two threads can share a checkpoint under any policy; the \
                 policies differ in how callers wait for each other. With direct I/O, the post's \
                 third switch, each write goes to the disk before it returns, and the fsync only \
                 writes and flushes the log. `policies` measures the policies alone, over many \
                 more disks and loads."
        .into();
    out.source = posts::FSYNC_COORDINATION.to_string();
    for (disk, _) in DISKS {
        out.disks.push(note(&disks::named(disk)?));
    }
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disk and threads".into(), "fsync_policy=".into());
    out.columns = vec![
        Column::new("rate", "fsyncs/s", 1, Best::High),
        Column::new("p50_ms", "p50 ms", 3, Best::None),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("flushes_sync", "flushes/fsync", 2, Best::None),
    ];
    out.rows = rows.table(how, "fsync-coordination", &out.columns, post);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        "100 fsyncs of each thread are not counted, in which auto learns; then 200 are".into(),
    ];
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let ratio = |disk: usize, clients: u32, over: usize, under: usize| {
        let group = group(DISKS[disk].0, DISKS[disk].1, clients);
        rows.ratio("rate", (&group, POLICIES[over].1), (&group, POLICIES[under].1))
    };
    let (own, journal, average, auto) = (0, 1, 2, 6);
    let mut all = vec![
        Shape::new(
            "8 ms a flush: going through the journal together wins",
            "1.26x own",
            ratio(0, 16, journal, own),
            "x own",
            at_least(1.05),
            Some(like(1.26)),
        ),
        Shape::new(
            "8 ms a flush: waiting the average wins too",
            "1.25x own",
            ratio(0, 16, average, own),
            "x own",
            at_least(1.05),
            Some(like(1.25)),
        ),
        Shape::new(
            "1 ms a flush: waiting the average wins less than at 8 ms",
            "it loses",
            ratio(2, 16, average, own),
            "x own",
            at_most(ratio(0, 16, average, own).unwrap_or(1.0)),
            None,
        ),
        Shape::new(
            "no flush to speak of: waiting the average gains nothing",
            "it loses",
            ratio(3, 16, average, own),
            "x own",
            at_most(1.02),
            None,
        ),
        Shape::new(
            "a thread alone pays for waiting the average",
            "\"highest count is old\"",
            ratio(0, 1, average, own),
            "x own",
            at_most(0.9),
            None,
        ),
    ];
    for (disk, about) in DISKS {
        let both = CLIENTS.iter().flat_map(|clients| ["", DIRECT].map(|direct| (*clients, direct)));
        for (clients, direct) in both {
            let group = group(disk, about, clients) + direct;
            let ratio = |policy: usize| {
                rows.ratio("rate", (&group, POLICIES[auto].1), (&group, POLICIES[policy].1))
            };
            let best = (0..auto).filter_map(ratio).reduce(f64::min);
            all.push(Shape::goal(
                format!("{group}: auto does at least 0.97 of the best"),
                "no policy won everywhere",
                best,
                " of the best",
                at_least(0.97),
            ));
        }
    }
    all
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let of = group(DISKS[0].0, DISKS[0].1, 16);
    vec![Chart {
        title: format!("Which part of the fsyncs took at most so many milliseconds: {of}"),
        axes: ("ms".into(), "% of fsyncs".into()),
        log: (true, false),
        drawn: Drawn::Lines,
        series: rows.series(&of, "latency"),
    }]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uxfs::NewInode;

    use super::*;
    use crate::sim::Kind;
    use crate::work::{fill, word};

    /// With direct I/O the data is written when the write returns, and the fsync writes only the log.
    /// Without it, the fsync writes both.
    #[test]
    fn direct_data_is_written_before_the_fsync() {
        let disk = disks::named("nvme").unwrap();
        let sent = |direct: bool| {
            let ran = setup(&How::new(3), &disk, "auto", direct)
                .run(|lab| {
                    let ino = lab.fs.create(lab.fs.root(), b"file", &NewInode::file(0o644))?;
                    lab.begin();
                    lab.write(ino, 0, &fill(word(9), 64 << 10))?;
                    let written = lab.now();
                    lab.sim.rest(Duration::from_millis(50));
                    let begun = lab.now();
                    lab.fsync(ino)?;
                    lab.end();
                    Ok((written, begun))
                })
                .unwrap();
            let (written, begun) = ran.value;
            let data = |e: &&crate::sim::Event| {
                e.content.as_ref().is_some_and(|c| c.words().any(|found| found == word(9)))
            };
            let writes = || ran.trace.writes().map(|(_, event)| event);
            let early: u64 =
                writes().filter(data).filter(|e| e.done <= written).map(|e| e.len).sum();
            let late: u64 = writes().filter(data).filter(|e| e.asked >= begun).map(|e| e.len).sum();
            let log = writes().any(|e| e.asked >= begun && ran.log.contains(&e.at));
            let events = ran.trace.events.iter();
            let flushed = events.clone().any(|e| e.kind == Kind::Flush && e.asked >= begun);
            (early, late, log && flushed)
        };
        assert_eq!(sent(true), (64 << 10, 0, true));
        assert_eq!(sent(false), (0, 64 << 10, true));
    }
}
