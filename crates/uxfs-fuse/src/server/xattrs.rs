//! Extended attributes and access lists.

use fuser::{Errno, ReplyXattr};
use uxfs::format::Ino;
use uxfs::format::acl::Acl;
use uxfs::posix::{self, ACL_ACCESS, ACL_DEFAULT, S_ISGID};
use uxfs::{Error, Fs, SetAttr, XattrMode};

use super::Result;
use super::who::Who;

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
        // Both at once are the first, as with XFS.
        XATTR_CREATE | 3 => XattrMode::Create,
        XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Error::Invalid("unknown flags")),
    };
    if let Some(list) = raw_list(name) {
        let Ok(acl) = Acl::from_xfs(value) else { return Err(Error::Invalid("no access list")) };
        return fs.set_xattr(ino, list, &acl.to_linux(), mode);
    }
    posix::set_xattr(fs, ino, name, value, mode)?;
    if name == ACL_ACCESS {
        let stat = fs.stat(ino)?;
        if who.loses_group_by_list(&stat) {
            let permissions = Some(stat.mode & 0o7777 & !S_ISGID);
            fs.set_attr(ino, &SetAttr { permissions, ..SetAttr::default() })?;
        }
    }
    Ok(())
}

/// The value of an attribute.
pub(super) fn get(fs: &Fs, ino: Ino, name: &[u8]) -> uxfs::Result<Vec<u8>> {
    let Some(list) = raw_list(name) else { return fs.get_xattr(ino, name) };
    match Acl::from_linux(&fs.get_xattr(ino, list)?) {
        Ok(Some(acl)) => Ok(acl.to_xfs()),
        _ => Err(Error::NoAttr),
    }
}

/// Removes an attribute. An access list may be gone already.
pub(super) fn remove(fs: &Fs, ino: Ino, name: &[u8]) -> uxfs::Result<()> {
    match fs.remove_xattr(ino, raw_list(name).unwrap_or(name)) {
        Err(Error::NoAttr) if matches!(name, ACL_ACCESS | ACL_DEFAULT) => Ok(()),
        other => other,
    }
}

/// The names, each ended by a NUL; those of `trusted` only for the privileged.
pub(super) fn list(fs: &Fs, ino: Ino, privileged: bool) -> uxfs::Result<Vec<u8>> {
    let mut all = Vec::new();
    for name in fs.list_xattrs(ino)? {
        let raw = RAW.iter().find(|(_, list)| *list == name.as_slice()).map(|(raw, _)| *raw);
        for name in [Some(name.as_slice()), raw].into_iter().flatten() {
            if privileged || !name.starts_with(b"trusted.") {
                all.extend_from_slice(name);
                all.push(0);
            }
        }
    }
    Ok(all)
}

/// The names under which XFS keeps access lists, in its own coding. The kernel shows these too.
const RAW: [(&[u8], &[u8]); 2] =
    [(b"trusted.SGI_ACL_FILE", ACL_ACCESS), (b"trusted.SGI_ACL_DEFAULT", ACL_DEFAULT)];

/// Does a name stand for an access list in XFS' own coding? The kernel does not know that.
pub(super) fn is_raw_list(name: &[u8]) -> bool {
    raw_list(name).is_some()
}

/// The access list that a name of [`RAW`] stands for.
fn raw_list(name: &[u8]) -> Option<&'static [u8]> {
    RAW.iter().find(|(raw, _)| *raw == name).map(|(_, list)| *list)
}
