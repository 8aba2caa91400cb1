//! A device in memory, for tests and for building small images without a file.

use std::io;

use parking_lot::RwLock;

use crate::BlockDev;

const PAGE: usize = 64 << 10;

/// A sparse device in memory; pages that were never written use no memory.
pub struct MemDev {
    len: u64,
    pages: RwLock<Vec<Option<Box<[u8]>>>>,
}

impl MemDev {
    /// A device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        let pages = len.div_ceil(PAGE as u64) as usize;
        Self { len, pages: RwLock::new((0..pages).map(|_| None).collect()) }
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
    crate::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

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
            let bytes = pages[page].get_or_insert_with(|| vec![0; PAGE].into_boxed_slice());
            bytes[inside].copy_from_slice(&data[part]);
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
}
