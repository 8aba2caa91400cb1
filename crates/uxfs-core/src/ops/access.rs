//! Updating the access time of files (atime).

use uxfs_format::Ino;
use uxfs_format::inode::{Flags, InodeCore};
use uxfs_format::timestamp::Timestamp;

use crate::error::{Error, Result};
use crate::fs::Fs;

/// A day in seconds.
const DAY: i64 = 86400;

/// When a read updates the access time. The names in parentheses are options of mount(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Atime {
    /// Every read (`strictatime`).
    Strict,
    /// The first read after a change, and otherwise once a day (`relatime`).
    #[default]
    Relative,
    /// No read (`noatime`).
    Never,
}

impl Atime {
    fn is_due(self, core: &InodeCore, now: Timestamp) -> bool {
        if core.flags.contains(Flags::NOATIME) {
            return false;
        }
        match self {
            Self::Never => false,
            Self::Strict => core.atime != now,
            Self::Relative => {
                core.atime <= core.mtime
                    || core.atime <= core.ctime
                    || now.sec.saturating_sub(core.atime.sec) >= DAY
            }
        }
    }
}

impl Fs {
    /// Updates the access time of a file that was read, if `how` requires it and the volume is
    /// writable.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub fn accessed(&self, ino: Ino, how: Atime) -> Result<()> {
        if !self.is_access_due(ino, how)? {
            return Ok(());
        }
        // As in Linux, a frozen volume keeps its access times.
        let Some(_inside) = self.freeze_levels.changes.try_enter() else { return Ok(()) };
        let now = self.now();
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        if !how.is_due(&tx.inode(slot).core, now) {
            return Ok(());
        }
        tx.core_mut(slot).atime = now;
        tx.commit()?;
        self.balance()
    }

    /// Returns whether a read of this file now would update its access time.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub fn is_access_due(&self, ino: Ino, how: Atime) -> Result<bool> {
        let now = self.now();
        if how == Atime::Never || !self.with_inode(ino, |inode| Ok(how.is_due(&inode.core, now)))? {
            return Ok(false);
        }
        match self.check_writable() {
            Err(Error::ReadOnly) => Ok(false),
            other => other.map(|()| true),
        }
    }
}
