//! Changing attributes, with what the system call does besides.

use fuser::{FileAttr, TimeOrNow};
use uxfs::format::Ino;
use uxfs::{Fs, SetAttr, posix};

use super::{Who, data};
use crate::attr::{attr_of, moment};

/// What is to change.
pub(super) struct Change {
    pub(super) permissions: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
    /// It comes through an open file.
    pub(super) open: bool,
    /// Who asks.
    pub(super) who: Who,
}

/// Changes an inode; gives what it is then.
pub(super) fn apply(fs: &Fs, ino: Ino, change: &Change) -> uxfs::Result<FileAttr> {
    let owner = change.uid.is_some() || change.gid.is_some();
    let times = change.atime.is_some() || change.mtime.is_some();
    if let Some(size) = change.size {
        // Through an open file the times change though the length does not; so they do when a file
        // is opened to be emptied, of which the kernel says no more than that.
        if fs.stat(ino)?.size != size || change.open || size == 0 {
            fs.truncate(ino, size)?;
        }
        data::drop_privileges(fs, ino, change.who)?;
    } else if owner || !times && change.permissions.is_none() {
        // Nothing at all: a change of the owner to what it is.
        posix::change_owner(fs, ino, change.uid, change.gid)?;
    }
    if let Some(permissions) = change.permissions {
        posix::change_mode(fs, ino, permissions)?;
    }
    if times {
        let time = |given: Option<TimeOrNow>| given.map(|time| moment(fs, time));
        let times =
            SetAttr { atime: time(change.atime), mtime: time(change.mtime), ..SetAttr::default() };
        fs.set_attr(ino, &times)?;
    }
    Ok(attr_of(fs, &fs.stat(ino)?))
}
