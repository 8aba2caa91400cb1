//! Delayed allocation: written data gathers in memory, and gets its blocks when it is written back.
//!
//! A write copies its bytes into blocks in memory ([`page`], [`file`]), reserves what they may take
//! on the volume, and returns ([`write`]). Reads look there first ([`read`]). Writing back
//! ([`flush`]) is three steps for many files at once: a transaction a file maps unwritten blocks,
//! in the order of inode numbers, so that the data of small files made one after the other lies
//! one behind the other; then the data is written, pieces of many files in one go, with no lock of
//! inodes, groups or transactions held; then a transaction a file marks the blocks as written and
//! moves the length on disk. When that happens is decided by [`policy`], by writers that find the
//! memory used up, and by whoever wants durability ([`sync`]).
//!
//! 1. What was in blocks before is never seen: they become written only after the data is down,
//!    and the journal flushes data before the checkpoint that shows it. The length on disk covers
//!    only what was written, or reads as zeroes.
//! 2. [`Error::NoSpace`] comes from the write, not from writing back: blocks for data and trees
//!    are reserved first.
//! 3. Memory is bounded: a writer that would exceed the limit writes back before it goes on.
//! 4. Nothing depends on a thread or a clock of its own; one thread alone makes a run that can be
//!    repeated exactly.
//! 5. Data that could not be written stays dirty and is tried again; the error is told once to each
//!    who asks ([`errors`]). While the host has no room for it, writers get the error ([`crate::full`]).
//! 6. Operations on what space a file takes ([`Fs::flush_and_block`]) write its data back first, and hold it
//!    while they last.

mod errors;
mod file;
mod flush;
mod options;
mod page;
mod policy;
mod read;
mod register;
mod space;
mod sync;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use uxfs_format::Ino;

pub use errors::ErrorCursor;
pub(crate) use file::{File, WritebackBlock};
pub use options::WritebackOptions;
pub(crate) use register::Delalloc;
use register::POOL;
pub use sync::SyncKind;

use crate::error::Result;
use crate::fs::Fs;
use file::Pages;

impl Fs {
    /// Sets blocks aside for the trees of files being written back, as far as there are any.
    pub(crate) fn fill_pool(&self, dirty: &Delalloc) {
        let missing = POOL - (*dirty.pool.lock()).min(POOL);
        if missing > 0 && self.reserve(missing).is_ok() {
            self.unreserve(dirty.refill(missing));
        }
    }

    /// The changes of a file that are in memory only.
    pub(crate) fn delayed(&self, ino: Ino) -> Option<Arc<File>> {
        self.delalloc.as_ref()?.file(ino)
    }

    /// Writes back what is dirty of a file whose space is about to change, and holds it. The caller
    /// has its content's lock, for a change.
    pub(crate) fn flush_and_block(&self, ino: Ino) -> Result<Option<WritebackBlock>> {
        let Some(file) = self.delayed(ino) else { return Ok(None) };
        self.write_back_file(ino)?;
        Ok(Some(file.hold()))
    }

    /// The same for two files.
    pub(crate) fn flush_and_block_two(
        &self,
        one: Ino,
        other: Ino,
    ) -> Result<[Option<WritebackBlock>; 2]> {
        self.write_back_file(one)?;
        self.write_back_file(other)?;
        let first = self.delayed(one.min(other)).map(|file| file.hold());
        let second = self.delayed(one.max(other)).filter(|_| one != other);
        Ok([first, second.map(|file| file.hold())])
    }

    /// Cuts what is dirty of a file to `size` bytes, and holds the file. If it is longer on disk
    /// already than that, the rest stays dirty; else it is written back. Gives the length that the
    /// file had. The caller has its content's lock, for a change.
    pub(crate) fn cut_delayed(&self, ino: Ino, size: u64) -> Result<Option<(WritebackBlock, u64)>> {
        let (Some(dirty), Some(file)) = (&self.delalloc, self.delayed(ino)) else {
            return Ok(None);
        };
        let on_disk = crate::sync::read(&file.cell).core.size;
        let hold = file.hold();
        let old = {
            let mut pages = file.pages();
            let old = pages.size(on_disk);
            if size < old {
                let freed = self.cut_pages(dirty, &mut pages, size);
                self.unreserve(freed);
            }
            old
        };
        if size < on_disk {
            return Ok(Some((hold, old)));
        }
        drop(hold);
        self.write_back_file(ino)?;
        Ok(Some((file.hold(), old)))
    }

    /// Cuts dirty blocks; the number of reserved blocks that this sets free.
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

    /// The length on disk of a file that was cut is its length.
    pub(crate) fn end_cut(&self, ino: Ino) {
        if let (Some(dirty), Some(file)) = (&self.delalloc, self.delayed(ino)) {
            let freed = file::tidy(&mut file.pages());
            self.unreserve(freed);
            dirty.settle_pool(&file);
        }
    }

    /// Throws away what is dirty of a file that goes. The caller has its content's lock, for a
    /// change.
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
