//! A spindle: platters that turn, arms that seek, a track cache, a write cache and a queue.
//!
//! 1. The mechanics do one thing at a time: seek, wait for the sector to come by, read or write.
//! 2. After a read the heads read on into the track cache, until something else is to be done: a
//!    sequential reader that comes soon enough has the rate of the platter.
//! 3. With the write cache on, a write is done when it is in the cache, unless it asks for
//!    force-unit-access. The cache is written out when a flush waits, when it is three quarters full,
//!    or when nothing was asked of the disk for a while; in ascending order, as an elevator goes.
//! 4. A flush is done when all that was in the cache when it came is on the platters.
//! 5. With an elevator, of the first requests in the queue the one that the heads reach soonest is
//!    next, but none waits for ever: one that has waited for [`PATIENCE`] is next. Without, the oldest.

mod cache;
mod geometry;

use std::collections::VecDeque;

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Disk, Done, Ending, Op, Request, Tag, transfer, us};
use cache::Cache;
use geometry::{Geometry, SECTOR};

/// Nanoseconds after which a request in the queue is not passed over any more.
const PATIENCE: u64 = 500_000_000;
/// Nanoseconds of rest after which the cache is written out though nobody asks.
const REST: u64 = 20_000_000;
/// Most sectors that are written out of the cache in one go.
const DRAIN_MAX: u64 = 2048;

/// Which of the requests in the queue is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The oldest.
    Fifo,
    /// The one that the heads reach soonest.
    Elevator,
}

/// What a spindle is made from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpindleSpec {
    /// Gigabytes (10^9 bytes).
    pub capacity_gb: f64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Surfaces with a head.
    pub heads: u32,
    /// Zones, in which tracks have the same number of sectors.
    pub zones: u32,
    /// Million bytes a second that a sequential reader gets at the outer edge.
    pub outer_mb_s: f64,
    /// … at the inner edge.
    pub inner_mb_s: f64,
    /// Milliseconds of a seek from one track to the next.
    pub track_ms: f64,
    /// … over the mean of all distances.
    pub average_ms: f64,
    /// … from one edge to the other.
    pub full_ms: f64,
    /// Milliseconds more until a head is settled enough to write.
    pub write_settle_ms: f64,
    /// Milliseconds to change to another head of the same cylinder.
    pub head_switch_ms: f64,
    /// Million bytes a second of the interface.
    pub interface_mb_s: f64,
    /// Microseconds of electronics for each command.
    pub command_us: f64,
    /// Bytes (in MiB) of the write cache.
    pub cache_mib: f64,
    /// Is it on?
    pub write_cache: bool,
    /// Bytes (in KiB) that are read on behind a read.
    pub readahead_kib: u32,
    /// Requests that it chooses from.
    pub queue: u32,
    /// How it chooses.
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
    /// When the electronics have understood it.
    ready: u64,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Host(Waiting),
    /// Sectors out of the write cache, the oldest of this age.
    Drain {
        age: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Doing {
    end: u64,
    work: Work,
}

/// Sectors in the track cache, and the head reading on.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    from: u64,
    /// The head was at this sector at that moment.
    origin: u64,
    since: u64,
    /// It stops here.
    limit: u64,
    /// It stopped: something else was to be done.
    frozen: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flush {
    tag: Tag,
    age: u64,
}

/// A disk with platters.
#[derive(Debug)]
pub struct Spindle {
    spec: SpindleSpec,
    geometry: Geometry,
    now: u64,
    cylinder: u64,
    /// Behind the last sector that passed under the heads.
    sector: u64,
    queue: Vec<Waiting>,
    doing: Option<Doing>,
    cache: Cache,
    /// Writes so far, by which the cache's content has its age.
    writes: u64,
    /// Writes that wait for room in the cache.
    blocked: VecDeque<Waiting>,
    flushes: VecDeque<Flush>,
    ahead: Option<Ahead>,
    bus: u64,
    /// When the mechanics were last needed by the host.
    needed: u64,
    ending: Ending,
}

impl Spindle {
    /// A disk that turns, its heads at the outer edge.
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
            cache: Cache::default(),
            writes: 0,
            blocked: VecDeque::new(),
            flushes: VecDeque::new(),
            ahead: None,
            bus: 0,
            needed: 0,
            ending: Ending::default(),
        }
    }

    fn room(&self) -> u64 {
        match self.spec.write_cache {
            true => (self.spec.cache_mib * f64::from(1 << 20)) as u64 / SECTOR,
            false => 0,
        }
    }

    /// The end of carrying bytes over the interface, from `at` on.
    fn carry(&mut self, at: u64, sectors: u64) -> u64 {
        self.bus = self.bus.max(at) + transfer(sectors * SECTOR, self.spec.interface_mb_s);
        self.bus
    }

    fn read(&mut self, waiting: Waiting) {
        let Waiting { tag, from, to, ready, .. } = waiting;
        if self.cache.holds(from, to) {
            let end = self.carry(ready, to - from);
            return self.ending.add(Time(end), tag);
        }
        if let Some(at) = self.in_track_cache(from, to, ready) {
            let end = self.carry(ready, to - from).max(at);
            return self.ending.add(Time(end), tag);
        }
        self.queue.push(waiting);
    }

    /// When sectors will be in the track cache, if they are or the head is coming to them.
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
                // It had stopped for want of room, and waits for the sector to come round again.
                ahead.origin = ahead.limit;
                ahead.since = now + geometry.turn(now, geometry.spot(ahead.limit).angle);
            }
            ahead.limit = (to + readahead).min(geometry.sectors);
            ahead.from = ahead.from.max(to.saturating_sub(readahead));
        }
        Some(at.max(now))
    }

    fn write(&mut self, waiting: Waiting, fua: bool) {
        let room = self.room();
        let len = waiting.to - waiting.from;
        if room == 0 || fua || len > room {
            // The bytes are carried while the arm is under way.
            self.carry(waiting.ready, len);
            self.cache.remove(waiting.from, waiting.to);
            return self.queue.push(waiting);
        }
        self.blocked.push_back(waiting);
        self.take_writes(self.now);
    }

    /// Takes writes into the cache, as far as there is room.
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
            self.ending.add(Time(end), first.tag);
        }
    }

    /// What of the track cache is written over is not there any more.
    fn spoil(&mut self, from: u64, to: u64) {
        if self.ahead.is_some_and(|ahead| from < ahead.limit && to > ahead.from) {
            self.ahead = None;
        }
    }

    /// Nanoseconds until the head is over a sector, from `at` on.
    fn reach(&self, at: u64, sector: u64, write: bool) -> u64 {
        let spot = self.geometry.spot(sector);
        let mut seek = self.geometry.seek(self.cylinder.abs_diff(spot.cylinder));
        if write {
            seek += us(self.spec.write_settle_ms * 1e3);
        }
        seek + self.geometry.turn(at + seek, spot.angle)
    }

    /// The place in the queue of the request that is next, and how long the head takes to it.
    fn next_of_host(&self, at: u64) -> Option<(usize, u64)> {
        let first = self.queue.first()?;
        let time = |w: &Waiting| self.reach(at.max(w.ready), w.from, w.write);
        if self.spec.scheduler == Scheduler::Fifo || at.saturating_sub(first.arrived) > PATIENCE {
            return Some((0, time(first)));
        }
        let visible = self.queue.iter().take(self.spec.queue.max(1) as usize).enumerate();
        visible.map(|(i, w)| (i, time(w))).min_by_key(|(i, time)| (*time, *i))
    }

    fn must_drain(&self) -> bool {
        !self.flushes.is_empty()
            || !self.blocked.is_empty()
            || self.cache.sectors() > self.room() / 4 * 3
    }

    /// Begins with whatever is next, if the mechanics are free.
    fn begin(&mut self, at: u64) {
        if self.doing.is_some() {
            return;
        }
        let host = self.next_of_host(at);
        let rested = at >= self.needed + REST;
        let drain =
            self.cache.next(self.sector).filter(|_| self.must_drain() || host.is_none() && rested);
        let drain = drain.map(|start| (start, self.reach(at, start, true)));
        match (host, drain) {
            (Some((_, to_host)), Some((start, to_drain))) if to_drain < to_host => {
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
        self.doing = Some(Doing { end, work });
        self.cylinder = self.geometry.spot(to.saturating_sub(1).max(from)).cylinder;
        self.sector = to;
        if !matches!(work, Work::Drain { .. }) {
            self.needed = end;
        }
    }

    /// The mechanics are through with something.
    fn end(&mut self, doing: Doing) {
        let at = doing.end;
        match doing.work {
            Work::Host(waiting) if waiting.write => self.ending.add(Time(at), waiting.tag),
            Work::Host(waiting) => {
                let len = waiting.to - waiting.from;
                // All but the last sector was carried while the rest was being read.
                let carried = transfer(len * SECTOR, self.spec.interface_mb_s);
                let end = self.carry(at.saturating_sub(carried), len).max(at);
                self.ending.add(Time(end), waiting.tag);
                let readahead = u64::from(self.spec.readahead_kib) * 1024 / SECTOR;
                let limit = (waiting.to + readahead).min(self.geometry.sectors);
                self.ahead = Some(Ahead {
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
            let under_way = match self.doing {
                Some(Doing { work: Work::Drain { age, .. }, .. }) => age <= flush.age,
                _ => false,
            };
            if under_way || self.cache.oldest().is_some_and(|age| age <= flush.age) {
                break;
            }
            self.flushes.pop_front();
            self.ending.add(Time(at), flush.tag);
        }
    }

    /// When the mechanics begin with something of their own accord.
    fn wakes(&self) -> Option<u64> {
        (self.doing.is_none() && !self.cache.is_empty()).then_some(self.needed + REST)
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
        let waiting = Waiting { tag, write, from, to, arrived: now.0, ready };
        match request.op {
            Op::Flush => {
                self.flushes.push_back(Flush { tag, age: self.writes });
                self.end_flushes(ready);
            }
            Op::Read => self.read(waiting),
            Op::Write { fua } => {
                self.spoil(from, to);
                self.write(waiting, fua);
            }
        }
        if request.op != Op::Flush {
            self.needed = self.needed.max(now.0);
        }
        self.begin(now.0);
    }

    fn next_event(&self) -> Option<Time> {
        let mechanics = self.doing.map(|doing| doing.end).or_else(|| self.wakes());
        [mechanics.map(Time), self.ending.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        let first = done.len();
        self.now = self.now.max(now.0);
        loop {
            if let Some(doing) = self.doing.filter(|doing| doing.end <= now.0) {
                self.doing = None;
                self.end(doing);
                self.begin(doing.end);
            } else if let Some(at) = self.wakes().filter(|at| *at <= now.0) {
                self.begin(at);
                if self.doing.is_none() {
                    break;
                }
            } else {
                break;
            }
        }
        while let Some(ended) = self.ending.pop(now) {
            done.push(ended);
        }
        done[first..].sort_unstable();
    }
}
