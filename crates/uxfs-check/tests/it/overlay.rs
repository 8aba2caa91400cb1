//! A copy-on-write device over an undamaged image that all copies share.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use uxfs::disk::{BlockDev, MemDev};

const PAGE: u64 = 4096;

/// A copy of a device; it uses memory only for pages that were written.
pub(crate) struct Overlay {
    base: Arc<MemDev>,
    pages: Mutex<HashMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// A copy of `base`.
    pub(crate) fn new(base: &Arc<MemDev>) -> Self {
        Self { base: Arc::clone(base), pages: Mutex::default() }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.base.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Splits a transfer into pages: page, offset in the page, range in the transfer.
    fn parts(
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let start = (at % PAGE) as usize;
            let step = (PAGE as usize - start).min(len - done);
            let part = done..done + step;
            done += step;
            (step > 0).then_some((at / PAGE, start, part))
        })
    }
}

impl BlockDev for Overlay {
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs_disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let pages = self.pages.lock().unwrap();
        self.base.read_at(offset, buf)?;
        if pages.is_empty() {
            return Ok(());
        }
        for (page, start, part) in Self::parts(offset, buf.len()) {
            if let Some(bytes) = pages.get(&page) {
                let len = part.len();
                buf[part].copy_from_slice(&bytes[start..start + len]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut pages = self.pages.lock().unwrap();
        for (page, start, part) in Self::parts(offset, data.len()) {
            let bytes = pages.entry(page).or_insert_with(|| {
                let at = page * PAGE;
                let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
                let len = (self.base.len() - at).min(PAGE) as usize;
                self.base.read_at(at, &mut bytes[..len]).unwrap();
                bytes
            });
            bytes[start..start + part.len()].copy_from_slice(&data[part]);
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
