//! Changing attributes, with what the system call does besides.

use fuser::{FileAttr, TimeOrNow};
use uxfs::format::Ino;
use uxfs::{Fs, SetAttr, posix};

use super::data;
use crate::attr::{attr_of, moment};

/// What is to change.
pub(super) struct Change {
    pub(super) permissions: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
    /// Set-ID bits outlive a change of the length.
    pub(super) privileged: bool,
}

/// Changes an inode; gives what it is then.
pub(super) fn apply(fs: &Fs, ino: Ino, change: &Change) -> uxfs::Result<FileAttr> {
    if let Some(size) = change.size {
        // Nothing is cut or added: the times stay, unless they are given.
        if fs.stat(ino)?.size != size || change.mtime.is_none() {
            truncate(fs, ino, size)?;
        }
        data::drop_privileges(fs, ino, !change.privileged)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        posix::change_owner(fs, ino, change.uid, change.gid)?;
    }
    if let Some(permissions) = change.permissions {
        posix::change_mode(fs, ino, permissions)?;
    }
    if change.atime.is_some() || change.mtime.is_some() {
        let time = |given: Option<TimeOrNow>| given.map(|time| moment(fs, time));
        let times =
            SetAttr { atime: time(change.atime), mtime: time(change.mtime), ..SetAttr::default() };
        fs.set_attr(ino, &times)?;
    }
    Ok(attr_of(fs, &fs.stat(ino)?))
}

fn truncate(fs: &Fs, ino: Ino, size: u64) -> uxfs::Result<()> {
    if fs.stat(ino)?.size == size {
        return Ok(());
    }
    fs.truncate(ino, size)
}
