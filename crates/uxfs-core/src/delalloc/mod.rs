//! Delayed allocation: written data stays in memory, and gets its blocks at write-back.
//!
//! A write copies its bytes into blocks in memory ([`page`], [`file`]), reserves the space that
//! they may need on the volume, and returns ([`write`]). Reads look there first ([`read`]).
//!
//! Write-back ([`flush`]) has three steps, each for many files at once. First, one transaction per
//! file maps unwritten blocks, in the order of inode numbers, so that the data of small files
//! created one after the other is contiguous. Then the data is written, with pieces of many files
//! in one write, while no lock of an inode, AG or transaction is held. Finally, one transaction per
//! file marks the blocks as written and moves the length on disk. Write-back is started by
//! [`policy`], by writers that find no free memory, and by callers that need durability ([`sync`]).
//!
//! 1. Old contents of blocks are never visible: blocks become written only after the data is on the
//!    device, and the journal flushes data before the checkpoint that makes it visible. The length
//!    on disk covers only what was written or reads as zeroes.
//! 2. [`Error::NoSpace`] is returned by the write, not by write-back: blocks for data and btrees
//!    are reserved first. Operations that shorten a file or free blocks reserve what they can get;
//!    on a full volume they take blocks that metadata may use.
//! 3. Memory is bounded: a writer that would exceed the limit first writes data back.
//! 4. Nothing depends on a thread or a clock of its own; a run with a single thread can be repeated
//!    exactly.
//! 5. Data that could not be written stays dirty and is retried. Each open handle gets the error
//!    once ([`errors`]). While the host is full, writers get the error ([`crate::full`]).
//! 6. Operations on a file's blocks ([`Fs::flush_and_block`]) first write its data back, and block
//!    write-back until they end.

mod errors;
mod file;
mod flush;
mod fsync;
mod moved;
mod options;
mod page;
mod policy;
mod read;
mod register;
mod space;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::sync::Arc;

use uxfs_format::Ino;

pub use errors::ErrorCursor;
pub(crate) use file::{File, WritebackBlock};
pub use fsync::{BegunFsync, DeferredFsync};
pub use options::WritebackOptions;
pub(crate) use register::Delalloc;
use register::POOL;
pub use sync::SyncKind;

use crate::error::Result;
use crate::fs::Fs;
use file::Pages;

impl Fs {
    /// Refills the pool of blocks reserved for btrees during write-back, as far as space allows.
    pub(crate) fn fill_pool(&self, dirty: &Delalloc) {
        let missing = POOL - (*dirty.pool.lock()).min(POOL);
        if missing > 0 && self.reserve(missing).is_ok() {
            self.unreserve(dirty.refill(missing));
        }
    }

    /// The file's changes that are in memory only.
    pub(crate) fn delayed(&self, ino: Ino) -> Option<Arc<File>> {
        self.delalloc.as_ref()?.file(ino)
    }

    /// Writes back a file whose blocks are about to change, and blocks further write-back. The
    /// caller holds the content lock for writing.
    pub(crate) fn flush_and_block(&self, ino: Ino) -> Result<Option<WritebackBlock>> {
        let Some(file) = self.delayed(ino) else { return Ok(None) };
        self.write_back_file(ino)?;
        Ok(Some(file.hold()))
    }

    /// The same for several files, given once each in ascending order.
    pub(crate) fn flush_and_block_all(&self, inos: &[Ino]) -> Result<Vec<WritebackBlock>> {
        inos.iter().try_for_each(|ino| self.write_back_file(*ino))?;
        Ok(inos.iter().filter_map(|ino| self.delayed(*ino)).map(|file| file.hold()).collect())
    }

    /// Blocks the write-back of a file that is about to be truncated to `size` bytes. If the file is no
    /// longer than that on disk, its dirty blocks below `size` are written first: the new length covers
    /// no data that is only in memory. Nothing is cut before the truncation has committed
    /// ([`Fs::cut_delayed`]), because it may fail. The caller holds the content lock for writing.
    pub(crate) fn block_for_cut(&self, ino: Ino, size: u64) -> Result<Option<WritebackBlock>> {
        let Some(file) = self.delayed(ino) else { return Ok(None) };
        if self.ordered {
            // An epoch may be cut between the truncation of the file and that of the pages.
            self.write_back_file(ino)?;
        } else if size >= uxfs_sync::read(&file.cell).core.size {
            self.write_back_below(ino, self.geo.blocks_for(size))?;
        }
        Ok(Some(file.hold()))
    }

    /// Truncates a file's dirty data to `size` bytes, which is the file's length on disk now. Returns the
    /// length that callers saw before. The caller holds the content lock for writing, and blocks the
    /// file's write-back.
    pub(crate) fn cut_delayed(&self, ino: Ino, size: u64) -> u64 {
        let (Some(dirty), Some(file)) = (&self.delalloc, self.delayed(ino)) else { return size };
        let (old, freed) = {
            let mut pages = file.pages();
            let old = pages.size(size);
            let freed = if size < old { self.cut_pages(dirty, &mut pages, size) } else { 0 };
            (old, freed + file::tidy(&mut pages))
        };
        self.unreserve(freed);
        dirty.update_entry(&file);
        old
    }

    /// Truncates dirty blocks. Returns the number of reserved blocks that this frees.
    fn cut_pages(&self, dirty: &Delalloc, pages: &mut Pages, size: u64) -> u64 {
        let before = pages.reserved;
        let cut: Vec<u64> =
            pages.map.range(self.geo.blocks_for(size)..).map(|(block, _)| *block).collect();
        cut.into_iter().for_each(|block| pages.remove(block));
        let block_size = u64::from(self.geo.block_size);
        let tail = (size % block_size) as usize;
        if tail > 0
            && let Some(page) = pages.map.get_mut(&(size >> self.geo.block_log))
        {
            let reservation = page::MemoryReservation::new(&dirty.memory, 0, u64::MAX);
            if let Some(mut reservation) = reservation {
                reservation.unshare(&mut page.content)[tail..].fill(0);
            }
        }
        pages.size = size;
        before - pages.reserved
    }

    /// Discards the dirty data of a file that is being deleted. The caller holds the content lock
    /// for writing.
    pub(crate) fn discard_delayed(&self, ino: Ino) {
        let Some(dirty) = &self.delalloc else { return };
        dirty.errors.lock().forget(ino);
        let Some(file) = dirty.file(ino) else { return };
        let _hold = file.hold();
        let mut shard = dirty.shard(ino).lock();
        let mut pages = file.pages();
        let freed = pages.clear();
        if !pages.gone {
            dirty.unregister(&mut shard, &file, &mut pages);
        }
        drop(pages);
        drop(shard);
        self.unreserve(freed);
    }
}
