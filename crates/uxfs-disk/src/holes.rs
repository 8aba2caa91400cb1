//! Fills holes of a sparse host file where small writes alternate with flushes.
//!
//! A write into a hole makes the host file system allocate. The next flush must then commit the
//! host's metadata in addition to the data, which costs about three times as much as a flush
//! without an allocation. A workload that flushes after every few kilobytes pays this cost each
//! time. For such a workload, a whole chunk is filled with zeroes at once.
//!
//! 1. The content of the file does not change.
//! 2. A chunk is filled only after several flushes found it written, or if the previous chunk is
//!    full. A file that is written once, in order, stays sparse.
//! 3. No other thread writes to the file while a chunk is filled.
//!
//! Zeroes bypass the host's page cache: the next flush need not write them, and they do not use
//! memory. The small writes themselves use the page cache, because a direct write blocks other
//! writers of the file until it is on disk (measured: 10 % fewer durable files).

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;
use uxfs_host::{FileExt, Next, Stat, next_data, next_hole};

use crate::AlignedBuf;

/// Size of a chunk in bytes, as a base-2 logarithm.
const CHUNK_LOG: u32 = 20;
/// Maximum size of a small write in bytes.
const SMALL: usize = 128 << 10;
/// Number of flushes that must find a chunk written before it is filled.
const VISITS: u8 = 4;

/// State of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// `times` flushes found the chunk written; `flushes` is the flush count at the last write.
    Visited {
        times: u8,
        flushes: u64,
    },
    Full,
}

/// The holes of a file.
pub(crate) struct Holes {
    chunks: Mutex<FxHashMap<u64, Chunk>>,
    flushes: AtomicU64,
    writers: RwLock<()>,
    len: AtomicU64,
}

impl Holes {
    /// Tracks the holes of a file of `len` bytes; `None` if the file has no holes.
    pub(crate) fn of(file: &File, len: u64) -> Option<Self> {
        let stored = Stat::of(&file.metadata().ok()?).stored;
        (stored < len).then(|| Self {
            chunks: Mutex::default(),
            flushes: AtomicU64::new(0),
            writers: RwLock::new(()),
            len: AtomicU64::new(len),
        })
    }

    /// Records that the file is `len` bytes long now.
    pub(crate) fn grew(&self, len: u64) {
        self.len.fetch_max(len, Ordering::Release);
    }

    /// Lock to hold while writing to the file; it excludes the filling of chunks.
    pub(crate) fn writing(&self) -> RwLockReadGuard<'_, ()> {
        self.writers.read()
    }

    /// Records that the file was flushed.
    pub(crate) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a range of the file became a hole.
    pub(crate) fn punched(&self, offset: u64, len: u64) {
        let last = offset.saturating_add(len) >> CHUNK_LOG;
        self.chunks.lock().retain(|chunk, _| !(offset >> CHUNK_LOG..=last).contains(chunk));
    }

    /// Records a write of `len` bytes at `offset` and fills the chunk if that pays. `direct`
    /// returns the file opened for direct I/O, if the host supports it.
    pub(crate) fn written<'a>(
        &self,
        file: &File,
        direct: impl FnOnce() -> Option<&'a File>,
        offset: u64,
        len: usize,
    ) {
        let chunk = offset >> CHUNK_LOG;
        if len <= SMALL && self.pays(chunk) {
            let _alone = self.writers.write();
            let start = chunk << CHUNK_LOG;
            let end = (start + (1 << CHUNK_LOG)).min(self.len.load(Ordering::Acquire));
            // If the filling fails, the holes remain.
            let _ = fill(file, direct(), start, end);
        }
    }

    /// Should a chunk that was just written be filled now?
    fn pays(&self, chunk: u64) -> bool {
        let flushes = self.flushes.load(Ordering::Relaxed);
        let mut chunks = self.chunks.lock();
        let follows = chunk > 0 && chunks.get(&(chunk - 1)) == Some(&Chunk::Full);
        let known = chunks.entry(chunk).or_insert(Chunk::Visited { times: 0, flushes });
        let Chunk::Visited { times, flushes: before } = known else { return false };
        if *before < flushes {
            (*times, *before) = (*times + 1, flushes);
        }
        let pays = *times >= VISITS || follows;
        if pays {
            *known = Chunk::Full;
        }
        pays
    }
}

/// Writes zeroes into all holes of a range. A host that cannot report holes counts as having none.
///
/// # Errors
/// The errors of the writes.
pub(crate) fn fill_all(file: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let next = (at + (1 << CHUNK_LOG)).min(end);
        fill(file, None, at, next)?;
        at = next;
    }
    Ok(())
}

/// Writes zeroes into the holes of a range, bypassing the host's page cache if possible.
fn fill(file: &File, direct: Option<&File>, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let Ok(Next::At(hole)) = next_hole(file, at) else { return Ok(()) };
        if hole >= end {
            return Ok(());
        }
        let data = match next_data(file, hole) {
            Ok(Next::At(data)) => data.min(end),
            _ => end,
        };
        let zeroes = AlignedBuf::new(usize::try_from(data - hole).unwrap_or(0));
        let done = direct.is_some_and(|direct| direct.write_all_at(&zeroes, hole).is_ok());
        if !done {
            file.write_all_at(&zeroes, hole)?;
        }
        at = data;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{BlockDev, FileDev, OpenMode};

    #[cfg(target_os = "linux")]
    fn stored(path: &std::path::Path) -> u64 {
        Stat::of(&std::fs::metadata(path).unwrap()).stored
    }

    // Other systems have no holes here.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_chunk_is_filled_when_small_writes_alternate_with_flushes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse.img");
        let dev = FileDev::open(&path, OpenMode::Create(16 << 20)).unwrap();
        let chunk = 1 << CHUNK_LOG;
        // Without flushes, no chunk is filled.
        for page in 0..20 {
            dev.write_at(page * 4096, &[1; 4096]).unwrap();
        }
        dev.flush().unwrap();
        assert!(stored(&path) < chunk);
        for page in 20..25 {
            dev.write_at(page * 4096, &[1; 4096]).unwrap();
            dev.flush().unwrap();
        }
        assert!((chunk..2 * chunk).contains(&stored(&path)), "{}", stored(&path));
        // The next chunk is filled at once; distant chunks are not.
        dev.write_at(chunk + 5, b"next").unwrap();
        dev.write_at(9 * chunk, b"far").unwrap();
        dev.flush().unwrap();
        assert!((2 * chunk..3 * chunk).contains(&stored(&path)), "{}", stored(&path));
        let mut back = vec![9; 2 * chunk as usize];
        dev.read_at(0, &mut back).unwrap();
        let right = |at: usize| match at {
            at if at < 25 * 4096 => 1,
            at if (chunk as usize + 5..chunk as usize + 9).contains(&at) => b"next"[at % 4096 - 5],
            _ => 0,
        };
        assert!(back.iter().enumerate().all(|(at, byte)| *byte == right(at)));
        // A punched range is a hole again and is filled again.
        dev.zero(0, chunk).unwrap();
        assert!(stored(&path) < 2 * chunk);
        for page in 0..6 {
            dev.write_at(page * 4096, &[2; 4096]).unwrap();
            dev.flush().unwrap();
        }
        assert!(stored(&path) >= 2 * chunk);
    }

    #[test]
    fn concurrent_writes_survive_the_filling() {
        let dir = tempfile::tempdir().unwrap();
        let dev = FileDev::open(&dir.path().join("s.img"), OpenMode::Create(8 << 20)).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let dev = &dev;
                    scope.spawn(move || {
                        for page in (thread..2048).step_by(4) {
                            dev.write_at(page * 4096, &[1 + thread as u8; 4096]).unwrap();
                        }
                    })
                })
                .collect();
            let (dev, done) = (&dev, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    dev.flush().unwrap();
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        let mut page = [0; 4096];
        for at in 0..2048u64 {
            dev.read_at(at * 4096, &mut page).unwrap();
            assert!(page.iter().all(|byte| *byte == 1 + (at % 4) as u8), "page {at}");
        }
    }
}
