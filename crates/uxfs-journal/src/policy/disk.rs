//! The disk as it was measured: how long a flush takes, and how many it works on at a time.
//!
//! How many is found out by trying, a level at a time: a flush that began while others were under way
//! took longer than one does alone, or not. Where it did by as much as it would have on a disk that
//! works on fewer at a time, the level is bad, and tried again only after long.

use super::contract::Ended;
use crate::time::Time;

/// Numbers of flushes at a time that are tried, one after the other.
pub(super) const LEVELS: [u32; 4] = [2, 4, 8, 16];
/// Flushes that are watched at most.
const WATCHED: usize = 64;
/// Flush times that a disk of fewer at a time would have cost, before a level is judged.
const ENOUGH: f64 = 2.0;
/// Flushes beside which another was wanted and none began, before a level is judged that cannot be had.
const NEVER: u32 = 8;

/// What is known of a number of flushes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Unknown,
    Good,
    /// Not to be tried again before there were so many flushes.
    Bad(u64),
}

/// A flush under way: when it began, and how many others were; when it would end, and by how much later
/// than alone, if the disk works on no more at a time than is known.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    number: u64,
    begun: u64,
    others: u32,
    end: f64,
    late: f64,
}

/// The disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Nanoseconds that a flush takes, and by how much that varies, as a part of it.
    pub(super) flush: f64,
    pub(super) varies: f64,
    pub(super) flushes: u64,
    /// Flushes that took much longer (above 0) or much shorter (below), one after the other: some that
    /// are long and some that are short are one disk whose flushes vary.
    odd: i32,
    pub(super) levels: [Level; LEVELS.len()],
    /// The flushes under way, oldest first.
    flights: [InFlight; WATCHED],
    in_flight: usize,
    next: u64,
    /// How much longer flushes took that were not alone; and how much they must on a lesser disk.
    longer: f64,
    late: f64,
    /// Flushes in a row beside which another was wanted, and none began.
    lone: u32,
    /// Flushes until a bad level is tried again.
    patience: u64,
    /// How many times longer or shorter a flush has to be than where nothing varies much, to be odd.
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

    /// How many at a time are known to be good.
    pub(super) fn good(&self) -> u32 {
        let good = self.levels.iter().take_while(|l| **l == Level::Good).count();
        good.checked_sub(1).map_or(1, |last| LEVELS[last])
    }

    /// The number of flushes at a time that would be tried next, if any.
    pub(super) fn next_level(&self) -> Option<u32> {
        let at = self.levels.iter().position(|l| *l != Level::Good)?;
        match self.levels[at] {
            Level::Bad(until) if self.flushes < until => None,
            _ => Some(LEVELS[at]),
        }
    }

    /// A flush begins.
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

    /// A flush has ended. True if what was known of the disk holds no more.
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
        // One that waited for others says nothing of how long it takes.
        if flight.others >= self.good() {
            return false;
        }
        if flight.others > 0 && took > (1.0 + 0.5 * self.tolerance) * self.flush {
            return self.doubt();
        }
        self.measure(took)
    }

    /// A flush took so long that had the disk for itself, or as good as.
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

    /// The disk is another one now.
    fn restart(&mut self, took: f64) {
        self.flush = took;
        self.flushes = 1;
        self.odd = 0;
        self.levels = [Level::Unknown; LEVELS.len()];
        (self.longer, self.late) = (0.0, 0.0);
        self.patience = 8192;
    }

    /// A flush that should not have taken longer did.
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

    /// Judges the level that is being tried, when enough has been seen.
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

    /// A level is not tried again for long.
    fn refuse(&mut self, at: usize) {
        self.patience = (self.patience * 2).min(1 << 20);
        self.levels[at] = Level::Bad(self.flushes + self.patience);
    }

    /// A flush has ended beside which another was wanted, and none began. What is served one after the
    /// other, as checkpoints are, never does: a level that cannot be had is as good as bad.
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
