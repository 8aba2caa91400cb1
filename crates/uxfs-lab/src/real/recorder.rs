//! A file as a disk in real time, with a trace of its requests: the same trace as of simulated
//! disks, so that the same durability is derived and the same cuts are made.

use std::io::{self, IoSlice};
use std::time::Instant;

use parking_lot::Mutex;
use uxfs::disk::{BlockDev, FileDev};

use crate::sim::{Content, Event, Kind, Trace};

/// The device. Forced writes are writes and a flush.
pub(super) struct Recorder {
    below: FileDev,
    since: Instant,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    pub(super) fn new(below: FileDev) -> Self {
        Self { below, since: Instant::now(), events: Mutex::default() }
    }

    /// Nanoseconds since it was made.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The requests so far.
    pub(super) fn take(&self) -> Trace {
        Trace { recording: false, events: core::mem::take(&mut *self.events.lock()) }
    }

    fn noted(
        &self,
        kind: Kind,
        content: Option<Content>,
        ask: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (at, len) = content.as_ref().map_or((0, 0), |c| (c.at(), c.len()));
        let number = {
            let mut events = self.events.lock();
            let asked = self.now();
            events.push(Event { asked, done: u64::MAX, kind, at, len, content });
            events.len() - 1
        };
        let answer = ask();
        if answer.is_ok() {
            let mut events = self.events.lock();
            let now = self.now();
            if let Some(event) = events.get_mut(number) {
                event.done = now;
            }
        }
        answer
    }
}

impl BlockDev for Recorder {
    uxfs::disk::without!(
        has_fua,
        discard,
        allocate,
        check_present,
        warning,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let content = Content::new(offset, data);
        self.noted(Kind::Write, Some(content), || self.below.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let content = Content::new(offset, &all);
        let ask = || self.below.write_vectored_at(offset, pieces);
        self.noted(Kind::Write, Some(content), ask)
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let content = Content::new(offset, data);
        self.noted(Kind::Write, Some(content), || self.below.write_bulk_at(offset, data))
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        self.noted(Kind::Flush, None, || self.below.flush())
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        // As large as memory allows: the log is cleared when a volume is made, not here.
        let zeroes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        let content = Content::new(offset, &zeroes);
        self.noted(Kind::Write, Some(content), || self.below.zero(offset, len))
    }

    fn read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }
}
