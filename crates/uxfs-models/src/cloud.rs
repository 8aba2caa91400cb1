//! A cloud volume: a latency, and limits on requests and bytes per second.
//!
//! 1. A write is replicated before it completes, so a flush has nothing to do.
//! 2. Each request costs credit. Credit is earned at the steady rate; while there is credit,
//!    requests are served at the burst rate.
//! 3. Latency varies randomly around its mean, from the seed; it is at least half the mean.

use serde::Deserialize;
use uxfs_journal::Time;
use uxfs_testkit::Rng;

use crate::{Completions, Disk, Done, Op, Request, Tag, transfer, us};

/// Parameters of a cloud volume.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudSpec {
    /// Capacity in gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Steady rate in requests per second.
    pub iops: f64,
    /// Burst rate in requests per second, while there is credit.
    pub burst_iops: f64,
    /// Maximum credit in requests.
    pub credit: f64,
    /// Maximum transfer rate in 10^6 bytes per second.
    pub mb_s: f64,
    /// Maximum size in KiB of one unit; a larger request costs several units.
    pub unit_kib: u32,
    /// Mean time of a read in microseconds.
    pub read_us: f64,
    /// Mean time of a write in microseconds.
    pub write_us: f64,
    /// Spread of the latency, as a fraction of the mean.
    pub spread: f64,
    /// Time of a flush in microseconds.
    pub flush_us: f64,
}

#[derive(Debug)]
pub struct Cloud {
    spec: CloudSpec,
    rng: Rng,
    /// Time at which the limit admits the next request, at the burst rate.
    meter: u64,
    /// Time at which the next byte can be transferred.
    carried: u64,
    credit: f64,
    /// Time up to which earned credit is included.
    counted: u64,
    completions: Completions,
}

impl Cloud {
    /// A volume with full credit.
    pub fn new(spec: CloudSpec, seed: u64) -> Self {
        let credit = spec.credit;
        let rng = Rng::new(seed);
        Self {
            spec,
            rng,
            meter: 0,
            carried: 0,
            credit,
            counted: 0,
            completions: Completions::default(),
        }
    }

    fn latency(&mut self, middle: f64) -> u64 {
        // The sum of three uniform numbers approximates a normal distribution and is bounded.
        let bell = (0..3).map(|_| self.rng.unit()).sum::<f64>() / 1.5 - 1.0;
        us((middle * (1.0 + bell * self.spec.spread)).max(middle / 2.0))
    }

    /// The time at which the limit admits a request of `units`.
    fn through(&mut self, now: u64, units: f64) -> u64 {
        let mut start = self.meter.max(now);
        let earned = (start - self.counted) as f64 / 1e9 * self.spec.iops;
        // A request may cost more than the maximum credit; then it saves up its own cost.
        self.credit = (self.credit + earned).min(self.spec.credit.max(units));
        if self.credit < units {
            start += us((units - self.credit) / self.spec.iops * 1e6);
            self.credit = units;
        }
        self.credit -= units;
        self.counted = start;
        self.meter = start + us(units / self.spec.burst_iops * 1e6);
        start
    }
}

impl Disk for Cloud {
    fn capacity(&self) -> u64 {
        (self.spec.capacity_gb * 1e9) as u64
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        let middle = match request.op {
            Op::Flush => {
                return self.completions.add(Time(now.0 + us(self.spec.flush_us)), tag);
            }
            Op::Read => self.spec.read_us,
            Op::Write { .. } => self.spec.write_us,
        };
        let unit = u64::from(self.spec.unit_kib.max(1)) << 10;
        let units = request.len.div_ceil(unit).max(1) as f64;
        let start = self.through(now.0, units);
        self.carried = self.carried.max(start) + transfer(request.len, self.spec.mb_s);
        let end = self.carried.max(start) + self.latency(middle);
        self.completions.add(Time(end), tag);
    }

    fn next_event(&self) -> Option<Time> {
        self.completions.next()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some(ended) = self.completions.pop(now) {
            done.push(ended);
        }
    }
}
