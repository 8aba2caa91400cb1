//! Moving file data to the device, in large pieces, beside the thread that makes the metadata.
//!
//! 1. Pieces that follow each other on the device travel together: many small files are one write.
//!    Several such runs grow side by side, as files go to several allocation groups.
//! 2. What a file leaves of its last block is written as zeroes.
//! 3. The first failure stops everything and is what [`DataWriters::finish`] reports.
//! 4. Before blocks are freed that data is on its way to, it has to arrive ([`DataWriters::settle`]):
//!    later it would overwrite whatever is in them by then.
//! 5. A volume with a journal asks before it logs what shows data ([`PendingData`]): what is gathered then
//!    goes, and arrives. What was handed over by then goes even if the import fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use uxfs_core::{Fs, PendingData, Segment};
use uxfs_disk::{AlignedBuf, BlockDev, DIRECT_ALIGN};

use super::ImportError;

/// Most bytes in one batch.
const BATCH: usize = 2 << 20;
/// Batches that wait for a mover; with those in work, what bounds the memory.
const QUEUE: usize = 6;
/// Runs that grow side by side.
const OPEN: usize = 8;
/// Threads that move data.
const MOVERS: usize = 3;

/// Where a piece's bytes come from.
enum Origin {
    /// The source's file, at this offset.
    File(u64),
    /// They are in the batch's buffer already.
    Here,
}

struct Piece {
    origin: Origin,
    at: usize,
    len: usize,
}

/// Neighbouring pieces on their way.
struct Batch {
    device: u64,
    pieces: Vec<Piece>,
    len: usize,
    /// Filled by the sender; a mover brings its own otherwise.
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

/// Ranges of the device, first byte and end, that batches on their way go to.
#[derive(Default)]
struct Under {
    way: Mutex<Vec<(u64, u64)>>,
    arrived: Condvar,
}

impl Under {
    fn leave(&self, range: (u64, u64)) {
        self.way.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    fn arrive(&self, range: (u64, u64)) {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = way.iter().position(|other| *other == range) {
            way.swap_remove(at);
        }
        self.arrived.notify_all();
    }

    /// Waits until nothing is on its way into a range for which `meant` holds.
    fn wait(&self, meant: impl Fn((u64, u64)) -> bool) {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        while way.iter().any(|range| meant(*range)) {
            way = self.arrived.wait(way).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What the threads that move data share with those who hand it over, and who wait for it.
struct Shared {
    /// `None` when there is no more to come.
    send: Mutex<Option<SyncSender<Batch>>>,
    under: Under,
    /// Runs that grow; the one that grew last is at the end.
    open: Mutex<Vec<Batch>>,
    failure: Mutex<Option<io::Error>>,
    /// Was anything sent since somebody asked?
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
            self.under.leave(batch.range());
            // A mover ends only when the last sender is gone; it cannot fail before.
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
        self.under.wait(|_| true);
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(self.sent.swap(false, Ordering::AcqRel)),
        }
    }
}

/// The way to the threads that move data.
pub(crate) struct DataWriters {
    shared: Arc<Shared>,
    spare: Receiver<AlignedBuf>,
    /// Bytes of the source's file, if movers can read that themselves.
    pub(crate) can_copy: Option<u64>,
}

/// Runs `body` with movers at work; all is moved when it returns well. `fs` is the volume that is filled,
/// if it has a journal.
pub(crate) fn with_movers<R>(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    fs: Option<&Fs>,
    body: impl FnOnce(&mut DataWriters) -> Result<R, ImportError>,
) -> Result<R, ImportError> {
    let can_copy = source.map(|file| file.metadata().map(|meta| meta.len())).transpose();
    let can_copy = can_copy.map_err(ImportError::Data)?;
    let (send, receive) = sync_channel(QUEUE);
    let (give, spare) = sync_channel(QUEUE + MOVERS);
    let receive = Mutex::new(receive);
    let shared = Arc::new(Shared {
        send: Mutex::new(Some(send)),
        under: Under::default(),
        open: Mutex::default(),
        failure: Mutex::default(),
        sent: AtomicBool::new(false),
    });
    if let Some(fs) = fs {
        fs.set_pending_data(Some(Arc::<Shared>::clone(&shared)));
    }
    let done = std::thread::scope(|scope| {
        for _ in 0..MOVERS {
            let (give, receive, shared) = (give.clone(), &receive, &*shared);
            scope.spawn(move || move_all(device, source, receive, &give, shared));
        }
        let mut movers = DataWriters { shared: Arc::clone(&shared), spare, can_copy };
        let done = body(&mut movers);
        if done.is_ok() || fs.is_some() {
            shared.flush();
        }
        // Without a sender the movers end; the scope waits for them.
        drop(shared.send.lock().unwrap_or_else(PoisonError::into_inner).take());
        done
    });
    let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = failure {
        // What was committed shows data that is not there.
        if let Some(fs) = fs {
            fs.stop(&format!("data of files did not arrive: {error}"));
        }
        return Err(ImportError::Data(error));
    }
    if let Some(fs) = fs {
        fs.set_pending_data(None);
    }
    done
}

fn move_all(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    receive: &Mutex<Receiver<Batch>>,
    give: &SyncSender<AlignedBuf>,
    shared: &Shared,
) {
    let mut own = None;
    loop {
        let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut batch) = next else { return };
        if shared.failed() {
            shared.under.arrive(batch.range());
            continue;
        }
        let filled = batch.buf.take();
        let lent = filled.is_some();
        let mut buf = filled.or_else(|| own.take()).unwrap_or_else(|| AlignedBuf::new(BATCH));
        let moved = fill(source, &batch, &mut buf)
            .and_then(|()| device.write_bulk_at(batch.device, &buf[..batch.len]));
        if let Err(error) = moved {
            let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
        }
        shared.under.arrive(batch.range());
        if lent {
            // If nobody takes it back, it is simply dropped.
            let _ = give.try_send(buf);
        } else {
            own = Some(buf);
        }
    }
}

/// Reads what a batch's pieces want of the source, and zeroes the gaps between them.
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
    /// Moves `len` bytes at `from` in the source's file to `device`, a multiple of `block` bytes;
    /// the rest of the last block becomes zero.
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

    /// Moves `len` bytes that `read` delivers.
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
            batch.push(Origin::Here, step, block);
            done += step as u64;
        }
        Ok(())
    }

    /// The batch that goes on at `device`, with room for a block at least.
    fn batch<'o>(
        &self,
        open: &'o mut Vec<Batch>,
        device: u64,
        block: usize,
        with_buf: bool,
    ) -> &'o mut Batch {
        let goes_on = open
            .iter()
            .position(|b| b.device + b.len as u64 == device && b.buf.is_some() == with_buf);
        let mut last = goes_on.map(|at| open.remove(at));
        if let Some(full) = last.take_if(|batch| batch.len + block.max(DIRECT_ALIGN) > BATCH) {
            self.shared.send(full);
        }
        if last.is_none() && open.len() >= OPEN {
            let oldest = open.remove(0);
            self.shared.send(oldest);
        }
        let spare = || self.spare.try_recv().unwrap_or_else(|_| AlignedBuf::new(BATCH));
        let new = || Batch { device, pieces: Vec::new(), len: 0, buf: with_buf.then(spare) };
        open.push(last.unwrap_or_else(new));
        let at = open.len() - 1;
        &mut open[at]
    }

    /// Waits until all data has arrived that is on its way to these segments, which are about to
    /// be freed.
    pub(crate) fn settle(&mut self, segments: &[Segment]) {
        let meant = |(start, end): (u64, u64)| {
            segments.iter().any(|s| s.device.is_some_and(|at| at < end && start < at + s.len))
        };
        let gathered = self.shared.open().iter().any(|batch| meant(batch.range()));
        if gathered {
            self.shared.flush();
        }
        self.shared.under.wait(meant);
    }

    /// Sends what is gathered, and fails early if something failed already.
    ///
    /// # Errors
    /// The first failure of a mover so far.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        self.shared.flush();
        if self.shared.failed() {
            return Err(ImportError::Data(io::ErrorKind::Other.into()));
        }
        Ok(())
    }
}
