//! The policy that measures the disk and its callers.
//!
//! Its one rule: **wait while callers arrive faster than one and a half times the rate at which they
//! are served.** A caller that joins the next flush gains; the callers that wait for it, and those
//! that come later, lose. The rate of service is what a flush's time is worth. So waiting pays if
//! the arrivals that it brings are denser than that. [`Forecast`] says when callers will arrive, and
//! [`Disk`] how long a flush takes and how many the disk works on in parallel.
//!
//! 1. A lone caller never waits.
//! 2. A caller waits for others only if its flush would be the last one that the disk takes in
//!    parallel, and after the disk could take it, no longer than a flush takes.
//! 3. Flushes that cost nothing ([`FREE`]) are not shared.
//! 4. A call takes time that does not depend on the number of callers, but for the search of the
//!    forecast's bins, once or twice a flush.
//!
//! docs/FSYNC.md derives the rule and shows what it achieves.

use super::contract::{Decision, Ended, Policy, View};
use super::disk::Disk;
use super::forecast::{Expected, Forecast};
use uxfs_sync::Time;

/// How much faster callers must arrive than they are served. Below 1.3 callers wait in vain; above
/// 1.7 two callers never find together. Between these it hardly matters.
const DENSER: f64 = 1.5;
/// Nanoseconds below which a flush costs nothing.
const FREE: f64 = 20_000.0;
/// Callers that would have arrived at the least rate worth waiting for, in the time without an arrival after
/// which the forecast of the rate is not believed. Callers pause, and then none of them comes for long.
const MISSED: f64 = 3.0;
/// Flushes, for each that the disk works on in parallel, in the rate of service.
const MEAN: f64 = 16.0;

/// Most flushes in flight whose callers are counted.
const FLIGHTS: usize = 64;

/// The policy `auto`: see the module's documentation.
#[derive(Clone, Debug)]
pub struct Auto {
    disk: Disk,
    forecast: Forecast,
    /// Mean number of callers that a flush serves, and mean time from the end of one flush to the
    /// end of the next, in nanoseconds.
    served: f64,
    span: f64,
    /// Callers whose flush began since the last flush ended.
    begun: u32,
    /// Callers of the flushes in flight, by the number of the flush; and the next number.
    flights: [u32; FLIGHTS],
    next: usize,
    /// Flushes in flight.
    in_flight: u32,
    ended: Option<Time>,
    /// The last arrival.
    arrived: Time,
    /// The callers for which the first one waits: until when, and how many of them.
    gathering: Option<(Time, f64)>,
    /// A flush was to overlap others in a trial, and has not begun.
    refused: bool,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            disk: Disk::new(),
            forecast: Forecast::new(),
            served: 0.0,
            span: 0.0,
            begun: 0,
            flights: [0; FLIGHTS],
            next: 0,
            in_flight: 0,
            ended: None,
            arrived: Time(0),
            gathering: None,
            refused: false,
        }
    }
}

impl Auto {
    fn is_free(&self) -> bool {
        self.disk.flush < FREE
    }

    /// Is a level of parallel flushes being tried that is not known to be good?
    pub fn is_trying(&self) -> bool {
        self.disk.allowed() > self.disk.parallel
    }

    fn set_open(&mut self, now: Time) {
        self.forecast.set_open(now.0, self.in_flight < self.disk.parallel);
    }

    /// Until when the callers that wait should wait for others.
    fn wait(&mut self, view: &View) -> Option<Time> {
        let now = view.now;
        self.forecast.pass(now.0);
        let served: u32 = self.flights.iter().sum();
        let (possible, rate) = match self.ended {
            // The pipeline asks ahead of the end of the flush in flight.
            _ if self.in_flight > view.in_flight => (now, self.forecast.rate_without(view.waiting)),
            // The callers of the last flush may not have completed yet.
            Some(ended) => {
                (view.since.max(ended), self.forecast.rate_without(view.waiting + served))
            }
            None => (view.since, self.forecast.rate),
        };
        let last = Time(possible.0.saturating_add(self.disk.flush as u64));
        let most = last.0.saturating_sub(now.0);
        let least = DENSER * self.served / self.span.max(1.0);
        let silent = self.arrived.max(possible).0.saturating_add((MISSED / least) as u64);
        let believed = now.0 < silent;
        if rate > least && most > 0 && believed {
            return Some(last.min(Time(silent)));
        }
        match self.gathering {
            Some((until, callers)) if now < until && callers > 0.5 => Some(until),
            _ => {
                let Expected { wait, callers } =
                    self.forecast.worth(now.0, believed, least, most)?;
                let until = Time(now.0 + wait);
                self.gathering = Some((until, callers));
                Some(until)
            }
        }
    }
}

impl Policy for Auto {
    fn arrived(&mut self, view: &View, caller: u64) {
        if self.is_free() {
            return;
        }
        self.arrived = view.now;
        self.forecast.arrived(view.now.0, caller, self.disk.flush);
        if let Some((_, callers)) = &mut self.gathering {
            *callers -= 1.0;
        }
    }

    fn begun(&mut self, view: &View) {
        self.disk.begun(view.now);
        self.begun += view.waiting;
        self.flights[self.next % FLIGHTS] = view.waiting;
        self.next += 1;
        self.in_flight += 1;
        self.set_open(view.now);
        self.gathering = None;
        self.refused = false;
    }

    fn completed(&mut self, now: Time, caller: u64) {
        if !self.is_free() {
            self.forecast.completed(now.0, caller);
        }
    }

    fn ended(&mut self, view: &View, flush: Ended) {
        self.disk.ended(view.now, flush, core::mem::take(&mut self.refused));
        self.forecast.flushed(view.now.0, self.disk.flush);
        if let Some(before) = self.ended {
            let part = 1.0 / (MEAN * f64::from(self.disk.parallel));
            let span = view.now.0.saturating_sub(before.0) as f64;
            self.served += (f64::from(self.begun) - self.served) * part;
            self.span += (span - self.span) * part;
        }
        self.begun = 0;
        self.flights[flush.number as usize % FLIGHTS] = 0;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.set_open(view.now);
        self.ended = Some(view.now);
    }

    fn decide(&mut self, view: &View) -> Decision {
        if view.waiting == 0 || view.in_flight >= self.disk.allowed() {
            return Decision::Rest;
        }
        self.refused = view.in_flight >= self.disk.parallel;
        // Callers that come later will find the disk ready for them, or a level is being tried.
        if self.is_free() || view.in_flight + 1 != self.disk.parallel {
            return Decision::Flush;
        }
        self.wait(view).map_or(Decision::Flush, Decision::Until)
    }
}
