//! A battery-backed array controller: memory that outlives a power cut, in front of any disk.
//!
//! 1. A write is done when it is in the memory, and safe: force-unit-access and flush cost nothing
//!    more than a command.
//! 2. The memory is written out all the time, a few pieces at once, in ascending order; when it is
//!    full, a write waits until there is room.
//! 3. Reads of what is in the memory do not reach the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Deserialize;
use uxfs_journal::Time;

use crate::{Disk, Done, Ending, Op, Request, Tag, transfer, us};

/// Most bytes that are written out in one piece.
const PIECE: u64 = 1 << 20;

/// What a controller is made from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatterySpec {
    /// Bytes (in MiB) of its memory.
    pub cache_mib: f64,
    /// Microseconds of a command that the memory serves.
    pub command_us: f64,
    /// Million bytes a second between host and memory.
    pub mb_s: f64,
    /// Pieces that are written out at a time.
    pub depth: u32,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    /// A read of the host's.
    Read(Tag),
    /// Bytes that leave the memory.
    Out { from: u64, to: u64 },
}

/// A controller with memory, and the disk behind it.
pub struct Battery {
    spec: BatterySpec,
    disk: Box<dyn Disk>,
    /// Runs in the memory: first byte to end.
    runs: BTreeMap<u64, u64>,
    /// Bytes in it, those on their way out included.
    bytes: u64,
    out: HashMap<Tag, Role>,
    writing: u32,
    last: u64,
    waiting: VecDeque<(Tag, Request)>,
    bus: u64,
    next: u64,
    ending: Ending,
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
            ending: Ending::default(),
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

    /// Takes in a run, joined with those it touches.
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
            self.ending.add(Time(end), tag);
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
            Op::Flush => self.ending.add(Time(now.0 + us(self.spec.command_us)), tag),
            Op::Read if self.holds(request.at, request.end()) => {
                let end = self.carry(now.0, request.len);
                self.ending.add(Time(end), tag);
            }
            Op::Read => self.submit_below(now, Role::Read(tag), request),
            Op::Write { .. } => {
                self.waiting.push_back((tag, request));
                self.take_writes(now.0);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        [self.disk.next_event(), self.ending.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        let mut below = Vec::new();
        // What is written out makes room, and that is used at the moment it is there.
        while let Some(next) = self.disk.next_event().filter(|next| *next <= now) {
            self.disk.advance(next, &mut below);
            for Done { at, tag } in below.drain(..) {
                match self.out.remove(&tag) {
                    Some(Role::Read(host)) => {
                        self.ending.add(Time(at.0 + us(self.spec.command_us)), host);
                    }
                    Some(Role::Out { from, to }) => {
                        self.writing -= 1;
                        self.bytes -= to - from;
                    }
                    None => debug_assert!(false, "an answer to no question"),
                }
            }
            self.take_writes(next.0);
        }
        self.disk.advance(now, &mut below);
        debug_assert!(below.is_empty());
        while let Some(ended) = self.ending.pop(now) {
            done.push(ended);
        }
    }
}
