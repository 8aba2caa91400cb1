//! Moving file data to the device, in large pieces, beside the thread that makes the metadata.
//!
//! 1. Pieces that follow each other on the device travel together: many small files are one write.
//!    Several such runs grow side by side, as files go to several allocation groups.
//! 2. What a file leaves of its last block is written as zeroes.
//! 3. The first failure stops everything and is what [`Movers::finish`] reports.
//! 4. Before blocks are freed that data is on its way to, it has to arrive ([`Movers::settle`]):
//!    later it would overwrite whatever is in them by then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use uxfs_core::Segment;
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

/// The way to the threads that move data.
pub(crate) struct Movers<'a> {
    send: SyncSender<Batch>,
    under: &'a Under,
    spare: Receiver<AlignedBuf>,
    /// The one that grew last is at the end.
    open: Vec<Batch>,
    failure: &'a Mutex<Option<io::Error>>,
    /// Can movers read the source's file themselves?
    pub(crate) can_copy: bool,
}

/// Runs `body` with movers at work; all is moved when it returns well.
pub(crate) fn with_movers<R>(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    body: impl FnOnce(&mut Movers<'_>) -> Result<R, ImportError>,
) -> Result<R, ImportError> {
    let failure = Mutex::new(None);
    let under = Under::default();
    let (send, receive) = sync_channel(QUEUE);
    let (give, spare) = sync_channel(QUEUE + MOVERS);
    let receive = Mutex::new(receive);
    let done = std::thread::scope(|scope| {
        for _ in 0..MOVERS {
            let (give, receive, failure, under) = (give.clone(), &receive, &failure, &under);
            scope.spawn(move || move_all(device, source, receive, &give, failure, under));
        }
        let mut movers = Movers {
            send,
            under: &under,
            spare,
            open: Vec::new(),
            failure: &failure,
            can_copy: source.is_some(),
        };
        let done = body(&mut movers);
        if done.is_ok() {
            movers.flush();
        }
        // Dropping the sender lets the movers end; the scope waits for them.
        drop(movers);
        done
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(ImportError::Data(error)),
        None => done,
    }
}

fn move_all(
    device: &Arc<dyn BlockDev>,
    source: Option<&File>,
    receive: &Mutex<Receiver<Batch>>,
    give: &SyncSender<AlignedBuf>,
    failure: &Mutex<Option<io::Error>>,
    under: &Under,
) {
    let mut own = None;
    loop {
        let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut batch) = next else { return };
        if failed(failure) {
            under.arrive(batch.range());
            continue;
        }
        let filled = batch.buf.take();
        let lent = filled.is_some();
        let mut buf = filled.or_else(|| own.take()).unwrap_or_else(|| AlignedBuf::new(BATCH));
        let moved = fill(source, &batch, &mut buf)
            .and_then(|()| device.write_bulk_at(batch.device, &buf[..batch.len]));
        if let Err(error) = moved {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        under.arrive(batch.range());
        if lent {
            // If nobody takes it back, it is simply dropped.
            let _ = give.try_send(buf);
        } else {
            own = Some(buf);
        }
    }
}

fn failed(failure: &Mutex<Option<io::Error>>) -> bool {
    failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
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

impl Movers<'_> {
    /// Moves `len` bytes at `from` in the source's file to `device`, a multiple of `block` bytes;
    /// the rest of the last block becomes zero.
    pub(crate) fn copy(&mut self, from: u64, device: u64, len: u64, block: usize) {
        let mut done = 0;
        while done < len {
            let room = self.room(device + done, block, false);
            let step = (len - done).min(room as u64) as usize;
            self.push(Origin::File(from + done), step, block);
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
        let mut done = 0;
        while done < len {
            let room = self.room(device + done, block, true);
            let step = (len - done).min(room as u64) as usize;
            if let Some(batch) = self.open.last_mut()
                && let Some(buf) = &mut batch.buf
            {
                let at = batch.len;
                read(&mut buf[at..at + step])?;
            }
            self.push(Origin::Here, step, block);
            done += step as u64;
        }
        Ok(())
    }

    /// Makes sure of a batch that goes on at `device`, and tells how many bytes it still takes.
    fn room(&mut self, device: u64, block: usize, with_buf: bool) -> usize {
        let goes_on = self
            .open
            .iter()
            .position(|b| b.device + b.len as u64 == device && b.buf.is_some() == with_buf);
        let last = match goes_on {
            Some(at) => {
                let batch = self.open.remove(at);
                if batch.len + block.max(DIRECT_ALIGN) <= BATCH {
                    Some(batch)
                } else {
                    self.send(batch);
                    None
                }
            }
            None => None,
        };
        let last = last.unwrap_or_else(|| {
            if self.open.len() >= OPEN {
                let oldest = self.open.remove(0);
                self.send(oldest);
            }
            let spare = || self.spare.try_recv().unwrap_or_else(|_| AlignedBuf::new(BATCH));
            Batch { device, pieces: Vec::new(), len: 0, buf: with_buf.then(spare) }
        });
        let room = BATCH - last.len;
        self.open.push(last);
        room
    }

    fn push(&mut self, origin: Origin, len: usize, block: usize) {
        if let Some(batch) = self.open.last_mut() {
            batch.pieces.push(Piece { origin, at: batch.len, len });
            batch.len += len.next_multiple_of(block);
        }
    }

    /// Waits until all data has arrived that is on its way to these segments, which are about to
    /// be freed.
    pub(crate) fn settle(&mut self, segments: &[Segment]) {
        let meant = |(start, end): (u64, u64)| {
            segments.iter().any(|s| s.device.is_some_and(|at| at < end && start < at + s.len))
        };
        if self.open.iter().any(|batch| meant(batch.range())) {
            self.flush();
        }
        self.under.wait(meant);
    }

    fn send(&self, batch: Batch) {
        self.under.leave(batch.range());
        // A mover ends only when this sender is gone; it cannot fail before.
        let _ = self.send.send(batch);
    }

    fn flush(&mut self) {
        for batch in core::mem::take(&mut self.open) {
            self.send(batch);
        }
    }

    /// Sends what is gathered, and fails early if something failed already.
    ///
    /// # Errors
    /// The first failure of a mover so far.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        self.flush();
        if failed(self.failure) {
            return Err(ImportError::Data(io::ErrorKind::Other.into()));
        }
        Ok(())
    }
}
