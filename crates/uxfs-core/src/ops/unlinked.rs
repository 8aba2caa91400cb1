//! Files without a name: those that a program makes so (`O_TMPFILE`), and those that take several
//! transactions to create, because they have more attributes than one transaction can reserve space
//! for.
//!
//! 1. Such a file is on its group's list of unlinked inodes, so recovery frees it after a power cut.
//! 2. One transaction takes it off that list and gives it its name and link count.
//! 3. If a step fails, the file is freed before the error is returned. If the device may still be
//!    receiving its data, the file is freed when the volume is closed.

use uxfs_format::Ino;
use uxfs_format::inode::{InodeCore, S_IFDIR, S_IFMT};

use super::create::{NewInode, ONE_INODE, enter, first_content};
use super::guard;
use super::names::{check_dir, check_name};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};
use crate::{dir, ialloc, symlink, unlinked};

impl Fs {
    /// Creates a file of the type in `new.mode` without a name, like open(2) with `O_TMPFILE`. It
    /// belongs to the group and the project of `parent`, and has one open reference: releasing it
    /// ([`Fs::release`]) frees the file, unless it got a name ([`Fs::link_unlinked`]).
    ///
    /// # Errors
    /// As [`Fs::create`].
    pub fn tmpfile(&self, parent: Ino, new: &NewInode) -> Result<Ino> {
        let _inside = self.changes();
        let blocks = ialloc::blocks(self);
        let ino = self.retry_enospc(|| {
            let (mut tx, dp, core) = self.with_dquots(|| {
                let mut tx = self.begin_tx_for(Op::Create(blocks), blocks)?;
                let dp = tx.lock_inode(parent)?;
                check_dir(tx.inode(dp))?;
                guard::may_add(&tx.inode(dp).core)?;
                let core = self.new_core(&tx.inode(dp).core, new)?;
                Ok((tx, dp, core))
            })?;
            let slot = alloc_unlinked(&mut tx, dp, new, core)?;
            let ino = tx.inode(slot).ino;
            tx.commit()?;
            Ok(ino)
        })?;
        self.hold(ino);
        self.drop_last_name(ino)?;
        self.balance()?;
        Ok(ino)
    }

    /// Gives a file without a name its first one. The caller has an open reference to the file.
    ///
    /// # Errors
    /// As [`Fs::link`]; [`Error::NotFound`] if it has a name.
    pub fn link_unlinked(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        check_name(name)?;
        self.retry_enospc(|| {
            let may_link = |dir: &InodeCore, file: &InodeCore| {
                guard::may_change(file)?;
                guard::same_project(dir, file)
            };
            let (mut tx, slot) = self.begin_link(parent, name, ino, 0, may_link)?;
            tx.core_mut(slot).ctime = self.now();
            tx.commit()
        })?;
        self.got_name(ino);
        self.balance()
    }

    /// Creates an inode without a name, which becomes `name` in `parent` when it is complete. A
    /// symbolic link gets its target at once, because a link without a target is corrupt.
    ///
    /// # Errors
    /// As [`Fs::create`] and [`Fs::symlink`].
    pub(super) fn create_unlinked(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        target: Option<&[u8]>,
    ) -> Result<Ino> {
        check_name(name)?;
        let blocks = ialloc::blocks(self) + target.map_or(0, |_| symlink::blocks(&self.geo));
        let ino = self.retry_enospc(|| {
            let (mut tx, dp, core) = self.with_dquots(|| {
                let mut tx = self.begin_tx_for(Op::Create(blocks), blocks)?;
                let dp = tx.lock_inode(parent)?;
                self.may_enter(&tx, dp, name, new.mode & S_IFMT)?;
                let core = self.new_core(&tx.inode(dp).core, new)?;
                Ok((tx, dp, core))
            })?;
            let slot = alloc_unlinked(&mut tx, dp, new, core)?;
            if let Some(target) = target {
                symlink::write(&mut tx, slot, target)?;
            }
            let ino = tx.inode(slot).ino;
            tx.commit()?;
            Ok(ino)
        })?;
        self.balance()?;
        Ok(ino)
    }

    /// Begins the transaction that makes `ino`, which has no name, the entry `name` of `parent`,
    /// if `may_link` has nothing against it, given the directory and the file.
    ///
    /// # Errors
    /// As [`Fs::create`]; [`Error::NotFound`] if the file has a name.
    pub(super) fn begin_link(
        &self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        data_blocks: u64,
        may_link: impl Fn(&InodeCore, &InodeCore) -> Result<()>,
    ) -> Result<(Tx<'_>, InodeSlot)> {
        let blocks = dir::insert_blocks(&self.geo) + self.parent_blocks();
        let total = blocks.saturating_add(data_blocks).min(1 << 62);
        loop {
            let mut tx = self.begin_tx_for(Op::Create(blocks), total)?;
            let [dp, slot] = tx.lock_inodes([parent, ino])?;
            let kind = tx.inode(slot).core.mode & S_IFMT;
            self.may_enter(&tx, dp, name, kind)?;
            may_link(&tx.inode(dp).core, &tx.inode(slot).core)?;
            if tx.inode(slot).core.nlink != 0 {
                return Err(Error::NotFound);
            }
            tx.lock_ag(self.geo.ino_ag(ino))?;
            if unlinked::remove(&mut tx, slot)? {
                tx.core_mut(slot).nlink = if kind == S_IFDIR { 2 } else { 1 };
                enter(&mut tx, dp, slot, name)?;
                return Ok((tx, slot));
            }
            // Another thread has locked the inode before it on the list.
            drop(tx);
            uxfs_sync::yield_now();
        }
    }

    /// Frees an incomplete file, now or when the volume is closed.
    pub(super) fn abandon(&self, ino: Ino) {
        let _ = self.drop_last_name(ino);
    }

    /// Frees an incomplete file when the volume is closed.
    pub(super) fn abandon_later(&self, ino: Ino) {
        self.hold(ino);
        // The open reference defers the freeing.
        let _ = self.drop_last_name(ino);
    }
}

/// Allocates an inode and puts it on its list.
fn alloc_unlinked(
    tx: &mut Tx<'_>,
    dp: InodeSlot,
    new: &NewInode,
    core: InodeCore,
) -> Result<InodeSlot> {
    let parent = tx.inode(dp).ino;
    tx.hold(&core, ONE_INODE)?;
    let slot = ialloc::alloc(tx, parent, InodeCore { nlink: 0, ..core })?;
    first_content(tx, slot, parent, new);
    unlinked::add(tx, slot)?;
    Ok(slot)
}
