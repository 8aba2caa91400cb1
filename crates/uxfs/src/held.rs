//! References to inodes that are used by number.
//!
//! Other threads may change the volume during a walk, and a number that is freed could come to belong to
//! another file. So a file is held while it is used by its number, and what was found by name is looked
//! up again once it is held.
//!
//! Used by `copy` and `labels`.

#[cfg(feature = "archive")]
use uxfs_core::Error;
use uxfs_core::{Fs, Result};
use uxfs_format::Ino;

/// A reference to an inode: the inode stays while this does.
pub struct HeldInode<'a> {
    fs: &'a Fs,
    ino: Ino,
}

impl<'a> HeldInode<'a> {
    /// Holds an inode that cannot be freed, such as the root, or that the caller looks up again.
    #[cfg(feature = "archive")]
    pub(crate) fn new(fs: &'a Fs, ino: Ino) -> Self {
        fs.hold(ino);
        Self { fs, ino }
    }

    /// Holds the inode that `find` finds.
    pub(crate) fn find(fs: &'a Fs, find: impl Fn() -> Result<Ino>) -> Result<Self> {
        Ok(Self { fs, ino: fs.hold_found(find)? })
    }

    /// Holds the inode that was created as `name`, unless another thread has removed it already.
    #[cfg(feature = "archive")]
    pub(crate) fn created(fs: &'a Fs, dir: Ino, name: &[u8], ino: Ino) -> Result<Self> {
        let held = Self::new(fs, ino);
        match fs.lookup(dir, name)? == ino {
            true => Ok(held),
            false => Err(Error::NotFound),
        }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }
}

impl Drop for HeldInode<'_> {
    fn drop(&mut self) {
        // Recovery frees what this fails to free.
        let _ = self.fs.release(self.ino, 1);
    }
}
