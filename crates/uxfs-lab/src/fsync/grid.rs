//! Every policy on every disk and load: how `auto` compares with the best in hindsight.
//!
//! 1. The same seed gives the same digits, whatever the number of threads.
//! 2. Two policies get the same think times and the same flush durations.
//! 3. The first fifty rounds are not counted. Everything after them is, including what a policy
//!    learns after a change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Serialize;
use uxfs_journal::Time;
use uxfs_journal::policy::FsyncPolicy;

use super::{Device, Load, Outcome, Stage, Think, run};

/// The policies from which the best in hindsight is taken.
pub const POLICIES: [&str; 13] = [
    "own",
    "journal",
    "average",
    "fixed:1",
    "fixed:500",
    "greedy",
    "gather:4",
    "gather",
    "gather:16",
    "overlap:2",
    "overlap:4",
    "overlap:8",
    "overlap:16",
];

/// Milliseconds of a flush.
const FLUSHES: [f64; 4] = [0.05, 1.0, 8.0, 30.0];
/// Flushes that a disk works on in parallel.
const AT_ONCE: [u32; 2] = [1, 16];
const CALLERS: [u32; 9] = [1, 2, 3, 4, 8, 16, 64, 256, 1000];
/// Think times in flush durations.
const THINKS: [f64; 6] = [0.02, 0.2, 0.6, 1.5, 5.0, 20.0];
/// Spread of flush durations.
const SPREAD: f64 = 0.05;
/// Rounds that are not counted; fewest that are counted; rounds of one stage of several.
const SETTLING: f64 = 50.0;
const ROUNDS: f64 = 300.0;
/// Fewest fsyncs that are counted.
const FSYNCS: f64 = 8000.0;

/// A disk and a load, or several one after the other.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its description.
    pub name: String,
    /// Whether load or disk change during the run.
    pub changing: bool,
    /// Whether there is always only one caller.
    pub lone: bool,
    stages: Vec<Stage>,
    counted: (Time, Time),
}

/// The result of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Its name.
    pub policy: String,
    /// Fsyncs per second.
    pub rate: f64,
    /// 99th percentile of latency in milliseconds.
    pub p99: f64,
    /// Flushes per fsync.
    pub flushes: f64,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its description.
    pub name: String,
    /// Whether load or disk change during the run.
    pub changing: bool,
    /// Whether there is always only one caller.
    pub lone: bool,
    /// Milliseconds of a flush, at the beginning.
    pub flush: f64,
    /// Flushes at a time, at the beginning.
    pub at_once: u32,
    /// Callers, at the beginning.
    pub callers: u32,
    /// Flushes that are thought, at the beginning.
    pub think: f64,
    /// `auto`.
    pub auto: Score,
    /// The others, best first.
    pub others: Vec<Score>,
    /// The rate of `auto` relative to the best.
    pub to_best: f64,
    /// Its 99th percentile relative to the best one's.
    pub p99_to_best: f64,
    /// The rate of `auto` relative to `own`.
    pub to_own: f64,
}

impl Case {
    fn steady(load: Load, device: Device) -> Self {
        let stage = Stage { from: Time(0), load, device };
        let round = load.think + device.flush;
        let counted = ROUNDS.max(FSYNCS / f64::from(load.callers));
        let at = |rounds: f64| Time((round * rounds) as u64);
        Self {
            name: named(load, device),
            changing: false,
            lone: load.callers == 1,
            stages: vec![stage],
            counted: (at(SETTLING), at(SETTLING + counted)),
        }
    }

    fn changing(what: &str, stages: &[(Load, Device)]) -> Self {
        let mut at = 0.0;
        let mut from = Time(0);
        let mut list = Vec::new();
        for (load, device) in stages {
            list.push(Stage { from: Time(at as u64), load: *load, device: *device });
            let round = load.think + device.flush;
            if list.len() == 1 {
                from = Time((round * SETTLING) as u64);
            }
            at += round * ROUNDS;
        }
        let first = list[0];
        Self {
            name: format!("{what}; at first {}", named(first.load, first.device)),
            changing: true,
            lone: false,
            stages: list,
            counted: (from, Time(at as u64)),
        }
    }

    fn play(&self, policy: FsyncPolicy, seed: u64) -> Outcome {
        run(&mut *policy.start(), &self.stages, self.counted, seed)
    }

    /// Runs all policies.
    pub fn measure(&self, seed: u64) -> Row {
        let score = |policy: FsyncPolicy| {
            let Outcome { rate, p99, flushes, .. } = self.play(policy, seed);
            let flushes = if rate > 0.0 { flushes / rate } else { 0.0 };
            Score { policy: policy.to_string(), rate, p99: p99 as f64 / 1e6, flushes }
        };
        let known = POLICIES.iter().filter_map(|word| word.parse().ok());
        let mut others: Vec<Score> = known.map(score).collect();
        others.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        let auto = score(FsyncPolicy::Auto);
        let own = others.iter().find(|score| score.policy == "own");
        let Stage { load, device, .. } = self.stages[0];
        Row {
            name: self.name.clone(),
            changing: self.changing,
            lone: self.lone,
            flush: device.flush / 1e6,
            at_once: device.at_once,
            callers: load.callers,
            think: load.think / device.flush,
            to_best: auto.rate / others[0].rate,
            p99_to_best: auto.p99 / others[0].p99,
            to_own: own.map_or(1.0, |own| auto.rate / own.rate),
            auto,
            others,
        }
    }
}

fn named(load: Load, device: Device) -> String {
    let Device { flush, at_once, .. } = device;
    let at_once = if at_once == 1 { "one at a time".into() } else { format!("{at_once} at once") };
    let spread = match load.spread {
        Think::Even => "evenly",
        Think::Random => "at random",
        Think::Two => "of two kinds",
    };
    let (flush, callers, think) = (flush / 1e6, load.callers, load.think / flush);
    format!("flush {flush} ms, {at_once}; {callers} think {think} flushes, {spread}")
}

/// All cases: the steady ones, then those that change.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for ms in FLUSHES {
        let flush = ms * 1e6;
        for at_once in AT_ONCE {
            let device = Device { flush, spread: SPREAD, at_once };
            for callers in CALLERS {
                for think in THINKS {
                    for spread in [Think::Even, Think::Random, Think::Two] {
                        // With one caller all distributions are alike.
                        if callers > 1 || spread == Think::Random {
                            all.push(Case::steady(
                                Load { callers, think: think * flush, spread },
                                device,
                            ));
                        }
                    }
                }
            }
        }
    }
    for ms in FLUSHES {
        for at_once in AT_ONCE {
            all.extend(changes(ms * 1e6, at_once));
        }
    }
    all
}

/// Loads and disks that change.
fn changes(flush: f64, at_once: u32) -> Vec<Case> {
    let device = Device { flush, spread: SPREAD, at_once };
    let mut all = Vec::new();
    for (think, spread) in
        [(0.02, Think::Even), (0.2, Think::Random), (1.5, Think::Even), (5.0, Think::Random)]
    {
        let load = |callers: u32| Load { callers, think: think * flush, spread };
        let counts = [1, 64, 4, 256, 2].map(|callers| (load(callers), device));
        all.push(Case::changing("1, 64, 4, 256, 2 callers", &counts));
        let few = [2, 16, 3, 8].map(|callers| (load(callers), device));
        all.push(Case::changing("2, 16, 3, 8 callers", &few));
    }
    for callers in [2, 16, 256] {
        let load = |think: f64| Load { callers, think: think * flush, spread: Think::Random };
        let paces = [0.02, 5.0, 0.6, 20.0, 0.2].map(|think| (load(think), device));
        all.push(Case::changing("0.02, 5, 0.6, 20, 0.2 flushes thought", &paces));
        // The disk changes: slower, then as before, then of the other kind.
        let load = Load { callers, think: 0.2 * flush, spread: Think::Even };
        let slower = Device { flush: flush * 20.0, ..device };
        let other = Device { at_once: 17 - at_once, ..device };
        let disks = [device, slower, device, other, device].map(|device| (load, device));
        all.push(Case::changing(
            "flushes 20 times as long, then as before, then more or fewer at a time",
            &disks,
        ));
    }
    all
}

/// Measures these cases on several threads. Calls `done` with the number of cases done, and the
/// total.
pub fn grid(
    cases: &[Case],
    seed: u64,
    threads: usize,
    mut done: impl FnMut(usize, usize),
) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut rows: Vec<Option<Row>> = Vec::new();
    rows.resize_with(cases.len(), || None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    // Without a receiver the result is not needed.
                    let _ = send.send((at, case.measure(seed)));
                }
            });
        }
        drop(send);
        for (count, (at, row)) in receive.into_iter().enumerate() {
            rows[at] = Some(row);
            done(count + 1, cases.len());
        }
    });
    rows.into_iter().flatten().collect()
}
