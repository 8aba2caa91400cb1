//! Extended attributes and access lists.

use fuser::{Errno, ReplyXattr};
use uxfs::format::Ino;
use uxfs::posix::{self, ACL_ACCESS, S_ISGID};
use uxfs::{Error, Fs, SetAttr, XattrMode};

use super::Result;

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Sends a value, or how long it is if there was no room given.
pub(super) fn answer(value: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(error) => reply.error(error),
    }
}

/// Sets an attribute. An access list changes the permissions too; whoever is not of the file's group
/// takes its set-group-ID bit away by that.
pub(super) fn set(
    fs: &Fs,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    flags: i32,
    who: Who,
) -> uxfs::Result<()> {
    const XATTR_CREATE: i32 = 1;
    const XATTR_REPLACE: i32 = 2;
    let mode = match flags {
        0 => XattrMode::Any,
        XATTR_CREATE => XattrMode::Create,
        XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Error::Invalid("unknown flags")),
    };
    posix::set_xattr(fs, ino, name, value, mode)?;
    if name == ACL_ACCESS {
        let stat = fs.stat(ino)?;
        if stat.mode & S_ISGID != 0 && who.uid != 0 && who.gid != stat.gid {
            let permissions = Some(stat.mode & 0o7777 & !S_ISGID);
            fs.set_attr(ino, &SetAttr { permissions, ..SetAttr::default() })?;
        }
    }
    Ok(())
}

/// The names, each ended by a NUL; those of `trusted` only for the privileged.
pub(super) fn list(fs: &Fs, ino: Ino, privileged: bool) -> uxfs::Result<Vec<u8>> {
    let mut all = Vec::new();
    for name in fs.list_xattrs(ino)? {
        if privileged || !name.starts_with(b"trusted.") {
            all.extend_from_slice(&name);
            all.push(0);
        }
    }
    Ok(all)
}
