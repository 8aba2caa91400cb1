//! Flash: dies that work side by side behind one interface, and a cache in front of them.
//!
//! 1. A page is read by the die it lies on, so reads of one die wait for each other.
//! 2. A page is programmed by whichever die is free first: flash is written like a log.
//! 3. A write is done when it is in the cache; it takes up room there until it is programmed.
//! 4. With power-loss protection the cache is as good as flash: a flush has nothing to do. Without,
//!    it waits for all programs, and then for the drive to write its own tables.
//!
//! Not modelled: collecting garbage. What is written at length on a full drive is slower than here.

use std::collections::VecDeque;

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Disk, Done, Ending, Op, Request, Tag, transfer, us};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// What a flash drive is made from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Dies that work at the same time.
    pub dies: u32,
    /// Microseconds in which a die reads a page of 4 KiB.
    pub read_us: f64,
    /// Microseconds in which a die programs one.
    pub program_us: f64,
    /// Million bytes a second that the interface carries to the host.
    pub read_mb_s: f64,
    /// … and from the host.
    pub write_mb_s: f64,
    /// Microseconds for each command, that the controller can spend on several at once.
    pub command_us: f64,
    /// Microseconds for each command, that it cannot: its most commands a second.
    pub issue_us: f64,
    /// Commands that it works on at a time; more wait.
    pub queue: u32,
    /// Bytes (in MiB) of writes that it takes before they are programmed; 0 for no write cache.
    pub cache_mib: f64,
    /// Is the cache kept when the power goes?
    pub protected: bool,
    /// Microseconds of a flush besides the programs it waits for.
    pub flush_us: f64,
}

/// A flash drive.
#[derive(Debug)]
pub struct Flash {
    spec: FlashSpec,
    dies: Vec<u64>,
    /// When the interface is free, for each direction.
    to_host: u64,
    from_host: u64,
    controller: u64,
    /// Pages in the cache: when each will have been programmed.
    cached: VecDeque<u64>,
    /// When all that was written so far will have been programmed.
    programmed: u64,
    /// Ends of the commands that it works on.
    working: VecDeque<u64>,
    ending: Ending,
}

impl Flash {
    /// A drive at rest.
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
            ending: Ending::default(),
        }
    }

    /// When the drive begins with a command that comes now.
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
        // What is ready early is on its way while the rest is being read.
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
                // Tables are written where data is.
                self.dies.iter_mut().for_each(|die| *die = (*die).max(end));
                self.programmed = self.programmed.max(end);
                end
            }
        };
        let at = self.working.partition_point(|other| *other <= end);
        self.working.insert(at, end);
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
