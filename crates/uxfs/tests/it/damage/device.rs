//! Devices in memory that share an image, and that fail on order.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use uxfs::disk::BlockDev;

const PAGE: usize = 4096;

/// What is counted down to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Flush,
}

/// An image with changes of its own.
pub(crate) struct Overlay {
    base: Arc<Vec<u8>>,
    pages: Mutex<HashMap<usize, Box<[u8]>>>,
    fails: Option<Call>,
    left: AtomicI64,
}

impl Overlay {
    pub(crate) fn new(base: Arc<Vec<u8>>) -> Self {
        Self { base, pages: Mutex::default(), fails: None, left: AtomicI64::new(0) }
    }

    /// One whose call number `number` of this kind, and all of the kind behind it, fail.
    pub(crate) fn failing(base: Arc<Vec<u8>>, call: Call, number: i64) -> Self {
        Self { fails: Some(call), left: AtomicI64::new(number), ..Self::new(base) }
    }

    /// Has it failed?
    pub(crate) fn failed(&self) -> bool {
        self.fails.is_some() && self.left.load(Ordering::Relaxed) < 0
    }

    /// The image as it is now.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut all = self.base.to_vec();
        for (page, bytes) in &*self.pages.lock().unwrap() {
            all[page * PAGE..][..PAGE].copy_from_slice(bytes);
        }
        all
    }

    fn count(&self, call: Call) -> io::Result<()> {
        if self.fails == Some(call) && self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(io::Error::other("a failure to order"));
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<usize> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.base.len() as u64 => Ok(offset as usize),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl BlockDev for Overlay {
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs_disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.base.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.count(Call::Read)?;
        let mut at = self.check(offset, buf.len())?;
        let pages = self.pages.lock().unwrap();
        let mut rest = buf;
        while !rest.is_empty() {
            let start = at % PAGE;
            let step = (PAGE - start).min(rest.len());
            let (part, behind) = rest.split_at_mut(step);
            match pages.get(&(at / PAGE)) {
                Some(page) => part.copy_from_slice(&page[start..start + step]),
                None => part.copy_from_slice(&self.base[at..at + step]),
            }
            (rest, at) = (behind, at + step);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(Call::Write)?;
        let mut at = self.check(offset, data.len())?;
        let mut pages = self.pages.lock().unwrap();
        let mut rest = data;
        while !rest.is_empty() {
            let start = at % PAGE;
            let step = (PAGE - start).min(rest.len());
            let first = at / PAGE * PAGE;
            let page =
                pages.entry(at / PAGE).or_insert_with(|| self.base[first..first + PAGE].into());
            page[start..start + step].copy_from_slice(&rest[..step]);
            (rest, at) = (&rest[step..], at + step);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.count(Call::Flush)
    }

    fn read_only(&self) -> bool {
        false
    }
}
