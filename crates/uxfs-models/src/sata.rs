//! A SATA port: the commands of a disk are queued, its flushes are not.
//!
//! FLUSH CACHE and FLUSH CACHE EXT are no queued commands (ATA8-ACS): the host sends one when all
//! queued commands have ended, and sends nothing else until the flush has ended.
//!
//! 1. While a flush is under way nothing else is, and never are two flushes.
//! 2. Requests go to the disk in the order in which they came.

use std::collections::{HashSet, VecDeque};

use uxfs_journal::Time;

use crate::{Disk, Done, Op, Request, Tag};

/// A disk behind a SATA port.
pub struct Sata {
    disk: Box<dyn Disk>,
    /// Sent to the disk and not done.
    sent: HashSet<Tag>,
    flushing: bool,
    waiting: VecDeque<(Tag, Request)>,
}

impl Sata {
    /// A port with `disk` behind it.
    pub fn new(disk: Box<dyn Disk>) -> Self {
        Self { disk, sent: HashSet::new(), flushing: false, waiting: VecDeque::new() }
    }

    /// Sends what may be sent.
    fn send(&mut self, now: Time) {
        while let Some((tag, request)) = self.waiting.front().copied() {
            let flush = request.op == Op::Flush;
            if self.flushing || flush && !self.sent.is_empty() {
                break;
            }
            self.waiting.pop_front();
            self.flushing = flush;
            self.sent.insert(tag);
            self.disk.submit(now, tag, request);
        }
    }

    fn ended(&mut self, ended: &[Done]) {
        for Done { tag, .. } in ended {
            self.sent.remove(tag);
            self.flushing = false;
        }
    }
}

impl Disk for Sata {
    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    fn submit(&mut self, now: Time, tag: Tag, request: Request) {
        self.waiting.push_back((tag, request));
        self.send(now);
    }

    fn next_event(&self) -> Option<Time> {
        self.disk.next_event()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<Done>) {
        // Each end is looked at when it comes: then what waited for it is sent.
        while let Some(next) = self.disk.next_event().filter(|next| *next <= now) {
            let first = done.len();
            self.disk.advance(next, done);
            self.ended(&done[first..]);
            self.send(next);
        }
        let first = done.len();
        self.disk.advance(now, done);
        self.ended(&done[first..]);
        self.send(now);
    }
}
