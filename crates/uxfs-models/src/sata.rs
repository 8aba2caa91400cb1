//! A SATA port: it queues the commands of a disk, except flushes.
//!
//! FLUSH CACHE and FLUSH CACHE EXT are non-queued commands (ATA8-ACS). The host sends one after all
//! queued commands have ended, and sends no other command until the flush has ended.
//!
//! 1. While a flush is in progress, no other command is, and no second flush.
//! 2. Requests go to the disk in the order in which they were submitted.

use std::collections::{HashSet, VecDeque};

use uxfs_journal::Time;

use crate::{Disk, Done, Op, Request, Tag};

/// A disk behind a SATA port.
pub struct Sata {
    disk: Box<dyn Disk>,
    /// Requests that were sent to the disk and have not completed.
    sent: HashSet<Tag>,
    flushing: bool,
    waiting: VecDeque<(Tag, Request)>,
}

impl Sata {
    /// A port in front of `disk`.
    pub fn new(disk: Box<dyn Disk>) -> Self {
        Self { disk, sent: HashSet::new(), flushing: false, waiting: VecDeque::new() }
    }

    /// Sends the requests that may be sent now.
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
        // Handle each completion at its own time, to send requests that waited for it.
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
