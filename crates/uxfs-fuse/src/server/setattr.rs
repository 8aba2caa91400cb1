//! Changing attributes, with what the system call does besides.

use fuser::{FileAttr, TimeOrNow};
use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFMT};
use uxfs::{Fs, SetAttr, posix};

use super::data;
use super::who::Who;
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
        // Nothing at all: a change of the owner to what it is, or what comes before a write to a
        // file with set-ID bits.
        change_owner(fs, ino, change)?;
    }
    if let Some(permissions) = change.permissions {
        posix::change_mode(fs, ino, permissions)?;
    }
    if times {
        let time = |given: Option<TimeOrNow>| given.map(|time| moment(fs, time));
        let times = SetAttr {
            atime: time(change.atime),
            mtime: time(change.mtime),
            touch: [change.atime, change.mtime] == [Some(TimeOrNow::Now); 2],
            ..SetAttr::default()
        };
        fs.set_attr(ino, &times)?;
    }
    Ok(attr_of(fs, &fs.stat(ino)?))
}

/// Gives a file to another user or group, or to whom it belongs already. What is no directory loses
/// what made it run with its owner's rights.
fn change_owner(fs: &Fs, ino: Ino, change: &Change) -> uxfs::Result<()> {
    let stat = fs.stat(ino)?;
    let mut to = SetAttr { uid: change.uid, gid: change.gid, ..SetAttr::default() };
    if stat.mode & S_IFMT != S_IFDIR {
        let to_nobody = change.uid.is_none() && change.gid.is_none();
        let lost = change.who.lost_by_giving(fs, &stat, to_nobody)?;
        if lost != 0 {
            to.permissions = Some(stat.mode & 0o7777 & !lost);
        }
        data::drop_capability(fs, ino)?;
    }
    fs.set_attr(ino, &to)
}
