//! A device in memory whose copies share what they have in common.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use uxfs::disk::BlockDev;

const PAGE: usize = 16 << 10;

/// The device. A copy costs a pointer for each 16 KiB.
pub struct Pages {
    len: u64,
    pages: RwLock<Vec<Option<Arc<[u8; PAGE]>>>>,
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        Self { len: self.len, pages: RwLock::new(self.pages.read().clone()) }
    }
}

impl Pages {
    /// `len` zero bytes.
    pub fn new(len: u64) -> Self {
        let count = len.div_ceil(PAGE as u64) as usize;
        Self { len, pages: RwLock::new(vec![None; count]) }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Calls `f(page, start in the page, start in the transfer, length)` for each page.
fn for_pages(offset: u64, len: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let (page, start) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
        let step = (PAGE - start).min(len - done);
        f(page, start, done, step);
        done += step;
    }
}

impl BlockDev for Pages {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let pages = self.pages.read();
        for_pages(offset, buf.len(), |page, start, done, step| {
            let into = &mut buf[done..done + step];
            match &pages[page] {
                Some(bytes) => into.copy_from_slice(&bytes[start..start + step]),
                None => into.fill(0),
            }
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut pages = self.pages.write();
        for_pages(offset, data.len(), |page, start, done, step| {
            let bytes = pages[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[start..start + step].copy_from_slice(&data[done..done + step]);
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
