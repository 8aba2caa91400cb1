//! Reads a source ahead of its consumer, in a thread.
//!
//! The thread opens and examines files and reads their data into batches, which it sends through a
//! bounded channel; a second channel returns the empty ones. So the system calls for many small
//! files overlap with the consumer's work, and what a wrapper of the source does with each entry.
//! Data that lies in one file of the host ([`Source::data_position`]) is not read: the consumer gets
//! its place, and a second handle of the file.
//!
//! Invariants:
//! 1. The consumer sees the entries, the data, the warnings and the error of the source, in order.
//! 2. The thread reports the end of the source ([`Item::End`]). A channel that closes without this
//!    item means that the thread died, which is an error.
//! 3. At most `BATCHES_AHEAD + 2` batches exist, each of `BATCH_BYTES` of data and `BATCH_ITEMS`
//!    items.
//! 4. Dropping the consumer's side ends the thread.
//! 5. A place that the consumer gets lay within the file when the thread began. Other data is read by
//!    the thread, which reports that it is missing.
//!
//! Used by the importers of trees.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use uxfs_host::FileExt;

use crate::entry::{Entry, Kind};
use crate::error::{ArchiveError, show};
use crate::source::Source;
use crate::window::{self, Window, Windowed};

/// Bytes of data in a batch.
const BATCH_BYTES: usize = 512 << 10;
/// Items in a batch: an entry, or a piece of data.
const BATCH_ITEMS: usize = 256;
/// Batches in the channel. So many, because the two sides are slow at different files: one has a turn of
/// large files, the other one of new directories.
const BATCHES_AHEAD: usize = 8;

enum Item {
    Entry(Box<Entry>, Option<Place>),
    /// This many bytes of the entry's data, at the front of those not yet consumed.
    Data(usize),
    Failed(ArchiveError),
    End,
}

/// Where the data of an entry lies in the source's file.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: u64,
}

/// The data of the current entry, if it is not in the batches.
#[derive(Default)]
struct InPlace {
    /// `None`: the data is in the batches.
    place: Option<Place>,
    /// Bytes that were read, at most the place's length.
    done: u64,
    /// The entry's path.
    path: Vec<u8>,
    window: Window,
}

#[derive(Default)]
struct Batch {
    items: VecDeque<Item>,
    bytes: Vec<u8>,
    /// Bytes that are filled by the thread, or taken by the consumer.
    at: usize,
    warnings: Vec<String>,
    progress: (u64, Option<u64>),
}

/// A source that a thread reads ahead.
pub struct ReadAhead {
    /// `None` when this is being dropped.
    batches: Option<Receiver<Batch>>,
    empties: SyncSender<Batch>,
    batch: Batch,
    thread: Option<JoinHandle<()>>,
    warnings: Vec<String>,
    ended: bool,
    /// The source's file, to which the places refer.
    file: Option<File>,
    current: InPlace,
}

impl ReadAhead {
    /// Starts to read `source`, which was not read from yet.
    ///
    /// # Errors
    /// The host's error for a new thread, or for another handle of the source's file.
    pub fn start(source: Box<dyn Source>) -> Result<Self, ArchiveError> {
        let failed = |error| ArchiveError::io("starting the thread that reads ahead", error);
        let file = source.file().map(File::try_clone).transpose().map_err(failed)?;
        let end = file.as_ref().map(File::metadata).transpose().map_err(failed)?;
        let end = end.map_or(0, |meta| meta.len());
        let (full, batches) = sync_channel(BATCHES_AHEAD);
        let (empties, returned) = sync_channel(BATCHES_AHEAD);
        let thread = std::thread::Builder::new().name("uxfs-read-ahead".into());
        let reader = Reader { source, end, full, returned, batch: Batch::default() };
        let thread = thread.spawn(move || reader.run()).map_err(failed)?;
        Ok(Self {
            batches: Some(batches),
            empties,
            batch: Batch::default(),
            thread: Some(thread),
            warnings: Vec::new(),
            ended: false,
            file,
            current: InPlace::default(),
        })
    }

    /// Makes the next item the first of the batch.
    fn advance(&mut self) -> Result<(), ArchiveError> {
        while self.batch.items.is_empty() {
            let next = self.batches.as_ref().and_then(|batches| batches.recv().ok());
            let Some(next) = next else {
                let died = io::Error::other("the thread that reads ahead stopped");
                return Err(ArchiveError::io("reading the source", died));
            };
            let used = std::mem::replace(&mut self.batch, next);
            // If the thread has ended, the batch is freed.
            let _unneeded = self.empties.try_send(used);
            self.warnings.append(&mut self.batch.warnings);
        }
        Ok(())
    }

    /// Bytes of data that are in memory, at most `most`; 0 at the end of the entry's data.
    fn ready(&mut self, most: usize) -> Result<usize, ArchiveError> {
        if self.ended {
            return Ok(0);
        }
        self.advance()?;
        match self.batch.items.front() {
            Some(Item::Data(len)) => Ok(most.min(*len)),
            Some(Item::Failed(_)) => self.fail().map(|()| 0),
            _ => Ok(0),
        }
    }

    /// The error at the front.
    fn fail(&mut self) -> Result<(), ArchiveError> {
        match self.batch.items.pop_front() {
            Some(Item::Failed(error)) => {
                self.ended = true;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Windowed for ReadAhead {
    fn window(&mut self) -> &mut Window {
        &mut self.current.window
    }

    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let (Some(file), Some(place)) = (&self.file, self.current.place) else { return Ok(0) };
        let left = place.len - self.current.done;
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let read = file.read_exact_at(&mut buf[..count], place.offset + self.current.done);
        read.map_err(|e| ArchiveError::io(format!("reading {}", show(&self.current.path)), e))?;
        self.current.done += count as u64;
        Ok(count)
    }
}

impl Source for ReadAhead {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.current.place = None;
        self.current.window.clear();
        while !self.ended {
            self.advance()?;
            match self.batch.items.pop_front() {
                Some(Item::Entry(entry, place)) => {
                    if place.is_some() {
                        self.current.path.clone_from(&entry.path);
                    }
                    (self.current.place, self.current.done) = (place, 0);
                    return Ok(Some(*entry));
                }
                Some(Item::Data(len)) => self.batch.at += len,
                Some(Item::Failed(error)) => {
                    self.ended = true;
                    return Err(error);
                }
                Some(Item::End) => self.ended = true,
                None => {}
            }
        }
        Ok(None)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        if self.current.place.is_some() {
            return window::read(self, buf);
        }
        let count = self.ready(buf.len())?;
        let at = self.batch.at;
        buf[..count].copy_from_slice(&self.batch.bytes[at..at + count]);
        self.consume(count);
        Ok(count)
    }

    fn chunk(&mut self) -> Result<&[u8], ArchiveError> {
        if self.current.place.is_some() {
            return window::chunk(self);
        }
        let count = self.ready(usize::MAX)?;
        let at = self.batch.at;
        Ok(&self.batch.bytes[at..at + count])
    }

    fn consume(&mut self, count: usize) {
        if self.current.place.is_some() {
            self.current.window.consume(count);
        } else if let Some(Item::Data(len)) = self.batch.items.front_mut() {
            let count = count.min(*len);
            *len -= count;
            self.batch.at += count;
            if *len == 0 {
                self.batch.items.pop_front();
            }
        }
    }

    fn data_position(&self) -> Option<u64> {
        self.current.place.map(|place| place.offset)
    }

    fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.batch.progress
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The thread's next send fails then.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // `advance` reports a panic of the thread; after this drop there is no one to report it to.
            let _ended = thread.join();
        }
    }
}

/// The thread's side.
struct Reader {
    source: Box<dyn Source>,
    /// Length of the source's file.
    end: u64,
    full: SyncSender<Batch>,
    returned: Receiver<Batch>,
    batch: Batch,
}

/// The consumer is gone.
struct Gone;

impl Reader {
    fn run(mut self) {
        self.renew();
        let last = match self.read_all() {
            Ok(Ok(())) => Item::End,
            Ok(Err(error)) => Item::Failed(error),
            Err(Gone) => return,
        };
        self.batch.items.push_back(last);
        // Without a consumer, nothing needs the last batch.
        let _gone = self.send();
    }

    fn read_all(&mut self) -> Result<Result<(), ArchiveError>, Gone> {
        loop {
            match self.source.next() {
                Ok(Some(entry)) => {
                    let place = self.place(&entry);
                    self.push(Item::Entry(Box::new(entry), place))?;
                    if place.is_some() {
                        continue;
                    }
                }
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
            loop {
                self.batch.bytes.resize(BATCH_BYTES, 0);
                let at = self.batch.at;
                if at == BATCH_BYTES {
                    self.send()?;
                    continue;
                }
                match self.source.read(&mut self.batch.bytes[at..]) {
                    Ok(0) => break,
                    Ok(count) => {
                        self.batch.at += count;
                        self.push(Item::Data(count))?;
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
    }

    /// Where the entry's data lies, all of it (invariant 5).
    fn place(&self, entry: &Entry) -> Option<Place> {
        let Kind::File { map, .. } = &entry.kind else { return None };
        let (offset, len) = (self.source.data_position()?, map.data_len());
        let within = offset.checked_add(len).is_some_and(|end| end <= self.end);
        within.then_some(Place { offset, len })
    }

    fn push(&mut self, item: Item) -> Result<(), Gone> {
        self.batch.items.push_back(item);
        if self.batch.items.len() >= BATCH_ITEMS { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Gone> {
        self.batch.at = 0;
        self.batch.progress = self.source.progress();
        self.batch.warnings = self.source.warnings();
        let batch = std::mem::take(&mut self.batch);
        self.full.send(batch).map_err(|_| Gone)?;
        self.renew();
        Ok(())
    }

    /// Takes an empty batch.
    fn renew(&mut self) {
        self.batch = self.returned.try_recv().unwrap_or_default();
        self.batch.items.clear();
        self.batch.at = 0;
    }
}
