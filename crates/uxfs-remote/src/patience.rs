//! How often, and how long apart, a request to a store or a whole checkpoint is tried again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When to try again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How often at most, the first time included.
    pub tries: u32,
    /// The pause after the first try. Each later one is twice as long.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Patience {
    /// Fifteen tries, with pauses of 13 to 25 seconds in all. Most requests that fail succeed when they are tried again at once.
    fn default() -> Self {
        Self { tries: 15, first: Duration::from_millis(5), longest: Duration::from_secs(5) }
    }
}

/// Can the same request succeed later?
pub(crate) fn may_pass(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::Unsupported
    )
}

impl Patience {
    /// No pauses, for tests.
    pub fn without_pauses(tries: u32) -> Self {
        Self { tries, first: Duration::ZERO, longest: Duration::ZERO }
    }

    /// Runs `request` until it succeeds, fails for good, or was tried often enough. Counts what was tried
    /// again.
    pub(crate) fn run<T>(
        &self,
        again: &AtomicU64,
        mut request: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut pause = self.first;
        for _ in 1..self.tries {
            match request() {
                Err(error) if may_pass(&error) => {}
                done => return done,
            }
            again.fetch_add(1, Ordering::Relaxed);
            sleep(pause);
            pause = (2 * pause).min(self.longest);
        }
        request()
    }
}

/// The pause before a checkpoint is tried again, after so many failures in a row before the last
/// one.
pub(crate) fn between_checkpoints(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(60);
    FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST)
}

/// Sleeps for half of the pause to all of it, so that many clients of a store do not come back at once.
fn sleep(pause: Duration) {
    if pause.is_zero() {
        return;
    }
    // Without random numbers all pauses are whole.
    let share = getrandom::u32().unwrap_or(u32::MAX);
    let half = pause / 2;
    std::thread::sleep(half + half.mul_f64(f64::from(share) / f64::from(u32::MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_checkpoints_grow_from_two_seconds_to_a_minute() {
        let pauses: Vec<u64> = (0..7).map(|count| between_checkpoints(count).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(between_checkpoints(u32::MAX).as_secs(), 60);
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let count = AtomicU64::new(0);
        let patience = Patience::without_pauses(4);
        let mut left = 3;
        let passes = patience.run(&count, || {
            left -= 1;
            if left == 0 { Ok(7) } else { Err(io::Error::other("503")) }
        });
        assert_eq!((passes.unwrap(), count.load(Ordering::Relaxed)), (7, 2));
        let mut tried = 0;
        let denied = patience.run::<()>(&count, || {
            tried += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert!(denied.is_err() && tried == 1);
        let mut tried = 0;
        let down = patience.run::<()>(&count, || {
            tried += 1;
            Err(io::Error::other("503"))
        });
        assert!(down.is_err() && tried == 4);
    }
}
