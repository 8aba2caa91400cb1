//! Counters of the engine.
//!
//! 1. A counter only increases while the volume is open. Each counter is exact, but a set of counters
//!    read during other activity is not a snapshot of one moment.
//! 2. Counting is a relaxed atomic addition and never blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a histogram. The last one also counts all longer times.
const BUCKETS: usize = 32;

/// A counter that only increases.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Durations, counted in powers of two of a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket `i` counts durations from 2^(i-1) up to, but not including, 2^i microseconds. The
    /// first bucket counts all below one microsecond, the last all from 2^30 on.
    pub buckets: [u64; BUCKETS],
    /// Sum of all durations in nanoseconds.
    pub total_ns: u64,
}

impl Histogram {
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Mean in nanoseconds; 0 if nothing was counted.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// The time in microseconds below which at least `percent` of the durations lie: a power of
    /// two, or 0 if nothing was counted.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let wanted = u128::from(self.count()) * u128::from(percent.min(100));
        let mut seen = 0u128;
        for (power, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count) * 100;
            if seen > 0 && seen >= wanted {
                return 1 << power;
            }
        }
        0
    }
}

#[derive(Default)]
pub(crate) struct Times {
    buckets: [Count; BUCKETS],
    total_ns: Count,
}

impl Times {
    pub(crate) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let power = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[power.min(BUCKETS - 1)].one();
        self.total_ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn read(&self) -> Histogram {
        let buckets = core::array::from_fn(|at| self.buckets[at].get());
        Histogram { buckets, total_ns: self.total_ns.get() }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the engine since the volume was opened. Counters that XFS has too have its
        /// names (`/proc/fs/xfs/stat`).
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// How long threads slept in a log force.
            pub force_wait: Histogram,
            /// Duration of device flushes.
            pub flush_time: Histogram,
            /// How long epochs of ordered mode kept writers out.
            pub freeze_time: Histogram,
        }

        /// The counters.
        #[derive(Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: Count,)*
            pub(crate) force_wait: Times,
            pub(crate) flush_time: Times,
            pub(crate) freeze_time: Times,
        }

        impl Counts {
            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.get(),)*
                    force_wait: self.force_wait.read(),
                    flush_time: self.flush_time.read(),
                    freeze_time: self.freeze_time.read(),
                }
            }
        }

        impl Stats {
            /// Returns every counter with its name, in the order of declaration.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

impl Counts {
    /// Counts a finished transaction.
    pub(crate) fn transaction(&self, empty: bool, sync: bool) {
        match (empty, sync) {
            (true, _) => self.trans_empty.one(),
            (false, true) => self.trans_sync.one(),
            (false, false) => self.trans_async.one(),
        }
    }
}

counters! {
    /// Writes to the log.
    log_writes,
    /// Blocks of 512 bytes written to the log.
    log_blocks,
    /// Bytes written to the log.
    log_bytes,
    /// How often no log buffer was free when one was needed.
    log_noiclogs,
    /// Log forces requested.
    log_force,
    /// Log forces that had to sleep.
    log_force_sleep,
    /// Calls of fsync whose commit was deferred until a flush had covered their data, so that it delayed no
    /// caller without new data.
    commits_deferred,
    /// Log transactions written: checkpoints, or single transactions if each is logged on its own.
    checkpoints,
    /// Log items written.
    items,
    /// Of these, items that were already in the log and not yet written in place.
    items_relogged,
    /// Bytes of the regions of these relogged items.
    bytes_relogged,
    /// Log reservations requested.
    try_logspace,
    /// Log reservations that had to wait for space.
    sleep_logspace,
    /// Transactions that used more log space than they had reserved.
    logspace_overruns,
    /// AIL pushes.
    push_ail,
    /// Items that AIL pushes wrote in place.
    push_ail_success,
    /// Items that an AIL push could not write, because a change to them was not durable yet or a
    /// transaction had locked them.
    push_ail_pinned,
    /// How often the log tail moved.
    tail_pushes,
    /// Writes of metadata in place.
    metadata_writes,
    /// Bytes of metadata written in place.
    metadata_bytes,
    /// Writes of file data and of remote attribute values.
    data_writes,
    /// Bytes of file data and remote attribute values written.
    data_bytes,
    /// Device flushes.
    flushes,
    /// Flushes left out because barriers are off.
    flushes_left_out,
    /// FUA writes.
    fua_writes,
    /// Transactions that were durable before their call returned.
    trans_sync,
    /// Transactions that were not durable when their call returned.
    trans_async,
    /// Transactions that changed nothing.
    trans_empty,
    /// Dummy transactions written to cover an idle log.
    covers,
    /// Epochs cut in ordered mode.
    epochs,
    /// Runs of dirty blocks that they wrote.
    epoch_runs,
    /// Runs of extents that were moved into one.
    defrag_runs,
    /// Extents that this saved.
    defrag_extents,
    /// Bytes of the files' ranges that were moved.
    defrag_bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_powers_of_two() {
        let times = Times::default();
        for micros in [0, 1, 2, 3, 4, 1000, 1 << 40] {
            times.add(Duration::from_micros(micros));
        }
        let read = times.read();
        assert_eq!(read.buckets[..4], [1, 1, 2, 1]);
        assert_eq!((read.buckets[10], read.buckets[31]), (1, 1));
        assert_eq!((read.count(), read.percentile_us(50)), (7, 4));
        assert_eq!((read.percentile_us(0), Histogram::default().percentile_us(99)), (1, 0));
    }

    #[test]
    fn counters_have_names() {
        let counts = Counts::default();
        counts.log_writes.add(3);
        let stats = counts.read();
        assert_eq!(stats.counters()[0], ("log_writes", 3));
    }
}
