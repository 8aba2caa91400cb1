//! The exploration: record, cut, recover, judge.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use uxfs::clock::Clock;
use uxfs::disk::BlockDev;
use uxfs::format::timestamp::Timestamp;
use uxfs::journal::{Chains, JournalOptions, LogMode};
use uxfs::{Fs, OpenOptions, mkfs};
use uxfs_check::{CheckOptions, Severity};

use crate::cut::{Cut, Recording};
use crate::history::{self, History};
use crate::pages::Pages;
use crate::record::RecordDev;
use crate::rng::Rng;
use crate::workload::{VOLUMES, Workload};

/// Bytes of a volume.
const VOLUME: u64 = 48 << 20;
/// Steps of a workload.
const STEPS: usize = 120;

/// What to explore.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where chance begins.
    pub seed: u64,
    /// How many states.
    pub count: u64,
    /// States of one workload.
    pub per_workload: u64,
}

/// What was explored.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// States judged.
    pub states: u64,
    /// Among them, states of a recovery that was cut off.
    pub nested: u64,
    /// Workloads run.
    pub workloads: u64,
    /// Operations that workloads did.
    pub operations: BTreeSet<&'static str>,
    /// Volumes they ran on, as options of mkfs.
    pub volumes: BTreeSet<&'static str>,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations: Vec<&str> = self.operations.iter().copied().collect();
        write!(
            f,
            "{} states ({} of cut-off recoveries), {} workloads, {} volumes, operations: {}",
            self.states,
            self.nested,
            self.workloads,
            self.volumes.len(),
            operations.join(" ")
        )
    }
}

/// A state that was not right.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Seed of the workload: a plan of this seed and as many states begins with it.
    pub seed: u64,
    /// Which of its states.
    pub state: u64,
    /// What was wrong.
    pub problem: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, state, problem } = self;
        write!(f, "seed {seed}, state {state}: {problem}")
    }
}

impl std::error::Error for Failed {}

/// Explores states of workloads of the plan's seed and those after it. `judge` sees each state
/// before it is recovered, and may have a word of its own; `progress` is told how many are done.
///
/// # Errors
/// The first state that is not right.
pub fn explore(
    plan: &Plan,
    judge: &mut dyn FnMut(&Pages) -> Result<(), String>,
    progress: &mut dyn FnMut(u64),
) -> Result<Explored, Failed> {
    let mut explored = Explored::default();
    let mut seed = plan.seed;
    while explored.states < plan.count {
        let failed = |state, problem| Failed { seed, state, problem };
        let mut rng = Rng::new(seed);
        let (recording, history) =
            record(seed, &mut rng, &mut explored).map_err(|problem| failed(0, problem))?;
        let states = plan.per_workload.min(plan.count - explored.states);
        for state in 0..states {
            let at = rng.below(recording.len() as u64 + 1) as usize;
            let cut = recording.cut(at, &mut rng);
            judge(&cut.disk).map_err(|problem| failed(state, problem))?;
            judge_state(&cut, &history, &mut rng, &mut explored)
                .map_err(|p| failed(state, format!("cut before event {}: {p}", cut.at)))?;
            explored.states += 1;
            progress(explored.states);
        }
        explored.workloads += 1;
        seed += 1;
    }
    Ok(explored)
}

fn options(rng: &mut Rng) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 5 });
    options.seed = Some(rng.next());
    let buffer = 32 << (10 + rng.below(4));
    let mut journal = JournalOptions { buffer, ..JournalOptions::default() };
    journal.pipeline.size_max = [4 << 10, 32 << 10, 256 << 10][rng.below(3) as usize];
    journal.chains = [Chains::Together, Chains::Apart, Chains::Cut][rng.below(3) as usize];
    journal.pipeline.fua = rng.one_in(2);
    journal.buffers = 2 + rng.below(7) as u32;
    journal.wsync = rng.one_in(8);
    if rng.one_in(3) {
        journal.mode = LogMode::Immediate;
    }
    options.journal = Some(journal);
    options
}

/// Runs a workload, and gives what went to the disk.
fn record(
    seed: u64,
    rng: &mut Rng,
    explored: &mut Explored,
) -> Result<(Recording, History), String> {
    let line = VOLUMES[(seed % VOLUMES.len() as u64) as usize];
    explored.volumes.insert(line);
    let before = make(line)?;
    let dev = Arc::new(RecordDev::new(before.clone()));
    let text = |e: uxfs::Error| format!("the workload on {line}: {e}");
    let fs = Fs::open(Arc::<RecordDev>::clone(&dev) as Arc<dyn BlockDev>, options(rng));
    let fs = fs.map_err(text)?;
    let mut workload = Workload::new(&fs, &dev, rng).map_err(text)?;
    workload.run(STEPS).map_err(text)?;
    let Workload { history, operations, .. } = workload;
    explored.operations.extend(operations);
    if seed.is_multiple_of(3) {
        fs.close().map_err(text)?;
    }
    Ok((Recording::new(before, dev.take()), history))
}

fn make(line: &str) -> Result<Pages, String> {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        let letter = pair[0].chars().nth(1).unwrap_or('?');
        options.apply(letter, pair[1]).map_err(|e| e.to_string())?;
    }
    let layout = mkfs::Layout::new(&options, VOLUME).map_err(|e| format!("{line}: {e}"))?;
    let disk = Pages::new(VOLUME);
    let made = mkfs::write(&layout, &disk, &mkfs::WriteOptions::default());
    made.map_err(|e| format!("{line}: {e}"))?;
    Ok(disk)
}

fn judge_state(
    cut: &Cut,
    history: &History,
    rng: &mut Rng,
    explored: &mut Explored,
) -> Result<(), String> {
    let dev = Arc::new(RecordDev::new(cut.disk.clone()));
    recover(&dev, cut, history, rng)?;
    if !rng.one_in(4) {
        return Ok(());
    }
    // The power goes again while recovery is under way.
    let again = Recording::new(cut.disk.clone(), dev.take());
    let at = rng.below(again.len() as u64 + 1) as usize;
    let second = again.cut(at, rng);
    let second = Cut { durable: cut.durable, begun: cut.begun, ..second };
    explored.nested += 1;
    let dev = Arc::new(RecordDev::new(second.disk.clone()));
    recover(&dev, &second, history, rng)
        .map_err(|p| format!("cut again before event {at} of recovery: {p}"))
}

fn recover(
    dev: &Arc<RecordDev>,
    cut: &Cut,
    history: &History,
    rng: &mut Rng,
) -> Result<(), String> {
    let fs = Fs::open(Arc::<RecordDev>::clone(dev) as Arc<dyn BlockDev>, options(rng));
    let fs = fs.map_err(|e| format!("recovery: {e}"))?;
    let tree = history::read(&fs).map_err(|e| format!("reading: {e}"))?;
    history.find(&tree, cut.durable, cut.begun)?;
    fs.close().map_err(|e| format!("closing: {e}"))?;
    let mut checks = CheckOptions::default();
    checks.threads = 1;
    let report = uxfs_check::check(&**dev, &checks, &|_| {}).map_err(|e| format!("check: {e}"))?;
    match report.findings.iter().find(|f| f.severity > Severity::Note) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}
