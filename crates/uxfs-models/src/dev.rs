//! A model made a device: something else holds the bytes, the model says how long it took.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use uxfs_disk::BlockDev;
use uxfs_journal::Time;

use crate::{Disk, Done, Request, Tag, serve};

/// A clock that goes on only when it is told to.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// Now.
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Acquire))
    }

    /// It is at least so late.
    pub fn reach(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::AcqRel);
    }
}

/// A device whose clock goes on by what the model says each call took. One call at a time: a run of
/// one thread is exactly repeatable.
pub struct VirtualDev<D> {
    dev: D,
    model: Mutex<Box<dyn Disk>>,
    clock: VirtualClock,
}

impl<D: BlockDev> VirtualDev<D> {
    /// `dev` holds the bytes, `model` tells the time.
    pub fn new(dev: D, model: Box<dyn Disk>, clock: VirtualClock) -> Self {
        Self { dev, model: Mutex::new(model), clock }
    }

    fn took(&self, request: Request) {
        let mut model = self.model.lock();
        let done = serve(&mut **model, self.clock.now(), request);
        self.clock.reach(done);
    }
}

impl<D: BlockDev> BlockDev for VirtualDev<D> {
    fn len(&self) -> u64 {
        self.dev.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(offset, buf)?;
        self.took(Request::read(offset, buf.len() as u64));
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, data)?;
        self.took(Request::write(offset, data.len() as u64));
        Ok(())
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, data)?;
        self.took(Request::write_fua(offset, data.len() as u64));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.took(Request::flush());
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dev.allocate(offset, len)
    }

    fn check_present(&self) -> io::Result<()> {
        self.dev.check_present()
    }

    fn warning(&self) -> Option<String> {
        self.dev.warning()
    }

    fn read_only(&self) -> bool {
        self.dev.read_only()
    }
}

struct Slept {
    model: Box<dyn Disk>,
    next: u64,
    done: HashMap<Tag, Time>,
    found: Vec<Done>,
}

/// A device on which each call takes, in real time, as long as the model says; calls of several
/// threads overlap as they would on the disk.
pub struct SleptDev<D> {
    dev: D,
    begun: Instant,
    state: Mutex<Slept>,
    completed: Condvar,
}

impl<D: BlockDev> SleptDev<D> {
    /// `dev` holds the bytes, `model` tells how long to sleep.
    pub fn new(dev: D, model: Box<dyn Disk>) -> Self {
        let state = Slept { model, next: 0, done: HashMap::new(), found: Vec::new() };
        Self { dev, begun: Instant::now(), state: Mutex::new(state), completed: Condvar::new() }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until the request is done.
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

    fn advance(&self, state: &mut Slept) {
        let now = self.now();
        self.advance_to(state, now);
    }

    fn advance_to(&self, state: &mut Slept, now: Time) {
        state.model.advance(now, &mut state.found);
        let any = !state.found.is_empty();
        let found: Vec<Done> = state.found.drain(..).collect();
        state.done.extend(found.into_iter().map(|done| (done.tag, done.at)));
        if any {
            self.completed.notify_all();
        }
    }
}

impl<D: BlockDev> BlockDev for SleptDev<D> {
    fn len(&self) -> u64 {
        self.dev.len()
    }

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

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, data)?;
        self.sleep(Request::write_fua(offset, data.len() as u64));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.sleep(Request::flush());
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dev.allocate(offset, len)
    }

    fn check_present(&self) -> io::Result<()> {
        self.dev.check_present()
    }

    fn warning(&self) -> Option<String> {
        self.dev.warning()
    }

    fn read_only(&self) -> bool {
        self.dev.read_only()
    }
}
