//! A tree extracted without fsync, with one for each file, or with all at the end:
//! [`posts::TAR_STAR`].

use std::sync::Arc;

use uxfs::WritebackOptions;

use super::blank::{blank, note};
use super::disks;
use crate::Result;
use crate::durability::Fsyncs;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::posts;
use crate::setup::Setup;
use crate::verdict::{at_least, at_most, like};
use crate::work::tree::{Sync, Tree, extract};

/// Files of the tree: a fifth of linux-2.6.32.
const FILES: u32 = 6_100;
/// Files of the post's tree.
const POST_FILES: f64 = 30_500.0;

/// Disk, method; seconds to extract, and to sync then, of XFS in the post.
const POST: [(&str, &str, f64, f64); 6] = [
    ("spindle", TAR, 46.554, 114.913),
    ("spindle", STAR, 3615.723, 0.222),
    ("spindle", TAR_TIGHT, 145.805, 1.683),
    ("spindle", TAR_TIGHT_NOBARRIER, 31.047, 0.269),
    ("fast SSD", TAR_TIGHT, 5.148, 0.784),
    ("fast SSD", STAR_TIGHT, 381.946, 0.097),
];

const TAR: &str = "tar, sync";
const STAR: &str = "star (fsync each)";
const TICKETS: &str = "star, waiting at the end";
const TAR_TIGHT: &str = "tar, sync; tight flusher";
const STAR_TIGHT: &str = "star; tight flusher";
const TAR_TIGHT_NOBARRIER: &str = "tar, sync; tight, nobarrier";
const STAR_NOBARRIER: &str = "star, nobarrier";
const STAR_EATMYDATA: &str = "star under eatmydata";
const STAR_ORDERED: &str = "star, ordered, loss=5";
const STAR_ORDERED_TIGHT: &str = "star, ordered, loss=1";

struct Method {
    name: &'static str,
    sync: Sync,
    tight: bool,
    mount: &'static [&'static str],
    fsyncs: Fsyncs,
}

impl Method {
    const fn new(name: &'static str, sync: Sync) -> Self {
        Self { name, sync, tight: false, mount: &[], fsyncs: Fsyncs::Waited }
    }
}

const METHODS: [Method; 10] = [
    Method::new(TAR, Sync::End),
    Method { tight: true, ..Method::new(TAR_TIGHT, Sync::End) },
    Method { tight: true, mount: &["nobarrier"], ..Method::new(TAR_TIGHT_NOBARRIER, Sync::End) },
    Method::new(STAR, Sync::Each),
    Method { tight: true, ..Method::new(STAR_TIGHT, Sync::Each) },
    Method { mount: &["nobarrier"], ..Method::new(STAR_NOBARRIER, Sync::Each) },
    Method::new(TICKETS, Sync::Tickets),
    Method { fsyncs: Fsyncs::Ignored, ..Method::new(STAR_EATMYDATA, Sync::Each) },
    Method { fsyncs: Fsyncs::Ordered { loss_s: 5 }, ..Method::new(STAR_ORDERED, Sync::Each) },
    Method { fsyncs: Fsyncs::Ordered { loss_s: 1 }, ..Method::new(STAR_ORDERED_TIGHT, Sync::Each) },
];

const DISKS: [(&str, &str); 2] = [("spindle", "hdd-7200"), ("fast SSD", "ssd-2010")];

/// The post's figures, with its seconds scaled to fewer files.
fn post(group: &str, name: &str, key: &str, scale: f64) -> Option<f64> {
    let (.., extract, sync) = POST.iter().find(|row| group == row.0 && name == row.1)?;
    match key {
        "total_s" => Some((extract + sync) / scale),
        "extract_s" => Some(extract / scale),
        "sync_s" => Some(sync / scale),
        "file_ms" => Some((extract + sync) / 30.5),
        _ => None,
    }
}

/// Runs it.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let (tree, note_of_tree) = tree(how, FILES)?;
    let tree = Arc::new(tree);
    let files = tree.files.len() as f64;
    let mut jobs = Vec::new();
    for (group, disk) in DISKS {
        let disk = disks::named(disk)?;
        for method in &METHODS {
            let mut setup = Setup::new(&disk, how.seed).mount(method.mount).fsyncs(method.fsyncs);
            setup.cuts = how.cuts;
            setup.writeback = Some(WritebackOptions {
                // The post's figures, of a tree five times as large.
                dirty_bytes: if method.tight { 1 << 20 } else { 500_000_000 },
                dirty_background_bytes: 900_000_000,
                dirty_expire_centisecs: if method.tight { 200 } else { 2000 },
                dirty_writeback_centisecs: if method.tight { 100 } else { 1000 },
            });
            let (tree, sync) = (Arc::clone(&tree), method.sync);
            jobs.push(Job::new(group, method.name, move || {
                let ran = setup.run(|lab| extract(lab, &tree, sync, 0))?;
                let mut found = Found::of(&ran, &setup);
                let took = ran.value;
                found.set("extract_s", took.extract_s);
                found.set("sync_s", took.sync_s);
                found.set("total_s", took.extract_s + took.sync_s);
                found.set("file_ms", (took.extract_s + took.sync_s) * 1e3 / files);
                found.set("dirty_mb", took.dirty as f64 / 1e6);
                found.store_latencies(&ran);
                Ok(found)
            }));
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank("tar-star", "tar and star of a fifth of linux-2.6.32", how);
    out.about =
        "The same tree is extracted in three ways: with one sync at the end (GNU tar, then \
                 sync); with an fsync of each file before the next (star); and with a sync of \
                 each file that begins when the file is written, and one wait for all of them at \
                 the end (tickets). The first acknowledges nothing until its end. The second is \
                 slow because one fsync waits for another. The third gives the durability of the \
                 second when the command ends, at the price of the first. The tight flusher is \
                 the post's: at most 100 kB dirty (1 MiB here), written back after 2 s. Under \
                 eatmydata fsync does nothing. On an ordered mount it waits for nothing, and after \
                 each cut the whole tree must be of one moment."
            .into();
    out.source = posts::TAR_STAR.to_string();
    for (_, disk) in DISKS {
        out.disks.push(note(&disks::named(disk)?));
    }
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disk".into(), "way".into());
    out.columns = vec![
        Column::new("total_s", "seconds", 2, Best::Low),
        Column::new("extract_s", "extracting", 2, Best::None),
        Column::new("sync_s", "then syncing", 2, Best::None),
        Column::new("file_ms", "ms/file", 2, Best::Low),
        Column::new("flushes", "flushes", 0, Best::None),
        Column::new("dirty_mb", "dirty MB", 1, Best::None),
    ];
    let scale = POST_FILES / files;
    out.rows = rows.table(how, "tar-star", &out.columns, |g, n, k| post(g, n, k, scale));
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        format!("the post's seconds are divided by {scale:.2}: its tree had 30,500 files"),
        "what tar without a sync is worth: nothing, until the flusher has been by".into(),
    ];
    if let Some(note) = note_of_tree {
        out.title = "tar and star of an archive".into();
        out.notes.push(note);
    }
    Ok(out)
}

/// The tree to extract: that of the named archive, with a note about it, or the lab's own with this
/// many files.
pub(crate) fn tree(how: &How, files: u32) -> Result<(Tree, Option<String>)> {
    let Some(path) = &how.tar else { return Ok((Tree::new("linux-2.6.32", files, 2012), None)) };
    let (tree, left_out) = Tree::of_archive(path, "archive")?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let note = format!(
        "the tree is that of {name}: {} files, {:.1} MB; {left_out} links and special files left out",
        tree.files.len(),
        tree.bytes() as f64 / 1e6
    );
    Ok((tree, Some(note)))
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let mut all = Vec::new();
    // The post shows the cost of fsync without barriers for the spindle only.
    for (group, then, weak) in [("spindle", 22.0, Some(44.0)), ("fast SSD", 64.0, None)] {
        let time = |over, under| rows.ratio("total_s", (group, over), (group, under));
        all.push(Shape::new(
            format!("{group}: an fsync for each file costs many times one sync"),
            &format!("{then}x"),
            time(STAR, TAR),
            "x",
            at_least(2.0),
            Some(like(then)),
        ));
        all.push(Shape::goal(
            format!("{group}: waiting for all at the end costs at most 3 times tar, with every file on stable storage"),
            "35x to 1,300x for an fsync each",
            time(TICKETS, TAR),
            "x",
            at_most(3.0),
        ));
        all.push(Shape::new(
            format!("{group}: without barriers the fsyncs are cheap, and worth less"),
            "44x less (ext4, spindle)",
            time(STAR, STAR_NOBARRIER),
            "x less",
            at_least(2.0),
            weak.map(like),
        ));
        all.push(Shape::goal(
            format!("{group}: an fsync for each file on an ordered mount takes at most 1.05 times as long as under eatmydata"),
            "",
            time(STAR_ORDERED, STAR_EATMYDATA),
            "x",
            at_most(1.05),
        ));
    }
    all
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let place = |(group, disk): (&str, &str)| Series {
        name: format!("{group} ({disk})"),
        points: rows
            .0
            .iter()
            .filter(|row| row.group == group)
            .filter_map(|row| {
                let exposed = row.found.durability.as_ref()?.exposed_s.max(1e-6);
                Some((crate::plan::rounded(row.found.get("total_s")?), exposed))
            })
            .collect(),
        post: false,
        worth: "as far up as it stands".into(),
    };
    let latency = rows.0.iter().filter_map(|row| {
        let points = row.found.points.get("latency")?.clone();
        let worth = rows.worth(|other| other.group == row.group && other.name == row.name);
        let name = format!("{}: {}", row.group, row.name);
        Some(Series { name, points, post: false, worth })
    });
    vec![
        Chart {
            title: "Time against durability: seconds for the tree, and for how long something \
                    acknowledged could be lost (1 µs: never)"
                .into(),
            axes: ("seconds".into(), "exposed seconds".into()),
            log: (true, true),
            drawn: Drawn::Points,
            series: DISKS.iter().map(|disk| place(*disk)).collect(),
        },
        Chart {
            title: "Which part of the files was synced within so many milliseconds".into(),
            axes: ("ms".into(), "% of files".into()),
            log: (true, false),
            drawn: Drawn::Lines,
            series: latency.collect(),
        },
    ]
}
