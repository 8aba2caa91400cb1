//! Changing the space that a file takes: all modes of fallocate(2).
//!
//! 1. Only whole blocks are mapped and unmapped. Where a range covers a block in part, that part is
//!    zeroed.
//! 2. Allocated space is unwritten, so old content of the blocks never becomes readable.
//! 3. The operation holds the file's iolock from start to end, so other callers see no state between
//!    its transactions. Each transaction leaves a consistent volume.

use uxfs_format::inode::{Flags, Fork};
use uxfs_format::{FileBlock, Ino};

use crate::alloc::Goal;
use crate::bmap::{self, Run};
use crate::cow::AllocUnit;
use crate::error::{Error, Result};
use crate::file::{SIZE_MAX, check_file, refuse_realtime};
use crate::fs::Fs;
use crate::limits::{EXTENTS_A_STEP, TREE_BLOCKS};
use crate::tx::Tx;

/// The modes of [`Fs::fallocate`], which apply to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocate blocks for the holes of the range. The file grows to the end of the range unless
    /// `keep_size`.
    Allocate {
        /// Keep the file's length.
        keep_size: bool,
    },
    /// Make the range a hole. The length stays.
    PunchHole,
    /// Zero the range, with blocks allocated. The file grows to the end of the range unless
    /// `keep_size`.
    ZeroRange {
        /// Keep the file's length.
        keep_size: bool,
    },
    /// Remove the range and move the content after it down. The range must be whole blocks and end
    /// before the end of the file.
    CollapseRange,
    /// Insert a hole and move the content from there on up. The range must be whole blocks and
    /// start before the end of the file.
    InsertRange,
    /// Give the file its own copies of the shared blocks in the range, and blocks for its holes.
    /// The file grows to the end of the range unless `keep_size`.
    Unshare {
        /// Keep the file's length.
        keep_size: bool,
    },
}

impl Fallocate {
    /// Does the file keep its length?
    fn keeps_size(self) -> bool {
        match self {
            Self::Allocate { keep_size }
            | Self::ZeroRange { keep_size }
            | Self::Unshare { keep_size } => keep_size,
            _ => true,
        }
    }
}

impl Fs {
    /// Changes the space that the `len` bytes of a file from `offset` on take, as `mode` says.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of 0 and for ranges that [`Fallocate`] excludes;
    /// [`Error::NotPermitted`] for immutable files, and for append-only files in all modes but the
    /// first; [`Error::FileTooBig`], [`Error::NoSpace`], [`Error::IsDir`], or a damaged structure
    /// on the way. A failed call may have changed a part of the range.
    pub fn fallocate(&self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _inside = self.changes();
        self.check_writable()?;
        let _content = self.iolocks.change(ino);
        let _blocked = self.flush_and_block(ino)?;
        let (flags, size) = self.with_inode(ino, |inode| {
            if len == 0 {
                return Err(Error::Invalid("the length must not be 0"));
            }
            check_file(inode)?;
            refuse_realtime(inode)?;
            Ok((inode.core.flags, inode.core.size))
        })?;
        let append = flags.contains(Flags::APPEND) && !matches!(mode, Fallocate::Allocate { .. });
        if append || flags.contains(Flags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        let end =
            offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooBig)?;
        let (first, last) = (self.block_of(offset), FileBlock(self.geo.blocks_for(end)));
        self.check_sharing(&self.inodes.get(self, ino)?)?;
        if !mode.keeps_size() {
            self.free_shared_behind(ino, end)?;
        }
        match mode {
            Fallocate::Allocate { .. } => self.allocate_blocks(ino, first, last)?,
            Fallocate::PunchHole => self.free_range(ino, (offset, end), size)?,
            Fallocate::ZeroRange { .. } => {
                self.free_range(ino, (offset, end), size)?;
                self.allocate_blocks(ino, first, last)?;
            }
            Fallocate::CollapseRange => return self.collapse(ino, (offset, end), size),
            Fallocate::InsertRange => return self.insert(ino, (offset, end), size),
            Fallocate::Unshare { .. } => {
                self.unshare_blocks(ino, first, last)?;
                self.allocate_blocks(ino, first, last)?;
            }
        }
        let size = if mode.keeps_size() { size } else { size.max(end) };
        self.set_size(ino, size)?;
        self.balance()
    }

    fn block_of(&self, at: u64) -> FileBlock {
        FileBlock(at >> self.geo.block_log)
    }

    /// Sets a length not below the present one, and updates the times.
    fn set_size(&self, ino: Ino, size: u64) -> Result<()> {
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        let old = tx.inode(slot).core.size;
        if size > old {
            self.zero_behind(tx.inode(slot), old, size)?;
        }
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = size.max(old);
        (core.mtime, core.ctime) = (now, now);
        tx.commit()
    }

    /// Allocates unwritten blocks for all holes of a file in `from..to`.
    fn allocate_blocks(&self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<()> {
        let mut at = from;
        while at < to {
            at = self.retry_enospc(|| self.allocate_next(ino, at, to))?;
            self.balance()?;
        }
        Ok(())
    }

    /// Allocates blocks for the first hole in `from..to`, as many as one transaction can. Returns
    /// the end of the allocated range.
    fn allocate_next(&self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<FileBlock> {
        let mut at = from;
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        tx.core_mut(slot).flags.insert(Flags::PREALLOC);
        while at < to
            && let Some(extent) = bmap::lookup(self, tx.inode(slot), Fork::Data, at)?
        {
            at = extent.end();
        }
        if at < to {
            at = self.allocate_hole(&mut tx, slot, at, to)?;
        }
        tx.commit()?;
        Ok(at)
    }

    /// Allocates blocks for the hole at `from`, as many as one transaction can. Returns the end of
    /// the allocated range.
    fn allocate_hole(
        &self,
        tx: &mut Tx<'_>,
        slot: crate::tx::InodeSlot,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<FileBlock> {
        let inode = tx.inode(slot);
        let goal = Goal::Stream(self.geo.ino_ag(inode.ino));
        let unit = AllocUnit::of(&self.geo, &inode.core);
        let hole = self.grains(inode, (from, to), unit)?;
        let most = uxfs_format::extent::MAX_EXTENT_LEN;
        let end = hole.end.min(hole.start.plus(most - most % unit.fresh));
        tx.reserve_more(end.0 - hole.start.0 + 2 * TREE_BLOCKS)?;
        let mut at = hole.start;
        for _ in 0..EXTENTS_A_STEP {
            let run = Run { at, min: unit.fresh, want: end.0 - at.0, unwritten: true };
            at = bmap::alloc_run(tx, slot, Fork::Data, &run, goal)?.end();
            if at >= end || !tx.has_room() {
                break;
            }
        }
        Ok(at)
    }

    /// Makes a range of bytes a hole: unmaps whole blocks and zeroes partial blocks up to the end
    /// of the file.
    ///
    /// The partial blocks come first. A partial block may share its disk block with a block that is
    /// to be unmapped. After the unmapping it would no longer be shared and would be zeroed in
    /// place, although a power cut can still undo the unmapping.
    fn free_range(&self, ino: Ino, range: (u64, u64), size: u64) -> Result<()> {
        match self.zero_edges(ino, range, size) {
            // The unmapped blocks may provide the space that the copy of a shared block needs.
            Err(Error::NoSpace) => {
                self.unmap_range(ino, range)?;
                self.zero_edges(ino, range, size)
            }
            Err(error) => Err(error),
            Ok(()) => self.unmap_range(ino, range),
        }
    }

    /// Unmaps the whole blocks in a range of bytes.
    fn unmap_range(&self, ino: Ino, (from, to): (u64, u64)) -> Result<()> {
        let (first, last) = (FileBlock(self.geo.blocks_for(from)), self.block_of(to));
        let mut left = last.0.saturating_sub(first.0);
        while left > 0 {
            left = self.retry_enospc(|| self.unmap_some(ino, first, left))?;
        }
        Ok(())
    }

    /// Unmaps blocks in one transaction. Returns how many from `first` on may still be mapped.
    pub(crate) fn unmap_some(&self, ino: Ino, first: FileBlock, blocks: u64) -> Result<u64> {
        let mut tx = self.begin_freeing_tx(TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        let left = bmap::unmap(&mut tx, slot, Fork::Data, first, blocks, EXTENTS_A_STEP)?;
        tx.commit()?;
        Ok(left)
    }

    /// Zeroes the parts of a byte range that lie in blocks which the range covers only in part, up
    /// to the end of the file.
    fn zero_edges(&self, ino: Ino, (from, to): (u64, u64), size: u64) -> Result<()> {
        let (first, last) = (FileBlock(self.geo.blocks_for(from)), self.block_of(to));
        let bytes = |block: FileBlock| block.0.saturating_mul(self.geo.block_size.into());
        let (head, tail) = (bytes(first).min(to), bytes(last).max(from));
        self.zero_bytes(ino, from, head.min(size))?;
        if tail >= head {
            self.zero_bytes(ino, tail, to.min(size))?;
        }
        Ok(())
    }

    /// Zeroes bytes of one block of a file, below the file's end, if the block is written.
    fn zero_bytes(&self, ino: Ino, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        while at < to {
            let next = self.with_inode(ino, |inode| self.segment(inode, at, to))?;
            at += match next.device {
                Some(_) => {
                    // The range is shorter than a block.
                    let zeroes = vec![0; next.len.min(u64::from(self.geo.block_size)) as usize];
                    self.retry_enospc(|| self.write_some(ino, at, &zeroes))?
                }
                None => next.len,
            };
        }
        Ok(())
    }

    fn collapse(&self, ino: Ino, (from, to): (u64, u64), size: u64) -> Result<()> {
        self.check_whole(from, to)?;
        if to >= size {
            return Err(Error::Invalid("the range to remove must end before the end of the file"));
        }
        self.free_range(ino, (from, to), size)?;
        let by = to - from;
        let mut next = Some(self.block_of(to));
        while let Some(at) = next {
            next = self.retry_enospc(|| {
                let mut tx = self.begin_freeing_tx(TREE_BLOCKS)?;
                let slot = tx.lock_inode(ino)?;
                let blocks = self.block_of(by).0;
                let next = bmap::shift_down(&mut tx, slot, at, blocks, EXTENTS_A_STEP)?;
                tx.commit()?;
                Ok(next)
            })?;
        }
        let mut tx = self.begin_freeing_tx(TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = size - by;
        (core.mtime, core.ctime) = (now, now);
        tx.commit()?;
        // Blocks preallocated past the old end do not stay for the new end.
        self.free_beyond(ino, size - by)?;
        self.balance()
    }

    fn insert(&self, ino: Ino, (from, to): (u64, u64), size: u64) -> Result<()> {
        self.check_whole(from, to)?;
        if from >= size {
            return Err(Error::Invalid(
                "the range to insert must start before the end of the file",
            ));
        }
        let by = to - from;
        let new_size = size.checked_add(by).filter(|s| *s <= SIZE_MAX).ok_or(Error::FileTooBig)?;
        let (first, blocks) = (self.block_of(from), self.block_of(by).0);
        let end = FileBlock(1 << 54);
        let last = self.with_inode(ino, |inode| bmap::last_before(self, inode, Fork::Data, end))?;
        if last.0.saturating_add(blocks) >= end.0 {
            return Err(Error::Invalid("blocks would move past the maximum file size"));
        }
        self.retry_enospc(|| self.begin_insert(ino, first, new_size))?;
        let mut next = Some(end);
        while let Some(below) = next {
            next = self.retry_enospc(|| {
                let mut tx = self.begin_freeing_tx(TREE_BLOCKS)?;
                let slot = tx.lock_inode(ino)?;
                let next = bmap::shift_up(&mut tx, slot, first, below, blocks, EXTENTS_A_STEP)?;
                tx.commit()?;
                Ok(next)
            })?;
        }
        self.balance()
    }

    /// The first transaction of an insertion. It splits the extent at `first`, which takes the only new
    /// block, so no later one fails for lack of space with half of the extents moved. The file grows,
    /// because moved extents must not lie past its end.
    fn begin_insert(&self, ino: Ino, first: FileBlock, size: u64) -> Result<()> {
        let mut tx = self.begin_tx(2 * TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        bmap::split(&mut tx, slot, first)?;
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = size;
        (core.mtime, core.ctime) = (now, now);
        tx.commit()
    }

    /// Fails unless the range is whole blocks.
    fn check_whole(&self, from: u64, to: u64) -> Result<()> {
        let block_size = u64::from(self.geo.block_size);
        if from.is_multiple_of(block_size) && to.is_multiple_of(block_size) {
            return Ok(());
        }
        Err(Error::Invalid("the range must be multiples of the block size"))
    }
}
