//! A device that records every write and flush in order.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs::disk::BlockDev;
use uxfs::disk::fault::{Fault, planted};

use crate::pages::Pages;

/// An event on the device, or above it.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write ended.
    Write {
        /// First byte.
        offset: u64,
        /// What was written.
        data: Arc<[u8]>,
        /// A forced write (FUA): it is safe, but covers no other writes.
        fua: bool,
    },
    /// A flush ended: every write before it is safe.
    Flush,
    /// The workload began this step.
    Step(usize),
    /// Everything up to this step was acknowledged as durable.
    Durable(usize),
}

/// The device.
pub struct RecordDev {
    pages: Pages,
    events: Option<Mutex<Vec<Event>>>,
    fua: bool,
}

impl RecordDev {
    /// Records on top of `pages`.
    pub fn new(pages: Pages) -> Self {
        Self { pages, events: Some(Mutex::default()), fua: false }
    }

    /// A device that only keeps its content.
    pub fn forgetful(pages: Pages) -> Self {
        Self { pages, events: None, fua: false }
    }

    /// Whether it knows force-unit-access.
    pub fn with_fua(mut self, fua: bool) -> Self {
        self.fua = fua;
        self
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        self.pages.write_at(offset, data)?;
        if self.events.is_some() {
            self.note(Event::Write { offset, data: data.into(), fua });
        }
        Ok(())
    }

    /// Does it keep what happens?
    pub fn records(&self) -> bool {
        self.events.is_some()
    }

    /// Notes something that happened above the device.
    pub fn note(&self, event: Event) {
        if let Some(events) = &self.events {
            events.lock().push(event);
        }
    }

    /// What was recorded so far.
    pub fn take(&self) -> Vec<Event> {
        self.events.as_ref().map(|events| core::mem::take(&mut *events.lock())).unwrap_or_default()
    }

    /// What is on it.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl BlockDev for RecordDev {
    uxfs::disk::emulate!(write_vectored_at, write_bulk_at, zero);
    uxfs::disk::without!(discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.pages.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pages.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false)
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

    fn read_only(&self) -> bool {
        false
    }
}
