//! Disk arrays: mirror, concatenation, stripe.
//!
//! A request completes when its last part completes. Flushes go to every disk, and so do writes to
//! a mirror. A read from a mirror goes to the disk with the fewest requests in flight; among
//! several, to the disk whose last request ended nearest.

use std::collections::HashMap;

use uxfs_journal::Time;

use crate::{Disk, Done, Op, Request, Tag};

/// The disks of an array, and the requests that were split among them.
struct Members {
    disks: Vec<Box<dyn Disk>>,
    /// For each disk: requests in flight, and the end of the last request.
    load: Vec<(u64, u64)>,
    parts: HashMap<Tag, Tag>,
    left: HashMap<Tag, u32>,
    next: u64,
}

impl Members {
    fn new(disks: Vec<Box<dyn Disk>>) -> Self {
        let load = vec![(0, 0); disks.len()];
        Self { disks, load, parts: HashMap::new(), left: HashMap::new(), next: 0 }
    }

    fn submit(&mut self, now: Time, tag: Tag, parts: &[(usize, Request)]) {
        self.left.insert(tag, parts.len() as u32);
        for (member, request) in parts {
            // The tag of a part identifies the disk.
            let part = Tag(self.next * self.disks.len() as u64 + *member as u64);
            self.next += 1;
            self.parts.insert(part, tag);
            self.load[*member].0 += 1;
            self.load[*member].1 = request.end();
            self.disks[*member].submit(now, part, *request);
        }
    }

    fn on_all(&self, request: Request) -> Vec<(usize, Request)> {
        (0..self.disks.len()).map(|member| (member, request)).collect()
    }

    fn next_event(&self) -> Option<Time> {
        self.disks.iter().filter_map(|disk| disk.next_event()).min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        let mut ended = Vec::new();
        for disk in &mut self.disks {
            disk.advance(now, &mut ended);
        }
        ended.sort_unstable();
        for Done { at, tag: part } in ended {
            let member = (part.0 % self.disks.len() as u64) as usize;
            self.load[member].0 -= 1;
            let Some(tag) = self.parts.remove(&part) else { continue };
            let Some(left) = self.left.get_mut(&tag) else { continue };
            *left -= 1;
            if *left == 0 {
                self.left.remove(&tag);
                done.push(Done { at, tag });
            }
        }
    }
}

/// A mirror: all disks hold the same data.
pub struct Mirror(Members);

impl Mirror {
    /// A mirror of at least one disk.
    pub fn new(disks: Vec<Box<dyn Disk>>) -> Self {
        assert!(!disks.is_empty(), "a mirror of no disks");
        Self(Members::new(disks))
    }
}

impl Disk for Mirror {
    fn capacity(&self) -> u64 {
        self.0.disks.iter().map(|disk| disk.capacity()).min().unwrap_or(0)
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        let parts = match request.op {
            Op::Read => {
                let far = |member: &usize| {
                    let (under_way, last) = self.0.load[*member];
                    (under_way, last.abs_diff(request.at), *member)
                };
                let member = (0..self.0.disks.len()).min_by_key(far).unwrap_or(0);
                vec![(member, request)]
            }
            Op::Write { .. } | Op::Flush => self.0.on_all(request),
        };
        self.0.submit(now, tag, &parts);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        self.0.advance(now, done);
    }
}

/// A concatenation: the address space of each disk follows that of the previous one.
pub struct Concat(Members);

impl Concat {
    /// A concatenation of at least one disk, in this order.
    pub fn new(disks: Vec<Box<dyn Disk>>) -> Self {
        assert!(!disks.is_empty(), "a concatenation of no disks");
        Self(Members::new(disks))
    }

    fn split(&self, request: Request) -> Vec<(usize, Request)> {
        let mut parts = Vec::new();
        let mut first = 0;
        for (member, disk) in self.0.disks.iter().enumerate() {
            let end = first + disk.capacity();
            let (from, to) = (request.at.max(first), request.end().min(end));
            if from < to {
                parts.push((member, Request { at: from - first, len: to - from, ..request }));
            }
            first = end;
        }
        if parts.is_empty() {
            parts.push((self.0.disks.len() - 1, request));
        }
        parts
    }
}

impl Disk for Concat {
    fn capacity(&self) -> u64 {
        self.0.disks.iter().map(|disk| disk.capacity()).sum()
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        let parts = match request.op {
            Op::Flush => self.0.on_all(request),
            Op::Read | Op::Write { .. } => self.split(request),
        };
        self.0.submit(now, tag, &parts);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        self.0.advance(now, done);
    }
}

/// A stripe: chunks are distributed over the disks in turn.
pub struct Stripe {
    members: Members,
    chunk: u64,
}

impl Stripe {
    /// A stripe over at least one disk, in this order; `chunk` is the size of a chunk in bytes.
    pub fn new(disks: Vec<Box<dyn Disk>>, chunk: u64) -> Self {
        assert!(!disks.is_empty() && chunk > 0, "a stripe of no disks, or of no bytes");
        Self { members: Members::new(disks), chunk }
    }

    /// Splits a request into parts; adjacent chunks on one disk form one part.
    fn split(&self, request: Request) -> Vec<(usize, Request)> {
        let count = self.members.disks.len() as u64;
        let mut parts: Vec<(usize, Request)> = Vec::new();
        let mut at = request.at;
        while at < request.end() {
            let (chunk, inside) = (at / self.chunk, at % self.chunk);
            let len = (self.chunk - inside).min(request.end() - at);
            let member = (chunk % count) as usize;
            let local = chunk / count * self.chunk + inside;
            match parts.iter_mut().find(|(m, part)| *m == member && part.end() == local) {
                Some((_, part)) => part.len += len,
                None => parts.push((member, Request { at: local, len, ..request })),
            }
            at += len;
        }
        if parts.is_empty() {
            parts.push((0, request));
        }
        parts
    }
}

impl Disk for Stripe {
    fn capacity(&self) -> u64 {
        let least = self.members.disks.iter().map(|disk| disk.capacity()).min().unwrap_or(0);
        least / self.chunk * self.chunk * self.members.disks.len() as u64
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        let parts = match request.op {
            Op::Flush => self.members.on_all(request),
            Op::Read | Op::Write { .. } => self.split(request),
        };
        self.members.submit(now, tag, &parts);
    }

    fn next_event(&self) -> Option<Time> {
        self.members.next_event()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        self.members.advance(now, done);
    }
}
