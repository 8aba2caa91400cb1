//! A device in memory whose copies share unchanged pages.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use uxfs::disk::BlockDev;

const PAGE: usize = 16 << 10;

/// The device. A copy costs a pointer for each 16 KiB.
pub struct Pages {
    len: u64,
    pages: RwLock<Vec<Option<Arc<[u8]>>>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} bytes)", self.len)
    }
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

    /// Calls `f(offset, bytes)` for everything ever written, in pieces.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn each<E>(&self, mut f: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        for (number, page) in self.pages.read().iter().enumerate() {
            let offset = (number * PAGE) as u64;
            if let Some(bytes) = page {
                let inside = bytes.len().min(usize::try_from(self.len - offset).unwrap_or(PAGE));
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
    uxfs::disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs::disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

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
            let from = &data[done..done + step];
            let page = &mut pages[page];
            match page {
                // A page that is overwritten whole need not be copied first.
                Some(bytes) if step < PAGE || Arc::strong_count(bytes) == 1 => {
                    Arc::make_mut(bytes)[start..start + step].copy_from_slice(from);
                }
                None if step < PAGE => {
                    let mut bytes = vec![0; PAGE];
                    bytes[start..start + step].copy_from_slice(from);
                    *page = Some(bytes.into());
                }
                _ => *page = Some(from.into()),
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
