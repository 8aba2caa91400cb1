//! How many callers to expect: those that arrived in the last eight flush durations. Used by
//! [`Fixed::Gather`](super::Fixed::Gather).
//!
//! 1. Time is divided into epochs of two flush durations. A caller counts in the epoch of its last
//!    arrival, so each is counted once.
//! 2. The table has a fixed size. A caller without an entry is not counted.

use uxfs_sync::Time;

/// Number of epochs kept.
const EPOCHS: u64 = 32;
/// Length of an epoch in flush durations.
const LENGTH: u64 = 2;
/// Epochs whose callers are expected.
const EXPECTED: u64 = 4;
/// Entries of the table.
const ENTRIES: usize = 2048;
/// Entries probed for a caller.
const PROBES: usize = 16;
/// Marks a free entry.
const NONE: u64 = u64::MAX;

/// The callers of the last epochs.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    counts: [u32; EPOCHS as usize],
    /// The current epoch, and when it began.
    now: u64,
    begun: u64,
    /// Each caller, and the epoch of its last arrival.
    callers: Box<[(u64, u64)]>,
}

impl Epochs {
    pub(super) fn new() -> Self {
        // Epoch 0 is long past: no caller arrived in it.
        let callers = vec![(NONE, 0); ENTRIES].into_boxed_slice();
        Self { counts: [0; EPOCHS as usize], now: EPOCHS, begun: 0, callers }
    }

    /// Advances the epochs, for a disk whose flushes take `flush` nanoseconds.
    pub(super) fn pass(&mut self, now: Time, flush: u64) {
        let length = (flush * LENGTH).max(1);
        let passed = now.0.saturating_sub(self.begun) / length;
        self.begun = self.begun.saturating_add(passed * length);
        for _ in 0..passed.min(EPOCHS) {
            self.now += 1;
            self.counts[(self.now % EPOCHS) as usize] = 0;
        }
    }

    /// Reports an arrival.
    pub(super) fn arrived(&mut self, now: Time, caller: u64, flush: u64) {
        self.pass(now, flush);
        let first = (caller.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let mut probes = (0..PROBES).map(|step| (first + step) % ENTRIES);
        let known = probes.clone().find(|at| self.callers[*at].0 == caller);
        let Some(at) = known.or_else(|| probes.find(|at| self.callers[*at].1 + EPOCHS <= self.now))
        else {
            return;
        };
        let last = if known.is_some() { self.callers[at].1 } else { 0 };
        if last + EPOCHS > self.now {
            let count = &mut self.counts[(last % EPOCHS) as usize];
            *count = count.saturating_sub(1);
        }
        self.counts[(self.now % EPOCHS) as usize] += 1;
        self.callers[at] = (caller, self.now);
    }

    /// Number of callers expected soon.
    pub(super) fn expected(&self) -> u32 {
        (0..EXPECTED).map(|back| self.counts[((self.now - back) % EPOCHS) as usize]).sum()
    }
}
