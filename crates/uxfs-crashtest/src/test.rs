//! The test of a program: it runs, the power is cut, and what is left is recovered and checked.
//!
//! 1. Before a state is tried, the program has succeeded without a cut, and the check has accepted what
//!    it left.
//! 2. States are tried in their order, by several threads. The test ends with the first one that fails,
//!    so the number of threads does not change the result.
//! 3. A state whose files and acknowledgements were checked before is not checked again.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use regex::bytes::Regex;
use tempfile::TempDir;
use uxfs_disk::MemDev;

use crate::cuts;
use crate::error::{Error, Result};
use crate::explain::{Case, Explanation};
use crate::job::{Ended, How, Job};
use crate::leg::Leg;
use crate::outcome::{Failure, Outcome};
use crate::recorder::{Recorder, Run};
use crate::shrink::shrink;
use crate::state::State;
use crate::timeline::Timeline;
use crate::tree::Tree;

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

struct Test<'a> {
    plan: &'a Plan,
    leg: &'a dyn Leg,
    report: &'a (dyn Fn(Progress) + Sync),
    /// Files of acknowledgements, and trees.
    scratch: TempDir,
    numbers: AtomicUsize,
}

/// The digest of a state's files, and the number of acknowledgements.
type Key = (u64, usize);
/// What a check said.
type Checked = Mutex<HashMap<Key, Option<String>>>;

/// How a state was judged.
enum Verdict {
    Passed,
    Failed(String),
    /// The test was stopped meanwhile.
    Stopped,
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
        let ended = self.leg.recover(Arc::clone(&disk))?.map_err(Error::new)?.run(&job)?;
        self.must_succeed("--setup", &ended)?;
        Ok(MemDev::clone(&disk))
    }

    fn shell(&self, line: &str) -> Job {
        let mut job = Job::shell(line, self.plan.timeout, Arc::clone(&self.plan.stop));
        if let Ok(dir) = std::env::current_dir() {
            job.env.push(("UXFS_FROM".into(), dir.into()));
        }
        job
    }

    fn must_succeed(&self, what: &str, ended: &Ended) -> Result<()> {
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
        match self.judge(&run, &end, &checked)?.0 {
            Verdict::Failed(problem) => {
                let text = format!(
                    "the check fails without any power cut, on the volume as the command left it: \
                     {problem}"
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
            outcome.failure = Some(self.failure(&run, &state, problem, &checked)?);
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
    ) -> Result<Option<(State, String)>> {
        let next = AtomicUsize::new(0);
        let first: Mutex<(usize, Option<Result<String>>)> = Mutex::new((states.len(), None));
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
                        let found = match self.judge(run, &states[at], checked) {
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
        let keys: HashSet<Key> = tried.iter().filter_map(|(_, key)| *key).collect();
        outcome.distinct += keys.len() + tried.iter().filter(|(_, key)| key.is_none()).count();
        match found {
            None => Ok(None),
            Some(found) => found.map(|problem| Some((states[at].clone(), problem))),
        }
    }

    /// Recovers and checks a state.
    fn judge(&self, run: &Run, state: &State, checked: &Checked) -> Result<(Verdict, Option<Key>)> {
        let disk = Arc::new(run.recording.state(state.at, &state.survivors));
        let recovered = match self.leg.recover(disk)? {
            Ok(recovered) => recovered,
            Err(problem) => return Ok((Verdict::Failed(problem), None)),
        };
        let acks = run.acks_before(state.at);
        let key = match recovered.tree() {
            Ok(tree) => tree.map(|tree| (tree.digest(), acks)),
            Err(problem) => return Ok((Verdict::Failed(problem), None)),
        };
        let verdict = |problem: Option<String>| problem.map_or(Verdict::Passed, Verdict::Failed);
        if let Some(known) = key.and_then(|key| checked.lock().get(&key).cloned()) {
            return Ok((verdict(known), key));
        }
        let problem = match &self.plan.check {
            None => recovered.damage(),
            Some(check) => {
                let (job, acked) = self.check_job(check, &run.acks[..acks])?;
                let ended = recovered.run(&job);
                // It is in a directory that goes away.
                let _ = fs::remove_file(acked);
                match self.said(&ended?) {
                    Err(()) => return Ok((Verdict::Stopped, key)),
                    Ok(problem) => problem,
                }
            }
        };
        if let Some(key) = key {
            checked.lock().insert(key, problem.clone());
        }
        Ok((verdict(problem), key))
    }

    /// What a check found. An error if it was stopped.
    fn said(&self, ended: &Ended) -> std::result::Result<Option<String>, ()> {
        let how = match ended.how {
            How::Success => return Ok(None),
            How::Stopped => return Err(()),
            How::TimedOut => {
                format!("the check did not end within {} s", self.plan.timeout.as_secs())
            }
            how => format!("the check failed: {how}"),
        };
        Ok(Some(match ended.output.is_empty() {
            true => how,
            false => format!("{how}: {}", ended.output),
        }))
    }

    /// A check that knows these acknowledgements, and the file with them.
    fn check_job(&self, check: &str, acks: &[String]) -> Result<(Job, PathBuf)> {
        let path = self.fresh("acked");
        let text: String = acks.iter().map(|ack| format!("{ack}\n")).collect();
        fs::write(&path, text).map_err(|error| Error::host("acknowledgements", error))?;
        let mut job = self.shell(check);
        job.env.push(("UXFS_ACKED".into(), path.clone().into()));
        Ok((job, path))
    }

    /// An unused path in the scratch directory.
    fn fresh(&self, what: &str) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.scratch.path().join(format!("{what}-{number}"))
    }

    /// Makes a failed state small, and explains it.
    fn failure(
        &self,
        run: &Arc<Run>,
        state: &State,
        problem: String,
        checked: &Checked,
    ) -> Result<Failure> {
        let mut last = problem;
        let least = match &self.plan.state {
            Some(_) => state.clone(),
            None => shrink(run, state, &mut |state| match self.judge(run, state, checked) {
                Ok((Verdict::Failed(problem), _)) => {
                    last = problem;
                    true
                }
                _ => false,
            }),
        };
        // The problem that is reported belongs to the state that is reported.
        if let Ok((Verdict::Failed(problem), _)) = self.judge(run, &least, checked) {
            last = problem;
        }
        let disk = Arc::new(run.recording.state(least.at, &least.survivors));
        let kept = MemDev::clone(&disk);
        let acks = run.acks[..run.acks_before(least.at)].to_vec();
        let before = self.tree(Arc::new(run.before.clone()));
        let explanation = self.explain(run, &least, disk, &acks, before.as_ref());
        let end = run.recording.len();
        let places = self.leg.places(Arc::new(run.recording.state(end, &whole(run, end))));
        let timeline = Timeline::new(run, &least, &places, &explanation, before.as_ref());
        Ok(Failure {
            state: least,
            first: state.clone(),
            problem: last,
            acks,
            explanation,
            timeline,
            disk: kept,
            run: Arc::clone(run),
        })
    }

    /// The files of a disk after recovery, if they can be had.
    fn tree(&self, disk: Arc<MemDev>) -> Option<Tree> {
        self.leg.recover(disk).ok()?.ok()?.tree().ok().flatten()
    }

    fn explain(
        &self,
        run: &Run,
        state: &State,
        disk: Arc<MemDev>,
        acks: &[String],
        before: Option<&Tree>,
    ) -> Explanation {
        let unknown = |why: &str| Explanation::Unknown { why: why.into() };
        let Some(recovered) = self.tree(disk) else {
            return unknown("the file system itself does not recover");
        };
        let Some(before) = before else {
            return unknown("the files are too many to compare");
        };
        let Some(check) = &self.plan.check else {
            return unknown("there is no --check to ask");
        };
        let passes = |tree: &Tree| self.accepts(check, tree, acks).unwrap_or(false);
        let case = Case { run, before, at: state.at, recovered: &recovered, passes: &passes };
        case.explain()
    }

    /// Does the check accept these files, in a directory of the host?
    fn accepts(&self, check: &str, tree: &Tree, acks: &[String]) -> Result<bool> {
        let dir = self.fresh("tree");
        let host = |error| Error::host("cannot write files to try", error);
        fs::create_dir(&dir).map_err(host)?;
        tree.write_to(&dir).map_err(host)?;
        let (job, acked) = self.check_job(check, acks)?;
        let ended = job.run_in(&dir, None);
        // Both are in a directory that goes away.
        let _ = (fs::remove_file(acked), fs::remove_dir_all(&dir));
        Ok(ended?.how == How::Success)
    }
}

/// All writes at risk.
pub(crate) fn whole(run: &Run, at: usize) -> Vec<uxfs_testkit::Survivor> {
    run.recording.at_risk(at).into_iter().map(uxfs_testkit::Survivor::whole).collect()
}

/// A state that was asked for, if the run has it.
fn valid(run: &Run, state: &State) -> Result<State> {
    let risk = run.recording.at_risk(state.at.min(run.recording.len()));
    let known = |survivor: &uxfs_testkit::Survivor| risk.contains(&survivor.event);
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
