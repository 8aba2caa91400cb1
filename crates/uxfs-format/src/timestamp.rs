//! Inode timestamps in their two encodings.

/// A moment: seconds since 1970 and nanoseconds below a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch, negative before it.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

const NSEC_PER_SEC: u64 = 1_000_000_000;
const BIGTIME_EPOCH: i64 = 1 << 31;

/// The last second a bigtime timestamp can hold (in the year 2486).
pub const BIGTIME_MAX_SEC: i64 = (u64::MAX / NSEC_PER_SEC) as i64 - BIGTIME_EPOCH;

impl Timestamp {
    /// From the 64-bit nanosecond form.
    pub fn from_bigtime(raw: u64) -> Self {
        Self { sec: (raw / NSEC_PER_SEC) as i64 - BIGTIME_EPOCH, nsec: (raw % NSEC_PER_SEC) as u32 }
    }

    /// To the 64-bit nanosecond form; a moment outside its range becomes the nearest in it.
    pub fn to_bigtime(self) -> u64 {
        let sec = self.sec.clamp(-BIGTIME_EPOCH, BIGTIME_MAX_SEC);
        // The last second of the range has fewer than 10^9 nanoseconds.
        ((sec + BIGTIME_EPOCH) as u64 * NSEC_PER_SEC).saturating_add(self.nsec.into())
    }

    /// From the legacy form: signed 32-bit seconds, then nanoseconds.
    pub fn from_legacy(raw: u64) -> Self {
        // The on-disk value may be any number.
        let nsec = (raw as u32).min(NSEC_PER_SEC as u32 - 1);
        Self { sec: i64::from((raw >> 32) as u32 as i32), nsec }
    }

    /// To the legacy form; a moment outside its range becomes the nearest in it.
    pub fn to_legacy(self) -> u64 {
        let sec = self.sec.clamp(i32::MIN.into(), i32::MAX.into());
        u64::from(sec as i32 as u32) << 32 | u64::from(self.nsec)
    }

    /// The nearest moment that an inode can hold, in the 64-bit form if `bigtime` is set.
    #[must_use]
    pub fn nearest(self, bigtime: bool) -> Self {
        let (first, last) = match bigtime {
            true => (-BIGTIME_EPOCH, BIGTIME_MAX_SEC),
            false => (i32::MIN.into(), i32::MAX.into()),
        };
        let sec = self.sec.clamp(first, last);
        let nsec = match bigtime && sec == last {
            true => self.nsec.min((u64::MAX % NSEC_PER_SEC) as u32),
            false => self.nsec,
        };
        Self { sec, nsec }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bigtime_epoch_and_start() {
        assert_eq!(Timestamp::from_bigtime(0x1dcd_6500_0000_0000), Timestamp::default());
        assert_eq!(Timestamp::from_bigtime(0).sec, -(1 << 31));
        let t = Timestamp { sec: 7_258_118_400, nsec: 123_456_789 };
        assert_eq!(Timestamp::from_bigtime(t.to_bigtime()), t);
    }

    /// Found by fuzzing: an inode with the latest possible timestamp was read one second too early.
    #[test]
    fn bigtime_keeps_its_last_second() {
        for raw in [u64::MAX, u64::MAX - 5, u64::MAX - 709_551_615, 0] {
            assert_eq!(Timestamp::from_bigtime(raw).to_bigtime(), raw);
        }
        let beyond = Timestamp { sec: i64::MAX, nsec: 999_999_999 };
        assert_eq!(beyond.to_bigtime(), u64::MAX);
    }

    #[test]
    fn nearest_is_what_comes_back() {
        let seconds =
            [0, -5, 1 << 40, i64::MAX, i64::MIN, BIGTIME_MAX_SEC, 1 << 31, -(1 << 31) - 1];
        for sec in seconds {
            for nsec in [0, 1, 709_551_615, 709_551_616, 999_999_999] {
                let t = Timestamp { sec, nsec };
                assert_eq!(t.nearest(true), Timestamp::from_bigtime(t.to_bigtime()));
                assert_eq!(t.nearest(false), Timestamp::from_legacy(t.to_legacy()));
            }
        }
    }

    #[test]
    fn legacy_keeps_negative_seconds() {
        let t = Timestamp { sec: -5, nsec: 7 };
        assert_eq!(Timestamp::from_legacy(t.to_legacy()), t);
        assert_eq!(Timestamp::from_legacy(u64::MAX), Timestamp { sec: -1, nsec: 999_999_999 });
        assert_eq!(Timestamp { sec: 1 << 40, nsec: 0 }.to_legacy() >> 32, 0x7fff_ffff);
    }
}
