//! `uxfs lab`: runs experiments on modelled disks.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs_lab::plan::{How, Progress, keep};
use uxfs_lab::{LabError, experiments, report};

use crate::session::{Failure, Result, Session};

/// Run file system experiments on modelled disks
///
/// Simulated clients use the real engine on a modelled disk in virtual time: the same seed gives the
/// same figures on any Linux machine. Each figure comes with the durability of acknowledged operations,
/// derived from the writes and flushes that reached the disk and checked by simulated power cuts.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs lab list\n  \
    uxfs lab run all --seed 7 --out lab\n  \
    uxfs lab report lab --out lab/report.html")]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run an experiment, or all of them
    ///
    /// Prints a table, and writes NAME.json and NAME.csv to the directory. Exit status: 1 if a row loses
    /// an operation that it acknowledged as durable.
    #[command(after_help = "Examples:\n  \
        uxfs lab run all\n  \
        uxfs lab run tar-star --seed 7 --out lab --only spindle\n  \
        uxfs lab run dbench --load client.txt --cuts 50\n  \
        uxfs lab run git --trace mine.gz\n  \
        uxfs lab run tar-star --tar linux-6.12.tar.xz\n  \
        uxfs lab run fs-mark tar-star barriers --on kernel:xfs,kernel:ext4,kernel:btrfs\n  \
        uxfs lab run tar-star --on dir:/srv/data")]
    Run {
        /// Names of experiments; all runs every one
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Seed of all random choices
        #[arg(long, default_value_t = 1, value_name = "S")]
        seed: u64,
        /// Directory for the results
        #[arg(long, default_value = "lab", value_name = "DIR")]
        out: PathBuf,
        /// Run only rows whose group and name contain this
        #[arg(long, default_value = "", value_name = "TEXT")]
        only: String,
        /// Number of power cuts for each row
        #[arg(long, default_value_t = 8, value_name = "N")]
        cuts: u32,
        /// Rows that run at the same time; results do not depend on it [default: one per processor]
        #[arg(long, value_name = "J")]
        jobs: Option<NonZeroUsize>,
        /// Load file for dbench [default: dbench's packaged file if installed, else the lab's own]
        #[arg(long, value_name = "FILE")]
        load: Option<PathBuf>,
        /// Trace for git and compile, made by tools/record-trace [default: the lab's own]
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Archive or directory whose tree tar-star extracts [default: the lab's own, so that figures
        /// repeat on every machine]
        #[arg(long, value_name = "FILE")]
        tar: Option<PathBuf>,
        /// Run in real time and compare with these: kernel:xfs, kernel:ext4, kernel:btrfs (loop devices;
        /// root), or dir:PATH; for fs-mark, tar-star, barriers, git and compile
        #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
        on: Vec<String>,
        /// With --on: directory for the files of loop devices and of uxfs; its file system affects the
        /// figures
        #[arg(long, default_value = ".", requires = "on", value_name = "DIR")]
        dir: PathBuf,
        /// Show no progress bar
        #[arg(short, long)]
        quiet: bool,
        /// Print a JSON document instead of tables
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print comma-separated values instead of tables
        #[arg(long)]
        csv: bool,
    },
    /// Make an HTML page of results
    #[command(after_help = "Examples:\n  \
        uxfs lab report\n  \
        uxfs lab report lab --out page.html\n  \
        uxfs lab report lab --charts pictures\n  \
        uxfs lab report lab --json")]
    Report {
        /// Directory of the results [default: the directory of the page, or lab]
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
        /// The page [default: report.html in the directory]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Also write the first chart of each experiment: NAME.svg, and its data, NAME.chart.json
        #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "csv"])]
        charts: Option<PathBuf>,
        /// Print all results as one JSON document, and write no page
        #[arg(long, conflicts_with_all = ["csv", "out"])]
        json: bool,
        /// Print all tables as comma-separated values, and write no page
        #[arg(long, conflicts_with = "out")]
        csv: bool,
    },
    /// List the experiments
    #[command(after_help = "Examples:\n  uxfs lab list")]
    List,
}

/// A progress bar with the number of rows and the time left.
struct Bar(ProgressBar);

impl Bar {
    fn new(quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} rows, {eta} left  {msg}");
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }
}

impl Progress for Bar {
    fn expect(&self, rows: usize) {
        self.0.inc_length(rows as u64);
    }

    fn ran(&self, row: &str) {
        self.0.inc(1);
        self.0.set_message(row.to_owned());
    }
}

fn failure(error: LabError) -> Failure {
    Failure::new(error.what, error.why)
}

/// Runs experiments, or makes a report of them.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    match &options.what {
        What::Run { .. } => experiment(&options.what, session),
        What::Report { dir, out, charts, json, csv } => {
            let beside =
                out.as_deref().and_then(Path::parent).filter(|p| !p.as_os_str().is_empty());
            let dir = dir.as_deref().or(beside).unwrap_or(Path::new("lab"));
            let found = report::load(dir).map_err(failure)?;
            if *json {
                return session.print(format!("{:#}\n", serde_json::json!(found)));
            }
            if *csv {
                return found.iter().try_for_each(|e| session.print(table(e)));
            }
            let path = out.clone().unwrap_or_else(|| dir.join("report.html"));
            std::fs::write(&path, report::page(&found)).map_err(|e| Failure::host(&path, &e))?;
            session.print(format!("{}\n", path.display()))?;
            charts.as_deref().map_or(Ok(()), |charts| pictures(charts, &found, session))
        }
        What::List => experiments::ALL
            .iter()
            .try_for_each(|known| session.print(format!("{:20} {}\n", known.name, known.about))),
    }
}

/// Writes the chart of each experiment and its data.
fn pictures(dir: &Path, found: &[uxfs_lab::outcome::Experiment], session: &Session) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::host(dir, &e))?;
    for picture in found.iter().filter_map(report::Picture::of) {
        let data = format!("{}\n", serde_json::json!(picture));
        for (end, content) in [("chart.json", data), ("svg", picture.svg())] {
            let path = dir.join(format!("{}.{end}", picture.name));
            std::fs::write(&path, content).map_err(|e| Failure::host(&path, &e))?;
            session.print(format!("{}\n", path.display()))?;
        }
    }
    Ok(())
}

fn table(found: &uxfs_lab::outcome::Experiment) -> String {
    format!("# {}\n{}", found.name, found.csv())
}

fn experiment(what: &What, session: &Session) -> Result<()> {
    let What::Run { names, seed, out, only, cuts, jobs, on, dir, quiet, json, csv, .. } = what
    else {
        return Ok(());
    };
    let mut how = How::new(*seed);
    how.only.clone_from(only);
    how.cuts = *cuts;
    if let What::Run { load, trace, tar, .. } = what {
        how.load.clone_from(load);
        how.trace.clone_from(trace);
        how.tar.clone_from(tar);
    }
    how.dir.clone_from(dir);
    how.on = on.iter().map(|word| word.parse().map_err(failure)).collect::<Result<_>>()?;
    if let Some(jobs) = jobs {
        how.jobs = *jobs;
    }
    let mut wanted: Vec<&str> = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => wanted.extend(experiments::ALL.iter().map(|known| known.name)),
            name => wanted.push(name),
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    wanted.retain(|name| seen.insert(*name));
    let bar = Bar::new(*quiet);
    let mut all = Vec::new();
    for name in wanted {
        let found = experiments::run(name, &how, &bar).map_err(failure)?;
        if found.rows.is_empty() {
            continue;
        }
        keep(out, &found).map_err(failure)?;
        if found.failed() {
            session.set_code(1);
        }
        if *json {
            all.push(serde_json::json!(found));
            continue;
        }
        let text = if *csv { table(&found) } else { format!("{found}\n") };
        bar.0.suspend(|| session.print(text))?;
    }
    bar.0.finish_and_clear();
    if all.is_empty() && *json {
        return session.print("[]\n");
    }
    match json {
        true => session.print(format!("{:#}\n", serde_json::Value::Array(all))),
        false => Ok(()),
    }
}
