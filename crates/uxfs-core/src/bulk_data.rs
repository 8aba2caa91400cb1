//! Bulk data: file data on its way from a [`crate::BulkWriter`] to the device.
//!
//! 1. Pieces that are adjacent on the device go into one batch. Several runs grow side by side,
//!    because files go to several allocation groups.
//! 2. A range is in flight from the moment when its batch is taken to be filled or sent until the
//!    write is complete.
//! 3. A checkpoint is written only when all data that was passed on before its cut has been written
//!    ([`BulkData::wait`]): the commit that shows a file comes after its data was passed on.
//! 4. The first error stops everything. It stays until [`BulkData::take_failure`] takes it.
//! 5. The device hears of batches in the order in which they are sent, whichever thread writes them first
//!    ([`BlockDev::will_write_bulk`]): the same files give the same image, in qcow2 too.
//!
//! Called by the bulk writer, and where a checkpoint is cut ([`crate::journal`]).

use core::ops::Range;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use uxfs_disk::{AlignedBuf, BlockDev};
use uxfs_sync::{Condvar, Mutex, MutexGuard};

pub(crate) use self::batch::{BATCH, Batch, Origin};

mod batch;

/// Batches with a buffer that wait for a thread; with the batches in work they bound the memory.
const QUEUE: usize = 3;
/// Batches that wait for a thread. Those without a buffer only list their pieces, so there may be many:
/// a turn of large files is written while the caller creates the small ones that follow.
const LISTED: usize = 64;
/// Runs that grow side by side. Each may have a buffer. On Linux' source tree, eight need as many writes
/// as six.
const OPEN_RUNS: usize = 6;
/// Buffers kept for reuse.
const SPARE: usize = 6;

#[derive(Default)]
struct State {
    /// Runs that grow; the one that grew last is at the end.
    open: Vec<Batch>,
    queue: VecDeque<Batch>,
    in_flight: Vec<Range<u64>>,
    spare: Vec<AlignedBuf>,
    /// Batches that were written. Their memory is used again, because memory that another thread frees
    /// makes the allocator slow.
    written: Vec<Batch>,
    failure: Option<BulkError>,
    /// Callers of [`BulkData::wait`] and [`BulkData::wait_for`].
    waiters: usize,
    /// True if anything was sent since the last [`BulkData::wait`].
    sent: bool,
    /// No more batches will come.
    closed: bool,
}

/// The data of one bulk writer.
pub(crate) struct BulkData {
    device: Arc<dyn BlockDev>,
    state: Mutex<State>,
    /// There is a batch in the queue, or no more will come.
    queued: Condvar,
    /// The queue has room.
    room: Condvar,
    /// A write completed.
    completed: Condvar,
}

impl State {
    /// Whether the queue has no room for another batch.
    fn is_full(&self, with_buf: bool) -> bool {
        self.queue.len() >= LISTED
            || with_buf && self.queue.iter().filter(|batch| batch.buf.is_some()).count() >= QUEUE
    }

    /// Whether callers that wait for room should be woken: not for each batch, since they would soon
    /// wait again.
    fn has_much_room(&self) -> bool {
        self.queue.len() < QUEUE.max(LISTED / 2)
    }

    fn land(&mut self, range: &Range<u64>) {
        if let Some(at) = self.in_flight.iter().position(|other| other == range) {
            self.in_flight.swap_remove(at);
        }
    }
}

/// Why the data of a [`BulkWriter`](crate::BulkWriter) is not on the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The source's file could not be read.
    #[error("reading the source: {0}")]
    Source(#[source] io::Error),
    /// The device refused a write.
    #[error("writing file data: {0}")]
    Device(#[source] io::Error),
}

fn copy(error: &BulkError) -> io::Error {
    let (BulkError::Source(error) | BulkError::Device(error)) = error;
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl BulkData {
    pub(crate) fn new(device: Arc<dyn BlockDev>) -> Self {
        Self {
            device,
            state: Mutex::default(),
            queued: Condvar::default(),
            room: Condvar::default(),
            completed: Condvar::default(),
        }
    }

    /// Takes the batch that continues at `device` to add to it, with room for at least one block.
    /// The caller gives it back.
    pub(crate) fn take(&self, device: u64, block: usize, with_buf: bool) -> Batch {
        let mut state = self.state.lock();
        let at = state.open.iter().position(|batch| batch.continues_at(device, with_buf));
        let mut last = at.map(|at| state.open.remove(at));
        if let Some(full) = last.take_if(|batch| batch.is_full(block)) {
            self.send(state, full);
            state = self.state.lock();
        }
        if last.is_none() && state.open.len() >= OPEN_RUNS {
            let oldest = state.open.remove(0);
            self.send(state, oldest);
            state = self.state.lock();
        }
        let batch = last.unwrap_or_else(|| {
            let mut spare = || state.spare.pop().unwrap_or_else(|| AlignedBuf::new(BATCH));
            let buf = with_buf.then(&mut spare);
            state.written.pop().unwrap_or_default().renewed(device, buf)
        });
        if batch.len() > 0 {
            state.in_flight.push(batch.range());
        }
        batch
    }

    /// Gives back a batch of which `len` bytes were there when it was taken. Sends it at once if a
    /// caller of [`BulkData::wait`] waits for it.
    pub(crate) fn give_back(&self, batch: Batch, len: usize) {
        let mut state = self.state.lock();
        let range = batch.range();
        if len > 0 {
            state.land(&(range.start..range.start + len as u64));
        }
        if batch.len() == 0 {
            return;
        }
        if state.waiters > 0 {
            self.send(state, batch);
        } else {
            state.open.push(batch);
        }
    }

    /// Puts a batch into the queue, when the queue has room.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, State>, batch: Batch) {
        state.sent = true;
        let range = batch.range();
        state.in_flight.push(range.clone());
        drop(state);
        self.device.will_write_bulk(range.start, range.end - range.start);
        state = self.state.lock();
        while state.is_full(batch.buf.is_some()) {
            self.room.wait(&mut state);
        }
        state.queue.push_back(batch);
        drop(state);
        // Without the lock, so that the thread does not wake up to wait for it.
        self.queued.notify_one();
    }

    /// Sends all runs.
    pub(crate) fn flush(&self) {
        // Others may add runs while the queue is full.
        loop {
            let mut state = self.state.lock();
            let Some(batch) = state.open.pop() else { return };
            self.send(state, batch);
        }
    }

    /// The next batch for a thread that writes, or `None` when no more will come. After a failure
    /// batches are dropped.
    pub(crate) fn next(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if let Some(batch) = state.queue.pop_front() {
                let (room, failed) = (state.has_much_room(), state.failure.is_some());
                if failed {
                    state.land(&batch.range());
                }
                drop(state);
                if room {
                    self.room.notify_all();
                }
                if !failed {
                    return Some(batch);
                }
                self.completed.notify_all();
                state = self.state.lock();
            } else if state.closed {
                return None;
            } else {
                self.queued.wait(&mut state);
            }
        }
    }

    /// Records the outcome of a batch's write, and keeps its memory for reuse.
    pub(crate) fn complete(&self, mut batch: Batch, done: Result<(), BulkError>) {
        let mut state = self.state.lock();
        state.land(&batch.range());
        if let Err(error) = done {
            state.failure.get_or_insert(error);
        }
        let room = state.spare.len() < SPARE;
        state.spare.extend(batch.buf.take().filter(|_| room));
        if state.written.len() < LISTED {
            state.written.push(batch);
        }
        drop(state);
        self.completed.notify_all();
    }

    /// Waits until all data passed on so far is written (not flushed). Returns whether there was any
    /// since the last call.
    ///
    /// # Errors
    /// A device error: data of committed files is missing.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        let mut state = self.wait_until(|state| state.in_flight.is_empty());
        match &state.failure {
            Some(error) => Err(copy(error)),
            None => Ok(core::mem::take(&mut state.sent)),
        }
    }

    /// Waits until no write to a range that `matches` is open or in flight.
    pub(crate) fn wait_for(&self, matches: impl Fn(&Range<u64>) -> bool) {
        let open = self.state.lock().open.iter().any(|batch| matches(&batch.range()));
        if open {
            drop(self.wait_until(|state| !state.in_flight.iter().any(&matches)));
            return;
        }
        let mut state = self.state.lock();
        while state.in_flight.iter().any(&matches) {
            self.completed.wait(&mut state);
        }
    }

    /// Sends all runs and waits. Runs that are taken meanwhile are sent when they are given back.
    fn wait_until(&self, done: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.state.lock().waiters += 1;
        self.flush();
        let mut state = self.state.lock();
        while !done(&state) {
            self.completed.wait(&mut state);
        }
        state.waiters -= 1;
        state
    }

    /// Whether [`BulkData::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Lets the threads end when the queue is empty. What is not sent is dropped.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.open.clear();
        drop(state);
        self.queued.notify_all();
    }

    /// Takes the first failure.
    pub(crate) fn take_failure(&self) -> Option<BulkError> {
        self.state.lock().failure.take()
    }
}
