//! Simulates the fixed policies with what is known about callers and disk, to find the one that
//! serves most.
//!
//! The simulated callers think as long as the real ones were seen to. The simulated disk's flushes
//! take as long as real ones did, as many in parallel as a policy wants. The simulation advances a
//! few events at a time, so that no caller waits for it, and runs one policy after the other with
//! the same random numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::callers::{Callers, Epochs, SHAPE};
use super::contract::{Decision, View};
use super::disk::Disk;
use super::fixed::Facts;
use super::fixed::Fixed;
use uxfs_sync::Time;

/// Most simulated callers.
const CALLERS: usize = 256;
/// Most flushes in parallel.
const FLIGHTS: usize = 16;
/// Resolution of the latency histogram in fractions of a flush, and the number of its buckets.
const PARTS: f64 = 16.0;
const BINS: usize = 160;
/// The end of a list.
const NONE: u16 = u16::MAX;

/// The result of a simulated policy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    /// Fsyncs served per flush duration.
    pub(super) rate: f64,
    /// The 99th percentile of latency in flush durations.
    pub(super) p99: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    end: u64,
    /// The first caller that it serves.
    first: u16,
}

/// A simulation.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    means: [f32; CALLERS],
    shape: [f32; SHAPE],
    shapes: usize,
    callers: usize,
    flush: f64,
    varies: f64,
    /// The simulated policy.
    fixed: Fixed,
    /// Fsyncs to serve, and those at the beginning that are not counted.
    length: u64,
    unscored: u64,
    seed: u64,
    /// Random numbers drawn: for the disk, and for each caller.
    asked: u32,
    thought: [u32; CALLERS],
    latencies: [u32; BINS],
    now: u64,
    thinking: BinaryHeap<Reverse<(u64, u16)>>,
    next: [u16; CALLERS],
    arrived: [u64; CALLERS],
    epoch: [u64; CALLERS],
    epochs: Epochs,
    waiting: u32,
    since: u64,
    last: u16,
    other: bool,
    first: u16,
    flushes: [InFlight; FLIGHTS],
    in_flight: usize,
    alarm: Option<u64>,
    served: u64,
    /// Start of the scored part, and the fsyncs served by then.
    scored_from: (u64, u64),
}

impl Simulation {
    pub(super) fn new() -> Self {
        Self {
            means: [0.0; CALLERS],
            shape: [0.0; SHAPE],
            shapes: 1,
            callers: 0,
            flush: 1.0,
            varies: 0.0,
            fixed: Fixed::Greedy,
            length: 0,
            unscored: 0,
            seed: 0,
            asked: 0,
            thought: [0; CALLERS],
            latencies: [0; BINS],
            now: 0,
            thinking: BinaryHeap::with_capacity(CALLERS + 1),
            next: [NONE; CALLERS],
            arrived: [0; CALLERS],
            epoch: [0; CALLERS],
            epochs: Epochs::new(),
            waiting: 0,
            since: 0,
            last: NONE,
            other: false,
            first: NONE,
            flushes: [InFlight::default(); FLIGHTS],
            in_flight: 0,
            alarm: None,
            served: 0,
            scored_from: (0, 0),
        }
    }

    /// Takes over what is known. Returns false if that is too little for a simulation.
    pub(super) fn learn(&mut self, callers: &Callers, disk: &Disk) -> bool {
        let (shape, mean) = callers.shape();
        for (to, from) in self.shape.iter_mut().zip(shape) {
            *to = from / mean;
        }
        self.shapes = shape.len();
        self.callers = callers.means(&mut self.means);
        self.flush = disk.flush.max(1.0);
        // For a uniform distribution the mean distance is half the largest.
        self.varies = (2.0 * disk.varies).min(0.9);
        // Of nearly all callers.
        let all = (callers.active() as usize).min(CALLERS);
        self.callers >= 2 && 10 * self.callers >= 9 * all && callers.known()
    }

    /// Number of simulated callers.
    pub(super) fn callers(&self) -> usize {
        self.callers
    }

    /// Starts to simulate a policy until at least `length` fsyncs are served, and `rounds` of each
    /// caller.
    pub(super) fn begin(&mut self, fixed: Fixed, (length, rounds): (u64, u64), seed: u64) {
        self.fixed = fixed;
        self.length = length.max(rounds * self.callers as u64);
        self.unscored = self.length / 3;
        self.seed = seed;
        self.asked = 0;
        self.thought = [0; CALLERS];
        self.latencies = [0; BINS];
        self.now = 0;
        self.thinking.clear();
        self.epochs = Epochs::new();
        (self.waiting, self.first, self.in_flight, self.alarm) = (0, NONE, 0, None);
        self.last = NONE;
        (self.served, self.scored_from) = (0, (0, 0));
        for caller in 0..self.callers {
            // All callers count as active.
            self.epoch[caller] = self.epochs.active(0);
            // Callers that nothing waits for arrive at any time. Starting all at once would take
            // long to get there.
            let cycle = f64::from(self.means[caller]) + self.flush;
            self.now = match fixed {
                Fixed::Greedy | Fixed::Overlap(_) => (self.unit(caller as u64, 0) * cycle) as u64,
                _ => 0,
            };
            self.think(caller as u16);
        }
        self.now = 0;
    }

    /// Advances by at most `events` events, which are counted down. Returns the score when the
    /// policy was simulated long enough.
    pub(super) fn go_on(&mut self, events: &mut u32) -> Option<Score> {
        while *events > 0 {
            *events -= 1;
            self.event()?;
            if self.served >= self.length {
                let (from, before) = self.scored_from;
                let span = self.now.saturating_sub(from).max(1) as f64;
                let rate = (self.served - before) as f64 * self.flush / span;
                return Some(Score { rate, p99: self.p99() });
            }
        }
        None
    }

    fn p99(&self) -> f64 {
        let all: u32 = self.latencies.iter().sum();
        let mut beyond = all / 100;
        for (bin, count) in self.latencies.iter().enumerate().rev() {
            if *count > beyond {
                return (bin + 1) as f64 / PARTS;
            }
            beyond -= count;
        }
        0.0
    }

    /// A number from 0 to below 1, the same for every policy: splitmix64, as published by Steele,
    /// Lea and Flood (2014).
    fn unit(&self, caller: u64, time: u32) -> f64 {
        let at = self.seed ^ caller << 32 ^ u64::from(time) << 8;
        let mut z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn think(&mut self, caller: u16) {
        let at = usize::from(caller);
        self.thought[at] += 1;
        let pick = (self.unit(caller.into(), self.thought[at]) * self.shapes as f64) as usize;
        let span = f64::from(self.means[at] * self.shape[pick.min(self.shapes - 1)]);
        self.thinking.push(Reverse((self.now.saturating_add(span as u64), caller)));
    }

    /// Simulates the next event.
    fn event(&mut self) -> Option<()> {
        let comes = self.thinking.peek().map_or(u64::MAX, |r| r.0.0);
        let flushes = self.flushes[..self.in_flight].iter().enumerate();
        let (at, ends) = flushes
            .map(|(at, flight)| (at, flight.end))
            .min_by_key(|(_, end)| *end)
            .unwrap_or((0, u64::MAX));
        let alarm = self.alarm.unwrap_or(u64::MAX);
        if alarm < comes && alarm < ends {
            self.now = alarm;
        } else if ends <= comes {
            self.now = ends;
            self.ends(at);
        } else {
            let Reverse((now, caller)) = self.thinking.pop()?;
            self.now = now;
            self.comes(caller);
        }
        self.decide();
        Some(())
    }

    fn comes(&mut self, caller: u16) {
        let at = usize::from(caller);
        self.epochs.pass(self.now, self.flush as u64);
        self.epoch[at] = self.epochs.active(self.epoch[at]);
        self.arrived[at] = self.now;
        if self.waiting == 0 {
            self.since = self.now;
            self.other = self.last != caller && self.last != NONE;
        }
        self.last = caller;
        self.waiting += 1;
        self.next[at] = self.first;
        self.first = caller;
    }

    fn ends(&mut self, at: usize) {
        let flight = self.flushes[at];
        self.in_flight -= 1;
        self.flushes[at] = self.flushes[self.in_flight];
        let mut caller = flight.first;
        while caller != NONE {
            self.served += 1;
            if self.scored_from.0 > 0 {
                let took = (self.now - self.arrived[usize::from(caller)]) as f64 / self.flush;
                self.latencies[((took * PARTS) as usize).min(BINS - 1)] += 1;
            }
            self.think(caller);
            caller = self.next[usize::from(caller)];
        }
        // All callers of a flush, so that whole groups are counted.
        if self.scored_from.0 == 0 && self.served >= self.unscored {
            self.scored_from = (self.now, self.served);
        }
    }

    fn decide(&mut self) {
        self.alarm = None;
        while self.in_flight < FLIGHTS {
            self.epochs.pass(self.now, self.flush as u64);
            let view = View {
                now: Time(self.now),
                waiting: self.waiting,
                since: Time(if self.waiting == 0 { self.now } else { self.since }),
                in_flight: self.in_flight as u32,
            };
            let expected = self.epochs.expected();
            let facts = Facts { flush: self.flush as u64, expected, other: self.other };
            match self.fixed.decide(&view, facts) {
                Decision::Flush => {
                    self.asked += 1;
                    let chance = self.unit(u64::from(NONE), self.asked);
                    let part = 1.0 + self.varies * (2.0 * chance - 1.0);
                    let end = self.now + (self.flush * part) as u64;
                    self.flushes[self.in_flight] = InFlight { end, first: self.first };
                    self.in_flight += 1;
                    (self.waiting, self.first) = (0, NONE);
                }
                Decision::Until(at) => {
                    self.alarm = Some(at.0.max(self.now + 1));
                    return;
                }
                Decision::Rest => return,
            }
        }
    }
}
