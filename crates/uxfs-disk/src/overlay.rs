//! A device whose writes stay in memory, over a device that does not change: a log replayed in memory, or a
//! copy of an image that costs only what is written.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::BlockDev;

const PAGE: usize = 4096;

/// A device over another. Reads see what was written here, and otherwise the device below. Nothing is
/// written below except by [`Overlay::write_back`].
pub struct Overlay {
    below: Arc<dyn BlockDev>,
    pages: RwLock<FxHashMap<u64, Box<[u8; PAGE]>>>,
    bytes: AtomicUsize,
    limit: usize,
}

impl Overlay {
    /// An overlay without changes. A write fails if the changes would take more than `limit` bytes of
    /// memory.
    pub fn new(below: Arc<dyn BlockDev>, limit: usize) -> Self {
        Self { below, pages: RwLock::default(), bytes: AtomicUsize::new(0), limit }
    }

    /// Bytes of memory that the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The device below.
    pub fn below(&self) -> &Arc<dyn BlockDev> {
        &self.below
    }

    /// Calls `f(offset, old, new)` for each page that differs from the device below, in ascending
    /// order. The last page of the device may be short.
    ///
    /// # Errors
    /// Errors of the device below and of `f`.
    pub fn for_changes<E: From<io::Error>>(
        &self,
        mut f: impl FnMut(u64, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let pages = self.pages.read();
        let sorted: BTreeMap<_, _> = pages.iter().collect();
        let mut old = [0; PAGE];
        for (page, new) in sorted {
            let offset = page * PAGE as u64;
            let len = (self.len() - offset).min(PAGE as u64) as usize;
            self.below.read_at(offset, &mut old[..len])?;
            if old[..len] != new[..len] {
                f(offset, &old[..len], &new[..len])?;
            }
        }
        Ok(())
    }

    /// Writes all changes to the device below and flushes it. The overlay keeps them too.
    ///
    /// # Errors
    /// Errors of the device below.
    pub fn write_back(&self) -> io::Result<()> {
        let mut run: (u64, Vec<u8>) = (0, Vec::new());
        let put = |run: &mut (u64, Vec<u8>)| {
            let done = if run.1.is_empty() { Ok(()) } else { self.below.write_at(run.0, &run.1) };
            run.1.clear();
            done
        };
        self.for_changes(|offset, _, new| {
            if run.0 + run.1.len() as u64 != offset || run.1.len() >= RUN_MAX {
                put(&mut run)?;
                run.0 = offset;
            }
            run.1.extend_from_slice(new);
            Ok::<_, io::Error>(())
        })?;
        put(&mut run)?;
        self.below.flush()
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Counts one more page against the limit.
    fn count_page(&self) -> io::Result<()> {
        if self.bytes.load(Ordering::Relaxed) + PAGE > self.limit {
            let problem = format!("changes take more than {} MiB of memory", self.limit >> 20);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, problem));
        }
        self.bytes.fetch_add(PAGE, Ordering::Relaxed);
        Ok(())
    }

    /// A page of the device below.
    fn load(&self, page: u64) -> io::Result<Box<[u8; PAGE]>> {
        let mut bytes = Box::new([0; PAGE]);
        let offset = page * PAGE as u64;
        let len = (self.len() - offset).min(PAGE as u64) as usize;
        self.below.read_at(offset, &mut bytes[..len])?;
        Ok(bytes)
    }
}

/// Most bytes that one write back writes at once.
const RUN_MAX: usize = 1 << 20;

impl BlockDev for Overlay {
    crate::forward!(self => *self.below; len, will_read, check_present, warning, sector_size);
    crate::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    crate::without!(has_fua, discard, will_write_bulk, allocate, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let pages = self.pages.read();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let step = (PAGE - start).min(buf.len() - done);
            if let Some(bytes) = pages.get(&page) {
                buf[done..done + step].copy_from_slice(&bytes[start..start + step]);
                done += step;
                continue;
            }
            // Everything up to the next changed page is read from below at once.
            let mut end = done + step;
            while end < buf.len() && !pages.contains_key(&((offset + end as u64) / PAGE as u64)) {
                end = (end + PAGE).min(buf.len());
            }
            self.below.read_at(at, &mut buf[done..end])?;
            done = end;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut pages = self.pages.write();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let step = (PAGE - start).min(data.len() - done);
            let bytes = match pages.entry(page) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    self.count_page()?;
                    place.insert(self.load(page)?)
                }
            };
            bytes[start..start + step].copy_from_slice(&data[done..done + step]);
            done += step;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDev;

    #[test]
    fn writes_stay_here_until_they_are_written_back() {
        let below = Arc::new(MemDev::new(40_000));
        below.write_at(0, &[1; 40_000]).unwrap();
        let overlay = Overlay::new(Arc::<MemDev>::clone(&below), 1 << 20);
        overlay.write_at(4000, &[2; 5000]).unwrap();
        overlay.write_at(39_999, &[3]).unwrap();
        assert!(overlay.write_at(39_999, &[3; 2]).is_err());
        let mut all = vec![0; 40_000];
        overlay.read_at(0, &mut all).unwrap();
        assert!(all[..4000].iter().chain(&all[9000..39_999]).all(|b| *b == 1));
        assert!(all[4000..9000].iter().all(|b| *b == 2) && all[39_999] == 3);
        let mut untouched = vec![0; 40_000];
        below.read_at(0, &mut untouched).unwrap();
        assert!(untouched.iter().all(|b| *b == 1));
        overlay.write_back().unwrap();
        below.read_at(0, &mut untouched).unwrap();
        assert_eq!(untouched, all);
    }

    #[test]
    fn memory_is_bounded() {
        let overlay = Overlay::new(Arc::new(MemDev::new(1 << 20)), 2 * PAGE);
        overlay.write_at(0, &[1; 2 * PAGE]).unwrap();
        overlay.write_at(5, &[2; PAGE]).unwrap();
        assert!(overlay.write_at(3 * PAGE as u64, &[1]).is_err());
    }
}
