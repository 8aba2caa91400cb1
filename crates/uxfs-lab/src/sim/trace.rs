//! What a disk was asked, when, and when it was done: what durability and charts are derived from.

use uxfs_models::{Op, Request};

use super::Content;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// Bytes were written, to be kept without power when done.
    Fua,
    /// The cache was flushed.
    Flush,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was asked.
    pub asked: u64,
    /// When it was done; `u64::MAX` if it was not.
    pub done: u64,
    /// What.
    pub kind: Kind,
    /// First byte.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
    /// What was written.
    pub content: Option<Content>,
}

/// All of them, in the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Whether anything is kept.
    pub recording: bool,
    /// Requests.
    pub events: Vec<Event>,
}

impl Trace {
    /// A request is asked; by which number it is known.
    pub(super) fn begin(&mut self, now: u64, request: Request, content: Option<Content>) -> usize {
        if !self.recording {
            return usize::MAX;
        }
        let kind = match request.op {
            Op::Read => Kind::Read,
            Op::Write { fua: false } => Kind::Write,
            Op::Write { fua: true } => Kind::Fua,
            Op::Flush => Kind::Flush,
        };
        let (at, len) = (request.at, request.len);
        self.events.push(Event { asked: now, done: u64::MAX, kind, at, len, content });
        self.events.len() - 1
    }

    /// A request was done.
    pub(super) fn end(&mut self, number: usize, at: u64) {
        if let Some(event) = self.events.get_mut(number) {
            event.done = at;
        }
    }

    /// For each write, from when on a power cut could not take it any more; `u64::MAX` where it
    /// could at any time. On a disk whose cache is `volatile` that is the end of the first flush
    /// that began when it was done.
    pub fn safe(&self, volatile: bool) -> Vec<u64> {
        let flushes = self.events.iter().filter(|event| event.kind == Kind::Flush);
        let mut flushes: Vec<(u64, u64)> = flushes.map(|event| (event.asked, event.done)).collect();
        flushes.sort_unstable();
        // The earliest end of those that begin then or later.
        for at in (0..flushes.len().saturating_sub(1)).rev() {
            flushes[at].1 = flushes[at].1.min(flushes[at + 1].1);
        }
        let covered = |done: u64| {
            let first = flushes.partition_point(|(asked, _)| *asked < done);
            flushes.get(first).map_or(u64::MAX, |flush| flush.1)
        };
        let safe = |event: &Event| match event.kind {
            _ if event.done == u64::MAX => u64::MAX,
            Kind::Write if volatile => covered(event.done),
            Kind::Write | Kind::Fua => event.done,
            Kind::Read | Kind::Flush => 0,
        };
        self.events.iter().map(safe).collect()
    }

    /// Writes, forced ones among them.
    pub fn writes(&self) -> impl Iterator<Item = (usize, &Event)> {
        let written = |(_, event): &(usize, &Event)| matches!(event.kind, Kind::Write | Kind::Fua);
        self.events.iter().enumerate().filter(written)
    }

    /// How many of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.events.iter().filter(|event| event.kind == kind).count() as u64
    }
}
