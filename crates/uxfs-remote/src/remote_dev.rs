//! A checkpoint as a device for reading.
//!
//! 1. What is read is fetched in windows of consecutive chunks, which are measured in bytes of the object:
//!    metadata is stored in a tenth of its size, and one request brings much of it. A window that continues the
//!    last one is twice as long, up to a bound, so that a stream takes few requests.
//! 2. While a stream reads a window, a thread fetches the next one. Its errors are left to the reader, who fetches
//!    what is missing.
//! 3. A chunk is opened when it is read. Every byte is verified, also one from the cache's directory.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use uxfs_disk::BlockDev;

use crate::cache::{Cache, CacheOptions};
use crate::checkpoint::Checkpoint;
use crate::map::Source;
use crate::read_ahead::ReadAhead;
use crate::{Error, Result};

/// Bytes of the object in the shortest and the longest window.
const WINDOW_MIN: u64 = 512 << 10;
const WINDOW_MAX: u64 = 8 << 20;

/// Consecutive chunks of a layer.
#[derive(Clone, Default)]
struct Window {
    layer: usize,
    chunks: Range<usize>,
    /// Bytes that it may have.
    bytes: u64,
}

impl Window {
    fn has(&self, layer: usize, chunk: usize) -> bool {
        self.layer == layer && self.chunks.contains(&chunk)
    }
}

/// The window that is read, and the one that comes next.
#[derive(Default)]
struct Stream {
    window: Window,
    /// Did the window continue the one before?
    goes_on: bool,
    next: Option<(Window, JoinHandle<()>)>,
}

/// What was fetched. The thread that fetches ahead shares it with the readers.
struct Fetched {
    checkpoint: Arc<Checkpoint>,
    cache: Cache,
    ahead: ReadAhead,
}

/// A checkpoint as a device.
pub struct RemoteDev {
    fetched: Arc<Fetched>,
    stream: Mutex<Stream>,
}

impl Fetched {
    /// The window of at most about `bytes` from a chunk on.
    fn window(&self, layer: usize, chunk: usize, bytes: u64) -> Result<Window> {
        let mut end = chunk + 1;
        while end < self.checkpoint.index(layer).chunks() {
            let longer = self.checkpoint.stored(layer, &(chunk..end + 1))?;
            if longer.end - longer.start > bytes {
                break;
            }
            end += 1;
        }
        Ok(Window { layer, chunks: chunk..end, bytes })
    }

    /// Fetches a window, and returns its first chunk as it is stored.
    fn fetch(&self, window: &Window) -> Result<Bytes> {
        let Window { layer, chunks, .. } = window;
        let id = self.checkpoint.manifest().layers[*layer].id;
        let stored = self.checkpoint.fetch(*layer, chunks)?;
        for (number, stored) in chunks.clone().zip(&stored) {
            self.cache.store(id, number, stored);
        }
        let first = stored.first().cloned();
        self.ahead.put(*layer, chunks.clone(), stored);
        first.ok_or_else(|| Error::Missing(self.checkpoint.name(*layer)))
    }

    /// Opens a chunk, and keeps its content.
    fn open(&self, layer: usize, chunk: usize, stored: &[u8]) -> Result<Arc<Vec<u8>>> {
        let content = Arc::new(self.checkpoint.open_chunk(layer, chunk, stored)?.into_owned());
        self.cache.put((layer, chunk), Arc::clone(&content));
        Ok(content)
    }
}

impl RemoteDev {
    /// The device of a checkpoint.
    pub fn new(checkpoint: impl Into<Arc<Checkpoint>>, cache: CacheOptions) -> Self {
        let (checkpoint, cache) = (checkpoint.into(), Cache::new(cache));
        let fetched = Arc::new(Fetched { checkpoint, cache, ahead: ReadAhead::default() });
        Self { fetched, stream: Mutex::default() }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.fetched.checkpoint
    }

    /// The content of a chunk.
    fn chunk(&self, layer: usize, chunk: usize) -> Result<Arc<Vec<u8>>> {
        let fetched = &*self.fetched;
        if let Some(content) = fetched.cache.get((layer, chunk)) {
            return Ok(content);
        }
        self.await_next(layer, chunk);
        let content = match fetched.ahead.get(layer, chunk) {
            Some(stored) => fetched.open(layer, chunk, &stored)?,
            None => self.read_chunk(layer, chunk)?,
        };
        self.fetch_next(layer, chunk);
        Ok(content)
    }

    /// Reads a chunk from the directory or from the store.
    fn read_chunk(&self, layer: usize, chunk: usize) -> Result<Arc<Vec<u8>>> {
        let fetched = &*self.fetched;
        let id = fetched.checkpoint.manifest().layers[layer].id;
        if let Some(stored) = fetched.cache.stored(id, chunk) {
            match fetched.open(layer, chunk, &stored) {
                Ok(content) => return Ok(content),
                Err(_) => fetched.cache.forget(id, chunk),
            }
        }
        let window = {
            let mut stream = self.stream.lock();
            let last = &stream.window;
            let goes_on = last.bytes > 0 && last.layer == layer && last.chunks.end == chunk;
            let bytes = if goes_on { (2 * last.bytes).min(WINDOW_MAX) } else { WINDOW_MIN };
            stream.goes_on = goes_on;
            if !goes_on {
                // The stream ended. Its thread ends by itself.
                stream.next = None;
            }
            stream.window = fetched.window(layer, chunk, bytes)?;
            stream.window.clone()
        };
        let stored = fetched.fetch(&window)?;
        fetched.open(layer, chunk, &stored)
    }

    /// Waits for the thread that fetches this chunk, if there is one.
    fn await_next(&self, layer: usize, chunk: usize) {
        let next = {
            let mut stream = self.stream.lock();
            let next = stream.next.take_if(|(window, _)| window.has(layer, chunk));
            next.map(|(window, thread)| {
                stream.window = window;
                thread
            })
        };
        if let Some(thread) = next {
            // A thread that fails leaves nothing, and the reader fetches for itself.
            let _ = thread.join();
        }
    }

    /// Begins to fetch the window that follows, if this chunk is the first one of a window of a stream.
    fn fetch_next(&self, layer: usize, chunk: usize) {
        let mut stream = self.stream.lock();
        let window = &stream.window;
        let begins = window.layer == layer && window.chunks.start == chunk;
        if !begins || !stream.goes_on || stream.next.is_some() {
            return;
        }
        let (from, bytes) = (window.chunks.end, (2 * window.bytes).min(WINDOW_MAX));
        let fetched = &self.fetched;
        let id = fetched.checkpoint.manifest().layers[layer].id;
        if from >= fetched.checkpoint.index(layer).chunks() || fetched.cache.has(id, from) {
            return;
        }
        let Ok(window) = fetched.window(layer, from, bytes) else { return };
        let (fetched, wanted) = (Arc::clone(fetched), window.clone());
        let thread = std::thread::Builder::new().name("uxfs-ahead".into());
        let begun = thread.spawn(move || drop(fetched.fetch(&wanted)));
        // Without a thread the reader fetches for itself.
        stream.next = begun.ok().map(|thread| (window, thread));
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block = self.fetched.checkpoint.block();
        let end = offset + buf.len() as u64;
        let (first, last) = (offset / block, end.div_ceil(block));
        for run in self.fetched.checkpoint.map().find(first, last - first) {
            let from = (run.first * block).max(offset);
            let to = ((run.first + run.count) * block).min(end);
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            match run.source {
                Source::Zeroes => part.fill(0),
                Source::Layer(layer, at) => {
                    self.read_content(layer, at + (from - run.first * block), part)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the content of a delta from byte `at` on.
    fn read_content(&self, layer: usize, mut at: u64, mut part: &mut [u8]) -> Result<()> {
        let size = u64::from(self.fetched.checkpoint.index(layer).trailer().head().chunk_size);
        while !part.is_empty() {
            let content = self.chunk(layer, (at / size) as usize)?;
            let from = (at % size) as usize;
            let len = part.len().min(content.len() - from);
            let (now, rest) = std::mem::take(&mut part).split_at_mut(len);
            now.copy_from_slice(&content[from..from + len]);
            (part, at) = (rest, at + len as u64);
        }
        Ok(())
    }
}

impl Drop for RemoteDev {
    fn drop(&mut self) {
        if let Some((_, thread)) = self.stream.get_mut().next.take() {
            // What it fetched is not needed any more.
            let _ = thread.join();
        }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl BlockDev for RemoteDev {
    uxfs_disk::without!(
        has_fua,
        discard,
        will_read,
        will_write_bulk,
        check_present,
        warning,
        sector_size,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.fetched.checkpoint.manifest().image_len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if buf.is_empty() {
            return Ok(());
        }
        self.read(offset, buf).map_err(io::Error::from)
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn write_vectored_at(&self, _offset: u64, _pieces: &[IoSlice<'_>]) -> io::Result<()> {
        refused()
    }

    fn write_bulk_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn write_fua_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn read_only(&self) -> bool {
        true
    }
}
