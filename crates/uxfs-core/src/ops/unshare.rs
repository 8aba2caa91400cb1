//! Giving a file its own copies of the blocks that it shares, or taking them away behind its end.

use uxfs_format::inode::{Flags2, Fork};
use uxfs_format::{Extent, FileBlock, Ino};

use crate::alloc::{self, Goal};
use crate::bmap;
use crate::cow::AllocUnit;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::InodeRef;
use crate::limits::TREE_BLOCKS;
use crate::tx::{InodeSlot, Tx};

/// Most blocks copied in one transaction.
const COPY_STEP: u64 = 4096;

impl Fs {
    /// Copies every shared block of a file in `from..to`. The caller holds the file's iolock.
    pub(super) fn unshare_blocks(&self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<()> {
        let mut at = from;
        while at < to {
            let mut tx = self.begin_tx(0)?;
            let slot = tx.lock_inode(ino)?;
            if !tx.inode(slot).core.flags2.contains(Flags2::REFLINK) {
                return Ok(());
            }
            let Some(shared) = self.next_shared(&mut tx, slot, at, to)? else { break };
            // Ending the search's transaction unlocks the groups; the copy locks the groups that it
            // needs.
            drop(tx);
            at = self.retry_enospc(|| self.own_copy(ino, shared))?;
            self.balance()?;
        }
        self.clear_reflink(ino)
    }

    /// Gives the file its own blocks for an extent, if the extent is still shared.
    fn own_copy(&self, ino: Ino, shared: Extent) -> Result<FileBlock> {
        let mut tx = self.begin_tx(shared.len + TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        let goal = Goal::Stream(self.geo.ino_ag(ino));
        let place = self.own(&mut tx, slot, shared, AllocUnit::ANY, goal)?;
        let end = place.extent.end();
        if let Some(old) = place.old {
            self.copy_blocks(old.start, place.extent.start, old.len)?;
            tx.commit()?;
        }
        Ok(end)
    }

    /// Sets the reflink flag of a file that shares blocks without it, which a damaged volume may have.
    /// Asks the reference counts once while the inode is in memory, because a file gets the flag here
    /// before it shares blocks. The caller holds the file's iolock.
    pub(crate) fn check_sharing(&self, cell: &InodeRef) -> Result<()> {
        let ino = {
            let inode = uxfs_sync::read(cell);
            let core = &inode.core;
            let known = inode.sharing_known || core.flags2.contains(Flags2::REFLINK);
            let shares = self.geo.has_reflink() && core.is_reg() && !core.is_realtime();
            if known || !shares || core.nextents == 0 {
                return Ok(());
            }
            inode.ino
        };
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        if self.next_shared(&mut tx, slot, FileBlock(0), FileBlock(1 << 54))?.is_some() {
            tx.core_mut(slot).flags2.insert(Flags2::REFLINK);
            tx.commit()?;
        } else {
            drop(tx);
        }
        uxfs_sync::write(cell).sharing_known = true;
        Ok(())
    }

    /// Would a write at byte `at` have to zero shared blocks between the file's end and `at`?
    pub(crate) fn is_shared_behind(&self, cell: &InodeRef, at: u64) -> Result<bool> {
        let inode = uxfs_sync::read(cell);
        let size = inode.core.size;
        if at <= size || !inode.core.flags2.contains(Flags2::REFLINK) {
            return Ok(false);
        }
        if self.delayed(inode.ino).is_some_and(|file| at <= file.size(size)) {
            return Ok(false);
        }
        let first = FileBlock(self.geo.blocks_for(size));
        let next = bmap::at_or_after(self, &inode, Fork::Data, first)?;
        Ok(next.is_some_and(|extent| extent.offset.0 < self.geo.blocks_for(at)))
    }

    /// Unmaps the shared blocks between the end of a file and byte `to`. A truncation that a power cut or
    /// an error ended leaves blocks there; zeroing them in place would change the other files. The
    /// caller holds the file's iolock, and blocks its write-back.
    pub(crate) fn free_shared_behind(&self, ino: Ino, to: u64) -> Result<()> {
        if !self.is_shared_behind(&self.inodes.get(self, ino)?, to)? {
            return Ok(());
        }
        let end = FileBlock(self.geo.blocks_for(to));
        while self.retry_enospc(|| self.free_next_shared(ino, end))? {
            self.balance()?;
        }
        Ok(())
    }

    /// Unmaps the first run of shared blocks between the end of a file and block `end`. Returns whether
    /// there was one.
    fn free_next_shared(&self, ino: Ino, end: FileBlock) -> Result<bool> {
        let mut tx = self.begin_freeing_tx(TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        let first = FileBlock(self.geo.blocks_for(tx.inode(slot).core.size));
        let Some(shared) = self.next_shared(&mut tx, slot, first, end)? else { return Ok(false) };
        bmap::unmap(&mut tx, slot, Fork::Data, shared.offset, shared.len, u64::MAX)?;
        tx.commit()?;
        Ok(true)
    }

    /// The first run of shared blocks of a file in `from..to`, no longer than one transaction can
    /// copy.
    fn next_shared(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<Option<Extent>> {
        let mut at = from;
        while at < to
            && let Some(extent) = bmap::at_or_after(self, tx.inode(slot), Fork::Data, at)?
            && extent.offset < to
        {
            let extent = bmap::slice(&extent, at, to);
            at = extent.end();
            if extent.unwritten {
                continue;
            }
            let (ag, start) = (self.geo.fsb_ag(extent.start), self.geo.fsb_agblock(extent.start));
            tx.lock_ag(ag)?;
            let run = alloc::shared_run(tx, ag, start, extent.len as u32)?;
            tx.unlock_ag(ag);
            if let Some((first, len)) = run {
                let skip = u64::from(first.0 - start.0);
                return Ok(Some(Extent {
                    offset: extent.offset.plus(skip),
                    start: extent.start.plus(skip),
                    len: u64::from(len).min(COPY_STEP),
                    unwritten: false,
                }));
            }
        }
        Ok(None)
    }

    /// Clears the reflink flag of a file that shares no blocks.
    fn clear_reflink(&self, ino: Ino) -> Result<()> {
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        let all = FileBlock(1 << 54);
        if self.next_shared(&mut tx, slot, FileBlock(0), all)?.is_none() {
            tx.core_mut(slot).flags2.remove(Flags2::REFLINK);
            tx.commit()?;
        }
        Ok(())
    }
}
