//! Two devices that act as one: the second begins at an address far behind the end of the first.
//!
//! 1. [`JoinedDev::flush`] makes the writes to both durable. So an order between writes to the two that a
//!    caller gets from a flush on one device holds here too.
//! 2. A device without a write since its last successful flush is not flushed again. A failed flush is
//!    repeated by the next one.
//! 3. No transfer crosses from one device to the other: what lies between them cannot be read or written.
//! 4. The last page of the first device is whole: bytes of it behind the device's end read as zeroes, and writes
//!    to them are dropped. A layer that works in pages, such as [`Overlay`](crate::Overlay), shortens only the
//!    last page of the whole address space.
//!
//! The engine joins the device of an external log to that of the data.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::BlockDev;

/// Bytes of a page of the layers above.
const PAGE: u64 = 4096;

/// A device and a second one behind it.
pub struct JoinedDev {
    first: Part,
    second: Part,
    /// The address of the second.
    at: u64,
}

/// One of the two, with the number of its writes, and of those that a flush has made durable.
struct Part {
    dev: Arc<dyn BlockDev>,
    written: AtomicU64,
    flushed: AtomicU64,
}

impl Part {
    fn new(dev: Arc<dyn BlockDev>) -> Self {
        // What another process wrote before counts too.
        Self { dev, written: AtomicU64::new(1), flushed: AtomicU64::new(0) }
    }

    /// Counts a write that has ended, also one that failed: a part of it may have reached the device.
    fn wrote<T>(&self, result: T) -> T {
        self.written.fetch_add(1, Ordering::AcqRel);
        result
    }

    fn flush(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        self.dev.flush()?;
        self.flushed.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }
}

impl JoinedDev {
    /// `first`, and `second` from byte `at` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if `first` reaches beyond `at`, or `second` beyond 2^64 bytes.
    pub fn new(first: Arc<dyn BlockDev>, second: Arc<dyn BlockDev>, at: u64) -> io::Result<Self> {
        if first.len() > at || at.checked_add(second.len()).is_none() {
            let problem = format!(
                "devices of {} and {} bytes cannot be joined at byte {at}",
                first.len(),
                second.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(Self { first: Part::new(first), second: Part::new(second), at })
    }

    /// The part that holds `offset`, and the offset in it.
    fn part(&self, offset: u64) -> (&Part, u64) {
        match offset.checked_sub(self.at) {
            Some(inside) => (&self.second, inside),
            None => (&self.first, offset),
        }
    }

    /// How many of `len` bytes from `offset` on a device holds. The others are behind the end of the first
    /// device, in its last page.
    fn held(&self, offset: u64, len: usize) -> usize {
        let end = self.first.dev.len();
        let last = end.next_multiple_of(PAGE).min(self.at);
        match offset.checked_add(len as u64) {
            Some(to) if end < to && to <= last => {
                end.saturating_sub(offset).min(len as u64) as usize
            }
            _ => len,
        }
    }

    /// Writes the part of `data` that a device holds.
    fn write_with(
        &self,
        offset: u64,
        data: &[u8],
        write: impl FnOnce(&dyn BlockDev, u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        let held = self.held(offset, data.len());
        if held == 0 { Ok(()) } else { part.wrote(write(&*part.dev, inside, &data[..held])) }
    }
}

impl BlockDev for JoinedDev {
    crate::without!(lengthen, as_file);

    fn len(&self) -> u64 {
        self.at + self.second.dev.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        let (held, behind) = buf.split_at_mut(self.held(offset, buf.len()));
        behind.fill(0);
        if held.is_empty() { Ok(()) } else { part.dev.read_at(inside, held) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_with(offset, data, |dev, inside, data| dev.write_at(inside, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if self.held(offset, len) < len {
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            return self.write_at(offset, &all);
        }
        part.wrote(part.dev.write_vectored_at(inside, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_with(offset, data, |dev, inside, data| dev.write_bulk_at(inside, data))
    }

    fn has_fua(&self) -> bool {
        self.first.dev.has_fua() && self.second.dev.has_fua()
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        let held = self.held(offset, data.len());
        if held == 0 { Ok(()) } else { part.dev.write_fua_at(inside, &data[..held]) }
    }

    fn flush(&self) -> io::Result<()> {
        let first = self.first.flush();
        let second = self.second.flush();
        first.and(second)
    }

    fn discard(&self, offset: u64, len: u64) {
        let (part, inside) = self.part(offset);
        part.dev.discard(inside, len);
        part.wrote(());
    }

    fn will_read(&self, offset: u64, len: u64) {
        let (part, inside) = self.part(offset);
        part.dev.will_read(inside, len);
    }

    fn will_write_bulk(&self, offset: u64, len: u64) {
        let (part, inside) = self.part(offset);
        part.dev.will_write_bulk(inside, len);
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        part.wrote(part.dev.zero(inside, len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let (part, inside) = self.part(offset);
        part.wrote(part.dev.allocate(inside, len))
    }

    fn check_present(&self) -> io::Result<()> {
        self.first.dev.check_present()?;
        self.second.dev.check_present()
    }

    fn warning(&self) -> Option<String> {
        self.first.dev.warning().or_else(|| self.second.dev.warning())
    }

    fn read_only(&self) -> bool {
        self.first.dev.read_only() || self.second.dev.read_only()
    }

    fn sector_size(&self) -> u32 {
        self.first.dev.sector_size()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::MemDev;

    const AT: u64 = 1 << 40;

    /// A device that counts its flushes, and fails them if it is to.
    struct Counting {
        dev: MemDev,
        flushes: AtomicU64,
        fails: AtomicBool,
    }

    impl Counting {
        fn new() -> Arc<Self> {
            let dev = MemDev::new(8192);
            Arc::new(Self { dev, flushes: AtomicU64::new(0), fails: AtomicBool::new(false) })
        }

        fn flushes(&self) -> u64 {
            self.flushes.load(Ordering::Relaxed)
        }
    }

    impl BlockDev for Counting {
        crate::forward!(self => self.dev; len, lengthen, read_at, write_at, write_vectored_at, write_bulk_at,
            has_fua, write_fua_at, discard, will_read, will_write_bulk, zero, allocate, check_present, warning,
            read_only, sector_size, as_file);

        fn flush(&self) -> io::Result<()> {
            self.flushes.fetch_add(1, Ordering::Relaxed);
            match self.fails.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn each_address_leads_to_its_device() {
        let (data, log) = (Counting::new(), Counting::new());
        let joined = JoinedDev::new(data.clone(), log.clone(), AT).unwrap();
        joined.write_at(4096, &[1; 4096]).unwrap();
        joined.write_vectored_at(AT, &[IoSlice::new(&[2; 512]), IoSlice::new(&[3; 512])]).unwrap();
        let read = |dev: &dyn BlockDev, at| {
            let mut byte = [0];
            dev.read_at(at, &mut byte).map(|()| byte[0])
        };
        assert_eq!((read(&*data, 4096).unwrap(), read(&joined, 8191).unwrap()), (1, 1));
        assert_eq!((read(&*log, 1023).unwrap(), read(&joined, AT + 512).unwrap()), (3, 3));
        assert_eq!((read(&*log, 4096).unwrap(), read(&*data, 512).unwrap()), (0, 0));
        for between in [8192, AT - 1, AT + 8192] {
            assert!(read(&joined, between).is_err(), "{between}");
            assert!(joined.write_at(between, &[9]).is_err(), "{between}");
        }
        assert!(joined.write_at(8191, &[9, 9]).is_err(), "across the end of the first");
        assert!(JoinedDev::new(data.clone(), log.clone(), 8191).is_err());
        assert!(JoinedDev::new(data.clone(), log.clone(), u64::MAX - 8191).is_err());
        assert!(JoinedDev::new(data, log, u64::MAX - 8192).is_ok());
    }

    #[test]
    fn the_last_page_of_the_first_is_whole() {
        let (data, log) = (Arc::new(MemDev::new(5120)), Arc::new(MemDev::new(4096)));
        let joined = Arc::new(JoinedDev::new(data.clone(), log, AT).unwrap());
        let overlay = crate::Overlay::new(joined.clone(), 1 << 20);
        overlay.write_at(5000, &[7; 120]).unwrap();
        overlay.write_back().unwrap();
        let mut page = [9; 4096];
        joined.read_at(4096, &mut page).unwrap();
        assert_eq!(page[904..1024], [7; 120]);
        assert!(page[..904].iter().chain(&page[1024..]).all(|byte| *byte == 0));
        joined
            .write_vectored_at(4096, &[IoSlice::new(&[1; 1024]), IoSlice::new(&[2; 3072])])
            .unwrap();
        joined.write_at(6000, &[3; 10]).unwrap();
        let mut end = [0; 1024];
        data.read_at(4096, &mut end).unwrap();
        assert_eq!(end, [1; 1024]);
        joined.read_at(4096, &mut page).unwrap();
        assert_eq!((page[1023], page[1024], page[2000]), (1, 0, 0));
        assert!(joined.read_at(8191, &mut [0; 2]).is_err() && joined.write_at(8192, &[1]).is_err());
    }

    #[test]
    fn a_flush_covers_both_and_repeats_what_failed() {
        let (data, log) = (Counting::new(), Counting::new());
        let joined = JoinedDev::new(data.clone(), log.clone(), AT).unwrap();
        joined.write_at(0, &[1]).unwrap();
        joined.write_at(AT, &[1]).unwrap();
        joined.flush().unwrap();
        assert_eq!((data.flushes(), log.flushes()), (1, 1));
        joined.flush().unwrap();
        assert_eq!((data.flushes(), log.flushes()), (1, 1), "nothing was written");
        data.fails.store(true, Ordering::Relaxed);
        joined.write_at(0, &[1]).unwrap();
        joined.zero(AT, 512).unwrap();
        assert!(joined.flush().is_err());
        assert!(
            joined.flush().is_err(),
            "the second flush has forgotten what the first did not flush"
        );
        assert_eq!((data.flushes(), log.flushes()), (3, 2));
        data.fails.store(false, Ordering::Relaxed);
        joined.flush().unwrap();
        assert_eq!((data.flushes(), log.flushes()), (4, 2));
    }
}
