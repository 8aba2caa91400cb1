//! Tests of leader election with the real pipeline, under a scheduler that explores interleavings:
//! no thread sleeps forever, every waiter gets a result, one thread drives at a time, and success
//! means durable. The same tests run with variants that break one rule each; each must be found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::{Config, Runner, thread};

use super::*;
use crate::{Action, Failure, Need, Options, Pipeline, Seq, Time};

const THREADS: usize = 3;
const STEPS: usize = 4;

/// A waiter: a thread that sleeps on this condition, or a callback with its number.
#[derive(Clone, Copy)]
enum Waiter {
    Thread(usize),
    Callback(usize),
}

/// Conditions to sleep on.
const CONDITIONS: usize = 2;

struct State {
    pipeline: Pipeline<Waiter>,
    /// The last checkpoint written to the device, and the last stable one.
    written: u64,
    stable: u64,
    /// For each callback: how often it got success, and failure.
    results: Vec<(u32, u32)>,
    failed: bool,
}

#[derive(Default)]
struct Driver {
    inside: bool,
}

struct Shared {
    state: Mutex<State>,
    conditions: [Condvar; CONDITIONS],
    driver: Mutex<Driver>,
}

/// A participant of the election, which sleeps on one condition.
#[derive(Clone, Copy)]
struct Participant<'r> {
    election: &'r Shared,
    condition: usize,
    protocol: Protocol,
}

impl LeaderElection for Participant<'_> {
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
        self.election.conditions[self.condition].wait(state).expect("no thread panics")
    }

    fn wake_one(&self) {
        let conditions = if self.protocol == Protocol::OneConditionWoken { 1 } else { CONDITIONS };
        self.election.conditions[..conditions].iter().for_each(Condvar::notify_one);
    }

    fn has_work(&self, state: &State) -> bool {
        self.protocol != Protocol::WakeupNotPassedOn
            && state.pipeline.has_actions()
            && self.election.driver.try_lock().is_ok()
    }
}

/// The election protocol: correct, or with one of its rules broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Correct,
    /// A thread tries to become the driver without the state lock.
    TriedWithoutLock,
    /// A departing driver wakes no thread.
    NotWoken,
    /// A departing driver wakes one sleeper, of one condition only.
    OneConditionWoken,
    /// A woken thread with an outcome does not pass the wakeup on.
    WakeupNotPassedOn,
    /// The driver does not wake the threads whose outcome is there.
    DoneNotWoken,
    /// A departing driver wakes the others while it still holds the driver's lock.
    WokenTooEarly,
    /// A woken thread returns without checking its outcome.
    OutcomeNotChecked,
    /// Every thread drives.
    AllDrive,
    /// A driver that fails wakes no thread.
    FailureNotWoken,
}

impl Protocol {
    fn wait<T>(
        self,
        election: &Participant<'_>,
        done: impl Fn(&State) -> Option<T>,
        mut drive: impl FnMut(&mut Driver) -> Result<(), Failure>,
    ) -> Result<Option<T>, Failure> {
        let standard =
            [Self::Correct, Self::OneConditionWoken, Self::WakeupNotPassedOn, Self::DoneNotWoken];
        if standard.contains(&self) {
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
                Self::TriedWithoutLock => {
                    drop(state);
                    let tried = election.try_drive();
                    state = election.state();
                    tried
                }
                _ => election.try_drive(),
            };
            let Some(mut driver) = tried else {
                state = election.sleep(state);
                if self == Self::OutcomeNotChecked {
                    return Ok(None);
                }
                continue;
            };
            drop(state);
            let result = drive(&mut driver);
            if self == Self::WokenTooEarly {
                election.wake_one();
            }
            drop(driver);
            state = election.state();
            match self {
                Self::NotWoken | Self::WokenTooEarly => {}
                Self::FailureNotWoken if result.is_err() => {}
                _ => election.wake_one(),
            }
            result?;
        }
    }
}

fn now() -> Time {
    Time(0)
}

/// Carries out actions, as the engine's driver does. With `fails` above 0, one device call in
/// `fails` fails.
fn drive(
    election: &Participant<'_>,
    driver: &mut Driver,
    fails: u32,
    enough: impl Fn(&State) -> bool,
) -> Result<(), Failure> {
    assert!(!core::mem::replace(&mut driver.inside, true), "two threads drive at once");
    let done = drive_alone(election, fails, enough);
    driver.inside = false;
    done
}

fn drive_alone(
    election: &Participant<'_>,
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
                assert!(!state.failed, "a write after a failure");
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
                    state.stable = covered;
                }
                state.pipeline.flushed(now(), id, result.clone());
                result?;
            }
            Action::Durable(seq) => assert!(state.stable >= seq.0, "{seq:?} is not stable"),
            Action::Wake(Waiter::Thread(_), _) if election.protocol == Protocol::DoneNotWoken => {}
            Action::Wake(Waiter::Thread(condition), _) => {
                election.election.conditions[condition].notify_all()
            }
            Action::Wake(Waiter::Callback(call), result) => {
                assert!(result.is_err() || !state.failed, "success after a failure");
                let results = &mut state.results[call];
                if result.is_ok() { results.0 += 1 } else { results.1 += 1 }
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
fn wait(election: &Participant<'_>, fails: u32, need: Need) {
    let Participant { condition, protocol, .. } = *election;
    {
        let mut state = election.state();
        if met(&state, need).is_none() {
            state.pipeline.force(now(), need, None, Waiter::Thread(condition));
        }
    }
    let enough = |state: &State| met(state, need).is_some();
    let outcome = protocol.wait(
        election,
        |state| met(state, need),
        |driver| drive(election, driver, fails, enough),
    );
    match outcome {
        Ok(Some(Ok(()))) => {
            assert!(election.state().stable >= need.seq.0, "success, but not stable")
        }
        Ok(None) => {
            let state = election.state();
            assert!(state.failed || state.stable >= need.seq.0, "success, but not stable");
        }
        Ok(Some(Err(_))) | Err(_) => assert!(election.state().pipeline.failure().is_some()),
    }
}

fn thread(election: &Shared, protocol: Protocol, fails: u32, number: usize) {
    for step in 0..STEPS {
        let election = &Participant { election, condition: (number + step) % CONDITIONS, protocol };
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
                state.pipeline.force(now(), need, None, Waiter::Callback(call));
                state.results[number * STEPS + step].0 += 10;
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

/// One run: threads commit, wait, register callbacks, and drive.
fn run(protocol: Protocol, fails: u32) {
    let options = Options { size_max: 3, ..Options::default() };
    let state = State {
        pipeline: Pipeline::new(options),
        written: 0,
        stable: 0,
        results: vec![(0, 0); THREADS * STEPS],
        failed: false,
    };
    let driver = Mutex::new(Driver::default());
    let conditions = [Condvar::new(), Condvar::new()];
    let election = Arc::new(Shared { state: Mutex::new(state), conditions, driver });
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let election = Arc::clone(&election);
            thread::spawn(move || thread(&election, protocol, fails, number))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    // The last driver completes all callbacks.
    let election = Participant { election: &election, condition: 0, protocol: Protocol::Correct };
    let last = {
        let state = election.state();
        Need { seq: state.pipeline.last(), data: state.pipeline.data_written() }
    };
    wait(&election, fails, last);
    let _failed = drive_on(&election, |driver| drive(&election, driver, 0, |_| false));
    let state = election.state();
    for (call, (success, failure)) in state.results.iter().enumerate() {
        if *success >= 10 {
            assert_eq!(
                success - 10 + failure,
                1,
                "callback {call}: {success} successes, {failure} failures"
            );
        }
    }
    assert!(state.failed || state.pipeline.durable() == last.seq);
    assert!(state.pipeline.durable() <= Seq(state.stable), "durable, but not stable");
}

fn count() -> usize {
    std::env::var("UXFS_COUNT").map_or(1500, |text| text.parse().expect("a number"))
}

/// Runs the correct protocol under schedules that depend on `UXFS_SEED`.
fn correct_protocol(random_fails: u32, pct_fails: u32) {
    let seed = std::env::var("UXFS_SEED").map_or(1, |text| text.parse().expect("a number"));
    println!("UXFS_SEED={seed}");
    let random = RandomScheduler::new_from_seed(seed, count());
    Runner::new(random, Config::new()).run(move || run(Protocol::Correct, random_fails));
    let pct = PctScheduler::new_from_seed(seed, 3, count());
    Runner::new(pct, Config::new()).run(move || run(Protocol::Correct, pct_fails));
}

#[test]
fn every_waiter_gets_a_result() {
    correct_protocol(0, 0);
}

#[test]
fn failures_reach_every_waiter() {
    correct_protocol(12, 5);
}

#[test]
fn broken_protocols_are_found() {
    let protocols = [
        (Protocol::TriedWithoutLock, 0),
        (Protocol::NotWoken, 0),
        (Protocol::OneConditionWoken, 0),
        (Protocol::WakeupNotPassedOn, 0),
        (Protocol::DoneNotWoken, 0),
        (Protocol::WokenTooEarly, 0),
        (Protocol::OutcomeNotChecked, 0),
        (Protocol::AllDrive, 0),
        (Protocol::FailureNotWoken, 6),
    ];
    for (protocol, fails) in protocols {
        let runs = |seed| {
            let random = RandomScheduler::new_from_seed(seed, 20_000);
            let pct = PctScheduler::new_from_seed(seed, 3, 20_000);
            let fails_under =
                |runner: Box<dyn FnOnce()>| catch_unwind(AssertUnwindSafe(runner)).is_err();
            fails_under(Box::new(move || {
                Runner::new(random, Config::new()).run(move || run(protocol, fails));
            })) || fails_under(Box::new(move || {
                Runner::new(pct, Config::new()).run(move || run(protocol, fails));
            }))
        };
        // Fixed seeds make the result repeatable.
        let found = (1..=8).any(runs);
        assert!(found, "the broken protocol {protocol:?} was not found");
    }
}
