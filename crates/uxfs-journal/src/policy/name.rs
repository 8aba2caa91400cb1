//! The names of policies, as `fsync_policy=` takes them.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::auto::Auto;
use super::contract::Policy;
use super::fixed::Fixed;

/// A fsync policy, as chosen with `fsync_policy=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FsyncPolicy {
    /// One that does not adapt to the disk (`own`, `journal`, `average`, `fixed:US`, `greedy`,
    /// `gather`, `gather:EIGHTHS`, `overlap:N`).
    Fixed(Fixed),
    /// One that measures the disk and its callers, and waits while that pays (`auto`).
    #[default]
    Auto,
}

impl FsyncPolicy {
    /// The policy, before any event.
    pub fn start(self) -> Box<dyn Policy> {
        match self {
            Self::Fixed(fixed) => Box::new(fixed.start()),
            Self::Auto => Box::new(Auto::default()),
        }
    }
}

/// The error for a word that names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

/// The names of all policies, as the error message lists them.
pub const FSYNC_POLICIES: &str = "fsync_policy= takes own, journal, average, fixed:US (microseconds, 1 \
    to 1000000), greedy, gather, gather:EIGHTHS (of a flush, 1 to 64), overlap:N (flushes at once, 1 to \
    64) or auto";

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FSYNC_POLICIES)
    }
}

impl std::error::Error for UnknownPolicy {}

impl fmt::Display for FsyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Fixed(fixed) = self else { return f.write_str("auto") };
        match fixed {
            Fixed::Own => f.write_str("own"),
            Fixed::Journal => f.write_str("journal"),
            Fixed::Average => f.write_str("average"),
            Fixed::Wait(span) => write!(f, "fixed:{}", span.as_micros()),
            Fixed::Greedy => f.write_str("greedy"),
            Fixed::Gather(8) => f.write_str("gather"),
            Fixed::Gather(eighths) => write!(f, "gather:{eighths}"),
            Fixed::Overlap(most) => write!(f, "overlap:{most}"),
        }
    }
}

impl FromStr for FsyncPolicy {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, UnknownPolicy> {
        let (name, value) = match word.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let number = |most: u32| {
            let digits = value.filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
            let number = digits.and_then(|v| v.parse::<u32>().ok());
            number.filter(|n| (1..=most).contains(n)).ok_or(UnknownPolicy)
        };
        Ok(match (name, value) {
            ("auto", None) => Self::Auto,
            ("own", None) => Self::Fixed(Fixed::Own),
            ("journal", None) => Self::Fixed(Fixed::Journal),
            ("average", None) => Self::Fixed(Fixed::Average),
            ("greedy", None) => Self::Fixed(Fixed::Greedy),
            ("gather", None) => Self::Fixed(Fixed::Gather(8)),
            ("gather", Some(_)) => Self::Fixed(Fixed::Gather(number(64)?)),
            ("overlap", Some(_)) => Self::Fixed(Fixed::Overlap(number(64)?)),
            ("fixed", Some(_)) => {
                Self::Fixed(Fixed::Wait(Duration::from_micros(number(1_000_000)?.into())))
            }
            _ => return Err(UnknownPolicy),
        })
    }
}
