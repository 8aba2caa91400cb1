//! The traffic to a device, and what a crash would cost.

use core::ops::Sub;

/// Writes and flushes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Writes of the log; 0 if they are not known.
    pub log_writes: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Flushes of the device's cache.
    pub flushes: u64,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            writes: self.writes.saturating_sub(before.writes),
            bytes: self.bytes.saturating_sub(before.bytes),
            log_writes: self.log_writes.saturating_sub(before.log_writes),
            log_bytes: self.log_bytes.saturating_sub(before.log_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

/// The durability of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each step is on stable storage when it returns.
    Each,
    /// Steps are on stable storage after this many seconds.
    Within(u32),
    /// Steps are never durable.
    Nothing,
    /// Steps are in files of the host, whose traffic is not counted.
    Host,
    /// There are no steps.
    NoSteps,
}

/// What a crash after `steps` steps would cost, in words. `during` is the traffic while they ran,
/// `all` includes a sync afterwards.
pub fn crash_cost(durability: Durability, steps: u64, during: Traffic, all: Traffic) -> String {
    match durability {
        Durability::Each if during.flushes > 0 => {
            let each = steps as f64 / during.flushes as f64;
            format!("nothing that had returned ({each:.1} files a flush)")
        }
        Durability::Each => "everything: nothing was flushed".into(),
        Durability::Nothing => "everything: no storage behind it".into(),
        Durability::Host => "what the host's file system has not written".into(),
        Durability::NoSteps => "nothing: no file was made".into(),
        Durability::Within(seconds) => {
            let logged = during.log_bytes as f64 / all.log_bytes.max(1) as f64;
            let left = (steps as f64 * (1.0 - logged.min(1.0))).round();
            let percent = 100.0 * left / steps.max(1) as f64;
            let flushed = match during.flushes {
                0 if during.log_bytes > 0 => "; what is logged is not flushed either",
                _ => "",
            };
            format!("the last {left:.0} ({percent:.0} %), of at most {seconds} s{flushed}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crash_cost_follows_from_the_flushes() {
        let at = |log_bytes, flushes| Traffic { log_bytes, flushes, ..Traffic::default() };
        let each = crash_cost(Durability::Each, 100, at(10, 50), at(10, 50));
        assert!(each.starts_with("nothing") && each.contains("2.0 files"));
        assert!(crash_cost(Durability::Each, 100, at(10, 0), at(10, 1)).starts_with("everything"));
        let some = crash_cost(Durability::Within(30), 1000, at(75, 3), at(100, 4));
        assert_eq!(some, "the last 250 (25 %), of at most 30 s");
        assert!(
            crash_cost(Durability::Within(30), 1000, at(75, 0), at(100, 1)).contains("not flushed")
        );
    }
}
