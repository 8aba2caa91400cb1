//! A flash drive: dies that work in parallel behind one interface, with a cache.
//!
//! 1. The die that holds a page reads it, so reads from one die wait for each other.
//! 2. The die that is free first programs a page, because flash is written like a log.
//! 3. A write completes when it is in the cache. It occupies cache space until it is programmed.
//! 4. With power-loss protection the cache is durable, so a flush has nothing to do. Without it, a
//!    flush waits for all programs, and then for the drive to write its own tables.
//!
//! Garbage collection is not modelled. Sustained writes to a full drive are slower in reality.

use std::collections::VecDeque;

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Completions, Disk, Done, Op, Request, Tag, transfer, us};

/// Size of a page in bytes.
const PAGE: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Capacity in gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Number of dies that work in parallel.
    pub dies: u32,
    /// Time in microseconds in which a die reads a page of 4 KiB.
    pub read_us: f64,
    /// Time in microseconds in which a die programs a page.
    pub program_us: f64,
    /// Transfer rate to the host in 10^6 bytes per second.
    pub read_mb_s: f64,
    /// Transfer rate from the host in 10^6 bytes per second.
    pub write_mb_s: f64,
    /// Time in microseconds of each command that overlaps with other commands.
    pub command_us: f64,
    /// Time in microseconds of each command that does not overlap; limits commands per second.
    pub issue_us: f64,
    /// Maximum number of commands in progress; further ones wait.
    pub queue: u32,
    /// Size of the write cache in MiB; 0 for none.
    pub cache_mib: f64,
    /// Is the cache protected against power loss?
    pub protected: bool,
    /// Time in microseconds of a flush, in addition to the programs that it waits for.
    pub flush_us: f64,
}

#[derive(Debug)]
pub struct Flash {
    spec: FlashSpec,
    dies: Vec<u64>,
    /// Time at which the interface is free, for each direction.
    to_host: u64,
    from_host: u64,
    controller: u64,
    /// For each page in the cache, the time at which it is programmed.
    cached: VecDeque<u64>,
    /// Time at which all writes so far are programmed.
    programmed: u64,
    /// End times of the commands in progress.
    working: VecDeque<u64>,
    completions: Completions,
}

impl Flash {
    /// An idle drive.
    pub fn new(spec: FlashSpec) -> Self {
        let dies = vec![0; spec.dies.max(1) as usize];
        Self {
            spec,
            dies,
            to_host: 0,
            from_host: 0,
            controller: 0,
            cached: VecDeque::new(),
            programmed: 0,
            working: VecDeque::new(),
            completions: Completions::default(),
        }
    }

    /// The time at which the drive starts a command that arrives now.
    fn begin(&mut self, now: u64) -> u64 {
        while self.working.front().is_some_and(|end| *end <= now) {
            self.working.pop_front();
        }
        let mut at = now;
        let depth = self.spec.queue.max(1) as usize;
        if self.working.len() >= depth {
            at = at.max(self.working[self.working.len() - depth]);
        }
        self.controller = self.controller.max(at) + us(self.spec.issue_us);
        self.controller
    }

    fn pages(request: &Request) -> core::ops::Range<u64> {
        request.at / PAGE..request.end().div_ceil(PAGE)
    }

    fn read(&mut self, start: u64, request: &Request) -> u64 {
        let mut ready = start;
        for page in Self::pages(request) {
            let count = self.dies.len() as u64;
            let die = &mut self.dies[(page % count) as usize];
            *die = (*die).max(start) + us(self.spec.read_us);
            ready = ready.max(*die);
        }
        // Data that is ready early is transferred while the rest is being read.
        let carry = transfer(request.len, self.spec.read_mb_s);
        self.to_host = self.to_host.max(start) + carry;
        self.to_host.max(ready + transfer(request.len.min(PAGE), self.spec.read_mb_s))
            + us(self.spec.command_us)
    }

    fn write(&mut self, start: u64, request: &Request, fua: bool) -> u64 {
        self.from_host = self.from_host.max(start) + transfer(request.len, self.spec.write_mb_s);
        let mut taken = self.from_host + us(self.spec.command_us);
        let room = (self.spec.cache_mib * f64::from(1 << 20)) as usize / PAGE as usize;
        let mut last = taken;
        for _ in Self::pages(request) {
            while self.cached.front().is_some_and(|end| *end <= taken) {
                self.cached.pop_front();
            }
            if room > 0 && self.cached.len() >= room {
                taken = taken.max(self.cached[self.cached.len() - room]);
            }
            let Some(die) = self.dies.iter_mut().min() else { return taken };
            *die = (*die).max(taken) + us(self.spec.program_us);
            last = last.max(*die);
            // Programs end in the order in which they are counted.
            self.programmed = self.programmed.max(*die);
            self.cached.push_back(self.programmed);
        }
        if room == 0 || fua && !self.spec.protected { last } else { taken }
    }
}

impl Disk for Flash {
    fn capacity(&self) -> u64 {
        (self.spec.capacity_gb * 1e9) as u64
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        let start = self.begin(now.0);
        let end = match request.op {
            Op::Read => self.read(start, &request),
            Op::Write { fua } => self.write(start, &request, fua),
            Op::Flush if self.spec.protected || self.spec.cache_mib <= 0.0 => {
                start + us(self.spec.command_us)
            }
            Op::Flush => {
                let end = start.max(self.programmed) + us(self.spec.flush_us);
                // The drive writes its tables to the dies that hold data.
                self.dies.iter_mut().for_each(|die| *die = (*die).max(end));
                self.programmed = self.programmed.max(end);
                end
            }
        };
        let at = self.working.partition_point(|other| *other <= end);
        self.working.insert(at, end);
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
