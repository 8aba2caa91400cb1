//! Counters of the engine.
//!
//! 1. A counter only increases while the volume is open. Each counter is exact, but a set of counters
//!    read during other activity is not a snapshot of one moment.
//! 2. Counting is a relaxed atomic addition and never blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a histogram: the last takes all that is longer.
const BUCKETS: usize = 32;

/// A number that goes up.
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

/// How long something took, counted in powers of two of a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many took less than 2^i microseconds and not less than half of that; the first counts
    /// all under a microsecond, the last all from 2^30 on.
    pub buckets: [u64; BUCKETS],
    /// Sum of all, in nanoseconds.
    pub total_ns: u64,
}

impl Histogram {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Average in nanoseconds; 0 if there were none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// Microseconds under which at least `percent` of a hundred stayed: a power of two, 0 if there
    /// were none.
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
        /// What the engine did since the volume was opened. Names are those of XFS
        /// (`/proc/fs/xfs/stat`) where it counts the same.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// How long threads slept until what they asked for was durable.
            pub force_wait: Histogram,
            /// How long flushes of the device took.
            pub flush_time: Histogram,
        }

        /// The counters.
        #[derive(Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: Count,)*
            pub(crate) force_wait: Times,
            pub(crate) flush_time: Times,
        }

        impl Counts {
            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.get(),)*
                    force_wait: self.force_wait.read(),
                    flush_time: self.flush_time.read(),
                }
            }
        }

        impl Stats {
            /// Every counter with its name, in the order of their declaration.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

impl Counts {
    /// A transaction ended.
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
    /// How often a log buffer was wanted and none was free.
    log_noiclogs,
    /// How often somebody asked for durability.
    log_force,
    /// How often somebody who did slept for it.
    log_force_sleep,
    /// Transactions of the log: checkpoints that were written, or single transactions where each is
    /// logged by itself.
    checkpoints,
    /// Objects written to the log.
    items,
    /// Objects among them that were in the log already and not home.
    items_relogged,
    /// Bytes of regions of such objects.
    bytes_relogged,
    /// How often space of the log was asked for.
    try_logspace,
    /// How often there was too little, and somebody waited for it.
    sleep_logspace,
    /// How often a transaction took more space of the log than it had asked for.
    logspace_overruns,
    /// Passes of sending objects home.
    push_ail,
    /// Objects that came home.
    push_ail_success,
    /// Objects that could not go home because something about them was not durable yet, or because
    /// a transaction had them.
    push_ail_pinned,
    /// How often the log's tail moved on.
    tail_pushes,
    /// Writes of metadata in place.
    metadata_writes,
    /// Bytes of metadata written in place.
    metadata_bytes,
    /// Writes of file data and of remote attribute values.
    data_writes,
    /// Bytes of them.
    data_bytes,
    /// Flushes of the device.
    flushes,
    /// Flushes that were left out because barriers are off.
    flushes_left_out,
    /// Writes that were durable when they returned.
    fua_writes,
    /// Transactions that were durable before their call returned.
    trans_sync,
    /// Transactions that were not.
    trans_async,
    /// Transactions that changed nothing.
    trans_empty,
    /// Dummy transactions written to cover an idle log.
    covers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_powers_of_two() {
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
