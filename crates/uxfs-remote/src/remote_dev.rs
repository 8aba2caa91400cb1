//! A checkpoint as a device for reading.
//!
//! 1. What is read is fetched in windows of consecutive chunks. A window that continues the last one is
//!    twice as long, up to a bound, so that a stream takes few requests.
//! 2. Every byte is verified, also one from the cache's directory.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_disk::BlockDev;

use crate::cache::{Cache, CacheOptions};
use crate::checkpoint::Checkpoint;
use crate::map::Source;
use crate::{Error, Result};

/// Bytes of content in the shortest and the longest window.
const WINDOW_MIN: u64 = 512 << 10;
const WINDOW_MAX: u64 = 8 << 20;

/// The window that was fetched last.
#[derive(Clone, Copy, Default)]
struct Window {
    layer: usize,
    end: usize,
    chunks: usize,
}

/// A checkpoint as a device.
pub struct RemoteDev {
    checkpoint: Arc<Checkpoint>,
    cache: Cache,
    last: Mutex<Window>,
}

impl RemoteDev {
    /// The device of a checkpoint.
    pub fn new(checkpoint: impl Into<Arc<Checkpoint>>, cache: CacheOptions) -> Self {
        Self { checkpoint: checkpoint.into(), cache: Cache::new(cache), last: Mutex::default() }
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
        let id = self.checkpoint.manifest().layers[layer].id;
        if let Some(stored) = self.cache.stored(id, chunk) {
            match self.checkpoint.open_chunk(layer, chunk, &stored) {
                Ok(content) => return Ok(self.keep(layer, chunk, content)),
                Err(_) => self.cache.forget(id, chunk),
            }
        }
        let window = self.window(layer, chunk);
        let mut wanted = None;
        for (number, stored) in window.clone().zip(self.checkpoint.fetch(layer, &window)?) {
            let content = self.checkpoint.open_chunk(layer, number, &stored)?;
            self.cache.store(id, number, &stored);
            let content = self.keep(layer, number, content);
            if number == chunk {
                wanted = Some(content);
            }
        }
        wanted.ok_or_else(|| Error::Missing(self.checkpoint.name(layer)))
    }

    fn keep(&self, layer: usize, chunk: usize, content: Vec<u8>) -> Arc<Vec<u8>> {
        let content = Arc::new(content);
        self.cache.put((layer, chunk), Arc::clone(&content));
        content
    }

    /// The chunks to fetch for one.
    fn window(&self, layer: usize, chunk: usize) -> Range<usize> {
        let index = self.checkpoint.index(layer);
        let size = u64::from(index.trailer().head().chunk_size);
        let of = |bytes: u64| usize::try_from(bytes / size).unwrap_or(1).max(1);
        let mut last = self.last.lock();
        let goes_on = last.layer == layer && last.end == chunk && last.chunks > 0;
        let chunks = if goes_on { (2 * last.chunks).min(of(WINDOW_MAX)) } else { of(WINDOW_MIN) };
        let end = (chunk + chunks).min(index.chunks());
        *last = Window { layer, end, chunks };
        chunk..end
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
