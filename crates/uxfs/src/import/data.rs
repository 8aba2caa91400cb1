//! Writes file data to the device in large requests, in threads beside the one that writes
//! metadata.
//!
//! 1. Pieces that are adjacent on the device are written together: many small files make one write.
//!    Several runs grow side by side, because files go to several allocation groups.
//! 2. The rest of a file's last block is written as zeroes.
//! 3. The first error stops everything; [`with_data_writers`] returns it.
//! 4. Before blocks are freed, writes in flight to them must complete ([`DataWriters::wait_for`]):
//!    a later write would overwrite their next content.
//! 5. A volume with a journal waits for data ([`PendingData`]) before it logs the metadata that
//!    refers to it: gathered data is then sent and completes. Data handed over by then is written
//!    even if the import fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use uxfs_core::{Fs, PendingData, Segment};
use uxfs_disk::{AlignedBuf, BlockDev, DIRECT_ALIGN};

use super::error::ImportError;

/// Bytes in one batch.
const BATCH: usize = 2 << 20;
/// Batches that wait for a writer; with the batches in work they bound the memory.
const QUEUE: usize = 6;
/// Runs that grow side by side.
const OPEN_RUNS: usize = 8;
/// Threads that write data.
const WRITERS: usize = 3;

/// The source of a piece's bytes.
enum Origin {
    /// The source's file, at this offset.
    File(u64),
    /// The bytes are already in the batch's buffer.
    Buffer,
}

struct Piece {
    origin: Origin,
    at: usize,
    len: usize,
}

/// Adjacent pieces that are written in one request.
struct Batch {
    device: u64,
    pieces: Vec<Piece>,
    len: usize,
    /// Filled by the caller; otherwise the writer thread uses its own buffer.
    buf: Option<AlignedBuf>,
}

impl Batch {
    fn range(&self) -> (u64, u64) {
        (self.device, self.device + self.len as u64)
    }

    fn push(&mut self, origin: Origin, len: usize, block: usize) {
        self.pieces.push(Piece { origin, at: self.len, len });
        self.len += len.next_multiple_of(block);
    }
}

/// Byte ranges of the device (start, end) to which writes are in flight.
#[derive(Default)]
struct InFlight {
    ranges: Mutex<Vec<(u64, u64)>>,
    completed: Condvar,
}

impl InFlight {
    fn insert(&self, range: (u64, u64)) {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    fn complete(&self, range: (u64, u64)) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = ranges.iter().position(|other| *other == range) {
            ranges.swap_remove(at);
        }
        self.completed.notify_all();
    }

    /// Waits until no write is in flight to a range that `matches`.
    fn wait(&self, matches: impl Fn((u64, u64)) -> bool) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        while ranges.iter().any(|range| matches(*range)) {
            ranges = self.completed.wait(ranges).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// State shared by the writer threads and their callers.
struct Shared {
    /// `None` when no more batches will come.
    send: Mutex<Option<SyncSender<Batch>>>,
    in_flight: InFlight,
    /// Runs that grow; the one that grew last is at the end.
    open: Mutex<Vec<Batch>>,
    failure: Mutex<Option<io::Error>>,
    /// True if anything was sent since the last [`PendingData::wait`].
    sent: AtomicBool,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn send(&self, batch: Batch) {
        let send = self.send.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(send) = send {
            self.sent.store(true, Ordering::Release);
            self.in_flight.insert(batch.range());
            // A writer ends only after the last sender is gone, so this cannot fail before.
            let _ = send.send(batch);
        }
    }

    fn flush(&self) {
        let open = core::mem::take(&mut *self.open());
        open.into_iter().for_each(|batch| self.send(batch));
    }
}

impl PendingData for Shared {
    fn wait(&self) -> io::Result<bool> {
        self.flush();
        self.in_flight.wait(|_| true);
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(self.sent.swap(false, Ordering::AcqRel)),
        }
    }
}

/// The handle by which callers send data to the writer threads.
pub(crate) struct DataWriters {
    shared: Arc<Shared>,
    spare: Receiver<AlignedBuf>,
    /// Length of the source's file, if writer threads can read it themselves.
    pub(crate) can_copy: Option<u64>,
}

/// Runs `body` with writer threads; on success all data is written. `fs` is the volume that is
/// filled, if it has a journal.
pub(crate) fn with_data_writers<R>(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    fs: Option<&Fs>,
    body: impl FnOnce(&mut DataWriters) -> Result<R, ImportError>,
) -> Result<R, ImportError> {
    let can_copy = source.map(|file| file.metadata().map(|meta| meta.len())).transpose();
    let can_copy = can_copy.map_err(ImportError::Data)?;
    let (send, receive) = sync_channel(QUEUE);
    let (recycle, spare) = sync_channel(QUEUE + WRITERS);
    let receive = Mutex::new(receive);
    let shared = Arc::new(Shared {
        send: Mutex::new(Some(send)),
        in_flight: InFlight::default(),
        open: Mutex::default(),
        failure: Mutex::default(),
        sent: AtomicBool::new(false),
    });
    if let Some(fs) = fs {
        fs.set_pending_data(Some(Arc::<Shared>::clone(&shared)));
    }
    let done = std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (recycle, receive, shared) = (recycle.clone(), &receive, &*shared);
            scope.spawn(move || write_batches(device, source, receive, &recycle, shared));
        }
        let mut writers = DataWriters { shared: Arc::clone(&shared), spare, can_copy };
        let done = body(&mut writers);
        if done.is_ok() || fs.is_some() {
            shared.flush();
        }
        // Without a sender the writers end; the scope waits for them.
        drop(shared.send.lock().unwrap_or_else(PoisonError::into_inner).take());
        done
    });
    let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = failure {
        // Committed metadata refers to data that was not written.
        if let Some(fs) = fs {
            fs.stop(&format!("file data could not be written: {error}"));
        }
        return Err(ImportError::Data(error));
    }
    if let Some(fs) = fs {
        fs.set_pending_data(None);
    }
    done
}

fn write_batches(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    receive: &Mutex<Receiver<Batch>>,
    recycle: &SyncSender<AlignedBuf>,
    shared: &Shared,
) {
    let mut own_buf = None;
    loop {
        let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut batch) = next else { return };
        if shared.failed() {
            shared.in_flight.complete(batch.range());
            continue;
        }
        let filled = batch.buf.take();
        let from_caller = filled.is_some();
        let mut buf = filled.or_else(|| own_buf.take()).unwrap_or_else(|| AlignedBuf::new(BATCH));
        let written = fill(source, &batch, &mut buf)
            .and_then(|()| device.write_bulk_at(batch.device, &buf[..batch.len]));
        if let Err(error) = written {
            let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
        }
        shared.in_flight.complete(batch.range());
        if from_caller {
            // If the queue is full, the buffer is dropped.
            let _ = recycle.try_send(buf);
        } else {
            own_buf = Some(buf);
        }
    }
}

/// Reads the pieces of a batch from the source and zeroes the gaps between them.
fn fill(source: Option<&File>, batch: &Batch, buf: &mut AlignedBuf) -> io::Result<()> {
    let mut end = 0;
    for piece in &batch.pieces {
        buf[end..piece.at].fill(0);
        end = piece.at + piece.len;
        if let Origin::File(at) = piece.origin {
            let file = source.ok_or(io::ErrorKind::Unsupported)?;
            file.read_exact_at(&mut buf[piece.at..end], at)?;
        }
    }
    buf[end..batch.len].fill(0);
    Ok(())
}

impl DataWriters {
    /// Copies `len` bytes at offset `from` of the source's file to `device`, a multiple of `block`;
    /// the rest of the last block is zeroed.
    pub(crate) fn copy(&mut self, from: u64, device: u64, len: u64, block: usize) {
        let mut open = self.shared.open();
        let mut done = 0;
        while done < len {
            let batch = self.batch(&mut open, device + done, block, false);
            let step = (len - done).min((BATCH - batch.len) as u64) as usize;
            batch.push(Origin::File(from + done), step, block);
            done += step as u64;
        }
    }

    /// Writes `len` bytes that `read` delivers.
    pub(crate) fn stream(
        &mut self,
        device: u64,
        len: u64,
        block: usize,
        mut read: impl FnMut(&mut [u8]) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let mut open = self.shared.open();
        let mut done = 0;
        while done < len {
            let batch = self.batch(&mut open, device + done, block, true);
            let at = batch.len;
            let step = (len - done).min((BATCH - at) as u64) as usize;
            if let Some(buf) = &mut batch.buf {
                read(&mut buf[at..at + step])?;
            }
            batch.push(Origin::Buffer, step, block);
            done += step as u64;
        }
        Ok(())
    }

    /// The batch that continues at `device`, with room for at least one block.
    fn batch<'o>(
        &self,
        open: &'o mut Vec<Batch>,
        device: u64,
        block: usize,
        with_buf: bool,
    ) -> &'o mut Batch {
        let continues = open
            .iter()
            .position(|b| b.device + b.len as u64 == device && b.buf.is_some() == with_buf);
        let mut last = continues.map(|at| open.remove(at));
        if let Some(full) = last.take_if(|batch| batch.len + block.max(DIRECT_ALIGN) > BATCH) {
            self.shared.send(full);
        }
        if last.is_none() && open.len() >= OPEN_RUNS {
            let oldest = open.remove(0);
            self.shared.send(oldest);
        }
        let spare = || self.spare.try_recv().unwrap_or_else(|_| AlignedBuf::new(BATCH));
        let new = || Batch { device, pieces: Vec::new(), len: 0, buf: with_buf.then(spare) };
        open.push(last.unwrap_or_else(new));
        let at = open.len() - 1;
        &mut open[at]
    }

    /// Waits until all writes to these segments are complete: the segments are about to be freed.
    pub(crate) fn wait_for(&mut self, segments: &[Segment]) {
        let matches = |(start, end): (u64, u64)| {
            segments.iter().any(|s| s.device.is_some_and(|at| at < end && start < at + s.len))
        };
        let gathered = self.shared.open().iter().any(|batch| matches(batch.range()));
        if gathered {
            self.shared.flush();
        }
        self.shared.in_flight.wait(matches);
    }

    /// Sends what is gathered, and fails early if a write failed already.
    ///
    /// # Errors
    /// A write failed; the caller of [`with_data_writers`] gets the error itself.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        self.shared.flush();
        if self.shared.failed() {
            return Err(ImportError::Data(io::ErrorKind::Other.into()));
        }
        Ok(())
    }
}
