//! The only source of time and random numbers: timestamps of operations and generation numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use uxfs_format::timestamp::Timestamp;
use uxfs_sync as sync;

/// The source of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Real,
    /// Always this time, for reproducible images.
    Fixed(Timestamp),
}

impl Clock {
    /// Returns the present time.
    pub fn now(self) -> Timestamp {
        match self {
            Self::Fixed(moment) => moment,
            // A simulation has its own time.
            Self::Real => match sync::current() {
                Some(scheduler) => {
                    let (date, now) = (scheduler.date(), scheduler.now().0);
                    let nsec = u32::try_from(now % 1_000_000_000).unwrap_or(0);
                    let sec = i64::try_from(now / 1_000_000_000).unwrap_or(0);
                    Timestamp { sec: date + sec, nsec }
                }
                None => machine(),
            },
        }
    }
}

fn machine() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(_) => Timestamp::default(),
    }
}

/// Pseudo-random numbers from a seed (splitmix64), which is sufficient for inode generations.
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u32 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u32
    }
}
