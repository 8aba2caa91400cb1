//! A volume's metadata of one moment, read while the volume goes on changing: old content of blocks is kept
//! before metadata is written over it.
//!
//! 1. It begins while the volume is frozen: all metadata is in place, and no write is under way.
//! 2. A page (4 KiB) is kept before the first write that may change metadata of the moment in it begins:
//!    a write of metadata in place ([`Keeper::over`]), or the freeing of a metadata block, after which file
//!    data may be written there ([`Keeper::freed`]). Other file data goes only to blocks that held no
//!    metadata at the moment.
//! 3. A page is read and entered under one lock, and is kept once. So a second writer of the page waits
//!    until it is kept, and what is kept is the content of the moment.
//! 4. A reader first reads the device, and then looks for kept pages. If a write was under way during its
//!    read, the page was kept before, and is found. If it finds none, no write had begun when its read ended.
//! 5. Memory is bounded. Beyond the limit all kept pages are dropped, and every later read fails. Writers are
//!    never failed, and wait for the read of what is kept at most.
//! 6. While none is read, a write in place costs one atomic load more.
//! 7. The log and file data are not of the moment.
//!
//! Made by [`crate::freezer`], fed by the metadata device ([`crate::mount`]) and the transactions
//! ([`crate::tx`]), read by scrubs.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;
use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::{Daddr, Lsn};
use uxfs_sync::{Mutex, Rank};

const PAGE: usize = 4096;
/// Bytes of memory that a kept page takes.
const PAGE_COST: u64 = PAGE as u64 + 64;

/// Keeps old content of a device.
pub(crate) struct Keeper {
    dev: Arc<dyn BlockDev>,
    active: AtomicBool,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    pages: FxHashMap<u64, Box<[u8; PAGE]>>,
    limit: u64,
    /// Why nothing is kept any more.
    ended: Option<String>,
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_COST
    }

    fn end(&mut self, why: String) {
        self.ended.get_or_insert(why);
        self.pages = FxHashMap::default();
    }
}

impl Keeper {
    /// A keeper of old content of `dev`.
    pub(crate) fn new(dev: &Arc<dyn BlockDev>) -> Arc<Self> {
        let kept = Mutex::ranked(Rank::Leaf, None);
        Arc::new(Self { dev: Arc::clone(dev), active: AtomicBool::new(false), kept })
    }

    /// The device `written`, which leads to the keeper's. What is overwritten through it is kept first.
    pub(crate) fn over(self: &Arc<Self>, written: Arc<dyn BlockDev>) -> Arc<dyn BlockDev> {
        Arc::new(KeepingDev { written, keeper: Arc::clone(self) })
    }

    /// Begins to keep, at most `limit` bytes; false if it keeps already. The volume must be frozen.
    fn begin(&self, limit: u64) -> bool {
        let mut kept = self.kept.lock();
        if kept.is_some() {
            return false;
        }
        *kept = Some(Kept { pages: FxHashMap::default(), limit, ended: None });
        self.active.store(true, Ordering::SeqCst);
        true
    }

    fn end(&self) {
        let mut kept = self.kept.lock();
        self.active.store(false, Ordering::SeqCst);
        *kept = None;
    }

    /// Called before metadata blocks become free.
    pub(crate) fn freed(&self, daddr: Daddr, len: usize) {
        if self.active.load(Ordering::Acquire) && !planted(Fault::FreedNotKept) {
            self.keep(daddr.bytes(), len as u64);
        }
    }

    fn before_write(&self, offset: u64, len: u64) {
        if self.active.load(Ordering::Acquire) {
            self.keep(offset, len);
        }
    }

    fn keep(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.dev.len());
        let mut guard = self.kept.lock();
        let Some(kept) = guard.as_mut().filter(|kept| kept.ended.is_none()) else { return };
        for page in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
            if kept.pages.contains_key(&page) {
                continue;
            }
            if kept.bytes() + PAGE_COST > kept.limit {
                let limit = kept.limit >> 10;
                return kept.end(format!(
                    "so much changed meanwhile that the old content takes more than {limit} KiB"
                ));
            }
            let mut bytes = Box::new([0; PAGE]);
            let at = page * PAGE as u64;
            let inside = (self.dev.len() - at).min(PAGE as u64) as usize;
            if let Err(error) = self.dev.read_at(at, &mut bytes[..inside]) {
                return kept.end(format!("old content cannot be read: {error}"));
            }
            kept.pages.insert(page, bytes);
        }
    }
}

/// A device for metadata, whose old content is kept.
struct KeepingDev {
    written: Arc<dyn BlockDev>,
    keeper: Arc<Keeper>,
}

impl BlockDev for KeepingDev {
    uxfs_disk::forward!(self => *self.written; len, read_at, has_fua, flush, will_read, will_write_bulk, allocate,
         check_present, warning, read_only, sector_size, lengthen, as_file);

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.keeper.before_write(offset, data.len() as u64);
        self.written.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.keeper.before_write(offset, pieces.iter().map(|piece| piece.len() as u64).sum());
        self.written.write_vectored_at(offset, pieces)
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.keeper.before_write(offset, data.len() as u64);
        self.written.write_bulk_at(offset, data)
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.keeper.before_write(offset, data.len() as u64);
        self.written.write_fua_at(offset, data)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.keeper.before_write(offset, len);
        self.written.zero(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) {
        self.keeper.before_write(offset, len);
        self.written.discard(offset, len);
    }
}

/// A volume's metadata as of one moment: a device for reading only. It outlives neither the keeping of old
/// content, which its drop ends, nor the volume: once that is closed, its reads may find later content.
pub struct PointInTime {
    keeper: Arc<Keeper>,
    head: Option<Lsn>,
    /// A fault planted in the thread that made it, for the threads that read.
    without_kept: bool,
}

impl PointInTime {
    /// Begins now; `None` if there is one already. `head` is as the function of that name.
    pub(crate) fn begin(keeper: &Arc<Keeper>, limit: u64, head: Option<Lsn>) -> Option<Self> {
        let without_kept = planted(Fault::ReadWithoutKept);
        let keeper = keeper.begin(limit).then(|| Arc::clone(keeper))?;
        Some(Self { keeper, head, without_kept })
    }

    /// The LSN at which the next log record would have been written; `None` for a log on another device.
    pub fn head(&self) -> Option<Lsn> {
        self.head
    }

    /// Bytes of memory that old content takes.
    pub fn kept_bytes(&self) -> u64 {
        self.keeper.kept.lock().as_ref().map_or(0, Kept::bytes)
    }

    /// Why it cannot be read any more, if it cannot.
    pub fn ended(&self) -> Option<String> {
        self.keeper.kept.lock().as_ref().and_then(|kept| kept.ended.clone())
    }

    /// Ends it: every later read fails with this reason.
    pub fn end(&self, why: &str) {
        if let Some(kept) = &mut *self.keeper.kept.lock() {
            kept.end(why.to_owned());
        }
    }
}

impl Drop for PointInTime {
    fn drop(&mut self) {
        self.keeper.end();
    }
}

impl BlockDev for PointInTime {
    uxfs_disk::forward!(self => *self.keeper.dev; len, will_read, check_present, warning, sector_size);
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs_disk::without!(has_fua, discard, will_write_bulk, allocate, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        // The order of the two steps is rule 4.
        let read = self.keeper.dev.read_at(offset, buf);
        let guard = self.keeper.kept.lock();
        let Some(kept) = &*guard else { return Err(io::ErrorKind::NotConnected.into()) };
        if let Some(why) = &kept.ended {
            return Err(io::Error::other(why.clone()));
        }
        read?;
        if self.without_kept {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        for page in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
            let Some(bytes) = kept.pages.get(&page) else { continue };
            let first = page * PAGE as u64;
            let (from, to) = (first.max(offset), (first + PAGE as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - first) as usize..(to - first) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        true
    }
}
