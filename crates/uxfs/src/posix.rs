//! POSIX side effects of changing a file: permissions of new files, ACLs that follow the mode,
//! set-ID bits that a new owner must not inherit.
//!
//! The operations of [`Fs`] do exactly what their arguments say. Callers that act for a user, such
//! as the `uxfs` command, use these functions instead.

use uxfs_core::{Error, Fs, NewInode, Result, SetAttr, XattrMode};
use uxfs_format::Ino;
use uxfs_format::acl::Acl;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Set-user-ID.
pub const S_ISUID: u16 = 0o4000;
/// Set-group-ID.
pub const S_ISGID: u16 = 0o2000;
/// Linux' name of the access ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Linux' name of the default ACL of a directory.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";

/// True if `name` can be the name of a directory entry: not empty, `.` or `..`, no `/`, no NUL.
pub fn is_plain_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// The credentials under which files are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Owner of new files.
    pub uid: u32,
    /// Group of new files, unless the directory has the set-group-ID bit.
    pub gid: u32,
    /// Permissions that are removed from new files, unless the directory has a default ACL.
    pub umask: u16,
}

impl Creator {
    /// Plans a new file of `mode` in `parent`: owner, group (by the directory's set-group-ID bit),
    /// permissions (by umask or default ACL) and the ACLs it inherits.
    ///
    /// # Errors
    /// The errors of reading the directory.
    pub fn plan(&self, fs: &Fs, parent: Ino, mode: u16) -> Result<Plan> {
        let parent_stat = fs.stat(parent)?;
        let mut new = NewInode::new(mode);
        (new.uid, new.gid) = (self.uid, self.gid);
        if parent_stat.mode & S_ISGID != 0 {
            new.gid = parent_stat.gid;
            if mode & S_IFMT == S_IFDIR {
                new.mode |= S_ISGID;
            }
        }
        let default = match mode & S_IFMT {
            S_IFLNK => None,
            _ => list(fs, parent, ACL_DEFAULT)?,
        };
        let Some(default) = default else {
            if mode & S_IFMT != S_IFLNK {
                new.mode &= !(self.umask & 0o777);
            }
            return Ok(Plan { new, access: None, default: None });
        };
        let mut access = default.clone();
        access.set_permissions(default.permissions() & mode);
        new.mode = new.mode & !0o777 | access.permissions();
        let access = (!access.is_minimal()).then(|| access.to_linux());
        let default = (mode & S_IFMT == S_IFDIR).then(|| default.to_linux());
        let bytes = |list: &Option<Vec<u8>>| list.as_ref().map_or(0, |l| 2 * l.len() + 32);
        new.attr_bytes = bytes(&access) + bytes(&default);
        Ok(Plan { new, access, default })
    }

    /// Creates a file of `mode` as `name`, like mknod(2) and mkdir(2).
    ///
    /// # Errors
    /// The errors of [`Fs::create`].
    pub fn create(
        &self,
        fs: &Fs,
        parent: Ino,
        name: &[u8],
        mode: u16,
        rdev: (u32, u32),
    ) -> Result<Ino> {
        let mut plan = self.plan(fs, parent, mode)?;
        plan.new.rdev = rdev;
        plan.create(fs, parent, name)
    }

    /// Creates a regular file without a name, like open(2) with `O_TMPFILE`. It has one open
    /// reference, as [`Fs::tmpfile`] says.
    ///
    /// # Errors
    /// The errors of [`Fs::tmpfile`].
    pub fn tmpfile(&self, fs: &Fs, parent: Ino, permissions: u16) -> Result<Ino> {
        let plan = self.plan(fs, parent, S_IFREG | permissions)?;
        let ino = fs.tmpfile(parent, &plan.new)?;
        match plan.finish(fs, ino) {
            Ok(()) => Ok(ino),
            Err(error) => {
                fs.release(ino, 1)?;
                Err(error)
            }
        }
    }

    /// Creates a symbolic link, like symlink(2).
    ///
    /// # Errors
    /// The errors of [`Fs::symlink`].
    pub fn symlink(&self, fs: &Fs, parent: Ino, name: &[u8], target: &[u8]) -> Result<Ino> {
        let plan = self.plan(fs, parent, S_IFLNK | 0o777)?;
        fs.symlink(parent, name, target, &plan.new)
    }
}

/// A planned file: its inode and the ACLs it inherits.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The inode to create.
    pub new: NewInode,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl Plan {
    /// Creates the inode as `name`, with the inherited ACLs. Without them the file would be open to
    /// others than the directory's owner meant: if they cannot be set, it is removed again.
    ///
    /// # Errors
    /// The errors of [`Fs::create`] and [`Fs::set_xattr`].
    pub fn create(&self, fs: &Fs, parent: Ino, name: &[u8]) -> Result<Ino> {
        let ino = fs.create(parent, name, &self.new)?;
        let finished = self.finish(fs, ino);
        if finished.is_err() && fs.lookup(parent, name).is_ok_and(|now| now == ino) {
            let dir = self.new.mode & S_IFMT == S_IFDIR;
            // The first error is the one that counts.
            let _ = if dir { fs.rmdir(parent, name) } else { fs.unlink(parent, name) };
        }
        finished.map(|()| ino)
    }

    /// Sets the inherited ACLs on the created inode.
    ///
    /// # Errors
    /// The errors of [`Fs::set_xattr`].
    pub fn finish(&self, fs: &Fs, ino: Ino) -> Result<()> {
        for (name, value) in [(ACL_ACCESS, &self.access), (ACL_DEFAULT, &self.default)] {
            if let Some(value) = value {
                fs.set_xattr(ino, name, value, XattrMode::Any)?;
            }
        }
        Ok(())
    }
}

fn list(fs: &Fs, ino: Ino, name: &[u8]) -> Result<Option<Acl>> {
    match fs.get_xattr(ino, name) {
        Ok(value) => {
            Acl::from_linux(&value).map_err(|_| Error::Invalid("a damaged access control list"))
        }
        Err(Error::NoAttr) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Changes the permissions of a file and updates its access ACL, if it has one.
///
/// # Errors
/// The errors of [`Fs::set_attr`].
pub fn change_mode(fs: &Fs, ino: Ino, permissions: u16) -> Result<()> {
    if let Some(mut acl) = list(fs, ino, ACL_ACCESS)? {
        acl.set_permissions(permissions);
        fs.set_xattr(ino, ACL_ACCESS, &acl.to_linux(), XattrMode::Any)?;
    }
    fs.set_attr(ino, &SetAttr { permissions: Some(permissions), ..SetAttr::default() })
}

/// Changes owner and group of a file. As in the kernel, a file that is not a directory loses its
/// set-ID bits and capabilities, which belonged to the former owner's rights.
///
/// # Errors
/// The errors of [`Fs::set_attr`].
pub fn change_owner(fs: &Fs, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let stat = fs.stat(ino)?;
    let mut change = SetAttr { uid, gid, ..SetAttr::default() };
    if stat.mode & S_IFMT != S_IFDIR {
        let group_runs = stat.mode & 0o010 != 0;
        let cleared = S_ISUID | if group_runs { S_ISGID } else { 0 };
        if stat.mode & cleared != 0 {
            change.permissions = Some(stat.mode & 0o7777 & !cleared);
        }
        match fs.remove_xattr(ino, CAPABILITY) {
            Ok(()) | Err(Error::NoAttr) => {}
            Err(other) => return Err(other),
        }
    }
    fs.set_attr(ino, &change)
}

/// Sets an extended attribute like setxattr(2): an access ACL also changes the mode, and an ACL
/// that says no more than the mode is not stored.
///
/// # Errors
/// The errors of [`Fs::set_xattr`].
pub fn set_xattr(fs: &Fs, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    if name != ACL_ACCESS {
        return fs.set_xattr(ino, name, value, mode);
    }
    let acl = Acl::from_linux(value)
        .map_err(|_| Error::Invalid("the value is not a valid access control list"))?;
    let Some(acl) = acl else { return fs.set_xattr(ino, name, value, mode) };
    if acl.is_minimal() {
        match fs.remove_xattr(ino, name) {
            Ok(()) | Err(Error::NoAttr) => {}
            Err(other) => return Err(other),
        }
    } else {
        fs.set_xattr(ino, name, value, mode)?;
    }
    let permissions = fs.stat(ino)?.mode & 0o7000 | acl.permissions();
    fs.set_attr(ino, &SetAttr { permissions: Some(permissions), ..SetAttr::default() })
}
