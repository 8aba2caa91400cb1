//! Callers that write, call fsync, think, and write again.

use uxfs_testkit::Rng;

/// The distribution of think times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// The mean, plus or minus a tenth.
    Even,
    /// Exponential around the mean.
    Random,
    /// Every second caller a tenth of the mean, the others nearly twice the mean; each plus or
    /// minus a tenth.
    Two,
}

/// A load: the callers and their think times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of callers.
    pub callers: u32,
    /// Mean think time in nanoseconds.
    pub think: f64,
    /// Its distribution.
    pub spread: Think,
}

impl Load {
    /// The next think time of `caller`.
    pub(super) fn think(&self, caller: u32, rng: &mut Rng) -> u64 {
        let part = match self.spread {
            Think::Even => 0.9 + 0.2 * rng.unit(),
            Think::Random => -(1.0 - rng.unit()).ln(),
            Think::Two if caller.is_multiple_of(2) => 0.1 * (0.9 + 0.2 * rng.unit()),
            Think::Two => 1.9 * (0.9 + 0.2 * rng.unit()),
        };
        (self.think * part) as u64
    }
}
