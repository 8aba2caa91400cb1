//! A device that counts calls and bytes.
//!
//! 1. Each call is passed on as it is: a vectored, bulk or forced write stays one.
//! 2. A call counts when it is made, whether it succeeds or not.
//! 3. Zeroing, discarding and allocating move no data and do not count.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs_disk::BlockDev;

/// The numbers of a [`CountDev`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    /// Writes of all kinds.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Forced writes (FUA); also counted as writes.
    pub forced: u64,
    /// Writes that begin in the watched range; also counted as writes.
    pub watched_writes: u64,
    /// Bytes of these writes.
    pub watched_bytes: u64,
    /// Flushes, without forced writes.
    pub flushes: u64,
}

#[derive(Default)]
struct Cells {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    forced: AtomicU64,
    watched_writes: AtomicU64,
    watched_bytes: AtomicU64,
    flushes: AtomicU64,
}

fn add(cell: &AtomicU64, n: u64) {
    cell.fetch_add(n, Ordering::Relaxed);
}

pub struct CountDev<D> {
    below: D,
    watched_start: AtomicU64,
    watched_end: AtomicU64,
    cells: Cells,
}

impl<D: BlockDev> CountDev<D> {
    /// Counts the calls to `below`. Watches nothing yet.
    pub fn new(below: D) -> Self {
        Self {
            below,
            watched_start: AtomicU64::new(0),
            watched_end: AtomicU64::new(0),
            cells: Cells::default(),
        }
    }

    /// From now on, also counts the writes that begin in this range of bytes.
    pub fn watch(&self, range: Range<u64>) {
        self.watched_start.store(range.start, Ordering::Relaxed);
        self.watched_end.store(range.end, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counts {
            reads: get(&self.cells.reads),
            read_bytes: get(&self.cells.read_bytes),
            writes: get(&self.cells.writes),
            bytes: get(&self.cells.bytes),
            forced: get(&self.cells.forced),
            watched_writes: get(&self.cells.watched_writes),
            watched_bytes: get(&self.cells.watched_bytes),
            flushes: get(&self.cells.flushes),
        }
    }

    /// The device below.
    pub fn below(&self) -> &D {
        &self.below
    }

    fn write(&self, offset: u64, len: usize) {
        add(&self.cells.writes, 1);
        add(&self.cells.bytes, len as u64);
        let start = self.watched_start.load(Ordering::Relaxed);
        if (start..self.watched_end.load(Ordering::Relaxed)).contains(&offset) {
            add(&self.cells.watched_writes, 1);
            add(&self.cells.watched_bytes, len as u64);
        }
    }
}

impl<D: BlockDev> BlockDev for CountDev<D> {
    uxfs_disk::forward!(self => self.below; len, has_fua, discard, will_read, will_write_bulk, zero, allocate, check_present,
        warning, read_only, sector_size, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        add(&self.cells.reads, 1);
        add(&self.cells.read_bytes, buf.len() as u64);
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data.len());
        self.below.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.write(offset, pieces.iter().map(|piece| piece.len()).sum());
        self.below.write_vectored_at(offset, pieces)
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data.len());
        self.below.write_bulk_at(offset, data)
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data.len());
        add(&self.cells.forced, 1);
        self.below.write_fua_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        add(&self.cells.flushes, 1);
        self.below.flush()
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;

    #[test]
    fn every_kind_of_call_counts_once_and_reaches_the_device() {
        let dev = CountDev::new(MemDev::new(1 << 16));
        dev.write_at(100, &[1; 10]).unwrap();
        dev.watch(1000..2000);
        dev.write_vectored_at(999, &[IoSlice::new(&[2; 2]), IoSlice::new(&[3; 3])]).unwrap();
        dev.write_bulk_at(1000, &[4; 20]).unwrap();
        dev.write_fua_at(1999, &[5; 30]).unwrap();
        dev.write_at(2000, &[6; 40]).unwrap();
        dev.flush().unwrap();
        dev.zero(4096, 4096).unwrap();
        let mut back = [0; 31];
        dev.read_at(1998, &mut back).unwrap();
        assert_eq!((back[0], back[1], back[30]), (0, 5, 6));
        let counts = Counts {
            reads: 1,
            read_bytes: 31,
            writes: 5,
            bytes: 105,
            forced: 1,
            watched_writes: 2,
            watched_bytes: 50,
            flushes: 1,
        };
        assert_eq!(dev.counts(), counts);
    }

    #[test]
    fn calls_that_fail_count_too() {
        let dev = CountDev::new(MemDev::new(10));
        dev.write_at(5, &[1; 10]).unwrap_err();
        dev.read_at(5, &mut [1; 10]).unwrap_err();
        assert_eq!((dev.counts().writes, dev.counts().reads), (1, 1));
    }
}
