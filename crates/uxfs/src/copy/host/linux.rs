//! The host as source and target, with the calls of Linux.
//!
//! 1. Files are opened relative to the descriptor of their directory ([`HostDir`]), one name at a
//!    time. Symbolic links are not followed, unless the options of the source ask for it.
//! 2. Files are opened without blocking (a FIFO may have no writer), and the opened file must be
//!    the one that was examined. Only [`SourceTree::stream`] blocks.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

pub use super::dirs::HostDir;
use super::dirs::{OPEN_FLAGS, info, statx};
use crate::copy::sides::{
    Attributes, CopyError, FileId, FileInfo, FileKind, Result, SourceTree, TargetTree, Xattrs,
    refused,
};

/// Linux' limit for the value of an attribute and for the list of names.
const XATTR_MAX: usize = 64 << 10;
/// Sets an attribute of one file: name, value.
type SetXattr<'a> = &'a dyn Fn(&[u8], &[u8]) -> core::result::Result<(), Errno>;

/// The host as a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSource;

/// A file of the host.
pub struct HostNode {
    /// The directory that holds the file, and its name there.
    dir: Rc<HostDir>,
    name: CString,
    /// The open descriptor, if the file is regular or a directory.
    open: Open,
    /// True if a symbolic link was followed.
    followed: bool,
}

enum Open {
    File(Rc<OwnedFd>),
    Dir(Rc<HostDir>),
    None,
}

/// The host as a target.
pub struct HostTarget {
    /// True if this process runs as root: then failing to set an owner is an error.
    privileged: bool,
}

/// A regular file that is open for writing.
pub struct HostFile {
    file: File,
    created: bool,
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| CopyError::Refused("the name holds a NUL".into()))
}

/// The path of a descriptor in /proc, with an optional name in it: for system calls that take no
/// directory descriptor.
fn proc_path(fd: BorrowedFd<'_>, name: Option<&CString>) -> PathBuf {
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    match name {
        Some(name) => path.join(OsStr::from_bytes(name.as_bytes())),
        None => path,
    }
}

impl HostSource {
    /// Opens the file at `path`; with `follow`, the target of a symbolic link.
    ///
    /// # Errors
    /// The file cannot be examined or opened.
    pub fn open(&self, path: &Path, follow: bool) -> Result<(HostNode, FileInfo)> {
        let cwd = rustix::fs::open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        self.open_entry(HostDir::root(cwd)?, c_name(path.as_os_str().as_bytes())?, follow)
    }

    fn open_entry(
        &self,
        dir: Rc<HostDir>,
        name: CString,
        follow: bool,
    ) -> Result<(HostNode, FileInfo)> {
        let at = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let dir_fd = dir.fd()?;
        let seen = info(&statx(dir_fd.as_fd(), &name, at)?);
        let mut node = HostNode { dir, name, open: Open::None, followed: follow };
        if matches!(seen.kind, FileKind::File | FileKind::Dir) {
            let flags = if follow { OPEN_FLAGS - OFlags::NOFOLLOW } else { OPEN_FLAGS };
            let open = |more| rustix::fs::openat(&dir_fd, &node.name, flags | more, Mode::empty());
            // Only the owner may use O_NOATIME.
            let fd = match open(OFlags::NOATIME) {
                Err(Errno::PERM) => open(OFlags::empty()),
                other => other,
            }?;
            if info(&statx(fd.as_fd(), &CString::default(), AtFlags::EMPTY_PATH)?).id != seen.id {
                return refused("was replaced while it was being opened");
            }
            node.open = match seen.kind {
                FileKind::Dir => Open::Dir(node.dir.child(node.name.clone(), follow, seen.id, fd)),
                _ => Open::File(Rc::new(fd)),
            };
        }
        Ok((node, seen))
    }
}

impl HostNode {
    fn fd(&self) -> Result<Rc<OwnedFd>> {
        match &self.open {
            Open::File(fd) => Ok(Rc::clone(fd)),
            Open::Dir(dir) => dir.fd(),
            Open::None => refused("neither a file nor a directory"),
        }
    }

    /// Where to read the extended attributes from.
    fn attributes(&self) -> Result<XattrRef> {
        Ok(match &self.open {
            Open::None => {
                let path = proc_path(self.dir.fd()?.as_fd(), Some(&self.name));
                if self.followed { XattrRef::Path(path) } else { XattrRef::Link(path) }
            }
            _ => XattrRef::Open(self.fd()?),
        })
    }
}

/// A reference to a file for reading its extended attributes.
enum XattrRef {
    Open(Rc<OwnedFd>),
    Path(PathBuf),
    /// The path itself, not the target of a symbolic link.
    Link(PathBuf),
}

impl XattrRef {
    fn list(&self, into: &mut [u8]) -> core::result::Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, into),
            Self::Path(path) => rustix::fs::listxattr(path, into),
            Self::Link(path) => rustix::fs::llistxattr(path, into),
        }
    }

    fn get(&self, name: &[u8], into: &mut [u8]) -> core::result::Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, into),
            Self::Path(path) => rustix::fs::getxattr(path, name, into),
            Self::Link(path) => rustix::fs::lgetxattr(path, name, into),
        }
    }
}

impl SourceTree for HostSource {
    type Node = HostNode;

    fn child(&self, dir: &HostNode, name: &[u8], follow: bool) -> Result<(HostNode, FileInfo)> {
        match &dir.open {
            Open::Dir(dir) => self.open_entry(Rc::clone(dir), c_name(name)?, follow),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn names(&self, dir: &HostNode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for item in Dir::read_from(&*dir.fd()?)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        // Some hosts return hash order; two copies should give the same volume.
        names.sort_unstable();
        Ok(names)
    }

    fn link_target(&self, node: &HostNode) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(node.dir.fd()?, &node.name, Vec::new())?;
        Ok(target.into_bytes())
    }

    fn xattrs(&self, node: &HostNode) -> Result<Xattrs> {
        // Most files have no attributes: allocate the large buffer only if necessary.
        let mut buf = vec![0; 256];
        let attributes = node.attributes()?;
        let mut listed = attributes.list(&mut buf);
        if matches!(listed, Ok(1..) | Err(Errno::RANGE)) {
            buf.resize(XATTR_MAX, 0);
            listed = attributes.list(&mut buf);
        }
        let names = match listed {
            Ok(count) => buf[..count].to_vec(),
            Err(Errno::OPNOTSUPP) => return Ok(Xattrs::new()),
            Err(errno) => return Err(errno.into()),
        };
        let mut all = Xattrs::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let kept = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
            if !kept.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            match attributes.get(name, &mut buf) {
                Ok(count) => all.push((name.to_vec(), buf[..count].to_vec())),
                // Removed since the names were listed.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    fn data(&self, node: &HostNode, size: u64) -> Result<Vec<(u64, u64)>> {
        let fd = node.fd()?;
        let mut segments = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(&fd, SeekFrom::Data(at)) {
                Ok(start) => start.min(size),
                Err(Errno::NXIO) => break,
                // This file system does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
                Err(errno) => return Err(errno.into()),
            };
            at = rustix::fs::seek(&fd, SeekFrom::Hole(start))?.min(size);
            if at <= start {
                break;
            }
            segments.push((start, at - start));
        }
        Ok(segments)
    }

    fn read(&self, node: &HostNode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let fd = node.fd()?;
        // A signal may interrupt reading on network file systems.
        Ok(rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *buf, offset))?)
    }

    fn stream(&self, node: &HostNode) -> Result<Box<dyn Read + '_>> {
        let follow = if node.followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | follow;
        let fd = rustix::fs::openat(node.dir.fd()?, &node.name, flags, Mode::empty())?;
        Ok(Box::new(File::from(fd)))
    }

    fn leave(&self, dir: &HostNode) {
        if let Open::Dir(dir) = &dir.open {
            dir.open_parent();
        }
    }
}

impl HostTarget {
    /// Opens the directory `path` as a target.
    ///
    /// # Errors
    /// The path is not a directory or cannot be opened.
    pub fn open(path: &Path) -> Result<(Self, Rc<HostDir>)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let privileged = rustix::process::geteuid().is_root();
        Ok((Self { privileged }, HostDir::root(fd)?))
    }

    /// Sets owner, attributes, permissions and times, in an order in which no step undoes an
    /// earlier one.
    fn apply(&self, fd: BorrowedFd<'_>, want: &Attributes, created: bool) -> Result<()> {
        let mut mode = want.mode;
        if let Some((uid, gid)) = want.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::fchown(fd, owner.0, owner.1) {
                Ok(()) => {}
                Err(Errno::PERM) if !self.privileged => {
                    // With another owner, set-ID bits would grant the rights of the user that
                    // copies.
                    mode &= !0o6000;
                    let _ = rustix::fs::fchown(fd, None, owner.1);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.set_xattrs(want, &|name, value| {
            rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())
        })?;
        if want.exact {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into()))?;
        } else if created {
            // The file was created writable for its owner.
            let has = statx(fd, &CString::default(), AtFlags::EMPTY_PATH)?.stx_mode;
            let mode = has & 0o7000 | mode & has & 0o777;
            rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into()))?;
        }
        if let Some(times) = times(want) {
            rustix::fs::futimens(fd, &times)?;
        }
        Ok(())
    }

    fn set_xattrs(&self, want: &Attributes, set: SetXattr<'_>) -> Result<()> {
        for (name, value) in &want.xattrs {
            match set(name, value) {
                Ok(()) => {}
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS) if !want.require_xattr => {}
                Err(errno) => {
                    let name = name.escape_ascii();
                    let error = io::Error::from(errno);
                    return refused(format!("cannot set attribute {name}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Like `apply`, for a file without a descriptor.
    fn apply_in(
        &self,
        dir: &Rc<HostDir>,
        name: &CString,
        want: &Attributes,
        link: bool,
    ) -> Result<()> {
        let at = AtFlags::SYMLINK_NOFOLLOW;
        let dir = dir.fd()?;
        let mut mode = want.mode;
        if let Some((uid, gid)) = want.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::chownat(&dir, name, owner.0, owner.1, at) {
                Ok(()) => {}
                Err(Errno::PERM) if !self.privileged => mode &= !0o6000,
                Err(errno) => return Err(errno.into()),
            }
        }
        let path = proc_path(dir.as_fd(), Some(name));
        self.set_xattrs(want, &|name, value| {
            rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty())
        })?;
        if want.exact && !link {
            rustix::fs::chmodat(&dir, name, Mode::from_raw_mode(mode.into()), AtFlags::empty())?;
        }
        if let Some(times) = times(want) {
            rustix::fs::utimensat(&dir, name, &times, at)?;
        }
        Ok(())
    }
}

fn times(want: &Attributes) -> Option<Timestamps> {
    let time = |t: Timestamp| Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
    let (atime, mtime) = want.times?;
    Some(Timestamps { last_access: time(atime), last_modification: time(mtime) })
}

impl TargetTree for HostTarget {
    type Dir = Rc<HostDir>;
    type File = HostFile;
    type LinkHandle = (Rc<HostDir>, CString);

    fn find(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<Option<FileInfo>> {
        match statx(dir.fd()?.as_fd(), &c_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(info(&stat))),
            Err(CopyError::Host(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn id(&self, dir: &Rc<HostDir>) -> Result<FileId> {
        Ok(dir.id())
    }

    fn enter(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<Rc<HostDir>> {
        dir.enter(c_name(name)?)
    }

    fn make_dir(&self, dir: &Rc<HostDir>, name: &[u8], want: &Attributes) -> Result<Rc<HostDir>> {
        let keep = if want.exact { 0o700 } else { want.mode | 0o700 };
        let mode = Mode::from_raw_mode(u32::from(keep & 0o777));
        rustix::fs::mkdirat(dir.fd()?, &c_name(name)?, mode)?;
        self.enter(dir, name)
    }

    fn finish_dir(&self, dir: &Rc<HostDir>, want: &Attributes) -> Result<()> {
        self.apply(dir.fd()?.as_fd(), want, want.mode & 0o700 != 0o700)
    }

    fn leave(&self, dir: &Rc<HostDir>) {
        HostDir::open_parent(dir);
    }

    fn open_file(
        &self,
        dir: &Rc<HostDir>,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<HostFile> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = if exists { OFlags::TRUNC } else { OFlags::CREATE | OFlags::EXCL };
        // Others must not read a file that gets another owner before it is finished.
        let mode = if want.owner.is_some() { want.mode & 0o700 } else { want.mode & 0o777 };
        let mode = Mode::from_raw_mode(u32::from(mode | 0o200));
        let fd = rustix::fs::openat(dir.fd()?, &c_name(name)?, flags | how, mode)?;
        Ok(HostFile { file: File::from(fd), created: !exists })
    }

    fn write(&self, file: &HostFile, offset: u64, data: &[u8]) -> Result<()> {
        let stat = rustix::fs::fstat(&file.file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            file.file.write_all_at(data, offset)?;
        } else {
            // An existing device or FIFO that was named as target.
            io::Write::write_all(&mut &file.file, data)?;
        }
        Ok(())
    }

    fn finish_file(&self, file: HostFile, size: u64, want: &Attributes) -> Result<()> {
        let stat = rustix::fs::fstat(&file.file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        if u64::try_from(stat.st_size).unwrap_or(0) != size {
            file.file.set_len(size)?;
        }
        self.apply(file.file.as_fd(), want, file.created && want.mode & 0o200 == 0)
    }

    fn make_symlink(
        &self,
        dir: &Rc<HostDir>,
        name: &[u8],
        target: &[u8],
        want: &Attributes,
    ) -> Result<()> {
        let name = c_name(name)?;
        rustix::fs::symlinkat(&c_name(target)?, dir.fd()?, &name)?;
        self.apply_in(dir, &name, want, true)
    }

    fn make_special(
        &self,
        dir: &Rc<HostDir>,
        name: &[u8],
        info: &FileInfo,
        want: &Attributes,
    ) -> Result<()> {
        let kind = match info.kind {
            FileKind::Special(S_IFCHR) => FileType::CharacterDevice,
            FileKind::Special(S_IFBLK) => FileType::BlockDevice,
            FileKind::Special(S_IFIFO) => FileType::Fifo,
            FileKind::Special(S_IFSOCK) => FileType::Socket,
            _ => return refused("a file type that the host does not support"),
        };
        let name = c_name(name)?;
        let mode = Mode::from_raw_mode(u32::from(want.mode & 0o777));
        let device = rustix::fs::makedev(info.rdev.0, info.rdev.1);
        rustix::fs::mknodat(dir.fd()?, &name, kind, mode, device)?;
        self.apply_in(dir, &name, want, false)
    }

    fn link_handle(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<(Rc<HostDir>, CString)> {
        Ok((Rc::clone(dir), c_name(name)?))
    }

    fn link(&self, link_handle: &Self::LinkHandle, dir: &Rc<HostDir>, name: &[u8]) -> Result<()> {
        rustix::fs::linkat(
            link_handle.0.fd()?,
            &link_handle.1,
            dir.fd()?,
            &c_name(name)?,
            AtFlags::empty(),
        )?;
        Ok(())
    }

    fn remove(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<()> {
        Ok(rustix::fs::unlinkat(dir.fd()?, &c_name(name)?, AtFlags::empty())?)
    }
}
