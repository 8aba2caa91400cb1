//! Changes attributes, with the side effects of the system call.

use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFMT};
use uxfs::{Fs, SetAttr, posix};
use uxfs_transport::{Attr, SetTime};

use super::credentials::Credentials;
use super::data;
use crate::attr::{attr_of, moment};

pub(super) struct Change {
    pub(super) permissions: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<SetTime>,
    pub(super) mtime: Option<SetTime>,
    /// It was requested through an open file.
    pub(super) open: bool,
    pub(super) who: Credentials,
}

/// Changes an inode. Returns its new attributes.
pub(super) fn apply(fs: &Fs, ino: Ino, change: &Change) -> uxfs::Result<Attr> {
    let owner = change.uid.is_some() || change.gid.is_some();
    let times = change.atime.is_some() || change.mtime.is_some();
    if let Some(size) = change.size {
        // Through an open file times change although the length does not. They also change when a
        // file is truncated at open, which the kernel does not mark.
        if fs.stat(ino)?.size != size || change.open || size == 0 {
            fs.truncate(ino, size)?;
        }
        data::drop_privileges(fs, ino, change.who)?;
    } else if owner || !times && change.permissions.is_none() {
        // An empty change: chown to the present owner, or the request before a write to a file with
        // set-ID bits.
        change_owner(fs, ino, change)?;
    }
    if let Some(permissions) = change.permissions {
        posix::change_mode(fs, ino, permissions)?;
    }
    if times {
        let time = |given: Option<SetTime>| given.map(|time| moment(fs, time));
        let times = SetAttr {
            atime: time(change.atime),
            mtime: time(change.mtime),
            touch: [change.atime, change.mtime] == [Some(SetTime::Now); 2],
            ..SetAttr::default()
        };
        fs.set_attr(ino, &times)?;
    }
    Ok(attr_of(fs, &fs.stat(ino)?))
}

/// Changes the owner or group of a file, perhaps to the present ones. A file other than a directory
/// loses its set-ID bits and capabilities.
fn change_owner(fs: &Fs, ino: Ino, change: &Change) -> uxfs::Result<()> {
    let stat = fs.stat(ino)?;
    let limited = !change.who.is_privileged();
    let mut to = SetAttr { uid: change.uid, gid: change.gid, limited, ..SetAttr::default() };
    if stat.mode & S_IFMT != S_IFDIR {
        let no_owner = change.uid.is_none() && change.gid.is_none();
        let lost = change.who.set_id_bits_lost_by_chown(fs, &stat, no_owner)?;
        if lost != 0 {
            to.permissions = Some(stat.mode & 0o7777 & !lost);
        }
        data::drop_capability(fs, ino)?;
    }
    fs.set_attr(ino, &to)
}
