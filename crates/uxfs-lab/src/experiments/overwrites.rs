//! Many threads that overwrite and sync, each with a flush of its own:
//! [`posts::FSYNC_COORDINATION`].

use std::sync::Arc;

use uxfs_models::{Description, Model};

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, at_most, like};
use crate::work::overwrites::{populate, run as overwrite};
use crate::work::syncs::Load;

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
const OWN: usize = 0;
const JOURNAL: usize = 1;
const AVERAGE: usize = 2;
const FIXED_1: usize = 3;
const FIXED_500: usize = 4;
const AUTO: usize = 6;

/// A disk, its handling of flushes, and the duration of one.
struct Place {
    disk: &'static str,
    /// It has a SATA port, which sends a flush alone.
    sata: bool,
    about: &'static str,
}

const PLACES: [Place; 6] = [
    Place { disk: "hdd-7200", sata: true, about: "flush alone, 8 ms and more" },
    Place { disk: "hdd-7200", sata: false, about: "flushes queued, 8 ms and more" },
    Place { disk: "ssd-2015", sata: true, about: "flush alone, 3 ms" },
    Place { disk: "nvme", sata: false, about: "flush of 1 ms" },
    Place { disk: "array-bbu", sata: false, about: "flush of 0.08 ms" },
    Place { disk: "nvme-plp", sata: false, about: "flush of nothing" },
];
const SATA: usize = 0;
const QUEUED: usize = 1;

impl Place {
    fn described(&self) -> Result<Description> {
        let mut found = disks::named(self.disk)?;
        if self.sata {
            found.name = format!("{} on SATA", self.disk);
            found.about = format!("behind a SATA port, which sends a flush alone: {}", found.about);
            found.disk = Model::Sata { disk: Box::new(found.disk) };
        }
        Ok(found)
    }

    fn group(&self, clients: u32, direct: bool) -> String {
        let port = if self.sata { " on SATA" } else { "" };
        let threads = if clients == 1 { "thread" } else { "threads" };
        let direct = if direct { ", direct I/O" } else { "" };
        format!("{}{port} ({}), {clients} {threads}{direct}", self.disk, self.about)
    }
}

/// Threads, direct I/O (the post's `directio`: data is on the disk before the fsync), and the
/// policies tried: with one thread, policies differ only by whether they wait.
const LOADS: [(u32, bool, &[usize]); 3] = [
    (1, false, &[OWN, AVERAGE, AUTO]),
    (16, false, &[0, 1, 2, 3, 4, 5, 6]),
    (16, true, &[0, 1, 2, 3, 4, 5, 6]),
];

fn post(of: &str, name: &str, key: &str) -> Option<f64> {
    let host = of == PLACES[SATA].group(16, false);
    let policy = POLICIES.iter().find(|policy| policy.1 == name)?;
    policy.2.filter(|_| host && key == "rate")
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut jobs = Vec::new();
    for place in &PLACES {
        for (clients, direct, ways) in LOADS {
            for (word, name, _) in ways.iter().map(|policy| POLICIES[*policy]) {
                let policy = format!("fsync_policy={word}");
                let mut setup = Setup::new(&place.described()?, how.seed).mount(&[&policy]);
                setup.cuts = how.cuts.min(4);
                let load = Load { clients, syncs: 200, warmup: 100, think_us: 500 };
                setup.prepare = Some(Arc::new(move |fs| populate(fs, load)));
                jobs.push(Job::new(place.group(clients, direct), name, move || {
                    let ran = setup.run(|lab| overwrite(lab, load, direct))?;
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
    let mut out = blank("fsync-overwrite", "threads that overwrite in place and fdatasync", how);
    out.about =
        "Each thread has a file that was written before, overwrites its blocks of 4 KiB in \
                 place, one after the other, and waits for `fdatasync`, with half a millisecond \
                 of think time between. None of this needs the log: an fdatasync is the write of \
                 one block and a flush of the device. With `own` each thread has its own flush, \
                 as ext4's callers had in the post (\"everyone issues their own flush\"). In \
                 `fsync-coordination` threads share checkpoints under any policy. How a disk \
                 handles parallel flushes is stated: a SATA port sends a flush alone, after all \
                 other requests have ended (FLUSH CACHE is no queued command); without a port, \
                 the same disk takes flushes and writes in parallel. With direct I/O each block \
                 is on the disk, or in its cache, before the fdatasync. The post's figures are \
                 of its host elm3a4, whose disk it does not describe. A flush that finds the \
                 cache of a modelled hard disk empty ends at once, so `own` there does not pay \
                 16 full flushes for 16 threads; a modelled SSD takes its full time for each."
            .into();
    out.source = posts::FSYNC_COORDINATION.to_string();
    for place in &PLACES {
        out.disks.push(note(&place.described()?));
    }
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disk and threads".into(), "fsync_policy=".into());
    out.columns = vec![
        Column::new("rate", "fsyncs/s", 1, Best::High),
        Column::new("p50_ms", "p50 ms", 3, Best::None),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("flushes_sync", "flushes/fsync", 2, Best::None),
        Column::new("log_iops", "log requests/s", 1, Best::None),
    ];
    out.rows = rows.table(how, "fsync-overwrite", &out.columns, post);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        "100 fsyncs of each thread are not counted, in which auto learns; then 200 are".into(),
        "a flush of the modelled SSDs takes as long if nothing is dirty, and flushes follow each \
         other: there 16 flushes of one's own take 16 times as long as one"
            .into(),
    ];
    Ok(out)
}

/// The rate of a policy relative to another, with 16 threads.
fn ratio(rows: &Rows, place: usize, over: usize, under: usize) -> Option<f64> {
    let group = PLACES[place].group(16, false);
    rows.ratio("rate", (&group, POLICIES[over].1), (&group, POLICIES[under].1))
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let mut all = Vec::new();
    let slow = [
        ("going through one flush together (\"jbd2\") wins", JOURNAL, 1.262),
        ("waiting the average (\"avg\") wins", AVERAGE, 1.245),
        ("waiting 1 µs wins a little", FIXED_1, 1.045),
        ("waiting 500 µs wins a little", FIXED_500, 1.085),
    ];
    for (claim, policy, seen) in slow {
        all.push(Shape::new(
            format!("8 ms a flush, sent alone: {claim}"),
            &format!("{seen:.2}x own"),
            ratio(rows, SATA, policy, OWN),
            "x own",
            at_least(1.02),
            Some(like(seen)),
        ));
    }
    all.push(Shape::new(
        "the same disk with flushes queued: waiting the average wins",
        "not distinguished",
        ratio(rows, QUEUED, AVERAGE, OWN),
        "x own",
        at_least(1.02),
        None,
    ));
    for (place, what) in [(2, "3 ms a flush, sent alone"), (3, "1 ms a flush")] {
        all.push(Shape::new(
            format!("{what}: not waiting (own) is better than waiting the average"),
            "below 8 ms \"better performance when fsync coordination is not attempted\"",
            ratio(rows, place, AVERAGE, OWN),
            "x own",
            at_most(0.98),
            None,
        ));
    }
    for (place, what) in [(4, "a cache with a battery"), (5, "no flush to speak of")] {
        for (policy, name) in [(AVERAGE, "waiting the average"), (JOURNAL, "one flush together")] {
            all.push(Shape::new(
                format!("{what}: {name} loses"),
                "it loses, through the journal by \"rather large\" regressions",
                ratio(rows, place, policy, OWN),
                "x own",
                at_most(0.98),
                None,
            ));
        }
    }
    all.push(Shape::new(
        "a thread alone pays for waiting the average",
        "\"highest count is old\"",
        {
            let group = PLACES[SATA].group(1, false);
            rows.ratio("rate", (&group, POLICIES[AVERAGE].1), (&group, POLICIES[OWN].1))
        },
        "x own",
        at_most(0.9),
        None,
    ));
    for place in &PLACES {
        for (clients, direct, ways) in LOADS {
            let group = place.group(clients, direct);
            let to = |policy: &usize| {
                rows.ratio("rate", (&group, POLICIES[AUTO].1), (&group, POLICIES[*policy].1))
            };
            all.push(Shape::goal(
                format!("{group}: auto does at least 0.97 of the best"),
                "no policy won everywhere",
                ways.iter().filter(|policy| **policy != AUTO).filter_map(to).reduce(f64::min),
                " of the best",
                at_least(0.97),
            ));
        }
    }
    all
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let chart = |place: &Place| {
        let of = place.group(16, false);
        Chart {
            title: format!("Fsyncs that ended within so many milliseconds: {of}"),
            axes: ("ms".into(), "% of fsyncs".into()),
            log: (true, false),
            drawn: Drawn::Lines,
            series: rows.series(&of, "latency"),
        }
    };
    let all = [SATA, QUEUED].map(|place| chart(&PLACES[place]));
    all.into_iter().filter(|chart| !chart.series.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::NoProgress;

    /// As in the post's table, waiting for other callers wins on a slow disk that takes one flush at a
    /// time, and loses on a disk with quick flushes. Nothing is logged.
    #[test]
    fn waiting_for_others_wins_on_a_slow_disk_and_loses_on_a_fast_one() {
        let run = |place: usize, policy: usize| {
            let mut how = How::new(7);
            how.only = format!("{} / {}", PLACES[place].group(16, false), POLICIES[policy].1);
            let found = super::run(&how, &NoProgress).unwrap();
            assert_eq!(found.rows.len(), 1);
            let row = &found.rows[0];
            assert!(!row.failed, "{row:?}");
            assert_eq!(row.worth, "stable storage");
            let cell = |column: usize| row.cells[column].ours.unwrap();
            assert_eq!(cell(4), 0.0, "the log was written");
            (cell(0), cell(3))
        };
        let (own, flushes) = run(SATA, OWN);
        assert_eq!(flushes, 1.0, "each caller sends one flush");
        let (journal, shared) = run(SATA, JOURNAL);
        assert!(journal >= 1.1 * own, "{journal} against {own}");
        assert!(shared < 0.2, "{shared} flushes an fsync");
        let fast = PLACES.len() - 1;
        let (own, journal) = (run(fast, OWN).0, run(fast, JOURNAL).0);
        assert!(journal < own, "{journal} against {own}");
    }
}
