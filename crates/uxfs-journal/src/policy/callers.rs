//! The callers of fsync: which are active, and how long they take between fsyncs.
//!
//! 1. A caller counts as active in the epoch of its last arrival, so each is counted once.
//! 2. The table has a fixed size. A caller without an entry is not counted.

use uxfs_sync::Time;

/// Number of epochs kept.
pub(super) const EPOCHS: u64 = 32;
/// Length of an epoch in flush durations.
const EPOCH: u64 = 2;
/// Entries of the table.
const PLACES: usize = 2048;
/// Entries searched for a caller.
const REACH: usize = 16;
/// Number of times in a caller's mean.
const TIMES: u32 = 32;
/// Number of think times kept, as fractions of their caller's mean.
pub(super) const SHAPE: usize = 256;
/// No caller.
const NOBODY: u64 = u64::MAX;
/// The completion time of a caller without one.
const WAITING: u64 = u64::MAX;

/// Number of callers active in each of the last epochs.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    counts: [u32; EPOCHS as usize],
    /// The current epoch, and when it began.
    pub(super) now: u64,
    begun: u64,
    length: u64,
}

impl Epochs {
    pub(super) fn new() -> Self {
        // Epoch 0 is long past: no caller was active in it.
        Self { counts: [0; EPOCHS as usize], now: EPOCHS, begun: 0, length: 1 }
    }

    /// Advances the epochs, for a disk whose flushes take `flush` nanoseconds.
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

    /// Counts a caller that was last active in epoch `last`.
    pub(super) fn active(&mut self, last: u64) -> u64 {
        if last + EPOCHS > self.now {
            let count = &mut self.counts[(last % EPOCHS) as usize];
            *count = count.saturating_sub(1);
        }
        self.counts[(self.now % EPOCHS) as usize] += 1;
        self.now
    }

    /// Length of an epoch in nanoseconds.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Number of callers active in the last `epochs` epochs, the current one included.
    pub(super) fn count(&self, epochs: u64) -> u32 {
        (0..epochs.min(EPOCHS)).map(|back| self.counts[((self.now - back) % EPOCHS) as usize]).sum()
    }

    /// Number of callers expected soon: those of the last eight flush durations.
    pub(super) fn expected(&self) -> u32 {
        self.count(4)
    }
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    caller: u64,
    epoch: u64,
    /// Time of the last arrival.
    arrived: u64,
    /// Time of the last completion; [`WAITING`] while the caller waits or has none.
    completed: u64,
    /// Mean nanoseconds from completion to the next arrival, and the number of times in it.
    mean: f32,
    times: u32,
    /// The last [`Callers::anew`] that this entry includes.
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
    /// Mean of recent think times, each caller counted alike. Frequent callers must not count more,
    /// or the mean would depend on the policy.
    pub(super) think: f64,
    /// The same, of the most recent times only.
    pub(super) quick: f64,
    /// Mean time between arrivals.
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

    /// The entries that a caller may have.
    fn places(caller: u64) -> impl Iterator<Item = usize> {
        let first = (caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..REACH).map(move |step| (first + step) % PLACES)
    }

    fn find(&self, caller: u64) -> Option<usize> {
        Self::places(caller).find(|at| self.table[*at].caller == caller)
    }

    /// The entry of a caller, allocated if one is free.
    fn place(&mut self, caller: u64) -> Option<usize> {
        if let Some(at) = self.find(caller) {
            return Some(at);
        }
        let now = self.epochs.now;
        let at = Self::places(caller).find(|at| self.table[*at].epoch + EPOCHS <= now)?;
        self.table[at] = Caller { caller, ..VACANT };
        Some(at)
    }

    /// Reports an arrival.
    pub(super) fn arrived(&mut self, now: Time, caller: u64, flush: u64) {
        self.epochs.pass(now.0, flush);
        let Some(at) = self.place(caller) else { return };
        let Caller { epoch, arrived, completed, .. } = self.table[at];
        self.table[at].epoch = self.epochs.active(epoch);
        (self.table[at].arrived, self.table[at].completed) = (now.0, WAITING);
        // A caller with several requests at once does not think; one that was away for long did
        // something else.
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
        // The fraction is of the mean of the other times, once there are some.
        let shape = (caller.times >= 4).then(|| took / caller.mean.max(1.0));
        caller.times = (caller.times + 1).min(TIMES);
        caller.mean += (took - caller.mean) / caller.times as f32;
        let all = f64::from(took);
        // Weighted by the caller's mean. Weighted by this time, long times would count twice.
        let cycle = f64::from(caller.mean) + waited;
        // Over several rounds of all callers, because they may differ.
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

    /// Reports a completion.
    pub(super) fn completed(&mut self, now: Time, caller: u64) {
        if let Some(at) = self.find(caller) {
            self.table[at].completed = now.0;
        }
    }

    /// Lowers the weight of what is known, because callers take longer or shorter now.
    pub(super) fn anew(&mut self) {
        self.era += 1;
        self.think = self.quick;
        self.thinks = self.thinks.min(u64::from(self.active()) + 24);
    }

    /// Number of epochs in which an active caller almost certainly arrives.
    fn window(&self) -> u64 {
        let round = self.think / self.epochs.length() as f64 + 1.0;
        (8.0 * round).clamp(6.0, EPOCHS as f64) as u64
    }

    /// Number of active callers.
    pub(super) fn active(&self) -> u32 {
        self.epochs.count(self.window())
    }

    /// Is enough known about think times?
    pub(super) fn known(&self) -> bool {
        self.shapes >= 8
    }

    /// The kept think times as fractions of their caller's mean, and the mean of these.
    pub(super) fn shape(&self) -> (&[f32], f32) {
        let known = &self.shape[..self.shapes.clamp(1, SHAPE)];
        (known, (known.iter().sum::<f32>() / known.len() as f32).max(f32::MIN_POSITIVE))
    }

    /// Stores the means of active callers in `room`. Returns their number.
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
