//! Creating hard links.

use uxfs_format::Ino;
use uxfs_format::dir::FileType;

use super::guard;
use super::names::{check_dir, check_name};
use crate::dir;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;

impl Fs {
    /// Creates another name for a file that is not a directory.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotPermitted`] for a directory or if flags forbid it,
    /// [`Error::OtherProject`], [`Error::TooManyLinks`], [`Error::NoSpace`], or a damaged structure
    /// on the way.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        check_name(name)?;
        self.retry_enospc(|| self.try_link(ino, parent, name))?;
        self.balance()
    }

    fn try_link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let blocks = dir::insert_blocks(&self.geo) + self.parent_blocks();
        let mut tx = self.begin_tx_for(Op::Link(blocks), blocks)?;
        if ino == parent {
            return Err(Error::NotPermitted);
        }
        let [dp, ip] = tx.lock_inodes([parent, ino])?;
        check_dir(tx.inode(dp))?;
        let core = &tx.inode(ip).core;
        if core.is_dir() {
            return Err(Error::NotPermitted);
        }
        if core.nlink == 0 || tx.inode(dp).core.nlink == 0 {
            return Err(Error::NotFound);
        }
        if core.nlink >= i32::MAX as u32 {
            return Err(Error::TooManyLinks);
        }
        if dir::lookup(self, tx.inode(dp), name)?.is_some() {
            return Err(Error::Exists);
        }
        guard::may_add(&tx.inode(dp).core)?;
        guard::may_change(core)?;
        guard::same_project(&tx.inode(dp).core, core)?;
        let ftype = FileType::from_mode(core.mode);
        dir::insert(&mut tx, dp, name, ino, ftype)?;
        super::parent::add(&mut tx, ip, dp, name)?;
        let now = self.now();
        let core = tx.core_mut(ip);
        core.nlink += 1;
        core.ctime = now;
        let up = tx.core_mut(dp);
        (up.mtime, up.ctime) = (now, now);
        tx.commit()
    }
}
