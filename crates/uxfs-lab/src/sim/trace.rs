//! The requests of a disk with their times: the source of durability and charts.

use uxfs_models::{Op, Request};

use super::Content;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// A forced write, which is safe when it completes.
    Fua,
    Flush,
}

#[derive(Clone, Debug)]
pub struct Event {
    /// Time of submission.
    pub asked: u64,
    /// Time of completion; `u64::MAX` if it did not complete.
    pub done: u64,
    pub kind: Kind,
    /// First byte.
    pub at: u64,
    pub len: u64,
    pub content: Option<Content>,
}

/// All requests in order of submission.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Whether requests are recorded.
    pub recording: bool,
    pub events: Vec<Event>,
}

impl Trace {
    /// Records a request. Returns its number.
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

    pub(super) fn end(&mut self, number: usize, at: u64) {
        if let Some(event) = self.events.get_mut(number) {
            event.done = at;
        }
    }

    /// For each write, the time from which on a power cut cannot lose it; `u64::MAX` if always
    /// possible. On a disk with a `volatile` cache that is the end of the first flush that began
    /// after its completion.
    pub fn safe(&self, volatile: bool) -> Vec<u64> {
        let flushes = self.events.iter().filter(|event| event.kind == Kind::Flush);
        let mut flushes: Vec<(u64, u64)> = flushes.map(|event| (event.asked, event.done)).collect();
        flushes.sort_unstable();
        // The earliest end of the flushes that begin then or later.
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

    /// Number of requests of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.events.iter().filter(|event| event.kind == kind).count() as u64
    }
}
