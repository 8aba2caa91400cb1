//! Many threads that overwrite and sync, each with a flush of its own:
//! [`posts::FSYNC_COORDINATION`].

use std::sync::Arc;

use uxfs_models::{Description, Model};

use super::{blank, disks, note};
use crate::Result;
use crate::bed::Setup;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::verdict::{at_least, at_most, like};
use crate::work::overwrites::{plant, run as overwrite};
use crate::work::syncs::Load;

/// Ways, and what the post calls them; transactions a second on its host elm3a4.
const WAYS: [(&str, &str, Option<f64>); 7] = [
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
const AUTO: usize = 6;
/// Disks, and whether they are behind a SATA port, which queues no flushes.
const DISKS: [(&str, bool); 6] = [
    ("hdd-7200", true),
    ("hdd-7200", false),
    ("ssd-2015", true),
    ("ssd-2015", false),
    ("nvme", false),
    ("nvme-plp", false),
];
const CLIENTS: [u32; 2] = [1, 16];
/// Data goes to the disk as it is written: the post's `directio`.
const DIRECT: &str = ", direct I/O";

fn described(disk: (&str, bool)) -> Result<Description> {
    let mut found = disks::named(disk.0)?;
    if disk.1 {
        found.name = format!("{} on SATA", disk.0);
        found.about = format!("behind a SATA port, where a flush is sent alone: {}", found.about);
        found.disk = Model::Sata { disk: Box::new(found.disk) };
    }
    Ok(found)
}

fn group(disk: (&str, bool), clients: u32) -> String {
    let port = if disk.1 { " on SATA" } else { "" };
    format!("{}{port}, {clients} thread{}", disk.0, if clients == 1 { "" } else { "s" })
}

fn post(of: &str, name: &str, key: &str) -> Option<f64> {
    let host = of == group(DISKS[0], 16);
    let way = WAYS.iter().find(|way| way.1 == name)?;
    way.2.filter(|_| host && key == "rate")
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut jobs = Vec::new();
    for disk in DISKS {
        for (clients, direct) in [(1, ""), (16, ""), (16, DIRECT)] {
            for (word, name, _) in WAYS {
                let described = described(disk)?;
                let mut setup =
                    Setup::new(&described, how.seed).mount(&[&format!("fsync_policy={word}")]);
                setup.cuts = how.cuts.min(4);
                if !direct.is_empty() {
                    setup.writeback = None;
                }
                let load = Load { clients, syncs: 200, settling: 100, think_us: 500 };
                setup.prepare = Some(Arc::new(move |fs| plant(fs, load)));
                jobs.push(Job::new(group(disk, clients) + direct, name, move || {
                    let ran = setup.run(|lab| overwrite(lab, load))?;
                    let mut found = Found::of(&ran, &setup);
                    found.set("rate", ran.value);
                    let syncs = f64::from(load.clients * load.syncs);
                    found.set("flushes_sync", found.get("flushes").unwrap_or(0.0) / syncs);
                    found.keep_latencies(&ran);
                    Ok(found)
                }));
            }
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("fsync-overwrite", "threads that overwrite and fdatasync", how);
    out.about = "".into();
    out.source = posts::FSYNC_COORDINATION.to_string();
    for disk in DISKS {
        out.disks.push(note(&described(disk)?));
    }
    out.cpu = Some(crate::bed::Cpu::default());
    out.heads = ("disk and threads".into(), "fsync_policy=".into());
    out.columns = vec![
        Column::new("rate", "fsyncs/s", 1, Best::High),
        Column::new("p50_ms", "p50 ms", 3, Best::None),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("flushes_sync", "flushes/fsync", 2, Best::None),
        Column::new("log_iops", "log requests/s", 1, Best::None),
    ];
    out.rows = rows.table(how, "fsync-overwrite", &out.columns, post);
    Ok(out)
}
