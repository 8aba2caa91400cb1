//! Who comes again and again, and how long they take to.
//!
//! 1. A caller counts as active in the epoch in which they came last, so each is counted once.
//! 2. A table of fixed size: a caller for whom there is no place is not counted.

use crate::time::Time;

/// Epochs that are remembered.
pub(super) const EPOCHS: u64 = 32;
/// Flush times of an epoch.
const EPOCH: u64 = 2;
/// Places for callers.
const PLACES: usize = 2048;
/// Places that are looked at for a caller.
const REACH: usize = 16;
/// Times from which a caller's mean is taken.
const TIMES: u32 = 32;
/// Times between fsyncs that are remembered, as parts of their caller's mean.
pub(super) const SHAPE: usize = 256;
/// Nobody.
const NOBODY: u64 = u64::MAX;
/// The time at which somebody was told who was not.
const WAITING: u64 = u64::MAX;

/// How many were active in each of the last epochs.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    counts: [u32; EPOCHS as usize],
    /// The present one, and when it began.
    pub(super) now: u64,
    begun: u64,
    length: u64,
}

impl Epochs {
    pub(super) fn new() -> Self {
        // Epoch 0 is long past: nobody was active in it.
        Self { counts: [0; EPOCHS as usize], now: EPOCHS, begun: 0, length: 1 }
    }

    /// Time has passed on a disk whose flushes take `flush`.
    pub(super) fn pass(&mut self, now: u64, flush: u64) {
        let length = (flush * EPOCH).max(1);
        self.length = length;
        let passed = now.saturating_sub(self.begun) / length;
        if passed == 0 {
            return;
        }
        self.begun = self.begun.saturating_add(passed * length);
        for _ in 0..passed.min(EPOCHS) {
            self.now += 1;
            self.counts[(self.now % EPOCHS) as usize] = 0;
        }
    }

    /// Somebody is active who was last so in epoch `last`.
    pub(super) fn active(&mut self, last: u64) -> u64 {
        if last + EPOCHS > self.now {
            let count = &mut self.counts[(last % EPOCHS) as usize];
            *count = count.saturating_sub(1);
        }
        self.counts[(self.now % EPOCHS) as usize] += 1;
        self.now
    }

    /// Nanoseconds of an epoch.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// How many were active in the last `epochs`, the present one included.
    pub(super) fn count(&self, epochs: u64) -> u32 {
        (0..epochs.min(EPOCHS)).map(|back| self.counts[((self.now - back) % EPOCHS) as usize]).sum()
    }

    /// How many are expected again soon: who came in the last eight flush times.
    pub(super) fn expected(&self) -> u32 {
        self.count(4)
    }
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    caller: u64,
    epoch: u64,
    /// When they came last.
    arrived: u64,
    /// When they were told last; [`WAITING`] if they wait, or have not been told.
    completed: u64,
    /// Mean nanoseconds from being told to coming again, of so many times.
    mean: f32,
    times: u32,
    /// The last [`Callers::anew`] they know of.
    era: u32,
}

const VACANT: Caller = Caller {
    caller: NOBODY,
    epoch: 0,
    arrived: 0,
    completed: WAITING,
    mean: 0.0,
    times: 0,
    era: 0,
};

/// The callers of a journal.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    table: Box<[Caller]>,
    pub(super) epochs: Epochs,
    shape: [f32; SHAPE],
    shapes: usize,
    /// Mean of all times between, lately, each caller counted alike: those who come often no more than
    /// others, or the mean would depend on the policy.
    pub(super) think: f64,
    /// The same, of the very last.
    pub(super) quick: f64,
    /// Mean time from coming to coming again.
    cycle: f64,
    thinks: u64,
    era: u32,
}

impl Callers {
    pub(super) fn new() -> Self {
        Self {
            table: vec![VACANT; PLACES].into_boxed_slice(),
            epochs: Epochs::new(),
            shape: [1.0; SHAPE],
            shapes: 0,
            think: 0.0,
            quick: 0.0,
            cycle: 0.0,
            thinks: 0,
            era: 0,
        }
    }

    /// Where a caller may stand.
    fn places(caller: u64) -> impl Iterator<Item = usize> {
        let first = (caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..REACH).map(move |step| (first + step) % PLACES)
    }

    fn find(&self, caller: u64) -> Option<usize> {
        Self::places(caller).find(|at| self.table[*at].caller == caller)
    }

    /// The place of a caller, taken for them if there is one.
    fn place(&mut self, caller: u64) -> Option<usize> {
        if let Some(at) = self.find(caller) {
            return Some(at);
        }
        let now = self.epochs.now;
        let at = Self::places(caller).find(|at| self.table[*at].epoch + EPOCHS <= now)?;
        self.table[at] = Caller { caller, ..VACANT };
        Some(at)
    }

    /// Somebody came.
    pub(super) fn arrived(&mut self, now: Time, caller: u64, flush: u64) {
        self.epochs.pass(now.0, flush);
        let Some(at) = self.place(caller) else { return };
        let Caller { epoch, arrived, completed, .. } = self.table[at];
        self.table[at].epoch = self.epochs.active(epoch);
        (self.table[at].arrived, self.table[at].completed) = (now.0, WAITING);
        // Who asks for many things at once does not think; who was away for long did something else.
        let took = now.0.saturating_sub(completed);
        let long = self.epochs.length().saturating_mul(EPOCHS).max((8.0 * self.quick) as u64);
        if completed != WAITING && took < long {
            self.thought(at, took as f32, completed.saturating_sub(arrived) as f64);
        }
    }

    fn thought(&mut self, at: usize, took: f32, waited: f64) {
        let active = u64::from(self.active());
        let caller = &mut self.table[at];
        if caller.era != self.era {
            caller.era = self.era;
            caller.times = caller.times.min(2);
        }
        // The shape is taken by the mean of the others, once there are some.
        let shape = (caller.times >= 4).then(|| took / caller.mean.max(1.0));
        caller.times = (caller.times + 1).min(TIMES);
        caller.mean += (took - caller.mean) / caller.times as f32;
        let all = f64::from(took);
        // By the caller's mean: weighed by what they took this time, long times would count twice.
        let cycle = f64::from(caller.mean) + waited;
        // Over several rounds of all callers: they may differ.
        self.thinks += 1;
        let over = |most: u64| self.thinks.min(most) as f64;
        self.cycle += (cycle - self.cycle) / over(4 * active + 64);
        let weight = cycle / self.cycle.max(1.0);
        let mean = |mean: f64, over: f64| mean + (all - mean) * (weight / over).min(1.0);
        self.think = mean(self.think, over(4 * active + 64));
        self.quick = mean(self.quick, over(active + 24));
        if let Some(shape) = shape {
            self.shape[self.shapes % SHAPE] = shape;
            self.shapes += 1;
        }
    }

    /// Somebody is told.
    pub(super) fn completed(&mut self, now: Time, caller: u64) {
        if let Some(at) = self.find(caller) {
            self.table[at].completed = now.0;
        }
    }

    /// Callers take longer or shorter now: what was known of that is worth little.
    pub(super) fn anew(&mut self) {
        self.era += 1;
        self.think = self.quick;
        self.thinks = self.thinks.min(u64::from(self.active()) + 24);
    }

    /// Epochs in which whoever has not gone comes, so to speak for certain.
    fn window(&self) -> u64 {
        let round = self.think / self.epochs.length() as f64 + 1.0;
        (8.0 * round).clamp(6.0, EPOCHS as f64) as u64
    }

    /// How many there are.
    pub(super) fn active(&self) -> u32 {
        self.epochs.count(self.window())
    }

    /// Is enough known of how long callers take?
    pub(super) fn known(&self) -> bool {
        self.shapes >= 8
    }

    /// The remembered times as parts of their caller's mean; their own mean.
    pub(super) fn shape(&self) -> (&[f32], f32) {
        let known = &self.shape[..self.shapes.clamp(1, SHAPE)];
        (known, (known.iter().sum::<f32>() / known.len() as f32).max(f32::MIN_POSITIVE))
    }

    /// The means of active callers, as many as there is room for; gives how many.
    pub(super) fn means(&self, room: &mut [f32]) -> usize {
        let oldest = self.epochs.now.saturating_sub(self.window() - 1);
        let known = self.table.iter().filter(|c| c.epoch >= oldest && c.times > 0);
        let mut count = 0;
        for (place, caller) in room.iter_mut().zip(known) {
            *place = caller.mean;
            count += 1;
        }
        count
    }
}
