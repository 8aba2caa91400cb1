//! Positions in the log.

use core::fmt;
use core::ops::{Add, Sub};

/// A position in the log: bytes since the log was made. Positions never wrap or decrease; divided by
/// the length of the log, the quotient is the cycle and the remainder the offset in the log.
/// [`crate::LogGeometry`] converts positions to LSNs and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPos(pub u64);

impl LogPos {
    /// Beyond every position.
    pub const MAX: Self = Self(u64::MAX);
}

impl Add<u64> for LogPos {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl Sub for LogPos {
    type Output = u64;

    /// The bytes from `earlier` to `self`.
    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
