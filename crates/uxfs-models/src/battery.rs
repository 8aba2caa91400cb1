//! A battery-backed array controller: memory that survives a power failure, in front of a disk.
//!
//! 1. A write completes, and is durable, when it is in the memory. Force unit access and flush cost
//!    only the time of a command.
//! 2. The memory is written back continuously, several pieces at a time, in ascending order. When
//!    the memory is full, writes wait for space.
//! 3. Reads of data in the memory do not access the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Completions, Disk, Done, Op, Request, Tag, transfer, us};

/// Maximum bytes that are written back in one piece.
const PIECE: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatterySpec {
    /// Size of the memory in MiB.
    pub cache_mib: f64,
    /// Time in microseconds of a command that the memory serves.
    pub command_us: f64,
    /// Transfer rate between host and memory in 10^6 bytes per second.
    pub mb_s: f64,
    /// Number of pieces that are written back at a time.
    pub depth: u32,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    /// A read of the host.
    Read(Tag),
    /// Writeback of a range.
    Out { from: u64, to: u64 },
}

/// A controller with memory, and the disk behind it.
pub struct Battery {
    spec: BatterySpec,
    disk: Box<dyn Disk>,
    /// Ranges in the memory, without those being written back: first byte to end.
    runs: BTreeMap<u64, u64>,
    /// Bytes in the memory, including those being written back.
    bytes: u64,
    out: HashMap<Tag, Role>,
    writing: u32,
    last: u64,
    waiting: VecDeque<(Tag, Request)>,
    bus: u64,
    next: u64,
    completions: Completions,
}

impl Battery {
    /// An empty memory in front of `disk`.
    pub fn new(spec: BatterySpec, disk: Box<dyn Disk>) -> Self {
        Self {
            spec,
            disk,
            runs: BTreeMap::new(),
            bytes: 0,
            out: HashMap::new(),
            writing: 0,
            last: 0,
            waiting: VecDeque::new(),
            bus: 0,
            next: 0,
            completions: Completions::default(),
        }
    }

    fn carry(&mut self, now: u64, len: u64) -> u64 {
        self.bus = self.bus.max(now) + transfer(len, self.spec.mb_s);
        self.bus + us(self.spec.command_us)
    }

    fn holds(&self, from: u64, to: u64) -> bool {
        let run = self.runs.range(..=from).next_back();
        run.is_some_and(|(_, end)| *end >= to)
    }

    /// Adds a range, merged with the ranges that it touches.
    fn add(&mut self, mut from: u64, mut to: u64) {
        while let Some((&start, &end)) = self.runs.range(..=to).next_back() {
            if end < from {
                break;
            }
            (from, to) = (from.min(start), to.max(end));
            self.runs.remove(&start);
            self.bytes -= end - start;
        }
        self.runs.insert(from, to);
        self.bytes += to - from;
    }

    fn take_writes(&mut self, now: u64) {
        let room = (self.spec.cache_mib * f64::from(1 << 20)) as u64;
        while let Some((tag, request)) = self.waiting.front().copied() {
            if self.bytes > 0 && self.bytes + request.len > room {
                break;
            }
            self.waiting.pop_front();
            self.add(request.at, request.end());
            let end = self.carry(now, request.len);
            self.completions.add(Time(end), tag);
        }
        self.write_out(Time(now));
    }

    fn submit_below(&mut self, now: Time, role: Role, request: Request) {
        let tag = Tag(self.next);
        self.next += 1;
        self.out.insert(tag, role);
        self.disk.submit(now, tag, request);
    }

    fn write_out(&mut self, now: Time) {
        while self.writing < self.spec.depth.max(1) {
            let behind = self.runs.range(self.last..).next();
            let Some((&from, &end)) = behind.or_else(|| self.runs.iter().next()) else { break };
            let to = end.min(from + PIECE);
            self.runs.remove(&from);
            if to < end {
                self.runs.insert(to, end);
            }
            self.last = to;
            self.writing += 1;
            self.submit_below(now, Role::Out { from, to }, Request::write_fua(from, to - from));
        }
    }
}

impl Disk for Battery {
    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        match request.op {
            Op::Flush => self.completions.add(Time(now.0 + us(self.spec.command_us)), tag),
            Op::Read if self.holds(request.at, request.end()) => {
                let end = self.carry(now.0, request.len);
                self.completions.add(Time(end), tag);
            }
            Op::Read => self.submit_below(now, Role::Read(tag), request),
            Op::Write { .. } => {
                self.waiting.push_back((tag, request));
                self.take_writes(now.0);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        [self.disk.next_event(), self.completions.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        let mut below = Vec::new();
        // Finished writeback frees space, which waiting writes use at once.
        while let Some(next) = self.disk.next_event().filter(|next| *next <= now) {
            self.disk.advance(next, &mut below);
            for Done { at, tag } in below.drain(..) {
                match self.out.remove(&tag) {
                    Some(Role::Read(host)) => {
                        self.completions.add(Time(at.0 + us(self.spec.command_us)), host);
                    }
                    Some(Role::Out { from, to }) => {
                        self.writing -= 1;
                        self.bytes -= to - from;
                    }
                    None => debug_assert!(false, "completion of an unknown request"),
                }
            }
            self.take_writes(next.0);
        }
        self.disk.advance(now, &mut below);
        debug_assert!(below.is_empty());
        while let Some(ended) = self.completions.pop(now) {
            done.push(ended);
        }
    }
}
