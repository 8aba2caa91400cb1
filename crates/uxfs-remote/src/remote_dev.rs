//! A checkpoint as a device for reading.
//!
//! 1. What is read is fetched in windows of consecutive chunks, which are measured in bytes of the object:
//!    metadata is stored in a tenth of its size, and one request brings much of it. A window that continues the
//!    last one is twice as long, up to a bound, so that a stream takes few requests.
//! 2. A chunk is opened when it is read. Every byte is verified, also one from the cache's directory.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

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

/// The window that was fetched last.
#[derive(Clone, Copy, Default)]
struct Window {
    layer: usize,
    end: usize,
    bytes: u64,
}

/// A checkpoint as a device.
pub struct RemoteDev {
    checkpoint: Arc<Checkpoint>,
    cache: Cache,
    ahead: ReadAhead,
    last: Mutex<Window>,
}

impl RemoteDev {
    /// The device of a checkpoint.
    pub fn new(checkpoint: impl Into<Arc<Checkpoint>>, cache: CacheOptions) -> Self {
        Self {
            checkpoint: checkpoint.into(),
            cache: Cache::new(cache),
            ahead: ReadAhead::default(),
            last: Mutex::default(),
        }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The content of a chunk.
    fn chunk(&self, layer: usize, chunk: usize) -> Result<Arc<Vec<u8>>> {
        if let Some(content) = self.cache.get((layer, chunk)) {
            return Ok(content);
        }
        if let Some(stored) = self.ahead.get(layer, chunk) {
            return self.open(layer, chunk, &stored);
        }
        let id = self.checkpoint.manifest().layers[layer].id;
        if let Some(stored) = self.cache.stored(id, chunk) {
            match self.open(layer, chunk, &stored) {
                Ok(content) => return Ok(content),
                Err(_) => self.cache.forget(id, chunk),
            }
        }
        let window = self.window(layer, chunk)?;
        let stored = self.checkpoint.fetch(layer, &window)?;
        for (number, stored) in window.clone().zip(&stored) {
            self.cache.store(id, number, stored);
        }
        let wanted = stored.first().cloned();
        self.ahead.put(layer, window, stored);
        let wanted = wanted.ok_or_else(|| Error::Missing(self.checkpoint.name(layer)))?;
        self.open(layer, chunk, &wanted)
    }

    /// Opens a chunk, and keeps its content.
    fn open(&self, layer: usize, chunk: usize, stored: &[u8]) -> Result<Arc<Vec<u8>>> {
        let content = Arc::new(self.checkpoint.open_chunk(layer, chunk, stored)?);
        self.cache.put((layer, chunk), Arc::clone(&content));
        Ok(content)
    }

    /// The chunks to fetch for one, which is the first of them.
    fn window(&self, layer: usize, chunk: usize) -> Result<Range<usize>> {
        let mut last = self.last.lock();
        let goes_on = last.layer == layer && last.end == chunk && last.bytes > 0;
        let bytes = if goes_on { (2 * last.bytes).min(WINDOW_MAX) } else { WINDOW_MIN };
        let mut end = chunk + 1;
        while end < self.checkpoint.index(layer).chunks() {
            let longer = self.checkpoint.stored(layer, &(chunk..end + 1))?;
            if longer.end - longer.start > bytes {
                break;
            }
            end += 1;
        }
        *last = Window { layer, end, bytes };
        Ok(chunk..end)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block = self.checkpoint.block();
        let end = offset + buf.len() as u64;
        let (first, last) = (offset / block, end.div_ceil(block));
        for run in self.checkpoint.map().find(first, last - first) {
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
        let size = u64::from(self.checkpoint.index(layer).trailer().head().chunk_size);
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

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl BlockDev for RemoteDev {
    uxfs_disk::without!(has_fua, discard, will_read, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.checkpoint.manifest().image_len
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
