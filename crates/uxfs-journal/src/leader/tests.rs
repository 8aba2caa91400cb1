//! The hand-over with the real pipeline, under a scheduler that tries interleavings: nobody sleeps for
//! good, nobody is forgotten, one drives at a time, and who is told of success can rely on it. Then the
//! same with a hand-over that breaks one of its rules: each is found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::{Config, Runner, thread};

use super::*;
use crate::{Action, Failure, Need, Options, Pipeline, Seq, Time};

const THREADS: usize = 3;
const STEPS: usize = 4;

/// Who is told: a thread that sleeps at this place, or a call with its number.
#[derive(Clone, Copy)]
enum Waiter {
    Thread(usize),
    Call(usize),
}

/// Places to sleep at.
const PLACES: usize = 2;

struct State {
    pipeline: Pipeline<Waiter>,
    /// Written to the device, and safe there.
    written: u64,
    safe: u64,
    /// How often each call was told of success, of failure.
    told: Vec<(u32, u32)>,
    failed: bool,
}

#[derive(Default)]
struct Driver {
    inside: bool,
}

struct Shared {
    state: Mutex<State>,
    places: [Condvar; PLACES],
    driver: Mutex<Driver>,
}

/// A place in the room.
#[derive(Clone, Copy)]
struct Seat<'r> {
    election: &'r Shared,
    place: usize,
    way: Way,
}

impl LeaderElection for Seat<'_> {
    type State = State;
    type Driver = Driver;
    type StateGuard<'a>
        = MutexGuard<'a, State>
    where
        Self: 'a;
    type DriverGuard<'a>
        = MutexGuard<'a, Driver>
    where
        Self: 'a;

    fn state(&self) -> MutexGuard<'_, State> {
        self.election.state.lock().expect("no thread panics")
    }

    fn try_drive(&self) -> Option<MutexGuard<'_, Driver>> {
        self.election.driver.try_lock().ok()
    }

    fn sleep<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.election.places[self.place].wait(state).expect("no thread panics")
    }

    fn wake_one(&self) {
        let places = if self.way == Way::OnePlaceTold { 1 } else { PLACES };
        self.election.places[..places].iter().for_each(Condvar::notify_one);
    }

    fn has_work(&self, state: &State) -> bool {
        self.way != Way::KeptToItself
            && state.pipeline.has_actions()
            && self.election.driver.try_lock().is_ok()
    }
}

/// How the hand-over is done: right, or with one of its rules broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Right,
    /// Driving is tried for without the state's lock.
    TriedOutside,
    /// Who leaves tells nobody.
    Untold,
    /// Who leaves tells one, of those at one place.
    OnePlaceTold,
    /// Who was told and has what it wants does not pass on that something is left to do.
    KeptToItself,
    /// The driver does not tell those whose outcome is there.
    DoneUntold,
    /// Who leaves tells the others while it still has the driver's place.
    ToldTooEarly,
    /// Who was told believes it.
    Believes,
    /// Everybody drives.
    AllDrive,
    /// Who leaves for a failure tells nobody.
    FailsInSilence,
}

impl Way {
    fn wait<T>(
        self,
        election: &Seat<'_>,
        done: impl Fn(&State) -> Option<T>,
        mut drive: impl FnMut(&mut Driver) -> Result<(), Failure>,
    ) -> Result<Option<T>, Failure> {
        let as_ever = [Self::Right, Self::OnePlaceTold, Self::KeptToItself, Self::DoneUntold];
        if as_ever.contains(&self) {
            return wait_for(election, done, drive).map(Some);
        }
        let mut state = election.state();
        loop {
            if let Some(outcome) = done(&state) {
                return Ok(Some(outcome));
            }
            if self == Self::AllDrive {
                drop(state);
                let mut inside = Driver { inside: election.try_drive().is_none() };
                drive(&mut inside)?;
                state = election.state();
                continue;
            }
            let tried = match self {
                Self::TriedOutside => {
                    drop(state);
                    let tried = election.try_drive();
                    state = election.state();
                    tried
                }
                _ => election.try_drive(),
            };
            let Some(mut driver) = tried else {
                state = election.sleep(state);
                if self == Self::Believes {
                    return Ok(None);
                }
                continue;
            };
            drop(state);
            let driven = drive(&mut driver);
            if self == Self::ToldTooEarly {
                election.wake_one();
            }
            drop(driver);
            state = election.state();
            match self {
                Self::Untold | Self::ToldTooEarly => {}
                Self::FailsInSilence if driven.is_err() => {}
                _ => election.wake_one(),
            }
            driven?;
        }
    }
}

fn now() -> Time {
    Time(0)
}

/// Carries out actions, as the engine's driver does, on a device of which one call in `fails` fails.
fn drive(
    election: &Seat<'_>,
    driver: &mut Driver,
    fails: u32,
    enough: impl Fn(&State) -> bool,
) -> Result<(), Failure> {
    assert!(!core::mem::replace(&mut driver.inside, true), "two drive at once");
    let done = drive_alone(election, fails, enough);
    driver.inside = false;
    done
}

fn drive_alone(
    election: &Seat<'_>,
    fails: u32,
    enough: impl Fn(&State) -> bool,
) -> Result<(), Failure> {
    loop {
        let action = {
            let mut state = election.state();
            match enough(&state) {
                true => state.pipeline.next_wake(),
                false => state.pipeline.next_action(),
            }
        };
        let Some(action) = action else { return Ok(()) };
        let fail = fails > 0 && shuttle::rand::thread_rng().gen_range(0..fails) == 0;
        let result = if fail { Err(Failure("planted".into())) } else { Ok(()) };
        thread::yield_now();
        let mut state = election.state();
        match action {
            Action::Cut(_) => state.pipeline.cut(now(), 1),
            Action::Write { seq, .. } => {
                assert!(!state.failed, "a write after the failure");
                state.failed |= fail;
                if !fail {
                    state.written = seq.0;
                }
                state.pipeline.written(now(), result.clone());
                result?;
            }
            Action::Flush(id) => {
                let covered = state.written;
                drop(state);
                thread::yield_now();
                let mut state = election.state();
                state.failed |= fail;
                if !fail {
                    state.safe = covered;
                }
                state.pipeline.flushed(now(), id, result.clone());
                result?;
            }
            Action::Durable(seq) => assert!(state.safe >= seq.0, "{seq:?} is not safe"),
            Action::Wake(Waiter::Thread(_), _) if election.way == Way::DoneUntold => {}
            Action::Wake(Waiter::Thread(place), _) => election.election.places[place].notify_all(),
            Action::Wake(Waiter::Call(call), result) => {
                assert!(result.is_err() || !state.failed, "success after the failure");
                let told = &mut state.told[call];
                if result.is_ok() { told.0 += 1 } else { told.1 += 1 }
            }
        }
    }
}

fn met(state: &State, need: Need) -> Option<Result<(), Failure>> {
    match state.pipeline.failure() {
        Some(failure) => Some(Err(failure.clone())),
        None => state.pipeline.met(need).then_some(Ok(())),
    }
}

/// Waits for a checkpoint.
fn wait(election: &Seat<'_>, fails: u32, need: Need) {
    let Seat { place, way, .. } = *election;
    {
        let mut state = election.state();
        if met(&state, need).is_none() {
            state.pipeline.force(now(), need, None, Waiter::Thread(place));
        }
    }
    let enough = |state: &State| met(state, need).is_some();
    let outcome = way.wait(
        election,
        |state| met(state, need),
        |driver| drive(election, driver, fails, enough),
    );
    match outcome {
        Ok(Some(Ok(()))) => assert!(election.state().safe >= need.seq.0, "told, and not safe"),
        Ok(None) => {
            let state = election.state();
            assert!(state.failed || state.safe >= need.seq.0, "told, and not safe");
        }
        Ok(Some(Err(_))) | Err(_) => assert!(election.state().pipeline.failure().is_some()),
    }
}

fn thread(election: &Shared, way: Way, fails: u32, number: usize) {
    for step in 0..STEPS {
        let election = &Seat { election, place: (number + step) % PLACES, way };
        let mut state = election.state();
        if state.pipeline.failure().is_some() {
            return;
        }
        let seq = state.pipeline.commit(now(), 1);
        let need = Need { seq, data: state.pipeline.data() };
        match shuttle::rand::thread_rng().gen_range(0..4) {
            0 => {}
            1 => {
                let call = number * STEPS + step;
                state.pipeline.force(now(), need, None, Waiter::Call(call));
                state.told[number * STEPS + step].0 += 10;
            }
            2 => {
                drop(state);
                let _failed =
                    drive_on(election, |driver| drive(election, driver, fails, |_| false));
            }
            _ => {
                drop(state);
                wait(election, fails, need);
            }
        }
    }
}

/// One run: threads that commit, wait, ask to be called, and drive in passing.
fn run(way: Way, fails: u32) {
    let options = Options { size_max: 3, ..Options::default() };
    let state = State {
        pipeline: Pipeline::new(options),
        written: 0,
        safe: 0,
        told: vec![(0, 0); THREADS * STEPS],
        failed: false,
    };
    let driver = Mutex::new(Driver::default());
    let places = [Condvar::new(), Condvar::new()];
    let election = Arc::new(Shared { state: Mutex::new(state), places, driver });
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let election = Arc::clone(&election);
            thread::spawn(move || thread(&election, way, fails, number))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    // Whoever asked to be called is told in the end, by the last who drives.
    let election = Seat { election: &election, place: 0, way: Way::Right };
    let last = {
        let state = election.state();
        Need { seq: state.pipeline.last(), data: state.pipeline.data_written() }
    };
    wait(&election, fails, last);
    let _failed = drive_on(&election, |driver| drive(&election, driver, 0, |_| false));
    let state = election.state();
    for (call, (success, failure)) in state.told.iter().enumerate() {
        if *success >= 10 {
            assert_eq!(
                success - 10 + failure,
                1,
                "call {call} was told {success}, {failure} times"
            );
        }
    }
    assert!(state.failed || state.pipeline.durable() == last.seq);
    assert!(state.pipeline.durable() <= Seq(state.safe), "durable, and not safe");
}

fn count() -> usize {
    std::env::var("UXFS_COUNT").map_or(1500, |text| text.parse().expect("a number"))
}

/// Runs that are right, in orders that follow from `UXFS_SEED`.
fn all_ways(random_fails: u32, pct_fails: u32) {
    let seed = std::env::var("UXFS_SEED").map_or(1, |text| text.parse().expect("a number"));
    println!("UXFS_SEED={seed}");
    let random = RandomScheduler::new_from_seed(seed, count());
    Runner::new(random, Config::new()).run(move || run(Way::Right, random_fails));
    let pct = PctScheduler::new_from_seed(seed, 3, count());
    Runner::new(pct, Config::new()).run(move || run(Way::Right, pct_fails));
}

#[test]
fn nobody_is_forgotten() {
    all_ways(0, 0);
}

#[test]
fn failures_reach_everybody() {
    all_ways(12, 5);
}

#[test]
fn broken_hand_overs_are_found() {
    let ways = [
        (Way::TriedOutside, 0),
        (Way::Untold, 0),
        (Way::OnePlaceTold, 0),
        (Way::KeptToItself, 0),
        (Way::DoneUntold, 0),
        (Way::ToldTooEarly, 0),
        (Way::Believes, 0),
        (Way::AllDrive, 0),
        (Way::FailsInSilence, 6),
    ];
    for (way, fails) in ways {
        let runs = |seed| {
            let random = RandomScheduler::new_from_seed(seed, 20_000);
            let pct = PctScheduler::new_from_seed(seed, 3, 20_000);
            let fails_under =
                |runner: Box<dyn FnOnce()>| catch_unwind(AssertUnwindSafe(runner)).is_err();
            fails_under(Box::new(move || {
                Runner::new(random, Config::new()).run(move || run(way, fails));
            })) || fails_under(Box::new(move || {
                Runner::new(pct, Config::new()).run(move || run(way, fails));
            }))
        };
        // From seeds, so that what is found today is found tomorrow.
        let found = (1..=8).any(runs);
        assert!(found, "{way:?} was not found");
    }
}
