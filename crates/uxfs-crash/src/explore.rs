//! The exploration: workloads and their states, over several threads.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;

use parking_lot::Mutex;
use uxfs_disk::MemDev;
use uxfs_disk::fault::{Fault, plant};

use crate::judge::{self, Run};

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Seed of the first workload; those after it follow.
    pub seed: u64,
    pub count: u64,
    pub per_workload: u64,
    /// Number of threads, which does not change the states.
    pub jobs: NonZeroUsize,
    /// Only workloads on volumes whose options contain all of these words.
    pub features: Vec<String>,
    /// Open the volumes in ordered mode: every state is one moment, file contents included.
    pub ordered: bool,
    /// A planted fault, for tests.
    pub fault: Option<Fault>,
    /// Stop after this many failures; only the first of a workload counts.
    pub failures_max: usize,
}

impl Plan {
    /// `count` states from `seed` on.
    pub fn new(seed: u64, count: u64) -> Self {
        let jobs = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            seed,
            count,
            per_workload: 100,
            jobs,
            features: Vec::new(),
            ordered: false,
            fault: None,
            failures_max: 1,
        }
    }
}

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    pub states: u64,
    /// States of interrupted recoveries, in addition.
    pub nested: u64,
    pub workloads: u64,
    pub operations: BTreeSet<&'static str>,
    /// Volumes of the workloads, as options of mkfs.
    pub volumes: BTreeSet<&'static str>,
    pub failures: Vec<Failed>,
}

impl Explored {
    /// The option values of the volumes, such as `rmapbt=1`.
    pub fn features(&self) -> BTreeSet<&'static str> {
        let options = self.volumes.iter().flat_map(|line| line.split_whitespace());
        options.filter(|word| !word.starts_with('-')).flat_map(|word| word.split(',')).collect()
    }

    fn add(&mut self, other: Self) {
        self.states += other.states;
        self.nested += other.nested;
        self.workloads += other.workloads;
        self.operations.extend(other.operations);
        self.volumes.extend(other.volumes);
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words =
            |all: &BTreeSet<&'static str>| all.iter().copied().collect::<Vec<_>>().join(" ");
        write!(
            f,
            "{} states, and {} of recoveries cut off, of {} workloads on {} volumes; operations: \
             {}; features: {}; {} failures",
            self.states,
            self.nested,
            self.workloads,
            self.volumes.len(),
            words(&self.operations),
            words(&self.features()),
            self.failures.len()
        )
    }
}

#[derive(Clone, Debug)]
pub struct Failed {
    pub seed: u64,
    /// Number of the state; `None` if the workload itself failed.
    pub state: Option<u64>,
    /// The volume, as options of mkfs.
    pub volume: &'static str,
    /// In ordered mode.
    pub ordered: bool,
    pub problem: String,
    /// The disk before the failed recovery.
    pub disk: Option<Box<MemDev>>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, state, volume, problem, .. } = self;
        let mode = if self.ordered { "--sync ordered " } else { "" };
        write!(f, "{mode}--seed {seed} --state {} ({volume}): {problem}", state.unwrap_or(0))
    }
}

impl std::error::Error for Failed {}

/// Explores one state of the workload with this seed, in ordered mode or not.
///
/// # Errors
/// The problem.
pub fn repeat(seed: u64, state: u64, ordered: bool) -> Result<Explored, Failed> {
    let mut explored = Explored::default();
    let volume = judge::volume(seed);
    let failed = |state, problem, disk| Failed { seed, state, volume, ordered, problem, disk };
    let run =
        Run::new(seed, ordered, &mut explored).map_err(|problem| failed(None, problem, None))?;
    let judged = run.judge(state, &mut explored);
    judged.map_err(|(problem, disk)| failed(Some(state), problem, Some(disk)))?;
    Ok(explored)
}

/// The workloads and states that no thread has taken yet.
struct RemainingWork {
    seed: u64,
    states: u64,
    failures: usize,
}

/// Explores states of the workloads from the plan's seed on. Calls `progress` for each state.
pub fn explore(plan: &Plan, progress: &(dyn Fn() + Sync)) -> Explored {
    // An allocator that returns large pieces to the system at once spends half of the time on page
    // faults. glibc's adapts after one large piece.
    drop(vec![0_u8; 31 << 20]);
    let left = Mutex::new(RemainingWork { seed: plan.seed, states: plan.count, failures: 0 });
    let all = Mutex::new(Explored::default());
    let matching =
        |seed: u64| plan.features.iter().all(|word| judge::volume(seed).contains(&**word));
    let next = || {
        let mut left = left.lock();
        if left.states == 0 || left.failures >= plan.failures_max {
            return None;
        }
        // At most as many volumes in a row do not match as there are volumes.
        let seed = (left.seed..).take(crate::VOLUMES.len()).find(|seed| matching(*seed))?;
        let states = plan.per_workload.max(1).min(left.states);
        left.seed = seed + 1;
        left.states -= states;
        Some((seed, states))
    };
    let work = || {
        plant(plan.fault);
        let mut explored = Explored::default();
        while let Some((seed, states)) = next() {
            if let Err(failed) = explore_workload(plan, (seed, states), &mut explored, progress) {
                explored.failures.push(failed);
                left.lock().failures += 1;
            }
        }
        all.lock().add(explored);
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.get() {
            scope.spawn(work);
        }
    });
    let mut all = all.into_inner();
    all.failures.sort_by_key(|failed| failed.seed);
    all
}

/// A workload and its first `states` states.
fn explore_workload(
    plan: &Plan,
    (seed, states): (u64, u64),
    explored: &mut Explored,
    progress: &(dyn Fn() + Sync),
) -> Result<(), Failed> {
    let volume = judge::volume(seed);
    let ordered = plan.ordered;
    let failed = |state, problem, disk| Failed { seed, state, volume, ordered, problem, disk };
    let run =
        Run::new(seed, plan.ordered, explored).map_err(|problem| failed(None, problem, None))?;
    for state in 0..states {
        let judged = run.judge(state, explored);
        judged.map_err(|(problem, disk)| failed(Some(state), problem, Some(disk)))?;
        progress();
    }
    Ok(())
}
