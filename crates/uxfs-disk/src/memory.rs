//! A device in memory, for tests and for building small images without a file.
//!
//! 1. A page that was never written uses no memory and reads as zeroes.
//! 2. A copy shares the pages of its original; a write to either copies the page first.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::BlockDev;

const PAGE: usize = 16 << 10;

/// A sparse device in memory. A copy costs a pointer for each 16 KiB.
pub struct MemDev {
    len: u64,
    pages: RwLock<Vec<Option<Arc<[u8]>>>>,
}

impl Clone for MemDev {
    fn clone(&self) -> Self {
        Self { len: self.len, pages: RwLock::new(self.pages.read().clone()) }
    }
}

impl fmt::Debug for MemDev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemDev({} bytes)", self.len)
    }
}

impl MemDev {
    /// A device of `len` zero bytes.
    ///
    /// # Panics
    /// If memory cannot hold a pointer for each 16 KiB.
    pub fn new(len: u64) -> Self {
        let pages = len.div_ceil(PAGE as u64) as usize;
        Self { len, pages: RwLock::new(vec![None; pages]) }
    }

    /// A device that holds `bytes`. Pages of zeroes use no memory.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let dev = Self::new(bytes.len() as u64);
        let mut pages = dev.pages.write();
        for (page, bytes) in pages.iter_mut().zip(bytes.chunks(PAGE)) {
            if bytes.iter().any(|byte| *byte != 0) {
                let mut whole = vec![0; PAGE];
                whole[..bytes.len()].copy_from_slice(bytes);
                *page = Some(whole.into());
            }
        }
        drop(pages);
        dev
    }

    /// Calls `f(offset, bytes)` for all pages ever written, in ascending order.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn for_written<E>(&self, mut f: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        for (number, page) in self.pages.read().iter().enumerate() {
            let offset = (number * PAGE) as u64;
            if let Some(bytes) = page {
                let inside = (self.len - offset).min(PAGE as u64) as usize;
                f(offset, &bytes[..inside])?;
            }
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Calls `f(page, range in the page, range in the transfer)` for each page a transfer touches.
fn for_pages(
    offset: u64,
    len: usize,
    mut f: impl FnMut(usize, core::ops::Range<usize>, core::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let (page, start) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
        let step = (PAGE - start).min(len - done);
        f(page, start..start + step, done..done + step);
        done += step;
    }
}

impl BlockDev for MemDev {
    crate::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    crate::without!(
        has_fua,
        discard,
        allocate,
        check_present,
        warning,
        sector_size,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let pages = self.pages.read();
        for_pages(offset, buf.len(), |page, inside, part| match &pages[page] {
            Some(bytes) => buf[part].copy_from_slice(&bytes[inside]),
            None => buf[part].fill(0),
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut pages = self.pages.write();
        for_pages(offset, data.len(), |page, inside, part| {
            let from = &data[part];
            match &mut pages[page] {
                // A shared page that is overwritten whole need not be copied first.
                Some(bytes) if from.len() < PAGE || Arc::strong_count(bytes) == 1 => {
                    Arc::make_mut(bytes)[inside].copy_from_slice(from);
                }
                None if from.len() < PAGE => {
                    let mut bytes = vec![0; PAGE];
                    bytes[inside].copy_from_slice(from);
                    pages[page] = Some(bytes.into());
                }
                whole => *whole = Some(from.into()),
            }
        });
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

    #[test]
    fn data_reads_back_across_pages_and_the_rest_is_zero() {
        let dev = MemDev::new(200_000);
        let data: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        dev.write_at(60_000, &data).unwrap();
        let mut back = vec![1; 200_000];
        dev.read_at(0, &mut back).unwrap();
        assert_eq!(&back[60_000..160_000], &data[..]);
        assert!(back[..60_000].iter().chain(&back[160_000..]).all(|b| *b == 0));
        assert!(dev.write_at(199_999, &[0; 2]).is_err());
        assert!(dev.read_at(u64::MAX, &mut back).is_err());
    }

    #[test]
    fn a_copy_and_its_original_do_not_see_each_other_s_writes() {
        let dev = MemDev::from_bytes(&vec![1; 3 * PAGE + 100]);
        let copy = dev.clone();
        // In part, whole, and beyond.
        copy.write_at(10, &[2; 10]).unwrap();
        copy.write_at(PAGE as u64, &vec![3; 2 * PAGE]).unwrap();
        dev.write_at(3 * PAGE as u64, &[4]).unwrap();
        let byte = |dev: &MemDev, at: usize| {
            let mut byte = [0];
            dev.read_at(at as u64, &mut byte).unwrap();
            byte[0]
        };
        let at = [9, 10, 20, PAGE, 3 * PAGE - 1, 3 * PAGE];
        assert_eq!(at.map(|at| byte(&copy, at)), [1, 2, 1, 3, 3, 1]);
        assert_eq!(at.map(|at| byte(&dev, at)), [1, 1, 1, 1, 1, 4]);
        drop(dev);
        copy.write_at(0, &vec![5; PAGE]).unwrap();
        assert_eq!((byte(&copy, 10), byte(&copy, PAGE)), (5, 3));
    }

    #[test]
    fn all_that_was_written_is_listed() {
        let dev = MemDev::new(5 * PAGE as u64 + 100);
        dev.write_at(PAGE as u64 - 1, &[1; 2]).unwrap();
        dev.write_at(5 * PAGE as u64, &[2; 100]).unwrap();
        let mut found = Vec::new();
        let list = |at: u64, bytes: &[u8]| {
            found.push((at, bytes.len(), bytes[0]));
            Ok::<_, ()>(())
        };
        dev.for_written(list).unwrap();
        assert_eq!(found, [(0, PAGE, 0), (PAGE as u64, PAGE, 1), (5 * PAGE as u64, 100, 2)]);
        assert_eq!(
            dev.for_written(|at, _| if at > 0 { Err(at) } else { Ok(()) }),
            Err(PAGE as u64)
        );
    }
}
