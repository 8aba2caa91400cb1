//! Holes of a sparse host file, filled where small writes and flushes take turns.
//!
//! A write into a hole makes the host allocate, and the next flush then has to commit the host's own
//! metadata besides the bytes: about three times what it costs where the file was written before.
//! Whoever flushes after every few kilobytes pays that each time. So where that happens, a whole
//! chunk is written with the zeroes that it reads as anyway.
//!
//! 1. What the file reads as never changes by it.
//! 2. A chunk is filled only after some flushes found it written to, or if the chunk before it is
//!    full: files that are written once, in order, stay as sparse as they are.
//! 3. Nobody else writes to the file while a chunk is being filled.
//!
//! Zeroes go past the host's page cache: whoever flushes next need not bring them down, and memory that
//! nobody reads is not taken for them. The small writes themselves do not, since a direct write keeps
//! others from the file until it is on the disk (measured: a tenth fewer durable files).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;
use rustix::fs::SeekFrom;

use crate::AlignedBuf;

/// Bytes of a chunk, as a power of two.
const CHUNK_LOG: u32 = 20;
/// Longest write that counts as a small one.
const SMALL: usize = 128 << 10;
/// Flushes that found a chunk written to before it is filled.
const VISITS: u8 = 4;

/// What is known of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// So many flushes found it written to; the last write came after this many in all.
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
    len: u64,
}

impl Holes {
    /// The holes of a file of `len` bytes; `None` if it has none.
    pub(crate) fn of(file: &File, len: u64) -> Option<Self> {
        let stored = file.metadata().ok()?.blocks().saturating_mul(512);
        (stored < len).then(|| Self {
            chunks: Mutex::default(),
            flushes: AtomicU64::new(0),
            writers: RwLock::new(()),
            len,
        })
    }

    /// To be held while the file is written to.
    pub(crate) fn writing(&self) -> RwLockReadGuard<'_, ()> {
        self.writers.read()
    }

    /// The file was flushed.
    pub(crate) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Parts of the file have become a hole.
    pub(crate) fn punched(&self, offset: u64, len: u64) {
        let last = offset.saturating_add(len) >> CHUNK_LOG;
        self.chunks.lock().retain(|chunk, _| !(offset >> CHUNK_LOG..=last).contains(chunk));
    }

    /// `len` bytes were written at `offset`: fills their chunk if that will pay, through `direct`, which
    /// gives the file opened for direct I/O, where it can be.
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
            // Where it fails the holes stay.
            let _ = fill(file, direct(), start, (start + (1 << CHUNK_LOG)).min(self.len));
        }
    }

    /// Is a chunk that was just written to, to be filled now?
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

/// Writes zeroes into all holes of a range. Hosts that tell of no holes have none there.
///
/// # Errors
/// Of writing them.
pub(crate) fn fill_all(file: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let next = (at + (1 << CHUNK_LOG)).min(end);
        fill(file, None, at, next)?;
        at = next;
    }
    Ok(())
}

/// Writes zeroes into the holes of a range, past the host's page cache if that can be.
fn fill(file: &File, direct: Option<&File>, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(at)) else { return Ok(()) };
        if hole >= end {
            return Ok(());
        }
        let data = rustix::fs::seek(file, SeekFrom::Data(hole)).unwrap_or(end).min(end);
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

    fn stored(path: &std::path::Path) -> u64 {
        std::fs::metadata(path).unwrap().blocks() * 512
    }

    #[test]
    fn a_chunk_is_filled_once_flushes_come_between_small_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse.img");
        let dev = FileDev::open(&path, OpenMode::Create(16 << 20)).unwrap();
        let chunk = 1 << CHUNK_LOG;
        // Without flushes, nothing is filled.
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
        // The next is filled at once, those far away are not.
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
        // What is punched is a hole again, and fills again.
        dev.zero(0, chunk).unwrap();
        assert!(stored(&path) < 2 * chunk);
        for page in 0..6 {
            dev.write_at(page * 4096, &[2; 4096]).unwrap();
            dev.flush().unwrap();
        }
        assert!(stored(&path) >= 2 * chunk);
    }

    #[test]
    fn nothing_that_others_write_meanwhile_is_lost() {
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
