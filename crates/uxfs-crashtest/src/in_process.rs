//! A crash test of Rust code that uses the library on a volume: no mount, no process, no FUSE.
//!
//! The states, the shrinking and the verdict are those of a program's test. What the code did to its
//! files is not seen, so a failure tells its lost writes and no missing call. States are not compared, so
//! how many of them differ is not said.

use std::sync::Arc;
use std::time::Instant;

use uxfs::disk::BlockDev;
use uxfs::{Volume, VolumeOptions};

use crate::cuts;
use crate::error::{Error, Result};
use crate::explain::Explanation;
use crate::failed::made_small;
use crate::judge::Verdict;
use crate::leg::Leg;
use crate::outcome::{Failure, Outcome};
use crate::problem::{Class, Problem};
use crate::recorder::{Recorder, Run};
use crate::state::State;
use crate::test::whole;
use crate::timeline::Timeline;
use crate::uxfs_leg::UxfsLeg;

/// The name of the only pace: data is written at once, changes when they must be.
const PACE: &str = "in-process";
/// Bytes of the volume, and most bytes that the code may write to the disk.
const SIZE: u64 = 512 << 20;
const LIMIT: u64 = 1 << 30;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct InProcess {
    pub count: usize,
    pub seed: u64,
}

impl InProcess {
    /// Runs `work` on a new volume, cuts the power, and asks `check` about each state. `work` gets a
    /// function that acknowledges; `check` gets the acknowledgements made before the cut.
    ///
    /// # Errors
    /// `work` fails, or `check` fails without a cut.
    pub fn run(
        self,
        work: impl FnOnce(&Volume, &dyn Fn(&str)) -> std::result::Result<(), String>,
        check: impl Fn(&Volume, &[String]) -> std::result::Result<(), String>,
    ) -> Result<Outcome> {
        let leg = UxfsLeg::new(SIZE, "")?;
        let before = leg.make()?;
        let recorder = Arc::new(Recorder::new(before.clone(), LIMIT));
        recorder.start();
        let done = on_volume(Arc::clone(&recorder) as Arc<dyn BlockDev>, |volume| {
            let done = work(volume, &|text| recorder.acknowledge(text));
            recorder.ended();
            done
        });
        done.map_err(|problem| {
            Error::new(format!("the work failed without any power cut: {}", problem.text))
        })?;
        let run = Arc::new(recorder.finish(before));
        let judge = |state: &State| {
            let disk = Arc::new(run.recording.state(state.at, &state.survivors));
            on_volume(disk, |volume| check(volume, &run.acks[..run.acks_before(state.at)]))
        };
        let mut outcome = Outcome::new(leg.name(), self.seed);
        outcome.add_run(PACE, &run);
        let end = run.recording.len();
        judge(&State::new(PACE, end, whole(&run, end))).map_err(|problem| {
            Error::new(format!("the check fails without any power cut: {}", problem.text))
        })?;
        outcome.add_distinct(None);
        let states = cuts::states(&run, PACE, self.count, self.seed);
        let began = Instant::now();
        let failed = states.into_iter().find_map(|state| {
            outcome.states += 1;
            judge(&state).err().map(|problem| (state, problem))
        });
        outcome.elapsed = began.elapsed();
        outcome.failure =
            failed.map(|(state, problem)| failure(&leg, &run, state, problem, &judge));
        Ok(outcome)
    }
}

/// Opens a volume, which recovers it, and closes it after `f`.
fn on_volume(
    disk: Arc<dyn BlockDev>,
    f: impl FnOnce(&Volume) -> std::result::Result<(), String>,
) -> std::result::Result<(), Problem> {
    let volume = Volume::open_device(disk, &VolumeOptions::new())
        .map_err(|error| Problem::new(Class::Recovery, format!("recovery failed: {error}")))?;
    let done = f(&volume).map_err(|why| Problem::new(Class::Check, why));
    let closed = volume.close().map_err(|error| {
        Problem::new(Class::Damage, format!("the volume cannot be closed: {error}"))
    });
    done.and(closed)
}

fn failure(
    leg: &UxfsLeg,
    run: &Arc<Run>,
    first: State,
    problem: Problem,
    judge: &dyn Fn(&State) -> std::result::Result<(), Problem>,
) -> Failure {
    let small = made_small(run, &first, problem, false, &mut |state, _| {
        Some(Verdict::from(judge(state).err()))
    });
    let state = small.state;
    let disk = run.recording.state(state.at, &state.survivors);
    let end = run.recording.len();
    let places = leg.places(Arc::new(run.recording.state(end, &whole(run, end))));
    let why = "the code runs in this process, where its operations on files are not recorded";
    let explanation = Explanation::Unknown { why: why.into() };
    Failure {
        acks: run.acks[..run.acks_before(state.at)].to_vec(),
        timeline: Timeline::new(run, &state, &places, &explanation, None),
        explanation,
        run: Arc::clone(run),
        state,
        first,
        problem: small.problem.text,
        notes: small.notes,
        disk,
    }
}
