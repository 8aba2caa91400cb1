//! A device that logs all writes and flushes in order.
//!
//! 1. A write is logged when the device below has taken it, with its bytes. A write that fails is
//!    not logged.
//! 2. A flush is logged and not passed on: what it makes durable follows from the log
//!    ([`Recording`](crate::Recording)), not from the device below.
//! 3. A vectored write is one event, unless [`RecordDev::in_pieces`] was asked for. A bulk write is
//!    a write, zeroing is writes of zeroes, and a forced write on a device without FUA is a write
//!    and a flush.
//! 4. A mark stands in the log where the caller placed it.

use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, planted};

/// An event on the device, or a mark of the code above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<M = ()> {
    /// A write ended.
    Write {
        /// First byte.
        offset: u64,
        /// The data written.
        data: Arc<[u8]>,
        /// A forced write (FUA): it is durable, but makes no other write durable.
        fua: bool,
    },
    /// A flush ended: every write before it is durable.
    Flush,
    /// The caller reached this point.
    Mark(M),
}

pub struct RecordDev<D, M = ()> {
    below: D,
    events: Option<Mutex<Vec<Event<M>>>>,
    fua: bool,
    pieces: bool,
}

impl<D: BlockDev, M> RecordDev<D, M> {
    /// Logs the writes to `below`.
    pub fn new(below: D) -> Self {
        Self { below, events: Some(Mutex::new(Vec::new())), fua: false, pieces: false }
    }

    /// A device of the same type that keeps no log.
    pub fn forgetful(below: D) -> Self {
        Self { below, events: None, fua: false, pieces: false }
    }

    /// Sets whether it offers forced writes.
    #[must_use]
    pub fn with_fua(mut self, fua: bool) -> Self {
        self.fua = fua;
        self
    }

    /// Takes each piece of a vectored write as a write of its own.
    #[must_use]
    pub fn in_pieces(mut self) -> Self {
        self.pieces = true;
        self
    }

    /// Does it keep a log?
    pub fn records(&self) -> bool {
        self.events.is_some()
    }

    /// Places a mark in the log.
    pub fn mark(&self, mark: M) {
        self.note(Event::Mark(mark));
    }

    /// Number of events in the log.
    pub fn len_of_log(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.lock().len())
    }

    /// Takes the log; it is empty afterwards.
    pub fn take(&self) -> Vec<Event<M>> {
        self.events.as_ref().map(|events| core::mem::take(&mut *events.lock())).unwrap_or_default()
    }

    /// The device below, which holds the content.
    pub fn below(&self) -> &D {
        &self.below
    }

    fn note(&self, event: Event<M>) {
        if let Some(events) = &self.events {
            events.lock().push(event);
        }
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        self.below.write_at(offset, data)?;
        if self.records() {
            self.note(Event::Write { offset, data: data.into(), fua });
        }
        Ok(())
    }
}

impl<D: BlockDev, M: Send> BlockDev for RecordDev<D, M> {
    uxfs_disk::forward!(self => self.below; len, read_at, read_only, sector_size);
    uxfs_disk::emulate!(write_bulk_at, zero);
    uxfs_disk::without!(
        discard,
        allocate,
        check_present,
        warning,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        if self.pieces {
            return uxfs_disk::explicit::write_pieces(self, offset, pieces);
        }
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.write(offset, &whole, false)
    }

    fn has_fua(&self) -> bool {
        self.fua
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.fua {
            return self.write(offset, data, !planted(Fault::FlushDropped));
        }
        self.write_at(offset, data)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        if !planted(Fault::FlushDropped) {
            self.note(Event::Flush);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;
    use crate::{FaultDev, Op, Rule};

    fn write(offset: u64, data: &[u8], fua: bool) -> Event<u8> {
        Event::Write { offset, data: data.into(), fua }
    }

    #[test]
    fn the_log_holds_all_that_changed_the_device_in_order() {
        let dev = RecordDev::new(MemDev::new(4096));
        dev.write_at(1, &[1, 2]).unwrap();
        dev.flush().unwrap();
        dev.mark(9);
        dev.write_vectored_at(3, &[IoSlice::new(&[3]), IoSlice::new(&[4, 5])]).unwrap();
        dev.write_fua_at(6, &[6]).unwrap();
        dev.zero(0, 2).unwrap();
        dev.write_bulk_at(7, &[7]).unwrap();
        let mut found = [0; 8];
        dev.read_at(0, &mut found).unwrap();
        assert_eq!(found, [0, 0, 2, 3, 4, 5, 6, 7]);
        let expected = [
            write(1, &[1, 2], false),
            Event::Flush,
            Event::Mark(9),
            write(3, &[3, 4, 5], false),
            write(6, &[6], false),
            Event::Flush,
            write(0, &[0, 0], false),
            write(7, &[7], false),
        ];
        assert_eq!(dev.len_of_log(), expected.len());
        assert_eq!(dev.take(), expected);
        assert_eq!(dev.take(), []);
    }

    #[test]
    fn forced_writes_and_pieces_are_logged_as_asked() {
        let dev = RecordDev::<_, u8>::new(MemDev::new(4096)).with_fua(true).in_pieces();
        assert!(dev.has_fua());
        dev.write_fua_at(0, &[1]).unwrap();
        dev.write_vectored_at(3, &[IoSlice::new(&[3]), IoSlice::new(&[4])]).unwrap();
        assert_eq!(
            dev.take(),
            [write(0, &[1], true), write(3, &[3], false), write(4, &[4], false)]
        );
    }

    #[test]
    fn a_write_that_failed_is_not_logged() {
        let below = FaultDev::new(MemDev::new(4096));
        below.add(Rule::on(Op::WRITES).times(1).fail(5));
        let dev = RecordDev::<_, u8>::new(below);
        dev.write_at(0, &[1]).unwrap_err();
        dev.write_at(0, &[2]).unwrap();
        assert_eq!(dev.take(), [write(0, &[2], false)]);
    }

    #[test]
    fn a_forgetful_device_keeps_its_content_only() {
        let dev = RecordDev::<_, u8>::forgetful(MemDev::new(4096));
        dev.write_at(0, &[1]).unwrap();
        dev.flush().unwrap();
        dev.mark(1);
        assert!(!dev.records() && dev.take().is_empty() && dev.len_of_log() == 0);
        let mut found = [0];
        dev.read_at(0, &mut found).unwrap();
        assert_eq!(found, [1]);
    }
}
