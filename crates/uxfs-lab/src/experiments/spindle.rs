//! An empty file system on one slow spindle, and on an SSD: [`posts::SPINDLE`].

use std::sync::Arc;

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, between, like};
use crate::work::build::{Load, populate, run as build};
use crate::work::tree::Tree;

const DISKS: [(&str, &str); 2] = [("single slow spindle", "hdd-7200"), ("SATA SSD", "ssd-2015")];
/// Allocation groups, and what that is.
const GROUPS: [(&str, &str); 3] = [
    ("agcount=4,size=20g", "4 groups in the first 20 GB (packed)"),
    ("agcount=4", "4 groups over the disk (XFS)"),
    ("agcount=16", "16 groups over the disk"),
];
const LOADS: [(&str, Load); 2] = [
    ("git test", Load { clients: 8, jobs: 24, reads: 10, makes: 8, work_us: 3_000, flat: false }),
    (
        "kernel make",
        Load { clients: 8, jobs: 24, reads: 12, makes: 1, work_us: 400_000, flat: false },
    ),
];

/// Seconds of XFS, which had its default of groups.
fn post(group: &str, name: &str, key: &str) -> Option<f64> {
    (key == "seconds" && name == GROUPS[1].1).then_some(())?;
    match group {
        "git test, single slow spindle" => Some(401.887),
        "git test, SATA SSD" => Some(196.138),
        "kernel make, SATA SSD" => Some(246.723),
        _ => None,
    }
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let tree = Arc::new(Tree::new("git", 4_000, 2015));
    let mut jobs = Vec::new();
    for (load_name, load) in LOADS {
        for (disk_name, disk) in DISKS {
            let disk = disks::named(disk)?;
            for (groups, name) in GROUPS {
                let mut setup = Setup::new(&disk, how.seed).mkfs('d', groups);
                setup.cuts = how.cuts;
                let source = Arc::clone(&tree);
                setup.prepare = Some(Arc::new(move |fs| populate(fs, &source, 0)));
                let tree = Arc::clone(&tree);
                jobs.push(Job::new(format!("{load_name}, {disk_name}"), name, move || {
                    let ran = setup.run(|lab| build(lab, &tree, load))?;
                    let mut found = Found::of(&ran, &setup);
                    found.store_offsets(&ran);
                    Ok(found)
                }));
            }
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("spindle", "builds and tests on an almost empty file system, cold", how);
    out.about =
        "Eight clients read sources from a cold tree of 4,000 files, work on them, write a \
                 few files and remove half of them: like git's own tests, which compute little \
                 between files, and like a kernel build, which computes much. Spreading \
                 directories over allocation groups costs seeks on a disk with one arm and few \
                 files. Where nothing seeks it costs nothing. A volume on the disk's first 20 GB \
                 stands for file systems that pack everything at its start; they are not \
                 modelled. `concat` shows the benefit of spreading."
            .into();
    out.source = posts::SPINDLE.to_string();
    for (_, disk) in DISKS {
        out.disks.push(note(&disks::named(disk)?));
    }
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("work and disk".into(), "allocation groups".into());
    out.columns = vec![
        Column::new("seconds", "seconds", 2, Best::Low),
        Column::new("seek_gb", "mean seek GB", 2, Best::Low),
        Column::new("reads", "reads", 0, Best::None),
        Column::new("requests", "requests", 0, Best::None),
        Column::new("cpu", "processors %", 0, Best::None),
    ];
    out.rows = rows.table(how, "spindle", &out.columns, post);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        "the post's seconds are of all of git's tests, and of a whole kernel: only ratios of rows \
         can be compared"
            .into(),
    ];
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let slower = |load: &str, disk: &str| {
        let group = format!("{load}, {disk}");
        rows.ratio("seconds", (&group, GROUPS[1].1), (&group, GROUPS[0].1))
    };
    vec![
        Shape::new(
            "one slow spindle: spread over groups, git's tests take longer than packed",
            "2.9x (XFS to ext4)",
            slower("git test", DISKS[0].0),
            "x",
            at_least(1.1),
            Some(like(2.86)),
        ),
        Shape::new(
            "an SSD: no difference",
            "0.99x",
            slower("git test", DISKS[1].0),
            "x",
            between(0.95, 1.05),
            Some(between(0.95, 1.05)),
        ),
        Shape::new(
            "a build that works much, on an SSD: no difference",
            "0.98x",
            slower("kernel make", DISKS[1].0),
            "x",
            between(0.97, 1.03),
            Some(between(0.97, 1.03)),
        ),
        Shape::new(
            "the SSD is faster than the spindle at git's tests",
            "2.05x (XFS)",
            rows.ratio(
                "seconds",
                ("git test, single slow spindle", GROUPS[1].1),
                ("git test, SATA SSD", GROUPS[1].1),
            ),
            "x",
            at_least(1.1),
            Some(like(2.05)),
        ),
    ]
}

fn charts(rows: &Rows) -> Vec<Chart> {
    vec![Chart {
        title: "Where the spindle was asked, and when: git's tests".into(),
        axes: ("seconds".into(), "GB from the start of the disk".into()),
        log: (false, false),
        drawn: Drawn::Points,
        series: rows.series("git test, single slow spindle", "places"),
    }]
}
