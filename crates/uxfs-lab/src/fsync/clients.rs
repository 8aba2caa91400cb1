//! Callers who write, want it durable, think, and write again.

use super::rng::Rng;

/// How long a caller thinks between two fsyncs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// Around a mean, a tenth of it more or less.
    Even,
    /// As chance has it: exponential around the mean.
    Random,
    /// Every second caller a tenth of the mean, the others nearly twice it; each around that, a tenth
    /// more or less.
    Two,
}

/// A load: callers, and how they think.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How many there are.
    pub callers: u32,
    /// Nanoseconds that they think, in the mean.
    pub think: f64,
    /// How that is spread.
    pub spread: Think,
}

impl Load {
    /// How long caller `caller` thinks this time.
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
