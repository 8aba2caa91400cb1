//! The measured disk: how long a flush takes, and how many flushes it works on in parallel.
//!
//! The second number can only be tried. A disk that works on two flushes in parallel ends the
//! second one as soon as if it were alone; another disk ends it later, by a known time.
//!
//! 1. Levels of parallelism are tried in ascending order: 2, 4, 8, 16.
//! 2. A trial ends: after the overlapping flushes would have been late by [`ENOUGH`] durations in
//!    all, after [`TRIAL`] of them, or after [`ALONE`] flushes that none could overlap.
//! 3. A level that failed is tried again only after [`RETRY`] flushes, then after twice as many.
//! 4. The duration of a flush is measured on flushes that did not wait for others.

use super::contract::Ended;
use uxfs_sync::Time;

/// The highest level tried.
const LEVEL_MAX: u32 = 16;
/// Most flushes in flight that are measured.
const WATCHED: usize = 64;
/// Flush durations of expected lateness that decide a trial.
const ENOUGH: f64 = 2.0;
/// Part of the expected lateness below which flushes count as parallel.
const PARALLEL: f64 = 0.3;
/// Overlapping flushes after which a trial without a result ends, and flushes until the next one.
/// The duration is measured meanwhile: perhaps it has changed.
const TRIAL: u32 = 16;
const PAUSE: u64 = 64;
/// Flushes during which an overlapping one was wanted but none began, before a trial ends.
const ALONE: u32 = 8;
/// Flushes after which a level that failed is tried again.
const RETRY: u64 = 1 << 14;
const RETRY_MAX: u64 = 1 << 20;
/// The factor by which a flush must be longer or shorter to be unusual; and the number of unusual
/// flushes in a row after which the disk is another one.
const UNUSUAL: f64 = 1.5;
const CHANGED: i32 = 3;
/// The same for flushes that overlap others.
const CHANGED_PARALLEL: i32 = 6;
/// Flushes in the mean duration.
const MEAN: u64 = 16;

/// A flush in flight.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    number: u64,
    begun: u64,
    /// Flushes that were in flight when it began.
    others: u32,
    /// When it ends, and how late that is, if the disk works on no more in parallel than is known.
    end: f64,
    late: f64,
}

/// A trial of the next level.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    /// Overlapping flushes that have ended.
    ended: u32,
    /// How late they were expected, and how late they were, in nanoseconds.
    expected: f64,
    measured: f64,
    /// Flushes in a row that none overlapped although one was wanted.
    alone: u32,
}

/// The measured disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Duration of a flush in nanoseconds.
    pub(super) flush: f64,
    flushes: u64,
    /// Consecutive flushes that were unusually long (above 0) or short (below 0).
    unusual: i32,
    /// Flushes that the disk is known to work on in parallel.
    pub(super) parallel: u32,
    trial: Trial,
    /// When the next level is tried, in flushes; and the distance to the trial after it.
    next_trial: u64,
    retry: u64,
    /// The flushes in flight, oldest first.
    flights: [InFlight; WATCHED],
    in_flight: usize,
    begun: u64,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self {
            flush: 0.0,
            flushes: 0,
            unusual: 0,
            parallel: 1,
            trial: Trial::default(),
            next_trial: 0,
            retry: RETRY,
            flights: [InFlight::default(); WATCHED],
            in_flight: 0,
            begun: 0,
        }
    }

    /// Number of flushes that may be in flight: those known to be parallel, and one level more
    /// while that is tried. A trial needs a known duration.
    pub(super) fn allowed(&self) -> u32 {
        let known = self.flush > 0.0;
        let tries = known && self.parallel < LEVEL_MAX && self.flushes >= self.next_trial;
        if tries { 2 * self.parallel } else { self.parallel }
    }

    /// Reports the begin of a flush.
    pub(super) fn begun(&mut self, now: Time) {
        let number = self.begun;
        self.begun += 1;
        if self.in_flight == WATCHED {
            return;
        }
        let now_f = now.0 as f64;
        let late = match self.in_flight.checked_sub(self.parallel as usize) {
            Some(at) => (self.flights[at].end - now_f).max(0.0),
            None => 0.0,
        };
        let (others, end) = (self.in_flight as u32, now_f + late + self.flush);
        self.flights[self.in_flight] = InFlight { number, begun: now.0, others, end, late };
        self.in_flight += 1;
    }

    /// Reports the end of a flush. `refused` says that another one was to overlap it, and did not
    /// begin.
    pub(super) fn ended(&mut self, now: Time, flush: Ended, refused: bool) {
        let watched = &self.flights[..self.in_flight];
        let Some(at) = watched.iter().position(|f| f.number == flush.number) else { return };
        let flight = self.flights[at];
        self.flights.copy_within(at + 1..self.in_flight, at);
        self.in_flight -= 1;
        self.flushes += 1;
        let took = now.0.saturating_sub(flight.begun.max(flush.begun.0)) as f64;
        if flight.others >= self.parallel {
            self.overlapped(took, flight.late);
        } else {
            self.measure(took, flight.others > 0);
        }
        if refused {
            self.trial.alone += 1;
            if self.trial.alone >= ALONE {
                self.fail();
            }
        }
    }

    /// A flush of a trial ended.
    fn overlapped(&mut self, took: f64, late: f64) {
        let trial = &mut self.trial;
        trial.ended += 1;
        if late > 0.0 {
            trial.alone = 0;
            trial.expected += late;
            trial.measured += (took - self.flush).max(0.0);
        }
        if trial.expected >= ENOUGH * self.flush {
            if trial.measured < PARALLEL * trial.expected {
                self.pass();
            } else {
                self.fail();
            }
        } else if trial.ended >= TRIAL {
            self.trial = Trial::default();
            self.next_trial = self.flushes + PAUSE;
        }
    }

    fn pass(&mut self) {
        self.parallel *= 2;
        self.trial = Trial::default();
        // What was expected of a lower level says nothing of the next one.
        for flight in &mut self.flights[..self.in_flight] {
            (flight.end, flight.late) = (flight.begun as f64 + self.flush, 0.0);
        }
    }

    fn fail(&mut self) {
        self.trial = Trial::default();
        self.next_trial = self.flushes + self.retry;
        self.retry = (2 * self.retry).min(RETRY_MAX);
    }

    /// Measures a flush that waited for no other.
    fn measure(&mut self, took: f64, overlaps: bool) {
        if self.flush == 0.0 {
            self.flush = took;
        }
        self.unusual = if took > UNUSUAL * self.flush {
            self.unusual.max(0) + 1
        } else if took < self.flush / UNUSUAL {
            self.unusual.min(0) - 1
        } else {
            0
        };
        // Alone it is longer because the disk changed. Beside others, perhaps it waited for them.
        let changed = if overlaps && self.unusual > 0 { CHANGED_PARALLEL } else { CHANGED };
        if self.unusual.abs() >= changed {
            let flush = if overlaps && self.unusual > 0 { self.flush } else { took };
            let (flights, in_flight, begun) = (self.flights, self.in_flight, self.begun);
            *self = Self { flush, flights, in_flight, begun, ..Self::new() };
        } else if !(overlaps && self.unusual > 0) {
            self.flush += (took - self.flush) / (self.flushes.clamp(1, MEAN)) as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that works on `parallel` flushes of `flush` nanoseconds, and is given as many as allowed
    /// until the `flushes`th. Returns the most in flight at a time.
    fn drive(disk: &mut Disk, now: &mut u64, parallel: usize, flush: u64, flushes: u64) -> u32 {
        // Number, begin and end of those in flight.
        let mut flights: Vec<(u64, u64, u64)> = Vec::new();
        let mut most = 0;
        while disk.flushes < flushes || !flights.is_empty() {
            // Callers do not arrive together.
            *now += flush / 40;
            if disk.flushes < flushes && flights.len() < disk.allowed() as usize {
                let mut ends: Vec<u64> = flights.iter().map(|f| f.2).collect();
                ends.sort_unstable();
                let free = flights.len().checked_sub(parallel).map_or(*now, |at| ends[at]);
                flights.push((disk.begun, *now, free + flush));
                disk.begun(Time(*now));
                most = most.max(flights.len() as u32);
            }
            while let Some(at) = flights.iter().position(|f| f.2 < *now + flush / 40) {
                let (number, begun, end) = flights.remove(at);
                let ended = Ended { number, begun: Time(begun) };
                disk.ended(Time(end), ended, false);
            }
        }
        most
    }

    #[test]
    fn levels_of_parallelism_are_found() {
        for (parallel, known) in [(1, 1), (2, 2), (4, 4), (16, 16), (64, 16)] {
            let mut disk = Disk::new();
            drive(&mut disk, &mut 0, parallel, 1_000_000, 400);
            assert_eq!(disk.parallel, known, "on a disk of {parallel}");
            assert!((disk.flush - 1e6).abs() < 1e5, "{}", disk.flush);
        }
    }

    #[test]
    fn a_level_that_failed_is_seldom_tried_again() {
        let mut disk = Disk::new();
        let mut now = 0;
        assert_eq!(drive(&mut disk, &mut now, 1, 1_000_000, 100), 2);
        assert_eq!(drive(&mut disk, &mut now, 1, 1_000_000, RETRY), 1);
        assert_eq!(drive(&mut disk, &mut now, 1, 1_000_000, RETRY + 200), 2);
        assert_eq!(drive(&mut disk, &mut now, 1, 1_000_000, 3 * RETRY), 1);
    }

    /// The duration has to be learnt although all flushes overlap in a trial.
    #[test]
    fn another_disk_is_noticed() {
        for (before, after) in
            [((16, 1_000_000), (1, 20_000_000)), ((1, 20_000_000), (16, 1_000_000))]
        {
            let mut disk = Disk::new();
            let mut now = 0;
            drive(&mut disk, &mut now, before.0, before.1, 400);
            // Its count of flushes may begin again.
            for _ in 0..4 {
                let until = disk.flushes + 100;
                drive(&mut disk, &mut now, after.0, after.1, until);
            }
            let off = (disk.flush / after.1 as f64 - 1.0).abs();
            assert!(off < 0.1, "{} after {after:?}", disk.flush);
            assert_eq!(disk.parallel, after.0 as u32);
        }
    }
}
