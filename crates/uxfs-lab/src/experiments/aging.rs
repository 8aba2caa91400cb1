//! seeds/002: even behaviour over a file system's life.

use std::sync::Arc;

use uxfs::Fs;
use uxfs_models::Model;

use super::{blank, disks, note, shape};
use crate::Result;
use crate::bed::{Lab, Setup};
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::work::aging::{Life, live};
use crate::work::tree::{Sync, Tree, extract};

const MONTHS: [u32; 4] = [0, 1, 3, 6];
const GROUPS: [(&str, &str); 2] = [("agcount=4", "4 groups"), ("agcount=16", "16 groups")];
/// Gigabytes of the disk: small, so that months fit into seconds.
const SIZE_GB: f64 = 2.0;

/// Reads a tree's files in its order; gives the mean number of their extents.
fn read_back(lab: &Arc<Lab>, tree: &Tree) -> uxfs::Result<f64> {
    let mut buf = vec![0; 64 << 10];
    let mut extents = 0;
    for (dir, name, size) in &tree.files {
        let path = format!("/{}/{name}", tree.path(*dir));
        let ino = lab.fs.resolve(path.as_bytes(), false)?;
        extents += lab.fs.extents(ino)?.len();
        let mut at = 0;
        while at < u64::from(*size) {
            at += lab.read(ino, at, &mut buf)? as u64;
        }
    }
    Ok(extents as f64 / tree.files.len() as f64)
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut disk = disks::named("hdd-7200")?;
    disk.name = "hdd-7200-small".into();
    disk.about = format!("{}; of {SIZE_GB} GB only, as far from edge to edge", disk.about);
    if let Model::Spindle(spec) = &mut disk.disk {
        spec.capacity_gb = SIZE_GB;
    }
    let tree = Arc::new(Tree::new("new", 1_500, 2015));
    let mut jobs = Vec::new();
    for (groups, name) in GROUPS {
        for months in MONTHS {
            let mut setup = Setup::new(&disk, how.seed).mkfs('d', groups);
            setup.mkfs[0].1 = "size=100m".into();
            setup.cuts = how.cuts.min(4);
            let life = Life { months, fill: 0.8, turnover: 0.3, seed: how.seed };
            setup.prepare = Some(Arc::new(move |fs: &Fs| live(fs, life)));
            let tree = Arc::clone(&tree);
            jobs.push(Job::new(name, format!("{months} months"), move || {
                let ran = setup.run(|lab| {
                    let took = extract(lab, &tree, Sync::End, 0)?;
                    let begun = lab.now();
                    let extents = read_back(lab, &tree)?;
                    Ok((took, (lab.now() - begun) as f64 / 1e9, extents))
                })?;
                let mut found = Found::of(&ran, &setup);
                let (took, read_s, extents) = ran.value;
                found.set("write_s", took.extract_s + took.sync_s);
                found.set("read_s", read_s);
                found.set("extents", extents);
                found.set("months", f64::from(months));
                found.keep_places(&ran);
                Ok(found)
            }));
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("aging", "a new tree on a volume that has been used for months", how);
    out.about = "A volume is filled to 80 % and used: each month files with 30 % of its content are \
                 deleted, and others made, or grown, in their place. Then a tree of 1,500 files is \
                 extracted and read back. If free space falls to pieces, the new tree does too. Only \
                 XFS' own ways of allocating are played; what the seed says of other file systems is \
                 not."
        .into();
    out.source = "seeds/002 (2015)".into();
    out.disks = vec![note(&disk)];
    out.cpu = Some(crate::bed::Cpu::default());
    out.heads = ("groups".into(), "age".into());
    out.columns = vec![
        Column::new("write_s", "seconds to write", 2, Best::None),
        Column::new("read_s", "seconds to read", 2, Best::None),
        Column::new("extents", "extents/file", 3, Best::None),
        Column::new("seek_gb", "mean distance GB", 3, Best::None),
    ];
    out.rows = rows.table(how, "aging", &out.columns, |_, _, _| None);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    GROUPS
        .iter()
        .flat_map(|(_, name)| {
            let later = |key| rows.ratio(key, (name, "6 months"), (name, "0 months"));
            [("write_s", "writing"), ("read_s", "reading")].map(|(key, word)| {
                shape(
                    &format!("{name}: after half a year {word} takes at most half as long again"),
                    "\"roughly the same performance\"",
                    later(key),
                    "x",
                    |x| x <= 1.5,
                )
            })
        })
        .collect()
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let line = |key: &str, word: &str, name: &str| Series {
        name: format!("{word}, {name}"),
        points: rows
            .0
            .iter()
            .filter(|row| row.group == name)
            .filter_map(|row| {
                Some((row.found.get("months")?, crate::plan::rounded(row.found.get(key)?)))
            })
            .collect(),
        seed: false,
    };
    let series = GROUPS
        .iter()
        .flat_map(|(_, name)| [line("write_s", "writing", name), line("read_s", "reading", name)]);
    vec![Chart {
        title: "A new tree, by the volume's age".into(),
        axes: ("months".into(), "seconds".into()),
        log: (false, false),
        drawn: Drawn::Lines,
        series: series.collect(),
    }]
}
