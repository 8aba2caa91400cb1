//! Removing names, and freeing inodes whose last name is gone.

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::{Check, FileBlock, Ino};

use super::guard;
use super::names::{check_dir, check_name};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};
use crate::{attr, bmap, dir, ialloc, unlinked};

/// Extents freed in one transaction when a file is freed.
const EXTENTS_A_STEP: u64 = 32;

impl Fs {
    /// Removes a name of a file. With its last name, the file is freed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDir`], [`Error::NotPermitted`] if flags forbid it, or a
    /// damaged structure on the way.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        self.remove_entry(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::NotEmpty`], or a damaged structure on the
    /// way.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        self.remove_entry(parent, name, true)
    }

    fn remove_entry(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        check_name(name)?;
        if let Some(gone) = self.retry_enospc(|| self.try_remove(parent, name, want_dir))? {
            self.drop_last_name(gone)?;
        }
        self.balance()
    }

    /// Removes an entry in one transaction. Returns the inode if it was its last name.
    fn try_remove(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<Option<Ino>> {
        let (mut tx, dp, ip) = self.lock_entry(parent, name)?;
        let ino = tx.inode(ip).ino;
        guard::may_remove(&tx.inode(dp).core, &tx.inode(ip).core)?;
        let is_dir = tx.inode(ip).core.is_dir();
        if want_dir {
            check_dir(tx.inode(ip))?;
            if !dir::is_empty(self, tx.inode(ip))? {
                return Err(Error::NotEmpty);
            }
        } else if is_dir {
            return Err(Error::IsDir);
        }
        let name = &*dir::stored_name(self, tx.inode(dp), name)?;
        let gone = drop_link(&mut tx, ip)?;
        if dir::remove(&mut tx, dp, name)? != Some(ino) {
            return Err(tx
                .inode(dp)
                .corrupt(Check::State, "an entry changed while it was removed"));
        }
        assert!(!planted(Fault::RemovalPanics), "a fault that was planted");
        super::parent::remove(&mut tx, ip, dp, name)?;
        let now = self.now();
        let up = tx.core_mut(dp);
        (up.mtime, up.ctime) = (now, now);
        if is_dir {
            up.nlink = up.nlink.saturating_sub(1);
        }
        tx.commit()?;
        Ok(gone.then_some(ino))
    }

    /// Locks a directory and the inode of its entry `name`.
    fn lock_entry(&self, parent: Ino, name: &[u8]) -> Result<(Tx<'_>, InodeSlot, InodeSlot)> {
        loop {
            let ino = self.lookup(parent, name)?;
            if ino == parent {
                return Err(Error::corrupt(
                    "directory",
                    uxfs_format::Place::Inode(parent),
                    Check::Loop,
                    "holds itself",
                ));
            }
            let blocks = dir::remove_blocks(&self.geo) + self.parent_blocks();
            let mut tx = self.begin_freeing_tx_for(Op::Remove(blocks), blocks)?;
            let [dp, ip] = tx.lock_inodes([parent, ino])?;
            check_dir(tx.inode(dp))?;
            // Between lookup and locking, the name may have been given to another file.
            match dir::lookup(self, tx.inode(dp), name)? {
                Some((found, _)) if found == ino => return Ok((tx, dp, ip)),
                Some(_) => {}
                None => return Err(Error::NotFound),
            }
        }
    }

    /// Frees an inode without names in several transactions: its data, its attributes, then the
    /// inode. Between them a caller that found the inode earlier may still add blocks to it; these
    /// are freed too.
    pub(crate) fn inactivate(&self, ino: Ino) -> Result<()> {
        self.inactivate_while(ino, || true).map(|_| ())
    }

    /// As [`Fs::inactivate`], but goes on after each step only if `more` returns true. Returns whether
    /// nothing is left to do.
    pub(crate) fn inactivate_while(&self, ino: Ino, more: impl Fn() -> bool) -> Result<bool> {
        // Writers that come later find no file.
        let _content = self.iolocks.change(ino);
        self.discard_delayed(ino);
        loop {
            let mut tx = self.begin_freeing_tx_for(Op::Free, 8)?;
            let slot = tx.lock_inode(ino)?;
            if tx.inode(slot).core.nlink != 0 {
                return Ok(true);
            }
            let empty = empty_data(&mut tx, slot)? && attr::remove_all(&mut tx, slot)?;
            let left = tx.inode(slot).core.nblocks;
            if empty && left != 0 {
                let problem = format!("still counts {left} blocks when it is emptied");
                return Err(tx.inode(slot).corrupt(Check::Counter, problem));
            }
            tx.commit()?;
            if empty && self.free_empty(ino)? {
                return Ok(true);
            }
            if !more() {
                return Ok(false);
            }
        }
    }

    /// Frees an inode whose forks are empty. Returns `false` if they are not empty any more.
    fn free_empty(&self, ino: Ino) -> Result<bool> {
        // Only one thread at a time: removing an inode from its list may lock the inode before it.
        let _one = self.inactivation.lock();
        loop {
            let mut tx = self.begin_freeing_tx_for(Op::Free, 8)?;
            let slot = tx.lock_inode(ino)?;
            if tx.inode(slot).core.nblocks != 0 {
                return Ok(false);
            }
            tx.lock_ag(self.geo.ino_ag(ino))?;
            if unlinked::remove(&mut tx, slot)? {
                ialloc::free(&mut tx, slot)?;
                tx.commit()?;
                return Ok(true);
            }
            drop(tx);
            uxfs_sync::yield_now();
        }
    }
}

/// Removes one link of an inode, or all links of a directory. If none is left, puts the inode on
/// its list of unlinked inodes and returns `true`.
pub(super) fn drop_link(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<bool> {
    let now = tx.fs().now();
    if tx.inode(slot).core.nlink == 0 {
        return Err(tx.inode(slot).corrupt(Check::Links, "has a name, but a link count of 0"));
    }
    let core = tx.core_mut(slot);
    core.ctime = now;
    core.nlink = if core.is_dir() { 0 } else { core.nlink - 1 };
    if core.nlink > 0 {
        return Ok(false);
    }
    unlinked::add(tx, slot)?;
    Ok(true)
}

/// Empties the data fork of an inode that is being freed, one step at a time. Returns whether it is
/// empty.
fn empty_data(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<bool> {
    let inode = tx.inode(slot);
    match inode.core.format {
        ForkFormat::Dev => return Ok(true),
        ForkFormat::Local => {
            tx.fork_mut(slot, Fork::Data).fill(0);
            let core = tx.core_mut(slot);
            core.format = ForkFormat::Extents;
            core.size = 0;
            return Ok(true);
        }
        ForkFormat::Extents | ForkFormat::Btree => {}
    }
    if !inode.core.is_reg() {
        forget_metadata(tx, slot)?;
    }
    let all = 1 << 54;
    let left = bmap::unmap(tx, slot, Fork::Data, FileBlock(0), all, EXTENTS_A_STEP)?;
    if left == 0 {
        tx.core_mut(slot).size = 0;
    }
    Ok(left == 0)
}

/// Invalidates the buffers of the directory and link blocks that the next step frees, so that they
/// are not written any more.
fn forget_metadata(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let fs = tx.fs();
    let mut end = FileBlock(1 << 54);
    let (mut seen, mut floor) = (0, end);
    while let Some(extent) = bmap::before(fs, tx.inode(slot), Fork::Data, end)? {
        if seen >= EXTENTS_A_STEP && extent.end() <= floor {
            break;
        }
        // A directory block that the step frees in part begins in an earlier extent.
        if seen < EXTENTS_A_STEP {
            floor = FileBlock(extent.offset.0 / fs.geo.dir_block_fsbs() * fs.geo.dir_block_fsbs());
        }
        seen += 1;
        let (ag, block) = (fs.geo.fsb_ag(extent.start), fs.geo.fsb_agblock(extent.start));
        // In pieces of directory blocks, as they are logged.
        let fsbs = fs.geo.dir_block_fsbs();
        let mut step = 0;
        while step < extent.len {
            let left = fsbs - (extent.offset.0 + step) % fsbs;
            let count = left.min(extent.len - step);
            let daddr = fs.geo.ag_daddr(ag, block.plus(step as u32));
            tx.forget(daddr, (count as usize) << fs.geo.block_log);
            step += count;
        }
        end = extent.offset;
    }
    Ok(())
}
