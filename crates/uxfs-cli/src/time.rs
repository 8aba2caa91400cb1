//! Parses and formats times as coreutils do, in the local time zone.

use std::io;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp as Moment, Zoned};
use uxfs::format::timestamp::Timestamp;

/// The time styles of `ls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `Nov 21 08:45`, or with the year instead of the time if not within the last half year.
    Locale,
    /// `2026-11-21 08:45:28.123456789 +0000`.
    FullIso,
    /// `2026-11-21 08:45`.
    LongIso,
    /// `11-21 08:45`, or only the date if not within the last half year.
    Iso,
    /// A format of `date +FORMAT`; a second format, after a newline, applies to recent times.
    Format(String, Option<String>),
}

/// Half a Gregorian year of 365.2425 days.
const HALF_YEAR: i64 = 31_556_952 / 2;

impl Style {
    /// Parses an argument of `--time-style`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("posix-").unwrap_or(text);
        match name {
            "locale" => Ok(Self::Locale),
            "full-iso" => Ok(Self::FullIso),
            "long-iso" => Ok(Self::LongIso),
            "iso" => Ok(Self::Iso),
            _ => match name.strip_prefix('+') {
                Some(format) => {
                    let (old, recent) = match format.split_once('\n') {
                        Some((old, recent)) => (old.to_owned(), Some(recent.to_owned())),
                        None => (format.to_owned(), None),
                    };
                    Ok(Self::Format(old, recent))
                }
                None => Err(format!("{text}: not one of full-iso, long-iso, iso, locale, +FORMAT")),
            },
        }
    }

    /// Formats the time in this style, relative to `now`.
    pub(crate) fn show(&self, time: Timestamp, now: Timestamp) -> String {
        let recent = now >= time && now.sec.saturating_sub(time.sec) < HALF_YEAR;
        match self {
            Self::FullIso => full(time),
            Self::LongIso => format(time, "%Y-%m-%d %H:%M"),
            Self::Iso if recent => format(time, "%m-%d %H:%M"),
            Self::Iso => format(time, "%Y-%m-%d "),
            Self::Locale if recent => format(time, "%b %e %H:%M"),
            Self::Locale => format(time, "%b %e  %Y"),
            Self::Format(_, Some(second)) if recent => format(time, second),
            Self::Format(first, _) => format(time, first),
        }
    }
}

fn zone() -> TimeZone {
    static ZONE: std::sync::OnceLock<TimeZone> = std::sync::OnceLock::new();
    ZONE.get_or_init(TimeZone::system).clone()
}

fn local(time: Timestamp) -> Option<Zoned> {
    let nanos = i32::try_from(time.nsec).ok()?;
    let moment = Moment::from_second(time.sec).ok()?;
    let moment = moment.checked_add(jiff::SignedDuration::new(0, nanos)).ok()?;
    Some(moment.to_zoned(zone()))
}

/// The time in `stat`'s format: `2026-11-21 08:45:28.123456789 +0000`.
pub(crate) fn full(time: Timestamp) -> String {
    format(time, "%Y-%m-%d %H:%M:%S.%N %z")
}

/// The time in a format of `date`; seconds since 1970 if the time is outside the calendar's range.
pub(crate) fn format(time: Timestamp, format: &str) -> String {
    let Some(zoned) = local(time) else { return seconds(time, 9) };
    // jiff's %N omits trailing zeroes.
    let format = format.replace("%N", &format!("{:09}", time.nsec));
    jiff::fmt::strtime::format(&format, &zoned).unwrap_or_else(|_| seconds(time, 9))
}

/// Seconds since 1970 with this many digits after the point; without a point for 0 digits.
pub(crate) fn seconds(time: Timestamp, digits: usize) -> String {
    if digits == 0 {
        return time.sec.to_string();
    }
    // A timestamp's fraction counts forward, also before 1970.
    let (sign, sec, nsec) = match time.sec < 0 && time.nsec > 0 {
        true => ("-", (time.sec + 1).unsigned_abs(), 1_000_000_000 - time.nsec),
        false if time.sec < 0 => ("-", time.sec.unsigned_abs(), 0),
        false => ("", time.sec.unsigned_abs(), time.nsec),
    };
    let fraction = format!("{nsec:09}0000000000");
    format!("{sign}{sec}.{}", &fraction[..digits.min(fraction.len())])
}

/// Parses a user's date: an ISO 8601 date with optional time and zone, or `@` and seconds since 1970.
/// Without a zone the date is in local time.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds);
    }
    if let Ok(moment) = text.parse::<Moment>() {
        return Some(timestamp(moment));
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok().or_else(|| {
        let date = text.parse::<jiff::civil::Date>().ok()?;
        Some(date.to_datetime(jiff::civil::Time::midnight()))
    })?;
    Some(timestamp(civil.to_zoned(zone()).ok()?.timestamp()))
}

/// Parses a date of `touch -t`: `[[CC]YY]MMDDhhmm[.ss]`, in local time.
pub(crate) fn parse_stamp(text: &str) -> Option<Timestamp> {
    let (digits, second) = match text.split_once('.') {
        Some((digits, second)) if second.len() == 2 => (digits, second.parse().ok()?),
        Some(_) => return None,
        None => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let split = digits.len().checked_sub(8)?;
    let (year, rest) = digits.split_at(split);
    let year: i16 = match (year.len(), year.parse::<i16>()) {
        (0, _) => local(uxfs::clock::Clock::Real.now())?.year(),
        (2, Ok(year)) => year + if year < 69 { 2000 } else { 1900 },
        (4, Ok(year)) => year,
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i8>().ok();
    let (month, day, hour, minute) = (part(0)?, part(2)?, part(4)?, part(6)?);
    let civil = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(timestamp(civil.to_zoned(zone()).ok()?.timestamp()))
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let sec: i64 = whole.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nsec: u32 = format!("{fraction:0<9}").parse().ok()?;
    // Before 1970 the written fraction counts backward, and a timestamp's fraction counts forward.
    Some(match whole.starts_with('-') && nsec > 0 {
        true => Timestamp { sec: sec.checked_sub(1)?, nsec: 1_000_000_000 - nsec },
        false => Timestamp { sec, nsec },
    })
}

fn timestamp(moment: Moment) -> Timestamp {
    let (sec, nsec) = (moment.as_second(), moment.subsec_nanosecond());
    match u32::try_from(nsec) {
        Ok(nsec) => Timestamp { sec, nsec },
        // Before 1970 jiff's seconds and fraction are both negative.
        Err(_) => Timestamp { sec: sec - 1, nsec: 1_000_000_000 - nsec.unsigned_abs() },
    }
}

/// Access, modification and change time of a file of the host.
pub(crate) fn of_host_file(path: &Path, follow: bool) -> io::Result<[Timestamp; 3]> {
    let meta = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) }?;
    let stat = uxfs_host::Stat::of(&meta);
    let time = |(sec, nsec)| Timestamp { sec, nsec };
    Ok([time(stat.atime), time(stat.mtime), time(stat.ctime.unwrap_or(stat.mtime))])
}

/// The value of the variable `SOURCE_DATE_EPOCH`, in seconds since 1970; see
/// <https://reproducible-builds.org/specs/source-date-epoch/>. Empty means not set.
pub(crate) fn source_date_epoch() -> Result<Option<i64>, String> {
    match std::env::var_os("SOURCE_DATE_EPOCH") {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
            Some(sec) => Ok(Some(sec)),
            None => Err("SOURCE_DATE_EPOCH is not a number of seconds since 1970".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_before_and_after_the_epoch() {
        let at = |sec, nsec, digits| seconds(Timestamp { sec, nsec }, digits);
        assert_eq!(at(12, 5, 9), "12.000000005");
        assert_eq!(at(12, 5, 10), "12.0000000050");
        assert_eq!(at(-1, 500_000_000, 9), "-0.500000000");
        assert_eq!(at(-2, 0, 2), "-2.00");
        assert_eq!(at(-2, 7, 0), "-2");
    }

    #[test]
    fn dates_of_users_parse() {
        let at = |text| parse(text).map(|time| (time.sec, time.nsec));
        assert_eq!(at("@12.5"), Some((12, 500_000_000)));
        assert_eq!(at("@-1.25"), Some((-2, 750_000_000)));
        assert_eq!(at("1970-01-01T00:00:10Z"), Some((10, 0)));
        assert_eq!(at("1969-12-31T23:59:59.5Z"), Some((-1, 500_000_000)));
        assert_eq!(at("2026-11-23T14:05:06+01:00"), Some((1_795_439_106, 0)));
        assert!(at("2026-11-23").is_some() && at("2026-11-23 14:05").is_some());
        assert_eq!((at("2026-13-01"), at("@"), at("@1.x"), at("")), (None, None, None, None));
        assert_eq!(parse_stamp("202611231405.30").map(|t| t.sec % 60), Some(30));
        assert!(parse_stamp("11231405").is_some() && parse_stamp("2611231405").is_some());
        let bad = ["1123140", "20261123140561", "1123140x", "13231405", ""];
        assert!(bad.iter().all(|text| parse_stamp(text).is_none()));
    }

    /// Found by fuzzing.
    #[test]
    fn extreme_times_do_not_overflow() {
        let now = Timestamp { sec: 1_700_000_000, nsec: 0 };
        for sec in [i64::MIN, i64::MAX] {
            let far = Timestamp { sec, nsec: 0 };
            assert!(Style::Locale.show(far, now).contains(&sec.to_string()));
        }
    }
}
