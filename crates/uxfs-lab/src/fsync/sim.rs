//! The simulation: callers that alternate between thinking and waiting, a policy, and a device with
//! a flush duration.
//!
//! 1. A flush serves the callers that came before it began. All of them complete when it ends.
//! 2. The device works on a number of flushes in parallel; further ones queue.
//! 3. A run is a function of its arguments.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use uxfs_journal::Time;
use uxfs_journal::policy::{Decision, Ended, Policy, View};
use uxfs_testkit::Rng;

use super::clients::Load;

/// The cost of flushes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Duration of a flush in nanoseconds.
    pub flush: f64,
    /// Spread of the duration, as a fraction.
    pub spread: f64,
    /// Flushes that it works on in parallel.
    pub at_once: u32,
}

/// Load and device from a time on, until the next stage begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Start of the stage.
    pub from: Time,
    /// The load.
    pub load: Load,
    /// The device.
    pub device: Device,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Fsyncs per second.
    pub rate: f64,
    /// 99th percentile of latency in nanoseconds.
    pub p99: u64,
    /// Mean latency in nanoseconds.
    pub mean: f64,
    /// Flushes per second.
    pub flushes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A flush has ended.
    Flushed(u64),
    /// A caller calls fsync.
    Comes(u32),
    /// A decision of the policy is due.
    Alarm,
}

struct InFlight {
    begun: Time,
    served: Vec<(u32, Time)>,
}

struct Sim<'a> {
    policy: &'a mut dyn Policy,
    stage: Stage,
    /// Flush durations have random numbers of their own, and so have the think times of each
    /// caller, so that two policies get the same.
    rng: Rng,
    chances: Vec<Rng>,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    waiting: Vec<(u32, Time)>,
    flights: BTreeMap<u64, InFlight>,
    begun: u64,
    /// Flushes that the device has not begun.
    row: VecDeque<u64>,
    working: u32,
    alarm: Option<Time>,
    /// Callers that pause, because the present load has fewer.
    away: Vec<u32>,
    from: Time,
    took: Vec<u64>,
    flushes: u64,
}

/// Runs a policy through all stages until `until`. Fsyncs before `from` are not counted.
pub fn run(
    policy: &mut dyn Policy,
    stages: &[Stage],
    (from, until): (Time, Time),
    seed: u64,
) -> Outcome {
    let Some(first) = stages.first() else { return Outcome::default() };
    let mut sim = Sim {
        policy,
        stage: *first,
        rng: Rng::new(seed),
        chances: Vec::new(),
        now: Time(0),
        events: BinaryHeap::new(),
        order: 0,
        waiting: Vec::new(),
        flights: BTreeMap::new(),
        begun: 0,
        row: VecDeque::new(),
        working: 0,
        alarm: None,
        away: Vec::new(),
        from,
        took: Vec::new(),
        flushes: 0,
    };
    let mut callers = 0;
    for (index, stage) in stages.iter().enumerate() {
        sim.now = stage.from;
        sim.stage = *stage;
        let back = std::mem::take(&mut sim.away);
        let (back, away) = back.into_iter().partition(|caller| *caller < stage.load.callers);
        sim.away = away;
        let new = callers..stage.load.callers.max(callers);
        callers = new.end;
        sim.chances
            .extend(new.clone().map(|caller| Rng::new(seed ^ (u64::from(caller) + 1) << 32)));
        for caller in Vec::into_iter(back).chain(new) {
            // Callers do not all start at the same time.
            let Some(chance) = sim.chances.get_mut(caller as usize) else { continue };
            let cycle = stage.load.think + stage.device.flush;
            let at = Time(stage.from.0 + (chance.unit() * cycle) as u64);
            sim.add(at, Event::Comes(caller));
        }
        sim.go(stages.get(index + 1).map_or(until, |next| next.from));
    }
    sim.outcome(until)
}

impl Sim<'_> {
    fn add(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn think(&mut self, caller: u32) {
        let Some(chance) = self.chances.get_mut(caller as usize) else { return };
        let at = Time(self.now.0 + self.stage.load.think(caller, chance));
        self.add(at, Event::Comes(caller));
    }

    fn view(&self) -> View {
        View {
            now: self.now,
            waiting: self.waiting.len() as u32,
            since: self.waiting.first().map_or(self.now, |w| w.1),
            in_flight: self.flights.len() as u32,
        }
    }

    fn go(&mut self, until: Time) {
        while let Some(Reverse((at, _, _))) = self.events.peek() {
            if *at >= until {
                break;
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            match event {
                Event::Comes(caller) if caller >= self.stage.load.callers => self.away.push(caller),
                Event::Comes(caller) => {
                    self.waiting.push((caller, at));
                    let view = self.view();
                    self.policy.arrived(&view, caller.into());
                }
                Event::Flushed(number) => self.flushed(number),
                Event::Alarm if self.alarm != Some(at) => continue,
                Event::Alarm => self.alarm = None,
            }
            self.decide();
        }
        self.now = until;
    }

    fn flushed(&mut self, number: u64) {
        self.working -= 1;
        // A disk whose parallelism decreases first ends the flushes in flight.
        while self.working < self.stage.device.at_once
            && let Some(next) = self.row.pop_front()
        {
            self.work(next);
        }
        let Some(flight) = self.flights.remove(&number) else { return };
        let counted = self.now >= self.from;
        self.flushes += u64::from(counted);
        for (caller, arrived) in &flight.served {
            if counted {
                self.took.push(self.now.0 - arrived.0);
            }
            self.think(*caller);
        }
        let view = self.view();
        self.policy.ended(&view, Ended { number, begun: flight.begun });
        for (caller, _) in flight.served {
            self.policy.completed(self.now, caller.into());
        }
    }

    fn work(&mut self, number: u64) {
        self.working += 1;
        let device = self.stage.device;
        let part = 1.0 + device.spread * (2.0 * self.rng.unit() - 1.0);
        let end = Time(self.now.0 + (device.flush * part) as u64);
        self.add(end, Event::Flushed(number));
    }

    fn decide(&mut self) {
        loop {
            let view = self.view();
            match self.policy.decide(&view) {
                Decision::Flush if !self.waiting.is_empty() => {
                    self.policy.begun(&view);
                    let number = self.begun;
                    self.begun += 1;
                    let served = std::mem::take(&mut self.waiting);
                    self.flights.insert(number, InFlight { begun: self.now, served });
                    if self.working < self.stage.device.at_once {
                        self.work(number);
                    } else {
                        self.row.push_back(number);
                    }
                }
                Decision::Until(at) => {
                    let at = at.max(Time(self.now.0 + 1));
                    if self.alarm != Some(at) {
                        self.alarm = Some(at);
                        self.add(at, Event::Alarm);
                    }
                    return;
                }
                Decision::Flush | Decision::Rest => {
                    self.alarm = None;
                    return;
                }
            }
        }
    }

    fn outcome(mut self, until: Time) -> Outcome {
        let seconds = (until.0 - self.from.0) as f64 / 1e9;
        self.took.sort_unstable();
        let count = self.took.len();
        Outcome {
            rate: count as f64 / seconds,
            p99: self.took.get(count.saturating_sub(1) * 99 / 100).copied().unwrap_or(0),
            mean: self.took.iter().map(|t| *t as f64).sum::<f64>() / count.max(1) as f64,
            flushes: self.flushes as f64 / seconds,
        }
    }
}
