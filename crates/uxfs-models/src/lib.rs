//! Modelled disks: how long a disk takes, said in numbers that its data sheet has.
//!
//! A [`Disk`] is pure: it is given requests and moments, and tells when each request is done. It
//! holds no data, has no thread and no clock. [`Description`] is what a disk is made from, as TOML;
//! [`Description::named`] has those that come with the crate. [`VirtualDev`] and [`SleptDev`] make a
//! device of a model and something that holds the bytes: one counts the time, the other sleeps it.
//!
//! 1. A model is a function of its description, its seed and the requests: the same again gives the
//!    same digits.
//! 2. Moments never go back: who calls [`Disk::submit`] has called [`Disk::advance`] for that moment.
//! 3. A request is told done once, at a moment not before it was submitted.
//! 4. A flush is done only when every write that was done before it was submitted is on what keeps
//!    it without power; a write with force-unit-access only when it is itself.
//!
//! ```
//! use uxfs_models::{Description, Request, serve};
//! use uxfs_journal::Time;
//!
//! let mut disk = Description::named("hdd-7200").unwrap().build(1).unwrap();
//! let read = Request::read(200 << 30, 4096);
//! let done = serve(&mut *disk, Time(0), read);
//! assert!((1_000_000..40_000_000).contains(&done.0), "some milliseconds: {done:?}");
//! ```

mod array;
mod battery;
mod cloud;
mod describe;
mod dev;
mod flash;
mod rng;
mod sata;
mod spindle;

use uxfs_journal::Time;

pub use array::{Concat, Mirror, Stripe};
pub use battery::{Battery, BatterySpec};
pub use cloud::{Cloud, CloudSpec};
pub use describe::{Description, Model, NAMES, Problem};
pub use dev::{SleptDev, VirtualClock, VirtualDev};
pub use flash::{Flash, FlashSpec};
pub use sata::Sata;
pub use spindle::{Scheduler, Spindle, SpindleSpec};

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write {
        /// Done only when they are kept without power.
        fua: bool,
    },
    /// All that was written before is to be kept without power.
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub op: Op,
    /// First byte.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Request {
    /// Reads `len` bytes at `at`.
    pub fn read(at: u64, len: u64) -> Self {
        Self { op: Op::Read, at, len }
    }

    /// Writes `len` bytes at `at`.
    pub fn write(at: u64, len: u64) -> Self {
        Self { op: Op::Write { fua: false }, at, len }
    }

    /// Writes `len` bytes at `at`, to be kept without power when done.
    pub fn write_fua(at: u64, len: u64) -> Self {
        Self { op: Op::Write { fua: true }, at, len }
    }

    /// Flushes the cache.
    pub fn flush() -> Self {
        Self { op: Op::Flush, at: 0, len: 0 }
    }

    /// The byte behind its last.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// By what a request is known to who submitted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Done {
    /// When.
    pub at: Time,
    /// Which.
    pub tag: Tag,
}

/// The service-time model of a disk.
pub trait Disk: Send {
    /// Bytes that it holds.
    fn capacity(&self) -> u64;

    /// Takes a request, now.
    fn submit(&mut self, now: Time, tag: Tag, request: Request);

    /// The next moment at which something happens, if nothing more is asked of it.
    fn next_event(&self) -> Option<Time>;

    /// Time goes on to `now`: what is done by then goes to the end of `done`, in order.
    fn advance(&mut self, now: Time, done: &mut Vec<Done>);
}

/// Serves one request alone, from `now` on: the moment it is done.
pub fn serve(disk: &mut dyn Disk, now: Time, request: Request) -> Time {
    let tag = Tag(u64::MAX);
    let mut done = Vec::new();
    disk.advance(now, &mut done);
    disk.submit(now, tag, request);
    let mut at = now;
    loop {
        done.clear();
        disk.advance(at, &mut done);
        if let Some(found) = done.iter().find(|d| d.tag == tag) {
            return found.at;
        }
        match disk.next_event() {
            Some(next) => at = next.max(at),
            None => {
                debug_assert!(false, "a request that is never done");
                return at;
            }
        }
    }
}

/// Requests whose end is known, until it comes.
#[derive(Debug, Default)]
pub(crate) struct Ending(std::collections::BinaryHeap<core::cmp::Reverse<Done>>);

impl Ending {
    pub(crate) fn add(&mut self, at: Time, tag: Tag) {
        self.0.push(core::cmp::Reverse(Done { at, tag }));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|d| d.0.at)
    }

    /// The next that ends by `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Done> {
        let first = self.0.peek_mut()?;
        (first.0.at <= now).then(|| std::collections::binary_heap::PeekMut::pop(first).0)
    }
}

/// Nanoseconds of a number of milliseconds.
pub(crate) fn ms(ms: f64) -> u64 {
    us(ms * 1e3)
}

/// Nanoseconds of a number of microseconds; none of a negative one.
pub(crate) fn us(us: f64) -> u64 {
    // `as` saturates, and takes what is no number as 0.
    (us * 1e3).round() as u64
}

/// Nanoseconds that `len` bytes take at a rate of so many million bytes a second.
pub(crate) fn transfer(len: u64, mb_s: f64) -> u64 {
    us(len as f64 / mb_s)
}

#[cfg(test)]
mod tests;
