//! dbench at 1 to 200 clients; and the effect of the first log force of delayed logging on it:
//! [`posts::DELAYED_LOGGING`].

use std::path::Path;
use std::sync::Arc;

use uxfs_bench::loadfile::{self, Op};

use super::blank::{blank, note};
use super::disks;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, rounded, run as run_jobs};
use crate::posts;
use crate::setup::{Force, Setup};
use crate::verdict::{at_least, at_most, between, like};
use crate::work::dbench::{PREPARES, STEP, own_load, run as play, without_filler};
use crate::{LabError, Result};

const NODELAYLOG: &str = "nodelaylog";
const DELAYLOG: &str = "delaylog";
const NAIVE: &str = "delaylog, naive force";
/// Clients; MB/s and longest latency in ms without and with delayed logging.
const POST: [(u32, [f64; 2], [f64; 2]); 6] = [
    (1, [153.011, 157.036], [45.450, 59.685]),
    (2, [319.534, 330.062], [18.096, 41.458]),
    (10, [1350.31, 726.075], [46.631, 303.434]),
    (20, [1497.93, 547.380], [365.092, 541.223]),
    (100, [1410.42, 477.964], [2488.105, 177.471]),
    (200, [1232.97, 457.641], [297.982, 447.060]),
];
/// Operations of each client: the same with each way of logging.
fn steps(clients: u32) -> usize {
    (120_000 / clients as usize).clamp(500, 8_000)
}

/// The load file of Debian's dbench.
const PACKAGED: &str = "/usr/share/dbench/client.txt";

fn post(group: &str, name: &str, key: &str) -> Option<f64> {
    let (_, rate, worst) = POST.iter().find(|row| group == row.0.to_string())?;
    // The post's delayed logging had the naive force.
    let mode = [NODELAYLOG, NAIVE].iter().position(|mode| *mode == name)?;
    match key {
        "rate" => Some(rate[mode]),
        "max_ms" => Some(worst[mode]),
        _ => None,
    }
}

/// The load, the length of its preparation, and its description.
fn load(how: &How) -> Result<(Arc<Vec<Op>>, usize, String)> {
    let path = how.load.as_deref().or_else(|| {
        let packaged = Path::new(PACKAGED);
        packaged.is_file().then_some(packaged)
    });
    let Some(path) = path else {
        return Ok((
            Arc::new(own_load()),
            0,
            "the lab's own, as dbench's client.txt is not here".into(),
        ));
    };
    let ops = loadfile::read(path).map_err(|e| LabError::new(e.what, e.why))?;
    let ops = without_filler(ops);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let words = format!(
        "dbench's {name}, {} operations, without the files that only fill the volume",
        ops.len()
    );
    Ok((Arc::new(ops), PREPARES, words))
}

fn row(
    how: &How,
    clients: u32,
    name: &'static str,
    ops: &Arc<Vec<Op>>,
    prepares: usize,
) -> Result<Job> {
    let disk = disks::named("array-2010")?;
    let mode = if name == NODELAYLOG { NODELAYLOG } else { DELAYLOG };
    let mut setup = Setup::new(&disk, how.seed).mkfs('d', "agcount=16").mount(&["nobarrier", mode]);
    setup.cuts = how.cuts;
    setup.force = if name == NAIVE { Force::Exclusive } else { Force::Ours };
    if let Some(writeback) = &mut setup.writeback {
        writeback.dirty_bytes = 512 << 20;
        writeback.dirty_background_bytes = 256 << 20;
    }
    let ops = Arc::clone(ops);
    Ok(Job::new(clients.to_string(), name, move || {
        let ran = setup.run(|lab| play(lab, &ops, clients, prepares, steps(clients)))?;
        let mut found = Found::of(&ran, &setup);
        let seconds = ran.seconds();
        found.set("rate", ran.value.bytes as f64 / seconds / 1e6);
        found.set("steps", ran.value.steps as f64 / seconds);
        found.set("fsyncs", ran.value.flushes as f64 / seconds);
        Ok(found)
    }))
}

fn of(
    how: &How,
    progress: &dyn Progress,
    name: &str,
    clients: &[u32],
    modes: &[&'static str],
) -> Result<(Rows, Experiment)> {
    let (ops, prepares, words) = load(how)?;
    let mut jobs = Vec::new();
    for count in clients {
        for mode in modes {
            jobs.push(row(how, *count, mode, &ops, prepares)?);
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    let mut out = blank(name, "dbench: clients of a file server", how);
    out.source = posts::DELAYED_LOGGING.to_string();
    out.disks = vec![note(&disks::named("array-2010")?)];
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("clients".into(), "logging".into());
    out.columns = vec![
        Column::new("rate", "MB/s", 1, Best::High),
        Column::new("max_ms", "longest ms", 1, Best::Low),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("fsyncs", "fsyncs/s", 0, Best::None),
        Column::new("log_mb_s", "log MB/s", 1, Best::Low),
        Column::new("cpu", "processors %", 0, Best::None),
    ];
    out.rows = rows.table(how, name, &out.columns, post);
    out.notes = vec![
        format!("the load: {words}"),
        format!(
            "each client does the same operations with each way of logging, {} to {} of them, on files \
             that are there already; dbench itself takes {} µs of a processor for each",
            steps(u32::MAX),
            steps(1),
            STEP.as_micros()
        ),
        "what was not flushed is in memory in every row, for up to a minute; what is told of is what \
         was flushed"
            .into(),
    ];
    out.charts = vec![chart(&rows, clients, modes)];
    Ok((rows, out))
}

fn chart(rows: &Rows, clients: &[u32], modes: &[&str]) -> Chart {
    let line = |mode: &str, of_post: bool| Series {
        name: if of_post { format!("{mode} (post)") } else { mode.into() },
        points: clients
            .iter()
            .filter_map(|count| {
                let group = count.to_string();
                let value = if of_post {
                    post(&group, mode, "rate")
                } else {
                    rows.get(&group, mode, "rate")
                };
                Some((f64::from(*count), rounded(value?)))
            })
            .collect(),
        post: of_post,
        worth: if of_post { String::new() } else { rows.worth(|row| row.name == mode) },
    };
    Chart {
        title: "Throughput over clients".into(),
        axes: ("clients".into(), "MB/s".into()),
        log: (true, false),
        drawn: Drawn::Lines,
        series: modes
            .iter()
            .flat_map(|m| [line(m, false), line(m, true)])
            .filter(|s| !s.points.is_empty())
            .collect(),
    }
}

const CLIENTS: [u32; 6] = [1, 2, 10, 20, 100, 200];

/// The smallest quotient of two rates, over the numbers of clients.
fn least(rows: &Rows, clients: &[u32], over: &str, under: &str) -> Option<f64> {
    let ratio = |count: &u32| {
        let group = count.to_string();
        rows.ratio("rate", (&group, over), (&group, under))
    };
    let all: Option<Vec<f64>> = clients.iter().map(ratio).collect();
    all?.into_iter().reduce(f64::min)
}

/// Runs `dbench`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let modes = [NODELAYLOG, DELAYLOG];
    let (rows, mut out) = of(how, progress, "dbench", &CLIENTS, &modes)?;
    out.about = "Clients replay a file server's load, each in its own directory. Most of it is \
                 reading and writing in memory; a flush is an fsync. The post found that delayed \
                 logging lost more than 60 % above two clients, because each fsync forced the \
                 log while all other commits were blocked. `log-force` shows that loss, and that \
                 it is gone."
        .into();
    out.shapes = vec![
        Shape::goal(
            "delayed logging loses nothing at any number of clients, within dbench's margin of 5 %",
            "down to 0.34x (100 clients)",
            least(&rows, &CLIENTS, DELAYLOG, NODELAYLOG),
            "x at worst",
            at_least(0.95),
        ),
        Shape::new(
            "ten clients move more than two",
            "4.2x (immediate)",
            rows.ratio("rate", ("10", NODELAYLOG), ("2", NODELAYLOG)),
            "x",
            at_least(1.05),
            Some(like(4.2)),
        ),
    ];
    Ok(out)
}

/// Runs `log-force`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run_force(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    const FEW: [u32; 4] = [1, 2, 10, 100];
    let modes = [NODELAYLOG, DELAYLOG, NAIVE];
    let (rows, mut out) = of(how, progress, "log-force", &FEW, &modes)?;
    out.title = "dbench, with the log forced as in 2010 and as here".into();
    out.about = "The naive force is simulated as the post describes it: a caller that forces the \
                 log blocks every commit until the log is flushed, one force after the other. In \
                 uxfs only the caller waits, and a caller whose changes are in flight already \
                 starts no new force."
        .into();
    out.shapes = vec![
        Shape::new(
            "with the naive force, delayed logging loses above two clients",
            "0.54x (10), 0.34x (100)",
            least(&rows, &[10, 100], NAIVE, NODELAYLOG),
            "x at worst",
            at_most(0.95),
            Some(like(0.34)),
        ),
        Shape::new(
            "up to two clients it loses little",
            "1.03x",
            least(&rows, &[1, 2], NAIVE, NODELAYLOG),
            "x at worst",
            at_least(0.8),
            Some(between(0.95, 1.1)),
        ),
        Shape::goal(
            "with ours it loses nothing",
            "fixed in Linux 2.6.36",
            least(&rows, &FEW, DELAYLOG, NODELAYLOG),
            "x at worst",
            at_least(0.95),
        ),
    ];
    Ok(out)
}
