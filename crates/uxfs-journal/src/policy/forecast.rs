//! When callers will arrive: a forecast from the time that each takes between two fsyncs.
//!
//! A caller *thinks* from the completion of one fsync to the arrival of the next. The time does not
//! depend on the policy. A caller whose think times are much alike is *regular*: it is expected
//! within a window of time. Any other caller may arrive at any moment, with the same probability:
//! it adds to a rate. Some disks make a caller's writes wait for a flush in flight. It then arrives
//! soon when the disk is *open* to a flush, and not at all otherwise; the rate is that of open time.
//!
//! 1. Each caller that thinks is expected once: in the bins of its window, as overdue when these
//!    have passed, or in the rate.
//! 2. An arrival withdraws its caller's part of the forecast. A caller that stays away is withdrawn
//!    when it is long overdue, and later forgotten.
//! 3. Nothing is allocated after the start. A caller that finds the table full is not expected.

use rustc_hash::FxHashMap;

/// Bins in a flush duration, and in the forecast. Later arrivals count as irregular.
const PER_FLUSH: f64 = 256.0;
const BINS: u64 = 1024;
/// Points at which a window adds to the bins.
const POINTS: u64 = 8;
/// Callers in the table.
const CALLERS: usize = 1024;
/// Think times in a caller's mean, and in its mean deviation.
const TIMES: u32 = 32;
const TIMES_DEVIATION: u32 = 16;
/// Think times after which a caller is known.
const KNOWN: u32 = 4;
/// Part of the mean below which the mean deviation of a regular caller is.
const REGULAR: f64 = 0.4;
/// Mean deviations on each side of the mean that a window covers.
const WINDOW: f64 = 2.0;
/// The factor by which a think time is unusual, and the number of unusual ones in a row after which
/// the caller does something else.
const UNUSUAL: f64 = 4.0;
const CHANGED: i32 = 3;
/// Arrivals while the disk was open from which on their rate is known.
const FEW_ARRIVALS: f64 = 1.5;
/// The factor between the rates in open time and in all time from which on writes wait for flushes.
const BLOCKED: f64 = 4.0;
/// Callers that are looked at after each flush, to withdraw those that stay away.
const SWEEP: usize = 64;

/// A caller's part of the forecast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Part {
    #[default]
    None,
    /// Arrivals per nanosecond.
    Rate(f64),
    /// First and last bin.
    Window(u64, u64),
    /// It waits or is served; arrivals per nanosecond when it thinks again.
    Busy(f64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    id: u64,
    /// When its last fsync completed, while it thinks.
    completed: Option<u64>,
    /// Mean and mean deviation of its think times in nanoseconds, and how many these include.
    mean: f64,
    deviation: f64,
    times: u32,
    /// Consecutive times that were unusually long (above 0) or short (below 0).
    unusual: i32,
    /// What the clock of open time said when its last fsync completed.
    opened: u64,
    /// Its arrivals while the disk was open, and the open time in which it was thinking; older ones
    /// count less.
    arrivals: f64,
    exposure: f64,
    part: Part,
}

impl Caller {
    /// Arrivals per nanosecond while it thinks and the disk is open.
    fn rate(&self, width: u64) -> f64 {
        let least = width.max(1) as f64;
        let (mean, open) = (1.0 / self.mean.max(least), self.arrivals / self.exposure.max(least));
        if self.arrivals >= FEW_ARRIVALS && open > BLOCKED * mean { open } else { mean }
    }

    /// Learns of an arrival after this much open time.
    fn learn_exposure(&mut self, time: u64, open: bool) {
        let keep = 1.0 - 1.0 / f64::from(TIMES);
        self.exposure = self.exposure * keep + time as f64;
        self.arrivals = self.arrivals * keep + f64::from(u8::from(open));
    }

    /// Learns a think time.
    fn learn(&mut self, took: f64, flush: f64) {
        // Times that are short for a flush are all alike.
        let (this, mean) = (took + flush / 4.0, self.mean + flush / 4.0);
        self.unusual = if this > UNUSUAL * mean {
            self.unusual.max(0) + 1
        } else if this < mean / UNUSUAL {
            self.unusual.min(0) - 1
        } else {
            0
        };
        if self.unusual.abs() >= CHANGED {
            (self.times, self.unusual) = (0, 0);
            (self.arrivals, self.exposure) = (0.0, 0.0);
        }
        if self.unusual > 0 && self.times >= KNOWN {
            return;
        }
        self.times = (self.times + 1).min(TIMES);
        if self.times > 1 {
            let count = (self.times - 1).min(TIMES_DEVIATION);
            self.deviation += ((took - self.mean).abs() - self.deviation) / f64::from(count);
        }
        self.mean += (took - self.mean) / f64::from(self.times);
    }
}

/// The bins of a window.
fn points(first: u64, last: u64) -> impl Iterator<Item = u64> {
    (0..POINTS).map(move |at| first + (last - first) * at / (POINTS - 1))
}

/// Part of a caller in each point of its window.
const POINT: f64 = 1.0 / POINTS as f64;

/// What is worth waiting for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// Nanoseconds to wait.
    pub(super) wait: u64,
    /// Callers expected meanwhile.
    pub(super) callers: f64,
}

/// The forecast.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    callers: Vec<Caller>,
    index: FxHashMap<u64, usize>,
    /// Regular callers by the time of their arrival: a ring, of which `bin` is the present one.
    bins: Box<[f64]>,
    /// Nanoseconds in a bin; 0 before the first flush.
    width: u64,
    bin: u64,
    /// Regular callers whose window has passed in part.
    overdue: f64,
    /// Arrivals of irregular callers per nanosecond.
    pub(super) rate: f64,
    /// The clock of open time: how long the disk was open in all, and since when it is.
    open_time: u64,
    open_since: Option<u64>,
    /// Arrivals per nanosecond to expect from the callers that wait or are served, when they think
    /// again; and the number of these callers.
    busy: f64,
    busy_callers: u32,
    swept: usize,
}

impl Forecast {
    pub(super) fn new() -> Self {
        Self {
            callers: Vec::with_capacity(CALLERS),
            // Twice the room, so that the map never grows.
            index: FxHashMap::with_capacity_and_hasher(2 * CALLERS, Default::default()),
            bins: vec![0.0; BINS as usize].into_boxed_slice(),
            width: 0,
            bin: 0,
            overdue: 0.0,
            rate: 0.0,
            open_time: 0,
            open_since: Some(0),
            busy: 0.0,
            busy_callers: 0,
            swept: 0,
        }
    }

    fn at(&mut self, bin: u64) -> &mut f64 {
        &mut self.bins[(bin % BINS) as usize]
    }

    /// Advances the forecast to `now`.
    pub(super) fn pass(&mut self, now: u64) {
        let Some(bin) = now.checked_div(self.width) else { return };
        for passed in self.bin..bin.min(self.bin + BINS) {
            self.overdue += core::mem::take(self.at(passed));
        }
        self.bin = self.bin.max(bin);
    }

    /// Takes note of the duration of a flush, on which the width of bins depends.
    fn measure(&mut self, now: u64, flush: f64) {
        let width = (flush / PER_FLUSH) as u64;
        if width == 0 || (self.width * 3 / 4..=self.width * 4 / 3).contains(&width) {
            return;
        }
        (self.width, self.bin, self.overdue) = (width, now / width, 0.0);
        self.bins.fill(0.0);
        for caller in &mut self.callers {
            if matches!(caller.part, Part::Window(..)) {
                caller.part = Part::None;
            }
        }
    }

    /// Time in which the disk was open.
    fn clock(&self, now: u64) -> u64 {
        self.open_time + self.open_since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Reports whether the disk is open to a flush.
    pub(super) fn set_open(&mut self, now: u64, open: bool) {
        if open != self.open_since.is_some() {
            self.open_time = self.clock(now);
            self.open_since = open.then_some(now);
        }
    }

    /// Takes a caller's part out of the forecast.
    fn withdraw(&mut self, at: usize) {
        match core::mem::take(&mut self.callers[at].part) {
            Part::None => {}
            Part::Rate(rate) => self.rate = (self.rate - rate).max(0.0),
            Part::Busy(rate) => {
                self.busy = (self.busy - rate).max(0.0);
                self.busy_callers -= 1;
            }
            Part::Window(first, last) => {
                for bin in points(first, last) {
                    let passed = bin < self.bin;
                    let mass = if passed { &mut self.overdue } else { self.at(bin) };
                    *mass = (*mass - POINT).max(0.0);
                }
            }
        }
    }

    /// Reports an arrival.
    pub(super) fn arrived(&mut self, now: u64, id: u64, flush: f64) {
        self.pass(now);
        let at = match self.index.get(&id) {
            Some(at) => *at,
            None if self.callers.len() == CALLERS => return,
            None => {
                self.index.insert(id, self.callers.len());
                self.callers.push(Caller { id, ..Caller::default() });
                self.callers.len() - 1
            }
        };
        self.withdraw(at);
        let (clock, open) = (self.clock(now), self.open_since.is_some());
        let caller = &mut self.callers[at];
        if let Some(completed) = caller.completed.take() {
            caller.learn_exposure(clock.saturating_sub(caller.opened), open);
            caller.learn(now.saturating_sub(completed) as f64, flush);
        }
        if caller.times > 0 {
            let rate = caller.rate(self.width);
            caller.part = Part::Busy(rate);
            self.busy += rate;
            self.busy_callers += 1;
        }
    }

    /// Arrivals per nanosecond to expect when all busy callers but `others` think again.
    pub(super) fn rate_without(&self, others: u32) -> f64 {
        let part = 1.0 - f64::from(others) / f64::from(self.busy_callers.max(1));
        self.rate + self.busy * part.max(0.0)
    }

    /// Reports a completion: the caller thinks.
    pub(super) fn completed(&mut self, now: u64, id: u64) {
        let Some(&at) = self.index.get(&id) else { return };
        self.pass(now);
        self.withdraw(at);
        (self.callers[at].completed, self.callers[at].opened) = (Some(now), self.clock(now));
        let caller = self.callers[at];
        let Caller { mean, deviation, times, .. } = caller;
        if times == 0 || self.width == 0 {
            return;
        }
        let bin = |nanos: f64| (now + nanos.max(0.0) as u64) / self.width;
        let (first, last) = (bin(mean - WINDOW * deviation), bin(mean + WINDOW * deviation));
        let regular = times >= KNOWN && deviation < REGULAR * mean && last < self.bin + BINS;
        self.callers[at].part = if regular {
            points(first, last).for_each(|bin| *self.at(bin) += POINT);
            Part::Window(first, last)
        } else {
            let rate = caller.rate(self.width);
            self.rate += rate;
            Part::Rate(rate)
        };
    }

    /// Reports the end of a flush, whose duration is known to be `flush`.
    pub(super) fn flushed(&mut self, now: u64, flush: f64) {
        self.measure(now, flush);
        for _ in 0..SWEEP.min(self.callers.len()) {
            self.swept = if self.swept + 1 < self.callers.len() { self.swept + 1 } else { 0 };
            self.expire(self.swept, now, flush);
        }
    }

    /// Withdraws a caller that stays away, and forgets one that was away for long.
    fn expire(&mut self, at: usize, now: u64, flush: f64) {
        let Some(&Caller { id, completed: Some(completed), mean, part, .. }) = self.callers.get(at)
        else {
            return;
        };
        let away = now.saturating_sub(completed) as f64;
        let late = match part {
            Part::None | Part::Busy(_) => false,
            Part::Rate(_) => away > (4.0 * mean).max(flush),
            Part::Window(first, last) => self.bin > 2 * last - first + BINS / 16,
        };
        if late {
            self.withdraw(at);
        }
        if away > 64.0 * (mean + flush) {
            self.withdraw(at);
            self.index.remove(&id);
            self.callers.swap_remove(at);
            if let Some(moved) = self.callers.get(at) {
                self.index.insert(moved.id, at);
            }
        }
    }

    /// The time, at most `most` nanoseconds, in which the most callers arrive beyond `least` per
    /// nanosecond. `None` if callers never arrive faster than that. Without `irregular` only regular callers
    /// count.
    pub(super) fn worth(
        &self,
        now: u64,
        irregular: bool,
        least: f64,
        most: u64,
    ) -> Option<Expected> {
        let rate = if irregular { self.rate } else { 0.0 };
        let bins = most.checked_div(self.width)?.min(BINS - 1);
        let mut regular = self.overdue;
        let (mut found, mut gain) = (None, POINT / 2.0);
        for bin in self.bin..=self.bin + bins {
            regular += self.bins[(bin % BINS) as usize];
            let wait = ((bin + 1) * self.width).saturating_sub(now);
            let callers = regular + rate * wait as f64;
            if callers - least * wait as f64 > gain {
                gain = callers - least * wait as f64;
                found = Some(Expected { wait: wait.min(most), callers });
            }
        }
        found.filter(|found| found.wait > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: f64 = 1e6;

    /// A forecast in which each caller has thought for these times, in flushes, one after the other.
    /// Returns it with the time of the last completion of all callers.
    fn trained(callers: &[&[f64]]) -> (Forecast, u64) {
        let mut forecast = Forecast::new();
        forecast.flushed(0, FLUSH);
        let mut now = 0;
        for round in 0..12 {
            now += 100 * FLUSH as u64;
            for id in 0..callers.len() as u64 {
                forecast.completed(now, id);
            }
            for (id, thinks) in callers.iter().enumerate() {
                let think = thinks[round % thinks.len()] * FLUSH;
                forecast.arrived(now + think as u64, id as u64, FLUSH);
            }
        }
        now += 100 * FLUSH as u64;
        (0..callers.len() as u64).for_each(|id| forecast.completed(now, id));
        (forecast, now)
    }

    /// Everything that is expected, apart from the rate.
    fn mass(forecast: &Forecast) -> f64 {
        forecast.overdue + forecast.bins.iter().sum::<f64>()
    }

    #[test]
    fn regular_callers_are_expected_when_they_arrive() {
        let (forecast, now) = trained(&[&[0.5], &[0.48, 0.52], &[0.9]]);
        assert_eq!(forecast.rate, 0.0);
        assert!((mass(&forecast) - 3.0).abs() < 1e-9);
        // Two arrive within 0.52 flushes, the third one 0.4 later.
        let expected = forecast.worth(now, true, 3.0 / FLUSH, FLUSH as u64).unwrap();
        let wait = expected.wait as f64 / FLUSH;
        assert!((0.5..0.6).contains(&wait), "{expected:?}");
        assert!((1.9..=2.0).contains(&expected.callers), "{expected:?}");
        assert_eq!(forecast.worth(now, true, 5.0 / FLUSH, FLUSH as u64), None);
        assert_eq!(forecast.worth(now, true, 3.0 / FLUSH, FLUSH as u64 / 4), None);
    }

    #[test]
    fn irregular_callers_add_to_the_rate() {
        let (forecast, _) = trained(&[&[0.2, 1.8], &[0.1, 0.3]]);
        assert_eq!(mass(&forecast), 0.0);
        let rate = forecast.rate * FLUSH;
        assert!((rate - (1.0 + 5.0)).abs() < 0.5, "{rate} a flush");
    }

    #[test]
    fn arrivals_and_absence_leave_nothing() {
        let (mut forecast, now) = trained(&[&[0.5], &[0.9], &[0.1, 0.3], &[2.0]]);
        forecast.arrived(now + FLUSH as u64 / 2, 0, FLUSH);
        forecast.arrived(now + FLUSH as u64, 1, FLUSH);
        assert!((mass(&forecast) - 1.0).abs() < 1e-9 && forecast.rate > 0.0);
        // Two callers stay away. A caller that is late is overdue, then not expected, then forgotten.
        forecast.pass(now + 3 * FLUSH as u64);
        assert!((forecast.overdue - 1.0).abs() < 1e-9);
        forecast.flushed(now + 10 * FLUSH as u64, FLUSH);
        assert_eq!((mass(&forecast), forecast.callers.len()), (0.0, 4));
        assert!(forecast.rate * FLUSH < 1e-9, "{}", forecast.rate);
        (0..4).for_each(|_| forecast.flushed(now + 1000 * FLUSH as u64, FLUSH));
        assert_eq!((forecast.callers.len(), forecast.index.len()), (2, 2));
    }

    #[test]
    fn a_caller_that_does_something_else_is_learnt_anew() {
        let (mut forecast, mut now) = trained(&[&[0.5]]);
        for _ in 0..8 {
            forecast.arrived(now + 40 * FLUSH as u64, 0, FLUSH);
            now += 100 * FLUSH as u64;
            forecast.completed(now, 0);
        }
        let mean = forecast.callers[0].mean / FLUSH;
        assert!((mean - 40.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn a_full_table_expects_no_more_callers_and_does_not_grow() {
        let mut forecast = Forecast::new();
        let room = (forecast.callers.capacity(), forecast.index.capacity());
        forecast.flushed(0, FLUSH);
        for round in 0..4_000_u64 {
            let now = round * 300 * FLUSH as u64;
            for id in 0..1500 {
                forecast.arrived(now, round * 700 + id, FLUSH);
                forecast.completed(now, round * 700 + id);
            }
            (0..40).for_each(|_| forecast.flushed(now + 200 * FLUSH as u64, FLUSH));
            if round == 0 {
                assert_eq!(forecast.callers.len(), 0, "all are forgotten");
            }
        }
        assert_eq!((forecast.callers.capacity(), forecast.index.capacity()), room);
    }
}
