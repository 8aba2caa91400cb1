//! `uxfs crash`: tests recovery with simulated power cuts.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs_crash::{Explored, Failed, Plan, explore, repeat};

use crate::session::{Failure, Result, Session};

/// Simulate power cuts on volumes in memory, and check the recovered volumes
///
/// Random operations run on a journaled volume, on a device that records every write and flush. The
/// power is cut at a random moment: any subset of the unflushed writes has reached the disk. Then the
/// volume is recovered, compared with the history of operations, and checked. Every fourth time the
/// power is cut again during recovery. The last line shows the number of states, the operations and
/// features covered, and the number of failures. Exit status: 0 without failures, else 1. To test a
/// program of yours, use `uxfs crash-test`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs crash --count 5000 --seed 17\n  \
    uxfs crash --count 100000 --feature rmapbt=1 --feature reflink=1 --jobs 2\n  \
    uxfs crash --seed 23 --state 41 --save before-recovery.img   (a failure, repeated)")]
pub(crate) struct Options {
    /// Number of states to test
    #[arg(long, default_value_t = 5000, value_name = "N")]
    count: u64,
    /// Seed of the first workload; each further workload takes the next number
    #[arg(long, default_value_t = 0, value_name = "S")]
    seed: u64,
    /// Threads; the states do not depend on their number [default: one per processor]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// Open the volumes with -o sync=MODE: durable, or ordered, where every state must be one moment,
    /// file contents included
    #[arg(long, value_name = "MODE", default_value = "durable")]
    sync: Sync,
    /// Use only volumes made with this mkfs option, as in rmapbt=1; can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    feature: Vec<String>,
    /// Number of states per workload
    #[arg(long, default_value_t = 100, value_name = "N")]
    per_workload: u64,
    /// Stop after this many failures
    #[arg(long, default_value_t = 10, value_name = "N")]
    failures: usize,
    /// Test only this state of the workload with the seed
    #[arg(long, value_name = "K")]
    state: Option<u64>,
    /// Write the first volume that fails to a file, in its state before recovery
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// What fsync of the volumes waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    Durable,
    Ordered,
}

impl Options {
    fn plan(&self) -> Plan {
        let mut plan = Plan::new(self.seed, self.count);
        plan.per_workload = self.per_workload;
        plan.failures_max = self.failures.max(1);
        plan.ordered = self.sync == Sync::Ordered;
        plan.features.clone_from(&self.feature);
        if let Some(jobs) = self.jobs {
            plan.jobs = jobs;
        }
        plan
    }

    fn explore(&self) -> Explored {
        if let Some(state) = self.state {
            let failed = |failed| Explored { failures: vec![failed], ..Explored::default() };
            return repeat(self.seed, state, self.sync == Sync::Ordered).unwrap_or_else(failed);
        }
        let bar = (!self.quiet && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} states, {eta} left");
            let target = ProgressDrawTarget::stderr_with_hz(5);
            let bar = ProgressBar::with_draw_target(Some(self.count), target);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let explored = explore(&self.plan(), &|| {
            if let Some(bar) = &bar {
                bar.inc(1);
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        explored
    }
}

/// Tests the states and prints the failures.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let explored = options.explore();
    if !explored.failures.is_empty() {
        session.set_code(1);
    }
    if let (Some(path), Some(failed)) = (&options.save, explored.failures.first()) {
        save(path, failed).map_err(|e| Failure::host(path, &e))?;
    }
    if options.json {
        return session.print(format!("{:#}\n", document(&explored)));
    }
    for failed in &explored.failures {
        session.print(format!("failed: uxfs crash {failed}\n"))?;
    }
    session.print(format!("{explored}\n"))
}

fn save(path: &Path, failed: &Failed) -> io::Result<()> {
    let Some(disk) = &failed.disk else { return Ok(()) };
    let file = File::create(path)?;
    file.set_len(uxfs::disk::BlockDev::len(&**disk))?;
    disk.for_written(|offset, bytes| file.write_all_at(bytes, offset))
}

fn document(explored: &Explored) -> serde_json::Value {
    let failure = |failed: &Failed| {
        serde_json::json!({
            "seed": failed.seed,
            "state": failed.state,
            "volume": failed.volume,
            "problem": failed.problem,
        })
    };
    serde_json::json!({
        "states": explored.states,
        "recoveries_cut_off": explored.nested,
        "workloads": explored.workloads,
        "operations": explored.operations,
        "features": explored.features(),
        "volumes": explored.volumes,
        "failures": explored.failures.iter().map(failure).collect::<Vec<_>>(),
    })
}
