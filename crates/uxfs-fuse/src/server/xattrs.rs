//! Extended attributes and access lists.

use uxfs::format::Ino;
use uxfs::format::acl::Acl;
use uxfs::posix::{self, ACL_ACCESS, ACL_DEFAULT, S_ISGID};
use uxfs::{Error, Fs, SetAttr, XattrMode};

use super::credentials::Credentials;

/// Sets an attribute. An access list also changes the mode, and removes the set-group-ID bit if the
/// caller is not in the file's group.
pub(super) fn set(
    fs: &Fs,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    flags: i32,
    who: Credentials,
) -> uxfs::Result<()> {
    const XATTR_CREATE: i32 = 1;
    const XATTR_REPLACE: i32 = 2;
    let mode = match flags {
        0 => XattrMode::Any,
        // Both together mean the first, as with XFS.
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
        if who.loses_setgid_by_acl(&stat) {
            let permissions = Some(stat.mode & 0o7777 & !S_ISGID);
            fs.set_attr(ino, &SetAttr { permissions, ..SetAttr::default() })?;
        }
    }
    Ok(())
}

pub(super) fn get(fs: &Fs, ino: Ino, name: &[u8]) -> uxfs::Result<Vec<u8>> {
    let Some(list) = raw_list(name) else { return fs.get_xattr(ino, name) };
    match Acl::from_linux(&fs.get_xattr(ino, list)?) {
        Ok(Some(acl)) => Ok(acl.to_xfs()),
        _ => Err(Error::NoAttr),
    }
}

/// Removes an attribute. An access list need not exist.
pub(super) fn remove(fs: &Fs, ino: Ino, name: &[u8]) -> uxfs::Result<()> {
    match fs.remove_xattr(ino, raw_list(name).unwrap_or(name)) {
        Err(Error::NoAttr) if matches!(name, ACL_ACCESS | ACL_DEFAULT) => Ok(()),
        other => other,
    }
}

/// The names, each followed by a NUL. `trusted` names only for privileged callers.
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

/// The names under which XFS stores access lists in its own encoding. The kernel's XFS shows these
/// too.
const RAW: [(&[u8], &[u8]); 2] =
    [(b"trusted.SGI_ACL_FILE", ACL_ACCESS), (b"trusted.SGI_ACL_DEFAULT", ACL_DEFAULT)];

/// Is the name that of an access list in XFS' own encoding, which the kernel does not know?
pub(super) fn is_raw_list(name: &[u8]) -> bool {
    raw_list(name).is_some()
}

/// The access list of a name in [`RAW`].
fn raw_list(name: &[u8]) -> Option<&'static [u8]> {
    RAW.iter().find(|(raw, _)| *raw == name).map(|(_, list)| *list)
}
