//! Disk models: they compute how long the requests to a disk take, from the figures in its data
//! sheet.
//!
//! A [`Disk`] gets requests and times and reports when each request completes. It holds no data and
//! has no thread and no clock. A [`Description`] holds a disk's parameters as TOML;
//! [`Description::named`] returns those that the crate includes. [`VirtualDev`] and [`RealTimeDev`]
//! combine a model with a device for the data: the first advances a simulated clock, the second
//! sleeps. [`SwitchedDev`] adds a volatile cache, and a switch that cuts the power.
//!
//! 1. The result depends only on the description, the seed and the requests; a repeated run has
//!    exactly the same times.
//! 2. Time never goes backwards: the caller calls [`Disk::advance`] for a time before it calls
//!    [`Disk::submit`] with that time.
//! 3. A request completes once, at a time not before it was submitted.
//! 4. A flush completes only when all writes that completed before it was submitted are durable. A
//!    write with force unit access completes only when it is durable itself.
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
mod fault;
mod flash;
mod power;
mod sata;
mod spindle;

use uxfs_journal::Time;

pub use array::{Concat, Mirror, Stripe};
pub use battery::{Battery, BatterySpec};
pub use cloud::{Cloud, CloudSpec};
pub use describe::{Description, Model, NAMES, Problem};
pub use dev::{RealTimeDev, VirtualClock, VirtualDev};
pub use fault::DeviceFault;
pub use flash::{Flash, FlashSpec};
pub use power::{Cut, SwitchedDev};
pub use sata::Sata;
pub use spindle::{Scheduler, Spindle, SpindleSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write {
        /// Force unit access: the write completes only when it is durable.
        fua: bool,
    },
    /// Make all completed writes durable.
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub op: Op,
    /// Offset in bytes.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Request {
    /// A read of `len` bytes at `at`.
    pub fn read(at: u64, len: u64) -> Self {
        Self { op: Op::Read, at, len }
    }

    /// A write of `len` bytes at `at`.
    pub fn write(at: u64, len: u64) -> Self {
        Self { op: Op::Write { fua: false }, at, len }
    }

    /// A write of `len` bytes at `at` with force unit access.
    pub fn write_fua(at: u64, len: u64) -> Self {
        Self { op: Op::Write { fua: true }, at, len }
    }

    pub fn flush() -> Self {
        Self { op: Op::Flush, at: 0, len: 0 }
    }

    /// Offset of the first byte behind the request.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// Identifies a request; chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Done {
    /// Time of completion.
    pub at: Time,
    pub tag: Tag,
}

/// A model of a disk's service times.
pub trait Disk: Send {
    /// Capacity in bytes.
    fn capacity(&self) -> u64;

    /// Submits a request at the time `now`.
    fn submit(&mut self, now: Time, tag: Tag, request: Request);

    /// The time of the next event if no further request is submitted; `None` if there is none.
    fn next_event(&self) -> Option<Time>;

    /// Advances to the time `now` and appends the requests completed by then to `done`, in order.
    fn advance(&mut self, now: Time, done: &mut Vec<Done>);
}

/// Submits one request at `now` and returns the time of its completion.
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
                debug_assert!(false, "a request never completes");
                return at;
            }
        }
    }
}

/// Requests whose time of completion is known and not reached yet.
#[derive(Debug, Default)]
pub(crate) struct Completions(std::collections::BinaryHeap<core::cmp::Reverse<Done>>);

impl Completions {
    pub(crate) fn add(&mut self, at: Time, tag: Tag) {
        self.0.push(core::cmp::Reverse(Done { at, tag }));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|d| d.0.at)
    }

    /// Removes the next request that completes by `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Done> {
        let first = self.0.peek_mut()?;
        (first.0.at <= now).then(|| std::collections::binary_heap::PeekMut::pop(first).0)
    }
}

/// Converts milliseconds to nanoseconds.
pub(crate) fn ms(ms: f64) -> u64 {
    us(ms * 1e3)
}

/// Converts microseconds to nanoseconds; a negative number becomes 0.
pub(crate) fn us(us: f64) -> u64 {
    // `as` saturates, and converts NaN to 0.
    (us * 1e3).round() as u64
}

/// Time in nanoseconds to transfer `len` bytes at `mb_s` times 10^6 bytes per second.
pub(crate) fn transfer(len: u64, mb_s: f64) -> u64 {
    us(len as f64 / mb_s)
}

#[cfg(test)]
mod tests;
