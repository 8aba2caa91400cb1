//! Trace rules: conditions on every write and flush of a journaled volume, checked as they are
//! made.
//!
//! [`RuledDev`] wraps any device. It reads the log records that are written, derives from them the
//! state of every object in every durable checkpoint, and checks each write before it reaches the
//! device below. It shares nothing with the engine's own view of durability: a write counts as
//! written when it ends, and is safe after a flush that began after that, or if it was forced.
//!
//! 1. **In place.** A write in place of metadata is the state of a durable checkpoint, with that
//!    checkpoint's LSN or an earlier one; or it is what lies there already.
//! 2. **Data first.** A block that a checkpoint newly maps as written was written since it was last
//!    free, and flushed before the record that commits the checkpoint is written.
//! 3. **Reuse.** Data is not written into a block that is metadata, or whose free is in a
//!    checkpoint that is not durable; and no checkpoint maps a block that it takes from another
//!    owner.
//! 4. **Tail.** Recovery from the tail that a record names reaches everything durable: for every
//!    object, the safe state in place and the log from the tail on give its last durable state.
//! 5. **Window.** No more of the log is written without a flush than recovery's search for the head
//!    looks back over: 2 MiB.
//! 6. **Order.** Records follow each other without a gap, with their cycle, LSN and checksum. A
//!    checkpoint does not begin inside another one. Tails do not move back. Nothing after the last
//!    durable tail is overwritten.
//! 7. **Stopped.** After a failed flush, or a failed write of log or metadata for another reason
//!    than a full host, the thread that got the error writes nothing more; nor does any other once
//!    the volume's owner knows ([`RuledDev::stopped`]).
//!
//! Not checked: the superblock's counters and label, its copies, and how many bytes of a block were
//! written. With file blocks that may be shared or exchanged, a block may change owners inside one
//! checkpoint.
//!
//! A dirty log is not followed. The rules apply from the moment when recovery has left it clean.

mod log;
mod model;
mod object;
mod space;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use uxfs_disk::{BlockDev, host};

use model::Model;

/// The rules, by their numbers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Only durable states are written in place.
    InPlace = 1,
    /// Data is flushed before the commit that maps it.
    DataFirst = 2,
    /// No reuse before the free is durable.
    Reuse = 3,
    /// The tail does not pass objects that are not in place.
    Tail = 4,
    /// The unflushed log stays within reach of recovery's search.
    Window = 5,
    /// Records are in order.
    Order = 6,
    /// Nothing is written after a failure.
    Stopped = 7,
}

/// A rule that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: Rule,
    /// Number of the event, from 1: writes and flushes counted together.
    pub event: u64,
    /// Byte offset on the device.
    pub at: u64,
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, event, at, problem } = self;
        let daddr = at / 512;
        write!(f, "trace rule {} ({rule:?}), event {event}, daddr {daddr}: {problem}", *rule as u8)
    }
}

impl std::error::Error for Violation {}

/// The result of a check: rule, offset, problem.
type Broken = (Rule, u64, String);

/// The state of the device below.
#[derive(Default)]
struct DeviceState {
    /// Events that began.
    event: u64,
    /// Writes up to this event are safe.
    flushed: u64,
    /// The thread that got a failure.
    failed: Option<ThreadId>,
    /// The volume's owner knows of it.
    stopped: bool,
}

struct State {
    device: DeviceState,
    model: Option<Model>,
    /// The log was written while it was not followed.
    log_touched: bool,
    broken: Option<Violation>,
    reported: bool,
}

/// A device that enforces the rules: a write that breaks one fails and does not reach the device
/// below. It panics when dropped with a violation that was not asked for.
pub struct RuledDev {
    inner: Arc<dyn BlockDev>,
    /// The same device, for reading.
    view: Arc<dyn BlockDev>,
    state: Mutex<State>,
}

impl RuledDev {
    /// Enforces the rules on `inner`, which holds a volume.
    pub fn new(inner: Arc<dyn BlockDev>) -> Self {
        let view = Arc::clone(&inner);
        Self::with_view(inner, view)
    }

    /// As [`RuledDev::new`], but reads through `view`, another way to the same bytes: `inner` may
    /// fail, or count.
    pub fn with_view(inner: Arc<dyn BlockDev>, view: Arc<dyn BlockDev>) -> Self {
        let model = Model::from_clean_log(&*view);
        let device = DeviceState::default();
        let state = State { device, model, log_touched: false, broken: None, reported: false };
        Self { inner, view, state: Mutex::new(state) }
    }

    /// The first violation, if there was one.
    pub fn violation(&self) -> Option<Violation> {
        let mut state = self.state.lock();
        state.reported = true;
        state.broken.clone()
    }

    /// Passes if no rule was broken.
    ///
    /// # Errors
    /// The first violation.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.violation().map_or(Ok(()), Err)
    }

    /// Did a write or flush of log or metadata fail, on the device below?
    pub fn failure(&self) -> bool {
        self.state.lock().device.failed.is_some()
    }

    /// Notes that the volume is shut down: no thread may write any more.
    pub fn stopped(&self) {
        self.state.lock().device.stopped = true;
    }

    /// Number of checkpoints followed.
    pub fn checkpoints(&self) -> u64 {
        self.state.lock().model.as_ref().map_or(0, Model::checkpoints)
    }

    /// Begins an event, and checks it.
    fn begin(
        &self,
        at: u64,
        judge: impl FnOnce(&mut Model, &dyn BlockDev, &DeviceState) -> Result<(), Broken>,
    ) -> io::Result<u64> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(broken) = &state.broken {
            return Err(io::Error::other(broken.to_string()));
        }
        state.device.event += 1;
        let event = state.device.event;
        let forbidden = state.device.stopped
            || state.device.failed.is_some_and(|id| id == thread::current().id());
        let judged = match (&mut state.model, forbidden) {
            (_, true) => Err((Rule::Stopped, at, "after a failure".into())),
            (Some(model), false) => judge(model, &*self.view, &state.device),
            (None, false) => Ok(()),
        };
        judged.map_err(|(rule, at, problem)| {
            let violation = Violation { rule, event, at, problem };
            let text = violation.to_string();
            state.broken = Some(violation);
            io::Error::other(text)
        })?;
        Ok(event)
    }

    fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        go: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let judge = |model: &mut Model, dev: &dyn BlockDev, device: &DeviceState| {
            model.write(dev, device, offset, data)
        };
        self.suspend_for_recovery(offset, data);
        let begun = self.begin(offset, judge)?;
        let done = go();
        let mut state = self.state.lock();
        let state = &mut *state;
        let ended = state.device.event;
        match (&mut state.model, &done) {
            (Some(model), Ok(())) => {
                // A flush that began meanwhile may not cover it.
                model.written(data.len() as u64, begun, ended, fua, state.device.flushed);
            }
            // A write that fails because the host is full is retried: in place it counts as not
            // written; in the log the content is unknown.
            (Some(model), Err(error)) if host::is_full(error) => {
                if !model.refused(begun) {
                    state.model = None;
                    state.log_touched = true;
                }
            }
            (Some(model), Err(_)) => {
                if !model.is_data(begun) {
                    state.device.failed = Some(thread::current().id());
                }
            }
            (None, _) => state.log_touched = true,
        }
        done
    }

    /// Stops following: recovery clears stale blocks ahead of the head.
    fn suspend_for_recovery(&self, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        if state.model.as_ref().is_some_and(|model| model.is_cleared(offset, data)) {
            state.model = None;
        }
    }

    /// Starts to follow a log that is clean now.
    fn resume(&self, state: &mut State) {
        if state.model.is_none() && core::mem::take(&mut state.log_touched) {
            state.model = Model::from_clean_log(&*self.view);
        }
    }
}

impl BlockDev for RuledDev {
    uxfs_disk::emulate!(write_vectored_at, zero);
    uxfs_disk::without!(
        allocate,
        check_present,
        warning,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false, || self.inner.write_at(offset, data))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false, || self.inner.write_bulk_at(offset, data))
    }

    fn has_fua(&self) -> bool {
        self.inner.has_fua()
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, true, || self.inner.write_fua_at(offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        let began = self.begin(0, |_, _, _| Ok(()))?;
        let done = self.inner.flush();
        let mut state = self.state.lock();
        let state = &mut *state;
        match &done {
            Ok(()) => {
                // Writes that ended before it began are safe.
                state.device.flushed = state.device.flushed.max(began - 1);
                match &mut state.model {
                    Some(model) => model.flushed(state.device.flushed),
                    None => self.resume(state),
                }
            }
            Err(_) => state.device.failed = Some(thread::current().id()),
        }
        done
    }

    fn discard(&self, offset: u64, len: u64) {
        self.inner.discard(offset, len);
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }
}

impl Drop for RuledDev {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let (Some(broken), false, false) = (&state.broken, state.reported, thread::panicking()) {
            panic!("{broken}");
        }
    }
}
