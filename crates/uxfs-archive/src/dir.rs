//! A directory tree of the host as a [`Source`].
//!
//! Walks depth first, each directory's names in byte order, so the same tree always gives the
//! same stream.
//!
//! Invariants:
//! 1. Every file is reached from its directory's descriptor, and no symbolic link is followed
//!    (but for the root that the user named): a tree that changes meanwhile can not lead the
//!    walk elsewhere. A file that was replaced between look and open is an error.
//! 2. At most `OPEN_MAX` directories are open, however deep the tree is: a closed one is found
//!    again by `..` and must be the same.
//! 3. A file that became shorter since it was looked at is read with zeros at its end, and a
//!    warning.
//! 4. Nothing is written, and access times stay where the kernel lets them (`O_NOATIME`).
//!
//! Called by [`open`](crate::open).

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::entry::{Entry, Kind, Meta, Time, Xattrs, normal_xattrs};
use crate::error::{ArchiveError, Warnings, show};
use crate::file_data::FileData;
use crate::source::Source;
use crate::window::Window;

/// Directories open at a time.
const OPEN_MAX: usize = 16;
/// Linux' limit for an attribute's value and for the list of names.
const XATTR_MAX: usize = 64 << 10;

/// How to walk a directory.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DirOptions {
    /// Leave out what is mounted below the root; the mount points themselves stay.
    pub one_file_system: bool,
}

/// Device and inode number.
type Id = (u32, u32, u64);

struct Level {
    /// `None` while more than [`OPEN_MAX`] deeper ones are open.
    fd: Option<OwnedFd>,
    id: Id,
    /// Names not yet visited.
    names: std::vec::IntoIter<CString>,
    /// Length of the directory's own path.
    path_len: usize,
}

/// Reads a directory tree.
pub struct DirSource {
    root: PathBuf,
    options: DirOptions,
    started: bool,
    levels: Vec<Level>,
    /// Path of the directory on top of `levels`, then of the current entry.
    path: Vec<u8>,
    /// First names of files that have more of them, with the number still to come.
    links: HashMap<Id, (Vec<u8>, u32)>,
    data: Option<FileData>,
    window: Window,
    done: u64,
    scratch: Vec<u8>,
    warnings: Warnings,
}

impl DirSource {
    /// A source for the tree under `root`, which may be a symbolic link to a directory.
    ///
    /// # Errors
    /// `root` can not be opened as a directory.
    pub fn new(root: &Path, options: DirOptions) -> Result<Self, ArchiveError> {
        let mut source = Self {
            root: root.to_path_buf(),
            options,
            started: false,
            levels: Vec::new(),
            path: Vec::new(),
            links: HashMap::new(),
            data: None,
            window: Window::default(),
            done: 0,
            scratch: vec![0; XATTR_MAX],
            warnings: Warnings::default(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|errno| source.failed("opening", errno))?;
        let stat = source.stat_fd(fd.as_fd())?;
        source.push_level(fd, &stat)?;
        Ok(source)
    }

    /// The current entry's path on the host.
    fn host_path(&self) -> PathBuf {
        if self.path.is_empty() {
            return self.root.clone();
        }
        self.root.join(OsStr::from_bytes(&self.path))
    }

    fn failed(&self, what: &str, error: impl Into<io::Error>) -> ArchiveError {
        ArchiveError::io(format!("{what} {}", self.host_path().display()), error.into())
    }

    fn stat_fd(&self, fd: BorrowedFd<'_>) -> Result<Statx, ArchiveError> {
        stat(fd, c"", AtFlags::EMPTY_PATH).map_err(|errno| self.failed("looking at", errno))
    }

    /// Lists a directory and makes it the one whose names come next.
    fn push_level(&mut self, fd: OwnedFd, stat: &Statx) -> Result<(), ArchiveError> {
        let mut names = Vec::new();
        let listing = Dir::read_from(&fd).map_err(|errno| self.failed("listing", errno))?;
        for item in listing {
            let item = item.map_err(|errno| self.failed("listing", errno))?;
            if !matches!(item.file_name().to_bytes(), b"." | b"..") {
                names.push(item.file_name().to_owned());
            }
        }
        names.sort_unstable();
        if let Some(index) = self.levels.len().checked_sub(OPEN_MAX) {
            self.levels[index].fd = None;
        }
        let names = names.into_iter();
        self.levels.push(Level { fd: Some(fd), id: id(stat), names, path_len: self.path.len() });
        Ok(())
    }

    /// Leaves the directory on top; the one below is open after that.
    fn pop_level(&mut self) -> Result<(), ArchiveError> {
        let Some(child) = self.levels.pop() else { return Ok(()) };
        let Some(parent) = self.levels.last() else { return Ok(()) };
        self.path.truncate(parent.path_len);
        if parent.fd.is_some() {
            return Ok(());
        }
        let Some(child) = child.fd else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&child, c"..", flags, Mode::empty())
            .map_err(|errno| self.failed("going back to", errno))?;
        if id(&self.stat_fd(fd.as_fd())?) != parent.id {
            let moved = io::Error::other("the directory was moved while it was read");
            return Err(self.failed("going back to", moved));
        }
        if let Some(parent) = self.levels.last_mut() {
            parent.fd = Some(fd);
        }
        Ok(())
    }

    fn first(&mut self) -> Result<Entry, ArchiveError> {
        self.started = true;
        let Some(Level { fd: Some(fd), .. }) = self.levels.first() else {
            return Err(self.failed("opening", Errno::BADF));
        };
        let fd = fd.try_clone().map_err(|error| self.failed("opening", error))?;
        let stat = self.stat_fd(fd.as_fd())?;
        let mut meta = meta(&stat);
        meta.xattrs = self.xattrs(&Target::Open(fd.as_fd()))?;
        Ok(Entry { path: Vec::new(), kind: Kind::Dir, meta })
    }

    /// The entry for one name of the directory on top; `None` if it is gone.
    fn visit(&mut self, name: &CString) -> Result<Option<Entry>, ArchiveError> {
        // Cloned so that `self` is free; a level's descriptor is open while it is on top.
        let dir = match self.levels.last().and_then(|level| level.fd.as_ref()) {
            Some(fd) => fd.try_clone().map_err(|error| self.failed("opening", error))?,
            None => return Err(self.failed("opening", Errno::BADF)),
        };
        let stat = match stat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                let text = format!("{} vanished while it was read", show(&self.path));
                self.warnings.push(text);
                return Ok(None);
            }
            Err(errno) => return Err(self.failed("looking at", errno)),
        };
        let mut meta = meta(&stat);
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        if file_type != FileType::Directory
            && stat.stx_nlink > 1
            && let Some(target) = self.earlier_name(&stat)
        {
            return Ok(Some(Entry {
                path: self.path.clone(),
                kind: Kind::Hardlink { target },
                meta,
            }));
        }
        let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = match file_type {
            FileType::Directory | FileType::RegularFile => {
                let directory = file_type == FileType::Directory;
                let fd = self.open(dir.as_fd(), name, directory, &stat)?;
                meta.xattrs = self.xattrs(&Target::Open(fd.as_fd()))?;
                if directory { self.enter(fd, &stat)? } else { self.file(fd, &stat)? }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&dir, name, Vec::new())
                    .map_err(|errno| self.failed("reading the link", errno))?;
                Kind::Symlink { target: target.into_bytes() }
            }
            FileType::CharacterDevice => Kind::Char { major: device.0, minor: device.1 },
            FileType::BlockDevice => Kind::Block { major: device.0, minor: device.1 },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => return Err(self.failed("looking at", io::Error::other("unknown kind of file"))),
        };
        if !matches!(kind, Kind::Dir | Kind::File { .. }) {
            meta.xattrs = self.xattrs(&Target::In(dir.as_fd(), name))?;
        }
        Ok(Some(Entry { path: self.path.clone(), kind, meta }))
    }

    /// The name under which a file with several was met before; notes it if it was not.
    fn earlier_name(&mut self, stat: &Statx) -> Option<Vec<u8>> {
        let id = id(stat);
        let Some((first, left)) = self.links.get_mut(&id) else {
            self.links.insert(id, (self.path.clone(), stat.stx_nlink - 1));
            return None;
        };
        *left = left.saturating_sub(1);
        let (first, left) = (first.clone(), *left);
        if left == 0 {
            self.links.remove(&id);
        }
        Some(first)
    }

    /// Opens what was looked at, and nothing else (invariant 1).
    fn open(
        &self,
        dir: BorrowedFd<'_>,
        name: &CString,
        directory: bool,
        seen: &Statx,
    ) -> Result<OwnedFd, ArchiveError> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        flags.set(OFlags::DIRECTORY, directory);
        let fd = rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty())
            // Only the owner may leave the access time alone.
            .or_else(|errno| match errno {
                Errno::PERM => rustix::fs::openat(dir, name, flags, Mode::empty()),
                errno => Err(errno),
            })
            .map_err(|errno| self.failed("opening", errno))?;
        if id(&self.stat_fd(fd.as_fd())?) != id(seen) {
            let other = io::Error::other("the file was replaced while it was read");
            return Err(self.failed("opening", other));
        }
        Ok(fd)
    }

    fn enter(&mut self, fd: OwnedFd, stat: &Statx) -> Result<Kind, ArchiveError> {
        let device = |id: Id| (id.0, id.1);
        let root = self.levels.first().map(|level| device(level.id));
        if !self.options.one_file_system || root == Some(device(id(stat))) {
            self.push_level(fd, stat)?;
        }
        Ok(Kind::Dir)
    }

    fn file(&mut self, fd: OwnedFd, stat: &Statx) -> Result<Kind, ArchiveError> {
        let data = FileData::new(File::from(fd), stat)
            .map_err(|error| self.failed("looking for holes in", error))?;
        let map = data.map.clone();
        self.data = Some(data);
        Ok(Kind::File { size: stat.stx_size, map })
    }

    fn xattrs(&mut self, target: &Target<'_>) -> Result<Xattrs, ArchiveError> {
        let mut list = std::mem::take(&mut self.scratch);
        let count = match target.list(&mut list) {
            // No attributes on this file system.
            Err(Errno::OPNOTSUPP) => Ok(0),
            other => other,
        };
        let names = count.map(|count| list[..count].to_vec());
        self.scratch = list;
        let names = names.map_err(|errno| self.failed("listing the attributes of", errno))?;
        let mut xattrs = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let kept = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
            if !kept.iter().any(|prefix| name.starts_with(prefix)) {
                let name = name.escape_ascii();
                self.warnings.push_once(format!("attribute {name} is the host's own: left out"));
                continue;
            }
            match target.get(name, &mut self.scratch) {
                Ok(count) => xattrs.push((name.to_vec(), self.scratch[..count].to_vec())),
                // Removed since it was listed.
                Err(Errno::NODATA) => {}
                Err(errno) => {
                    let what = format!("reading attribute {} of", name.escape_ascii());
                    return Err(self.failed(&what, errno));
                }
            }
        }
        normal_xattrs(&mut xattrs);
        Ok(xattrs)
    }
}

/// What to ask for attributes: a descriptor, or a name that is not to be opened.
enum Target<'a> {
    Open(BorrowedFd<'a>),
    In(BorrowedFd<'a>, &'a CString),
}

impl Target<'_> {
    /// No system call takes a directory and a name; `/proc` does.
    fn proc_path(dir: BorrowedFd<'_>, name: &CString) -> PathBuf {
        let dir = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        dir.join(OsStr::from_bytes(name.as_bytes()))
    }

    fn list(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, into),
            Self::In(dir, name) => rustix::fs::llistxattr(Self::proc_path(*dir, name), into),
        }
    }

    fn get(&self, name: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, into),
            Self::In(dir, file) => rustix::fs::lgetxattr(Self::proc_path(*dir, file), name, into),
        }
    }
}

fn stat(dir: BorrowedFd<'_>, name: &std::ffi::CStr, flags: AtFlags) -> Result<Statx, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, mask)
}

fn id(stat: &Statx) -> Id {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

fn meta(stat: &Statx) -> Meta {
    let time = |time: StatxTimestamp| Time { sec: time.tv_sec, nsec: time.tv_nsec };
    let born = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Meta {
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        mtime: time(stat.stx_mtime),
        atime: Some(time(stat.stx_atime)),
        ctime: Some(time(stat.stx_ctime)),
        crtime: born.then(|| time(stat.stx_btime)),
        ..Meta::default()
    }
}

impl DirSource {
    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some(data) = &mut self.data else { return Ok(0) };
        let before = data.shrunk;
        let result = data.read(buf);
        if data.shrunk && !before {
            let path = show(&self.path);
            self.warnings
                .push(format!("{path} became shorter while it was read: zeros at its end"));
        }
        let count = result.map_err(|error| self.failed("reading", error))?;
        self.done += count as u64;
        Ok(count)
    }
}

impl Source for DirSource {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.data = None;
        self.window.clear();
        if !self.started {
            return self.first().map(Some);
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.path.truncate(level.path_len);
            let Some(name) = level.names.next() else {
                self.pop_level()?;
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
            if let Some(entry) = self.visit(&name)? {
                return Ok(Some(entry));
            }
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        if self.window.chunk().is_empty() { self.read_data(buf) } else { Ok(self.window.read(buf)) }
    }

    fn chunk(&mut self) -> Result<&[u8], ArchiveError> {
        if self.window.chunk().is_empty() {
            // Taken out so that `self` is free.
            let mut window = std::mem::take(&mut self.window);
            let filled = window.fill(|bytes| self.read_data(bytes));
            self.window = window;
            filled?;
        }
        Ok(self.window.chunk())
    }

    fn consume(&mut self, count: usize) {
        self.window.consume(count);
    }

    fn data_position(&self) -> Option<u64> {
        self.data.as_ref()?.position()
    }

    fn file(&self) -> Option<&File> {
        self.data.as_ref().map(|data| &data.file)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.done, None)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}
