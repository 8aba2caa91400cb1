//! What a repair restores through the engine: entries of directories whose blocks were lost, attributes
//! that were saved, and files that no entry leads to.
//!
//! 1. The volume is one that is repaired in memory; its inodes already say how many links and children
//!    they have in the end.
//! 2. Modes, flags and limits that bind users do not bind a repair.
//!
//! Called by `uxfs-repair`.

use uxfs_format::dir::FileType;
use uxfs_format::{Check, Ino};

use super::names::{check_dir, check_name};
use crate::attr::{self, Namespace};
use crate::dir;
use crate::error::Result;
use crate::fs::Fs;
use crate::journal::Op;

impl Fs {
    /// Enters a name into a directory for an inode whose link count and parent pointers count it
    /// already.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], or a damaged structure on the way.
    #[doc(hidden)]
    pub fn restore_entry(&self, parent: Ino, name: &[u8], ino: Ino, ftype: FileType) -> Result<()> {
        let _inside = self.changes();
        check_name(name)?;
        let blocks = dir::insert_blocks(&self.geo);
        let mut tx = self.begin_tx_for(Op::Link(blocks), blocks)?;
        let dp = tx.lock_inode(parent)?;
        check_dir(tx.inode(dp))?;
        dir::insert(&mut tx, dp, name, ino, ftype)?;
        tx.commit()?;
        self.balance()
    }

    /// Gives an inode that no entry leads to a name. Its link count counts the name already; if it is a
    /// directory, its `..` and the link count of the new parent change.
    ///
    /// # Errors
    /// As [`Fs::restore_entry`].
    #[doc(hidden)]
    pub fn adopt(&self, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        let _inside = self.changes();
        check_name(name)?;
        let blocks = 2 * dir::insert_blocks(&self.geo) + self.parent_blocks();
        let mut tx = self.begin_tx_for(Op::Link(blocks), blocks)?;
        let [dp, ip] = tx.lock_inodes([parent, ino])?;
        check_dir(tx.inode(dp))?;
        let core = &tx.inode(ip).core;
        let (ftype, is_dir) = (FileType::from_mode(core.mode), core.is_dir());
        if core.nlink == 0 {
            return Err(tx.inode(ip).corrupt(Check::Links, "has no links"));
        }
        dir::insert(&mut tx, dp, name, ino, ftype)?;
        super::parent::add(&mut tx, ip, dp, name)?;
        if is_dir {
            dir::replace(&mut tx, ip, b"..", parent, FileType::Directory)?;
            tx.core_mut(dp).nlink += 1;
        }
        tx.commit()?;
        self.balance()
    }

    /// Sets an attribute as XFS stores it.
    ///
    /// # Errors
    /// As [`Fs::set_xattr`].
    #[doc(hidden)]
    pub fn restore_attr(
        &self,
        ino: Ino,
        namespace: Namespace,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let _inside = self.changes();
        let blocks = attr::set_blocks(&self.geo, value.len());
        let mut tx = self.begin_tx_for(Op::Attr(blocks), blocks)?;
        let slot = tx.lock_inode(ino)?;
        attr::set(&mut tx, slot, namespace, name, value)?;
        tx.commit()?;
        self.balance()
    }

    /// Records that an inode is the entry `name` of a directory, where that is recorded.
    ///
    /// # Errors
    /// As [`Fs::set_xattr`].
    #[doc(hidden)]
    pub fn restore_parent(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        let blocks = self.parent_blocks();
        let mut tx = self.begin_tx_for(Op::Attr(blocks), blocks)?;
        let [dp, ip] = tx.lock_inodes([parent, ino])?;
        super::parent::add(&mut tx, ip, dp, name)?;
        tx.commit()?;
        self.balance()
    }
}
