//! Servers with many clients: mail and databases, under three fsync policies and with less durability.

use std::sync::Arc;

use super::blank::{blank, note};
use super::disks;
use super::rungs::{self, EATMYDATA, ORDERED, RUNGS};
use crate::Result;
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Shape};
use crate::plan::{Found, How, Job, Progress, Rows, run as run_jobs};
use crate::setup::{Lab, Setup};
use crate::verdict::at_least;
use crate::work::{database, mail};

const DISKS: [&str; 3] = ["hdd-7200", "ssd-2015", "nvme"];
const POLICIES: [&str; 3] = ["greedy", "gather", "auto"];
const CLIENTS: [u32; 2] = [1, 32];
/// Runs of a row with many clients, from as many seeds, because the grouping of clients is random.
const RUNS: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Mail,
    Database,
}

impl Server {
    fn run(self, lab: &Arc<Lab>, clients: u32) -> uxfs::Result<f64> {
        match self {
            Self::Mail => {
                let (mails, warmup) = if clients == 1 { (120, 30) } else { (80, 40) };
                let load = mail::Load { clients, mails, warmup, boxes: 64, think_us: 2_000 };
                mail::run(lab, load)
            }
            Self::Database => {
                let (commits, warmup) = if clients == 1 { (200, 50) } else { (80, 120) };
                database::run(lab, database::Load { clients, commits, warmup, think_us: 500 })
            }
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Mail => "mails/s",
            Self::Database => "commits/s",
        }
    }
}

fn group(disk: &str, clients: u32) -> String {
    format!("{disk}, {clients} client{}", if clients == 1 { "" } else { "s" })
}

/// Runs `mail`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run_mail(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut out =
        blank("mail", "a mail server: spooled, synced, renamed, synced, read, removed", how);
    out.about = "Each client receives a mail of 2 to 30 kB, writes and syncs it in a spool \
                 directory, renames it into one of 64 mailboxes, syncs the mailbox, and \
                 acknowledges the mail. It reads every second mail on average, removes all but \
                 the last twelve, and pauses for up to 100 ms after each eighth. Latencies are \
                 of a delivery. After each cut every mail that was acknowledged and not removed \
                 must be in its mailbox, whole."
        .into();
    run(Server::Mail, out, how, progress)
}

/// Runs `database`.
///
/// # Errors
/// If a row cannot be run.
pub(super) fn run_database(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let mut out =
        blank("database", "a database's commits: fdatasync of a log, pages of a table", how);
    out.about = "Connections append 4 KiB each to one log file and wait for fdatasync. After each \
                 fiftieth commit a connection writes 8 random pages of 8 KiB in a table of 32 \
                 MiB and waits for fsync. Latencies are of a commit. The log grows, so each \
                 commit also changes metadata; databases that recycle their logs avoid that. \
                 After each cut the log must be at least as long as acknowledged. Its content is \
                 not checked, because connections share it."
        .into();
    run(Server::Database, out, how, progress)
}

fn run(
    server: Server,
    mut out: Experiment,
    how: &How,
    progress: &dyn Progress,
) -> Result<Experiment> {
    let mut jobs = Vec::new();
    for disk in DISKS {
        let described = disks::named(disk)?;
        out.disks.push(note(&described));
        for clients in CLIENTS {
            let policies = POLICIES.map(|policy| (policy, policy, None));
            let others = RUNGS.iter().map(|rung| (rung.name, "auto", Some(rung)));
            for (name, policy, rung) in policies.into_iter().chain(others) {
                let (described, first, cuts) = (described.clone(), how.seed, how.cuts.min(4));
                jobs.push(Job::new(group(disk, clients), name, move || {
                    let runs = if clients == 1 { 1 } else { RUNS };
                    let run = |seed| {
                        let policy = format!("fsync_policy={policy}");
                        let mut setup = Setup::new(&described, seed).mount(&[&policy]);
                        if let Some(rung) = rung {
                            setup = rung.apply(setup);
                        }
                        setup.cuts = cuts;
                        let ran = setup.run(|lab| server.run(lab, clients))?;
                        let mut found = Found::of(&ran, &setup);
                        found.set("rate", ran.value);
                        found.store_latencies(&ran);
                        Ok(found)
                    };
                    let found = (0..runs).map(|more| run(first + more)).collect::<Result<_>>()?;
                    Ok(Found::mean(found, "rate"))
                }));
            }
        }
    }
    let rows = run_jobs(how, jobs, progress)?;
    out.source = "no post: what fsync is for".into();
    out.cpu = Some(crate::setup::Cpu::default());
    out.heads = ("disk and clients".into(), "fsync".into());
    out.columns = vec![
        Column::new("rate", server.unit(), 1, Best::High),
        Column::new("low", "least", 1, Best::None),
        Column::new("high", "most", 1, Best::None),
        Column::new("p50_ms", "p50 ms", 3, Best::None),
        Column::new("p99_ms", "p99 ms", 3, Best::Low),
        Column::new("flushes_s", "flushes/s", 1, Best::None),
        Column::new("log_mb_s", "log MB/s", 2, Best::None),
    ];
    let name = out.name.clone();
    out.rows = rows.table(how, &name, &out.columns, |_, _, _| None);
    out.shapes = shapes(&rows);
    out.charts = charts(&rows);
    out.notes = vec![
        format!("greedy, gather and auto: fsync_policy=; the others with auto. {}", rungs::NOTE),
        "the first operations of each client, in which auto learns, are not counted".into(),
        "clients begin within 200 ms, at random, and those of mail pause: who begin together and go on \
         for ever keep step, and then one way or another wins by luck"
            .into(),
        format!(
            "{} clients: means of {RUNS} runs from seeds that follow each other; least and most of them",
            CLIENTS[1]
        ),
    ];
    Ok(out)
}

fn shapes(rows: &Rows) -> Vec<Shape> {
    let groups = DISKS.iter().flat_map(|disk| CLIENTS.map(|clients| group(disk, clients)));
    let of = |group: String| {
        let ratio = |policy: &&str| rows.ratio("rate", (&group, "auto"), (&group, policy));
        let best = POLICIES[..2].iter().filter_map(ratio).reduce(f64::min);
        let ordered = rows.ratio("rate", (&group, ORDERED), (&group, EATMYDATA));
        [
            Shape::goal(
                format!("{group}: auto does at least 0.97 of the better of greedy and gather"),
                "no policy won everywhere",
                best,
                " of the better",
                at_least(0.97),
            ),
            Shape::goal(
                format!("{group}: an ordered mount does at least 0.95 of eatmydata"),
                "",
                ordered,
                " of eatmydata",
                at_least(0.95),
            ),
        ]
    };
    groups.flat_map(of).collect()
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let of = group(DISKS[0], CLIENTS[1]);
    let series = rows.series(&of, "latency");
    if series.is_empty() {
        return Vec::new();
    }
    vec![Chart {
        title: format!("Which part took at most so many milliseconds: {of}"),
        axes: ("ms".into(), "%".into()),
        log: (true, false),
        drawn: Drawn::Lines,
        series,
    }]
}
