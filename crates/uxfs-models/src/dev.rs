//! Devices that combine a model, which determines the time of each call, with a device for the
//! data.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use uxfs_disk::BlockDev;
use uxfs_journal::Time;

use crate::{Disk, Done, Request, Tag, serve};

/// A simulated clock, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Acquire))
    }

    /// Advances the clock to `time`, unless it is later already.
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::AcqRel);
    }
}

/// A device with a simulated clock: each call advances the clock by the time that the model
/// computes. Calls are serialised, so a run with one thread is exactly repeatable.
pub struct VirtualDev<D> {
    dev: D,
    model: Mutex<Box<dyn Disk>>,
    clock: VirtualClock,
}

impl<D: BlockDev> VirtualDev<D> {
    /// `dev` holds the data, `model` determines the time.
    pub fn new(dev: D, model: Box<dyn Disk>, clock: VirtualClock) -> Self {
        Self { dev, model: Mutex::new(model), clock }
    }

    fn charge(&self, request: Request) {
        let mut model = self.model.lock();
        let done = serve(&mut **model, self.clock.now(), request);
        self.clock.advance_to(done);
    }
}

impl<D: BlockDev> BlockDev for VirtualDev<D> {
    uxfs_disk::forward!(self => self.dev;
        len, discard, allocate, check_present, warning, read_only, sector_size);
    uxfs_disk::emulate!(write_bulk_at, zero);
    // Forced writes are the model's to price; a file below would bypass it.
    uxfs_disk::without!(has_fua, will_read, will_write_bulk, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(offset, buf)?;
        self.charge(Request::read(offset, buf.len() as u64));
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, data)?;
        self.charge(Request::write(offset, data.len() as u64));
        Ok(())
    }

    /// One request of the model, as on a device that takes a list of pieces.
    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.dev.write_vectored_at(offset, pieces)?;
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.charge(Request::write(offset, len));
        Ok(())
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_fua_at(offset, data)?;
        self.charge(Request::write_fua(offset, data.len() as u64));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.dev.flush()?;
        self.charge(Request::flush());
        Ok(())
    }
}

struct RealTimeState {
    model: Box<dyn Disk>,
    next: u64,
    done: HashMap<Tag, Time>,
    found: Vec<Done>,
}

/// A device whose calls take, in real time, as long as the model computes. Calls of several threads
/// overlap as on the modelled disk.
pub struct RealTimeDev<D> {
    dev: D,
    begun: Instant,
    state: Mutex<RealTimeState>,
    completed: Condvar,
}

impl<D: BlockDev> RealTimeDev<D> {
    /// `dev` holds the data, `model` determines how long to sleep.
    pub fn new(dev: D, model: Box<dyn Disk>) -> Self {
        let state = RealTimeState { model, next: 0, done: HashMap::new(), found: Vec::new() };
        Self { dev, begun: Instant::now(), state: Mutex::new(state), completed: Condvar::new() }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until the request completes.
    fn sleep(&self, request: Request) {
        let mut state = self.state.lock();
        let tag = Tag(state.next);
        state.next += 1;
        let now = self.now();
        self.advance_to(&mut state, now);
        state.model.submit(now, tag, request);
        loop {
            self.advance(&mut state);
            if state.done.remove(&tag).is_some() {
                return;
            }
            let next = state.model.next_event().unwrap_or(Time(u64::MAX));
            let left = Duration::from_nanos(next.0.saturating_sub(self.now().0));
            self.completed.wait_for(&mut state, left);
        }
    }

    fn advance(&self, state: &mut RealTimeState) {
        let now = self.now();
        self.advance_to(state, now);
    }

    fn advance_to(&self, state: &mut RealTimeState, now: Time) {
        state.model.advance(now, &mut state.found);
        let any = !state.found.is_empty();
        let found: Vec<Done> = state.found.drain(..).collect();
        state.done.extend(found.into_iter().map(|done| (done.tag, done.at)));
        if any {
            self.completed.notify_all();
        }
    }
}

impl<D: BlockDev> BlockDev for RealTimeDev<D> {
    uxfs_disk::forward!(self => self.dev;
        len, discard, allocate, check_present, warning, read_only, sector_size);
    uxfs_disk::emulate!(write_bulk_at, zero);
    // Forced writes are the model's to price; a file below would bypass it.
    uxfs_disk::without!(has_fua, will_read, will_write_bulk, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(offset, buf)?;
        self.sleep(Request::read(offset, buf.len() as u64));
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, data)?;
        self.sleep(Request::write(offset, data.len() as u64));
        Ok(())
    }

    /// One request of the model, as on a device that takes a list of pieces.
    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.dev.write_vectored_at(offset, pieces)?;
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.sleep(Request::write(offset, len));
        Ok(())
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_fua_at(offset, data)?;
        self.sleep(Request::write_fua(offset, data.len() as u64));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.dev.flush()?;
        self.sleep(Request::flush());
        Ok(())
    }
}
