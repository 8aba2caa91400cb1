//! The measured disk: how long a flush takes, and how many flushes it works on in parallel.
//!
//! The number in parallel is found out by trying one level after the other. A flush that overlaps
//! others takes longer than one alone, or it does not. If it takes as much longer as on a disk of a
//! lower level, the level is bad. It is tried again only after a long time.

use super::contract::Ended;
use uxfs_sync::Time;

/// The levels: numbers of parallel flushes, tried in this order.
pub(super) const LEVELS: [u32; 4] = [2, 4, 8, 16];
/// Most flushes in flight that are measured.
const WATCHED: usize = 64;
/// Flush durations that a disk of a lower level would have cost, before a level is judged.
const ENOUGH: f64 = 2.0;
/// Flushes during which an overlapping one was wanted but none began, before a level is judged
/// impossible.
const NEVER: u32 = 8;

/// What is known about a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Unknown,
    Good,
    /// Not to be tried again before this many flushes.
    Bad(u64),
}

/// A flush in flight: when it began, and how many others were in flight; when it would end, and how
/// much later than alone, if the disk works on no more in parallel than is known.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    number: u64,
    begun: u64,
    others: u32,
    end: f64,
    late: f64,
}

/// The measured disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Duration of a flush in nanoseconds, and its variation as a fraction.
    pub(super) flush: f64,
    pub(super) varies: f64,
    pub(super) flushes: u64,
    /// Consecutive flushes that took much longer (above 0) or much shorter (below 0). A mixture is
    /// one disk whose flushes vary.
    odd: i32,
    pub(super) levels: [Level; LEVELS.len()],
    /// The flushes in flight, oldest first.
    flights: [InFlight; WATCHED],
    in_flight: usize,
    next: u64,
    /// How much longer overlapping flushes took, and how much longer they would take on a disk of a
    /// lower level.
    longer: f64,
    late: f64,
    /// Consecutive flushes during which an overlapping one was wanted but none began.
    lone: u32,
    /// Number of flushes until a bad level is tried again.
    patience: u64,
    /// The factor by which a flush must differ to count as unusual, beyond that for steady disks.
    pub(super) tolerance: f64,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self {
            flush: 0.0,
            varies: 0.0,
            flushes: 0,
            odd: 0,
            levels: [Level::Unknown; LEVELS.len()],
            flights: [InFlight::default(); WATCHED],
            in_flight: 0,
            next: 0,
            longer: 0.0,
            late: 0.0,
            lone: 0,
            patience: 8192,
            tolerance: 1.0,
        }
    }

    /// The highest level known to be good.
    pub(super) fn good(&self) -> u32 {
        let good = self.levels.iter().take_while(|l| **l == Level::Good).count();
        good.checked_sub(1).map_or(1, |last| LEVELS[last])
    }

    /// The level that would be tried next, if any.
    pub(super) fn next_level(&self) -> Option<u32> {
        let at = self.levels.iter().position(|l| *l != Level::Good)?;
        match self.levels[at] {
            Level::Bad(until) if self.flushes < until => None,
            _ => Some(LEVELS[at]),
        }
    }

    /// Reports the begin of a flush.
    pub(super) fn begun(&mut self, now: Time) {
        let number = self.next;
        self.next += 1;
        if self.in_flight == WATCHED {
            return;
        }
        let late = match self.in_flight.checked_sub(self.good() as usize) {
            Some(at) => (self.flights[at].end - now.0 as f64).max(0.0),
            None => 0.0,
        };
        let (others, end) = (self.in_flight as u32, now.0 as f64 + late + self.flush);
        self.flights[self.in_flight] = InFlight { number, begun: now.0, others, end, late };
        self.in_flight += 1;
    }

    /// Reports the end of a flush. Returns true if what was known about the disk is no longer
    /// valid.
    pub(super) fn ended(&mut self, now: Time, flush: Ended) -> bool {
        let Some(at) = self.flights[..self.in_flight].iter().position(|f| f.number == flush.number)
        else {
            return false;
        };
        let flight = self.flights[at];
        self.flights.copy_within(at + 1..self.in_flight, at);
        self.in_flight -= 1;
        self.flushes += 1;
        let took = now.0.saturating_sub(flight.begun.max(flush.begun.0)) as f64;
        if flight.late > 0.0 {
            self.lone = 0;
            self.longer += (took - self.flush).max(0.0);
            self.late += flight.late;
            self.judge();
            return false;
        }
        // A flush that waited for others does not show the duration of one.
        if flight.others >= self.good() {
            return false;
        }
        if flight.others > 0 && took > (1.0 + 0.5 * self.tolerance) * self.flush {
            return self.doubt();
        }
        self.measure(took)
    }

    /// Measures a flush that was alone on the disk, or nearly so.
    fn measure(&mut self, took: f64) -> bool {
        if self.flushes == 1 || self.flush == 0.0 {
            self.flush = took;
            return false;
        }
        let much = 1.0 + 0.5 * self.tolerance;
        self.odd = if took > much * self.flush {
            self.odd.max(0) + 1
        } else if took < self.flush / much {
            self.odd.min(0) - 1
        } else {
            0
        };
        if self.odd.abs() >= 3 {
            self.restart(took);
            return true;
        }
        let off = (took - self.flush).abs() / self.flush;
        self.varies += (off - self.varies) / 16.0;
        self.flush += (took - self.flush) / self.flushes.min(16) as f64;
        false
    }

    /// Starts the measurement anew.
    fn restart(&mut self, took: f64) {
        self.flush = took;
        self.flushes = 1;
        self.odd = 0;
        self.levels = [Level::Unknown; LEVELS.len()];
        (self.longer, self.late) = (0.0, 0.0);
        self.patience = 8192;
    }

    /// Notes an overlapping flush that took longer than it should have.
    fn doubt(&mut self) -> bool {
        self.odd = self.odd.max(0) + 1;
        if self.odd < 6 {
            return false;
        }
        self.odd = 0;
        self.levels = [Level::Unknown; LEVELS.len()];
        (self.longer, self.late) = (0.0, 0.0);
        true
    }

    /// Judges the level being tried, when enough was measured.
    fn judge(&mut self) {
        if self.late < ENOUGH * self.flush {
            return;
        }
        let good = self.longer < 0.3 * self.late;
        (self.longer, self.late) = (0.0, 0.0);
        let Some(at) = self.levels.iter().position(|l| *l != Level::Good) else { return };
        if good {
            self.levels[at] = Level::Good;
        } else {
            self.refuse(at);
        }
    }

    /// Marks a level as bad for a long time.
    fn refuse(&mut self, at: usize) {
        self.patience = (self.patience * 2).min(1 << 20);
        self.levels[at] = Level::Bad(self.flushes + self.patience);
    }

    /// Notes the end of a flush during which an overlapping one was wanted but none began. Work
    /// that is serial, as checkpoints are, never overlaps: an impossible level counts as bad.
    pub(super) fn refused(&mut self) {
        self.lone += 1;
        if self.lone < NEVER {
            return;
        }
        self.lone = 0;
        if let Some(at) = self.levels.iter().position(|l| *l != Level::Good) {
            self.refuse(at);
        }
    }
}
