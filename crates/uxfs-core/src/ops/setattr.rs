//! Changing the attributes that `stat` returns.

use uxfs_format::Ino;
use uxfs_format::inode::S_IFMT;
use uxfs_format::timestamp::Timestamp;

use super::guard;
use super::quota::Owners;
use crate::error::Result;
use crate::fs::Fs;

/// Changes to a file's attributes; `None` keeps a value. [`Fs::truncate`] changes the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions, without the type.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode; `None` sets the present time.
    pub ctime: Option<Timestamp>,
    /// Creation.
    pub crtime: Option<Timestamp>,
    /// Project ID.
    pub projid: Option<u32>,
    /// The limits of the new owners' quotas bind the call, as they bind callers without privileges.
    pub limited: bool,
    /// The call sets access and change time to the present, which append-only files allow.
    pub touch: bool,
}

impl Fs {
    /// Changes mode, owner, times or project ID of a file.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotPermitted`] for a file that is immutable or
    /// append-only (only its project ID may change), or a damaged structure on the way.
    pub fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<()> {
        let _inside = self.changes();
        let owners = Owners { uid: change.uid, gid: change.gid, projid: change.projid };
        let (mut tx, slot) = self.begin_owners(ino, &owners, change.limited)?;
        let times = [change.atime, change.mtime, change.ctime, change.crtime];
        let owner = [change.uid, change.gid];
        let owned = owner.iter().any(Option::is_some) || change.permissions.is_some();
        let timed = times.iter().any(Option::is_some);
        if timed && change.touch && !owned {
            guard::may_touch(&tx.inode(slot).core)?;
        } else if timed || owned {
            guard::may_change(&tx.inode(slot).core)?;
        }
        let now = self.now();
        let core = tx.core_mut(slot);
        if let Some(permissions) = change.permissions {
            core.mode = core.mode & S_IFMT | permissions & !S_IFMT;
        }
        core.uid = change.uid.unwrap_or(core.uid);
        core.gid = change.gid.unwrap_or(core.gid);
        core.atime = change.atime.unwrap_or(core.atime);
        core.mtime = change.mtime.unwrap_or(core.mtime);
        core.crtime = change.crtime.unwrap_or(core.crtime);
        core.ctime = change.ctime.unwrap_or(now);
        core.projid = change.projid.unwrap_or(core.projid);
        tx.commit()?;
        self.balance()
    }
}
