//! A hard disk: rotating platters, a seeking arm, a track cache, a write cache and a queue.
//!
//! 1. The mechanics do one thing at a time: seek, wait for the sector, read or write.
//! 2. After a read, the heads continue to read into the track cache until the next operation. A
//!    sequential reader that is fast enough gets the full rate of the platter.
//! 3. With the write cache on, a write completes when it is in the cache, unless it has force unit
//!    access. The cache is written to the platters in ascending order when a flush waits, when the
//!    cache is three quarters full, or when the disk has been idle for [`IDLE`].
//! 4. A flush completes when everything that was in the cache at its submission is on the platters.
//! 5. The elevator serves, among the first requests in the queue, the one that the heads reach
//!    soonest. To prevent starvation, the oldest request is served once it has waited for
//!    [`MAX_WAIT`]; the cache is written once more before it at most. Without the elevator, the oldest request
//!    of the queue is always served next.

mod cache;
mod geometry;

use std::collections::VecDeque;

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Completions, Disk, Done, Op, Request, Tag, transfer, us};
use cache::Cache;
use geometry::{Geometry, SECTOR};

/// Time in nanoseconds after which the oldest request in the queue is served next.
const MAX_WAIT: u64 = 500_000_000;
/// Idle time in nanoseconds after which the write cache is written to the platters.
const IDLE: u64 = 20_000_000;
/// Limit in sectors for one write from the cache.
const DRAIN_MAX: u64 = 2048;

/// Order in which the requests in the queue are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The oldest request first.
    Fifo,
    /// The request that the heads reach soonest first.
    Elevator,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpindleSpec {
    /// Capacity in gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Revolutions per minute.
    pub rpm: f64,
    pub heads: u32,
    /// Number of zones; tracks in a zone have the same number of sectors.
    pub zones: u32,
    /// Sequential transfer rate at the outer edge in 10^6 bytes per second.
    pub outer_mb_s: f64,
    /// Sequential transfer rate at the inner edge in 10^6 bytes per second.
    pub inner_mb_s: f64,
    /// Track-to-track seek time in milliseconds.
    pub track_ms: f64,
    /// Average seek time in milliseconds.
    pub average_ms: f64,
    /// Full-stroke seek time in milliseconds.
    pub full_ms: f64,
    /// Additional settle time of a write in milliseconds.
    pub write_settle_ms: f64,
    /// Time in milliseconds to switch to another head of the same cylinder.
    pub head_switch_ms: f64,
    /// Transfer rate of the interface in 10^6 bytes per second.
    pub interface_mb_s: f64,
    /// Overhead of each command in microseconds.
    pub command_us: f64,
    /// Size of the write cache in MiB.
    pub cache_mib: f64,
    pub write_cache: bool,
    /// Readahead into the track cache in KiB.
    pub readahead_kib: u32,
    /// Number of requests among which the scheduler chooses.
    pub queue: u32,
    pub scheduler: Scheduler,
}

/// A request that waits for the mechanics.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: Tag,
    write: bool,
    from: u64,
    to: u64,
    arrived: u64,
    /// Time at which the electronics have processed the command.
    ready: u64,
    /// Age of the oldest data in the cache that this write replaces. A flush that waits for that data
    /// waits for this write.
    replaces: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Host(Waiting),
    /// Write sectors from the write cache; `age` is the age of the oldest.
    Drain {
        age: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    end: u64,
    work: Work,
}

/// Sectors in the track cache, and the readahead.
#[derive(Clone, Copy, Debug)]
struct Readahead {
    from: u64,
    /// The head was at this sector at the time `since`.
    origin: u64,
    since: u64,
    /// Sector at which the readahead stops.
    limit: u64,
    /// Has another operation stopped the readahead?
    frozen: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    tag: Tag,
    age: u64,
}

#[derive(Debug)]
pub struct Spindle {
    spec: SpindleSpec,
    geometry: Geometry,
    now: u64,
    cylinder: u64,
    /// The sector behind the last one that passed the heads.
    sector: u64,
    queue: Vec<Waiting>,
    doing: Option<Operation>,
    /// The last operation wrote from the cache.
    drained: bool,
    cache: Cache,
    /// Number of writes so far, which defines the age of cached sectors.
    writes: u64,
    /// Writes that wait for space in the cache.
    blocked: VecDeque<Waiting>,
    flushes: VecDeque<Flush>,
    ahead: Option<Readahead>,
    bus: u64,
    /// End of the last period in which the host needed the mechanics.
    needed: u64,
    completions: Completions,
}

impl Spindle {
    /// A disk at full speed, with its heads at the outer edge.
    pub fn new(spec: SpindleSpec) -> Self {
        let geometry = Geometry::new(&spec);
        Self {
            spec,
            geometry,
            now: 0,
            cylinder: 0,
            sector: 0,
            queue: Vec::new(),
            doing: None,
            drained: false,
            cache: Cache::default(),
            writes: 0,
            blocked: VecDeque::new(),
            flushes: VecDeque::new(),
            ahead: None,
            bus: 0,
            needed: 0,
            completions: Completions::default(),
        }
    }

    fn room(&self) -> u64 {
        match self.spec.write_cache {
            true => (self.spec.cache_mib * f64::from(1 << 20)) as u64 / SECTOR,
            false => 0,
        }
    }

    /// Time at which a transfer over the interface, started at `at`, ends.
    fn carry(&mut self, at: u64, sectors: u64) -> u64 {
        self.bus = self.bus.max(at) + transfer(sectors * SECTOR, self.spec.interface_mb_s);
        self.bus
    }

    fn read(&mut self, waiting: Waiting) {
        let Waiting { tag, from, to, ready, .. } = waiting;
        if self.cache.holds(from, to) {
            let end = self.carry(ready, to - from);
            return self.completions.add(Time(end), tag);
        }
        if let Some(at) = self.in_track_cache(from, to, ready) {
            let end = self.carry(ready, to - from).max(at);
            return self.completions.add(Time(end), tag);
        }
        self.queue.push(waiting);
    }

    /// Time at which sectors are in the track cache; `None` if the readahead does not include them.
    fn in_track_cache(&mut self, from: u64, to: u64, now: u64) -> Option<u64> {
        let readahead = u64::from(self.spec.readahead_kib) * 1024 / SECTOR;
        let ahead = self.ahead.as_mut()?;
        if from < ahead.from || to > ahead.limit {
            return None;
        }
        let geometry = &self.geometry;
        let at = match to > ahead.origin {
            true => ahead.since + geometry.pass(ahead.origin, to - ahead.origin),
            false => now,
        };
        if !ahead.frozen {
            let reached =
                ahead.origin + geometry.passed(ahead.origin, now.saturating_sub(ahead.since));
            if reached >= ahead.limit {
                // The readahead had stopped at its limit and waits for the sector to come round
                // again.
                ahead.origin = ahead.limit;
                ahead.since = now + geometry.turn(now, geometry.position(ahead.limit).angle);
            }
            ahead.limit = (to + readahead).min(geometry.sectors);
            ahead.from = ahead.from.max(to.saturating_sub(readahead));
        }
        Some(at.max(now))
    }

    fn write(&mut self, mut waiting: Waiting, fua: bool) {
        let room = self.room();
        let len = waiting.to - waiting.from;
        if room == 0 || fua || len > room {
            // The data is transferred during the seek.
            self.carry(waiting.ready, len);
            waiting.replaces = self.cache.remove(waiting.from, waiting.to);
            return self.queue.push(waiting);
        }
        self.blocked.push_back(waiting);
        self.take_writes(self.now);
    }

    /// Moves waiting writes into the cache while there is space.
    fn take_writes(&mut self, now: u64) {
        let room = self.room();
        while let Some(first) = self.blocked.front().copied() {
            if self.cache.sectors() + (first.to - first.from) > room {
                break;
            }
            self.blocked.pop_front();
            self.writes += 1;
            self.cache.add(first.from, first.to, self.writes);
            let end = self.carry(first.ready.max(now), first.to - first.from);
            self.completions.add(Time(end), first.tag);
        }
    }

    /// Drops the track cache if it includes sectors that are being overwritten.
    fn invalidate(&mut self, from: u64, to: u64) {
        if self.ahead.is_some_and(|ahead| from < ahead.limit && to > ahead.from) {
            self.ahead = None;
        }
    }

    /// Time in nanoseconds, from `at` on, until the head is over a sector.
    fn reach(&self, at: u64, sector: u64, write: bool) -> u64 {
        let position = self.geometry.position(sector);
        let mut seek = self.geometry.seek(self.cylinder.abs_diff(position.cylinder));
        if write {
            seek += us(self.spec.write_settle_ms * 1e3);
        }
        seek + self.geometry.turn(at + seek, position.angle)
    }

    /// Index in the queue of the request to serve next, and the time to reach it.
    fn next_of_host(&self, at: u64) -> Option<(usize, u64)> {
        let first = self.queue.first()?;
        let time = |w: &Waiting| self.reach(at.max(w.ready), w.from, w.write);
        if self.spec.scheduler == Scheduler::Fifo || self.is_overdue(at) {
            return Some((0, time(first)));
        }
        let visible = self.queue.iter().take(self.spec.queue.max(1) as usize).enumerate();
        visible.map(|(i, w)| (i, time(w))).min_by_key(|(i, time)| (*time, *i))
    }

    /// Has the oldest request waited for too long?
    fn is_overdue(&self, at: u64) -> bool {
        self.queue.first().is_some_and(|first| at.saturating_sub(first.arrived) > MAX_WAIT)
    }

    fn must_drain(&self) -> bool {
        !self.flushes.is_empty()
            || !self.blocked.is_empty()
            || self.cache.sectors() > self.room() / 4 * 3
    }

    /// Starts the next operation if the mechanics are free.
    fn begin(&mut self, at: u64) {
        if self.doing.is_some() {
            return;
        }
        let host = self.next_of_host(at);
        let rested = at >= self.needed + IDLE;
        let drain =
            self.cache.next(self.sector).filter(|_| self.must_drain() || host.is_none() && rested);
        let drain = drain.map(|start| (start, self.reach(at, start, true)));
        // Writers that fill the cache again and again do not hold up a request without end.
        let may_drain = !(self.drained && self.is_overdue(at));
        match (host, drain) {
            (Some((_, to_host)), Some((start, to_drain))) if may_drain && to_drain < to_host => {
                self.drain(at, start, to_drain);
            }
            (Some((index, _)), _) => self.serve(at, index),
            (None, Some((start, time))) => self.drain(at, start, time),
            (None, None) => {}
        }
    }

    fn serve(&mut self, at: u64, index: usize) {
        let waiting = self.queue.remove(index);
        let at = at.max(waiting.ready);
        let time = self.reach(at, waiting.from, waiting.write);
        self.move_to(at, time, waiting.from, waiting.to, Work::Host(waiting));
    }

    fn drain(&mut self, at: u64, start: u64, time: u64) {
        if let Some((to, age)) = self.cache.take_from(start, DRAIN_MAX) {
            self.move_to(at, time, start, to, Work::Drain { age });
        }
    }

    fn move_to(&mut self, at: u64, time: u64, from: u64, to: u64, work: Work) {
        if let Some(ahead) = &mut self.ahead
            && !ahead.frozen
        {
            let reached =
                ahead.origin + self.geometry.passed(ahead.origin, at.saturating_sub(ahead.since));
            ahead.limit = ahead.limit.min(reached);
            ahead.frozen = true;
        }
        let end = at + time + self.geometry.pass(from, to - from);
        self.doing = Some(Operation { end, work });
        self.drained = matches!(work, Work::Drain { .. });
        self.cylinder = self.geometry.position(to.saturating_sub(1).max(from)).cylinder;
        self.sector = to;
        if !matches!(work, Work::Drain { .. }) {
            self.needed = end;
        }
    }

    /// Completes an operation of the mechanics.
    fn end(&mut self, doing: Operation) {
        let at = doing.end;
        match doing.work {
            Work::Host(waiting) if waiting.write => {
                self.completions.add(Time(at), waiting.tag);
                if waiting.replaces.is_some() {
                    self.end_flushes(at);
                }
            }
            Work::Host(waiting) => {
                let len = waiting.to - waiting.from;
                // All but the last sector was transferred while the rest was being read.
                let carried = transfer(len * SECTOR, self.spec.interface_mb_s);
                let end = self.carry(at.saturating_sub(carried), len).max(at);
                self.completions.add(Time(end), waiting.tag);
                let readahead = u64::from(self.spec.readahead_kib) * 1024 / SECTOR;
                let limit = (waiting.to + readahead).min(self.geometry.sectors);
                self.ahead = Some(Readahead {
                    from: waiting.from,
                    origin: waiting.to,
                    since: at,
                    limit,
                    frozen: false,
                });
            }
            Work::Drain { .. } => {
                self.take_writes(at);
                self.end_flushes(at);
            }
        }
    }

    fn end_flushes(&mut self, at: u64) {
        while let Some(flush) = self.flushes.front().copied() {
            let replaces = |write: &Waiting| write.replaces.is_some_and(|age| age <= flush.age);
            let under_way = match self.doing {
                Some(Operation { work: Work::Drain { age, .. }, .. }) => age <= flush.age,
                Some(Operation { work: Work::Host(write), .. }) => replaces(&write),
                None => false,
            };
            if under_way
                || self.queue.iter().any(replaces)
                || self.cache.oldest().is_some_and(|age| age <= flush.age)
            {
                break;
            }
            self.flushes.pop_front();
            self.completions.add(Time(at), flush.tag);
        }
    }

    /// Time at which the idle disk starts to write its cache.
    fn idle_drain_at(&self) -> Option<u64> {
        (self.doing.is_none() && !self.cache.is_empty()).then_some(self.needed + IDLE)
    }
}

impl Disk for Spindle {
    fn capacity(&self) -> u64 {
        self.geometry.sectors * SECTOR
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        debug_assert!(now.0 >= self.now, "time goes back");
        self.now = now.0;
        let ready = now.0 + us(self.spec.command_us);
        let (from, to) = (request.at / SECTOR, request.end().div_ceil(SECTOR));
        let to = to.clamp(from + 1, self.geometry.sectors.max(from + 1));
        let write = matches!(request.op, Op::Write { .. });
        let waiting = Waiting { tag, write, from, to, arrived: now.0, ready, replaces: None };
        match request.op {
            Op::Flush => {
                self.flushes.push_back(Flush { tag, age: self.writes });
                self.end_flushes(ready);
            }
            Op::Read => self.read(waiting),
            Op::Write { fua } => {
                self.invalidate(from, to);
                self.write(waiting, fua);
            }
        }
        if request.op != Op::Flush {
            self.needed = self.needed.max(now.0);
        }
        self.begin(now.0);
    }

    fn next_event(&self) -> Option<Time> {
        let mechanics = self.doing.map(|doing| doing.end).or_else(|| self.idle_drain_at());
        [mechanics.map(Time), self.completions.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        let first = done.len();
        self.now = self.now.max(now.0);
        loop {
            if let Some(doing) = self.doing.filter(|doing| doing.end <= now.0) {
                self.doing = None;
                self.end(doing);
                self.begin(doing.end);
            } else if let Some(at) = self.idle_drain_at().filter(|at| *at <= now.0) {
                self.begin(at);
                if self.doing.is_none() {
                    break;
                }
            } else {
                break;
            }
        }
        while let Some(ended) = self.completions.pop(now) {
            done.push(ended);
        }
        done[first..].sort_unstable();
    }
}
