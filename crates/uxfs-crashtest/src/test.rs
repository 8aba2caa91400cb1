//! The test of a program: it runs, the power is cut, and what is left is recovered and checked.
//!
//! 1. Before a state is tried, the program has succeeded without a cut, and the check has accepted what
//!    it left.
//! 2. States are tried in their order, by several threads. The test ends with the first one that fails,
//!    so the number of threads does not change the result.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use regex::bytes::Regex;
use tempfile::TempDir;
use uxfs_disk::MemDev;

use crate::cuts;
use crate::error::{Error, Result};
use crate::job::{Ended, How, Job};
use crate::judge::{Checked, Key, Verdict};
use crate::leg::Leg;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::recorder::{Recorder, Run};
use crate::state::State;

/// What is tested, and how much.
#[derive(Clone)]
pub struct Plan {
    pub command: Vec<OsString>,
    /// A line for the shell that prepares the volume.
    pub setup: Option<String>,
    /// A line for the shell that judges a recovered volume.
    pub check: Option<String>,
    /// Lines of the command's output that acknowledge.
    pub ack: Option<Regex>,
    /// How long the command, and each check, may take.
    pub timeout: Duration,
    /// Most bytes that the command may write to the disk.
    pub limit: u64,
    /// States to try.
    pub count: usize,
    pub seed: u64,
    /// Threads that try states.
    pub jobs: NonZeroUsize,
    /// The volume to start with, instead of a new one.
    pub volume: Option<MemDev>,
    /// A run that was saved, instead of a new one of the command.
    pub recorded: Option<Arc<Run>>,
    /// Try this state only.
    pub state: Option<State>,
    /// Set when the test is to end early.
    pub stop: Arc<AtomicBool>,
}

/// What is reported while the test runs.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The program runs with this pace.
    Running {
        pace: String,
    },
    /// States of this pace are tried.
    Trying {
        pace: String,
        states: usize,
    },
    Tried,
    /// A state failed, and is made smaller.
    Shrinking,
}

/// Runs a test.
///
/// # Errors
/// It could not run.
pub fn run(plan: &Plan, leg: &dyn Leg, report: &(dyn Fn(Progress) + Sync)) -> Result<Outcome> {
    let scratch = tempfile::Builder::new().prefix("uxfs-crash-test-").tempdir();
    let scratch =
        scratch.map_err(|error| Error::host("cannot make a temporary directory", error))?;
    let test = Test { plan, leg, report, scratch, numbers: AtomicUsize::new(0) };
    let mut outcome = Outcome::new(leg.name(), plan.seed);
    let paces = test.paces()?;
    let before = match &plan.recorded {
        Some(run) => run.before.clone(),
        None => test.prepared()?,
    };
    for (at, pace) in paces.iter().enumerate() {
        if outcome.failure.is_some() || plan.stop.load(Ordering::Relaxed) {
            break;
        }
        // The states are shared out; the first runs have the ones that are left.
        let count = plan.count / paces.len() + usize::from(at < plan.count % paces.len());
        test.one_pace(&before, pace, count, &mut outcome)?;
    }
    outcome.interrupted = plan.stop.load(Ordering::Relaxed);
    Ok(outcome)
}

pub(crate) struct Test<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) leg: &'a dyn Leg,
    report: &'a (dyn Fn(Progress) + Sync),
    /// Files of acknowledgements, and trees.
    pub(crate) scratch: TempDir,
    pub(crate) numbers: AtomicUsize,
}

impl Test<'_> {
    fn paces(&self) -> Result<Vec<String>> {
        let all: Vec<String> = self.leg.paces().into_iter().map(String::from).collect();
        match &self.plan.state {
            _ if self.plan.recorded.is_some() => {
                let pace = self.plan.state.as_ref().map_or("recorded", |state| &state.pace);
                Ok(vec![pace.to_owned()])
            }
            None => Ok(all),
            Some(state) if all.contains(&state.pace) => Ok(vec![state.pace.clone()]),
            Some(state) => {
                let text = format!(
                    "state {state}: no pace '{}' (there are {})",
                    state.pace,
                    all.join(", ")
                );
                Err(Error::new(text))
            }
        }
    }

    /// The volume before the program runs.
    fn prepared(&self) -> Result<MemDev> {
        let disk = match &self.plan.volume {
            Some(disk) => disk.clone(),
            None => self.leg.make()?,
        };
        let Some(setup) = &self.plan.setup else { return Ok(disk) };
        let disk = Arc::new(disk);
        let job = self.shell(setup);
        let ended = self.leg.recover(Arc::clone(&disk))?;
        let ended = ended.map_err(|problem| Error::new(problem.text))?.run(&job)?;
        self.must_succeed("--setup", &ended)?;
        Ok(MemDev::clone(&disk))
    }

    pub(crate) fn shell(&self, line: &str) -> Job {
        let mut job = Job::shell(line, self.plan.timeout, Arc::clone(&self.plan.stop));
        if let Ok(dir) = std::env::current_dir() {
            job.env.push(("UXFS_FROM".into(), dir.into()));
        }
        job
    }

    pub(crate) fn must_succeed(&self, what: &str, ended: &Ended) -> Result<()> {
        let output = match ended.output.is_empty() {
            true => String::new(),
            false => format!("; the last of its output:\n{}", ended.output),
        };
        let said = match ended.how {
            How::Success if ended.left_processes => format!(
                "{what} left processes that still ran or used the volume: it must end only when they \
                 have ended"
            ),
            How::Success => return Ok(()),
            How::TimedOut => format!(
                "{what} did not end within {} s: --timeout gives it more time",
                self.plan.timeout.as_secs()
            ),
            How::OverLimit => format!(
                "{what} wrote more than {} bytes to the disk: --limit allows more (it takes as much \
                 memory)",
                self.plan.limit
            ),
            How::Stopped => return Err(Error::new("interrupted")),
            how => format!("{what} failed without any power cut: {how}"),
        };
        Err(Error::new(format!("{said}{output}")))
    }

    /// Runs the program with one pace.
    fn record(&self, before: &MemDev, pace: &str) -> Result<Run> {
        (self.report)(Progress::Running { pace: pace.into() });
        let recorder = Arc::new(Recorder::new(before.clone(), self.plan.limit));
        let job =
            Job { words: self.plan.command.clone(), ack: self.plan.ack.clone(), ..self.shell("") };
        let ended = self.leg.record(&recorder, pace, &job)?;
        self.must_succeed("the command", &ended)?;
        let mut run = recorder.finish(before.clone());
        run.recording = run.recording.with_sector(self.leg.sector());
        Ok(run)
    }

    fn one_pace(
        &self,
        before: &MemDev,
        pace: &str,
        count: usize,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let run = match &self.plan.recorded {
            Some(run) => Arc::clone(run),
            None => match self.record(before, pace) {
                Err(_) if self.plan.stop.load(Ordering::Relaxed) => return Ok(()),
                run => Arc::new(run?),
            },
        };
        outcome.add_run(pace, &run);
        let end = State::new(pace, run.recording.len(), whole(&run, run.recording.len()));
        let checked = Checked::default();
        match self.judge(&run, &end, Some(&checked))?.0 {
            Verdict::Failed(problem) => {
                let text = format!(
                    "the check fails without any power cut, on the volume as the command left it: \
                     {}",
                    problem.text
                );
                return Err(Error::new(text));
            }
            Verdict::Stopped => return Ok(()),
            Verdict::Passed => {}
        }
        let states = match &self.plan.state {
            Some(state) => vec![valid(&run, state)?],
            None => cuts::states(&run, pace, count, self.plan.seed),
        };
        (self.report)(Progress::Trying { pace: pace.into(), states: states.len() });
        let began = Instant::now();
        let failed = self.try_all(&run, &states, &checked, outcome)?;
        outcome.elapsed += began.elapsed();
        outcome.jobs = self.plan.jobs.get();
        if let Some((state, problem)) = failed {
            (self.report)(Progress::Shrinking);
            outcome.failure = Some(self.failure(&run, &state, problem, &checked));
        }
        Ok(())
    }

    /// Tries states until one fails. Returns the first that does.
    fn try_all(
        &self,
        run: &Run,
        states: &[State],
        checked: &Checked,
        outcome: &mut Outcome,
    ) -> Result<Option<(State, Problem)>> {
        let next = AtomicUsize::new(0);
        let first: Mutex<(usize, Option<Result<Problem>>)> = Mutex::new((states.len(), None));
        let tried: Mutex<Vec<(usize, Option<Key>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.plan.jobs.get().min(states.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= states.len()
                            || at > first.lock().0
                            || self.plan.stop.load(Ordering::Relaxed)
                        {
                            return;
                        }
                        let found = match self.judge(run, &states[at], Some(checked)) {
                            Ok((Verdict::Stopped, _)) => return,
                            Ok((verdict, key)) => {
                                tried.lock().push((at, key));
                                match verdict {
                                    Verdict::Failed(problem) => Ok(problem),
                                    _ => {
                                        (self.report)(Progress::Tried);
                                        continue;
                                    }
                                }
                            }
                            Err(error) => Err(error),
                        };
                        let mut first = first.lock();
                        if at < first.0 {
                            *first = (at, Some(found));
                        }
                    }
                });
            }
        });
        let (at, found) = first.into_inner();
        // Other threads may have been ahead of the one that failed.
        let mut tried = tried.into_inner();
        tried.retain(|(other, _)| *other <= at);
        outcome.states += tried.len();
        outcome.add_distinct(distinct(&tried, at));
        match found {
            None => Ok(None),
            Some(found) => found.map(|problem| Some((states[at].clone(), problem))),
        }
    }
}

/// How many of the tried states differ, if all could be compared. The one that failed differs from the others.
fn distinct(tried: &[(usize, Option<Key>)], failed: usize) -> Option<usize> {
    let keys: Option<HashSet<Key>> =
        tried.iter().filter(|(at, _)| *at != failed).map(|(_, key)| *key).collect();
    keys.map(|keys| keys.len() + usize::from(tried.iter().any(|(at, _)| *at == failed)))
}

/// All writes at risk.
pub(crate) fn whole(run: &Run, at: usize) -> Vec<uxfs_testkit::Survivor> {
    run.recording.at_risk(at).into_iter().map(uxfs_testkit::Survivor::whole).collect()
}

/// A state that was asked for, if the run has it.
fn valid(run: &Run, state: &State) -> Result<State> {
    let risk = run.recording.at_risk(state.at.min(run.recording.len()));
    let known = |survivor: &uxfs_testkit::Survivor| {
        let sectors = || run.recording.sectors(survivor.event);
        let lies_in =
            |range: &std::ops::Range<usize>| range.start < range.end && range.end <= sectors();
        risk.binary_search(&survivor.event).is_ok()
            && survivor.sectors.iter().flatten().all(lies_in)
    };
    if state.at <= run.recording.len() && state.survivors.iter().all(known) {
        return Ok(state.clone());
    }
    Err(Error::new(format!(
        "state {state}: this run differs from the one in which it failed; a recording repeats exactly \
         (--keep DIR, then --recording DIR/recording)"
    )))
}

/// Writes a disk to a sparse file.
///
/// # Errors
/// Those of the host.
pub fn save(disk: &MemDev, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path)?;
    file.set_len(uxfs_disk::BlockDev::len(disk))?;
    disk.for_written(|offset, bytes| file.write_all_at(bytes, offset))
}

#[cfg(test)]
mod tests {
    use uxfs_disk::BlockDev;

    use super::*;

    #[test]
    fn a_state_that_the_run_does_not_have_is_refused() {
        let recorder = Recorder::new(MemDev::new(4096), 1 << 20);
        recorder.write_at(0, &[1; 1024]).unwrap();
        let run = recorder.finish(MemDev::new(4096));
        let is_valid = |text: &str| valid(&run, &text.parse().unwrap()).is_ok();
        for text in ["p:1:0", "p:1:", "p:0:", "p:1:0[0-1]", "p:1:0[1]"] {
            assert!(is_valid(text), "{text}");
        }
        for text in ["p:2:", "p:1:1", "p:0:0", "p:1:0[2]", "p:1:0[1-2]"] {
            assert!(!is_valid(text), "{text}");
        }
        let (first, behind) = (1, 0);
        let sectors = std::iter::once(first..behind).collect();
        let torn = uxfs_testkit::Survivor { event: 0, sectors: Some(sectors) };
        assert!(valid(&run, &State::new("p", 1, vec![torn])).is_err());
    }
}
