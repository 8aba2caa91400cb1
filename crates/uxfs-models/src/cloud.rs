//! A cloud volume: a latency, and a meter that lets so many requests and bytes through.
//!
//! 1. What is written is replicated before it is done: a flush has nothing to do.
//! 2. Each request costs credit, which is earned at the steady rate. Who has saved some up may go at
//!    the burst rate until it is used up.
//! 3. Latency is spread around its middle by chance, from the seed; a request is never quicker than
//!    half of it.

use serde::Deserialize;
use uxfs_journal::Time;

use crate::rng::Rng;
use crate::{Disk, Done, Ending, Op, Request, Tag, transfer, us};

/// What a cloud volume is made from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudSpec {
    /// Gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Requests a second, always.
    pub iops: f64,
    /// Requests a second while there is credit.
    pub burst_iops: f64,
    /// Requests that can be done on credit; earned at the steady rate while less is used.
    pub credit: f64,
    /// Million bytes a second.
    pub mb_s: f64,
    /// Bytes (in KiB) that count as one request; larger ones count as several.
    pub unit_kib: u32,
    /// Microseconds of a read, in the middle.
    pub read_us: f64,
    /// Microseconds of a write, in the middle.
    pub write_us: f64,
    /// How far latency spreads, as a part of it.
    pub spread: f64,
    /// Microseconds of a flush.
    pub flush_us: f64,
}

/// A cloud volume.
#[derive(Debug)]
pub struct Cloud {
    spec: CloudSpec,
    rng: Rng,
    /// When the meter lets the next request through, at the burst rate.
    meter: u64,
    /// When the next byte may be carried.
    carried: u64,
    credit: f64,
    /// Up to when credit was counted.
    counted: u64,
    ending: Ending,
}

impl Cloud {
    /// A volume with all its credit.
    pub fn new(spec: CloudSpec, seed: u64) -> Self {
        let credit = spec.credit;
        let rng = Rng::new(seed);
        Self { spec, rng, meter: 0, carried: 0, credit, counted: 0, ending: Ending::default() }
    }

    fn latency(&mut self, middle: f64) -> u64 {
        // The sum of three is near enough to a bell, and has an end.
        let bell = (0..3).map(|_| self.rng.unit()).sum::<f64>() / 1.5 - 1.0;
        us((middle * (1.0 + bell * self.spec.spread)).max(middle / 2.0))
    }

    /// When a request that counts as `units` gets through the meter.
    fn through(&mut self, now: u64, units: f64) -> u64 {
        let mut start = self.meter.max(now);
        let earned = (start - self.counted) as f64 / 1e9 * self.spec.iops;
        // Without a credit to keep, at least what is being asked for can be saved up.
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
                return self.ending.add(Time(now.0 + us(self.spec.flush_us)), tag);
            }
            Op::Read => self.spec.read_us,
            Op::Write { .. } => self.spec.write_us,
        };
        let unit = u64::from(self.spec.unit_kib.max(1)) << 10;
        let units = request.len.div_ceil(unit).max(1) as f64;
        let start = self.through(now.0, units);
        self.carried = self.carried.max(start) + transfer(request.len, self.spec.mb_s);
        let end = self.carried.max(start) + self.latency(middle);
        self.ending.add(Time(end), tag);
    }

    fn next_event(&self) -> Option<Time> {
        self.ending.next()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        while let Some(ended) = self.ending.pop(now) {
            done.push(ended);
        }
    }
}
