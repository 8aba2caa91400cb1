//! Reads a directory tree as a [`Source`], with the calls of Linux.
//!
//! The walk is depth first and visits the names of each directory in byte order, so the same tree
//! always produces the same stream.
//!
//! Invariants:
//! 1. Every file is opened relative to its directory's descriptor without following symbolic links
//!    (except the root that the user named). A concurrent change of the tree cannot redirect the
//!    walk. Metadata and data are those of one file: a file is examined by its descriptor, or one
//!    that was replaced between `stat` and `open` is an error.
//! 2. At most `OPEN_MAX` directories are open at a time, at any depth. A closed directory is
//!    reopened through `..` and must be the same one.
//! 3. If a file has become shorter since `stat`, the missing end reads as zeros, with a warning.
//! 4. Nothing is written, and access times do not change if the kernel allows that (`O_NOATIME`).
//!
//! Used by [`open`](crate::open) on Linux.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::entry::{Entry, Kind, Meta, Time, Xattrs};
use crate::error::{ArchiveError, Warnings, show};
use crate::file_data::FileData;
use crate::host_xattrs::{HostXattrs, Target};
use crate::source::Source;
use crate::window::{self, Window, Windowed};

use super::DirOptions;

/// Maximum number of directories open at a time.
const OPEN_MAX: usize = 16;

/// Device and inode number.
type Id = (u32, u32, u64);

struct Level {
    /// `None` if closed because more than [`OPEN_MAX`] deeper directories are open.
    fd: Option<Arc<OwnedFd>>,
    id: Id,
    /// Names not yet visited, with the types that the listing gives.
    names: std::vec::IntoIter<(CString, FileType)>,
    /// Length of the directory's path.
    path_len: usize,
}

/// A directory tree as a source.
pub struct DirSource {
    root: PathBuf,
    options: DirOptions,
    started: bool,
    levels: Vec<Level>,
    /// Path of the directory on top of `levels`, or of the current entry.
    path: Vec<u8>,
    /// First name of each file with several names, and the number of names not seen yet.
    links: HashMap<Id, (Vec<u8>, u32)>,
    data: Option<FileData>,
    window: Window,
    done: u64,
    host_xattrs: HostXattrs,
    warnings: Warnings,
}

impl DirSource {
    /// Opens the tree under `root`, which may be a symbolic link to a directory.
    ///
    /// # Errors
    /// If `root` cannot be opened as a directory.
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
            host_xattrs: HostXattrs::default(),
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
        stat(fd, c"", AtFlags::EMPTY_PATH)
            .map_err(|errno| self.failed("reading the metadata of", errno))
    }

    /// Lists a directory and puts it on top of `levels`.
    fn push_level(&mut self, fd: OwnedFd, stat: &Statx) -> Result<(), ArchiveError> {
        let mut names = Vec::new();
        let listing = Dir::read_from(&fd).map_err(|errno| self.failed("listing", errno))?;
        for item in listing {
            let item = item.map_err(|errno| self.failed("listing", errno))?;
            if !matches!(item.file_name().to_bytes(), b"." | b"..") {
                names.push((item.file_name().to_owned(), item.file_type()));
            }
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if let Some(index) = self.levels.len().checked_sub(OPEN_MAX) {
            self.levels[index].fd = None;
        }
        let names = names.into_iter();
        let fd = Some(Arc::new(fd));
        self.levels.push(Level { fd, id: id(stat), names, path_len: self.path.len() });
        Ok(())
    }

    /// Leaves the directory on top; afterwards the directory below is open.
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
            .map_err(|errno| self.failed("returning to", errno))?;
        if id(&self.stat_fd(fd.as_fd())?) != parent.id {
            let moved = io::Error::other("the directory was moved while it was read");
            return Err(self.failed("returning to", moved));
        }
        if let Some(parent) = self.levels.last_mut() {
            parent.fd = Some(Arc::new(fd));
        }
        Ok(())
    }

    fn first(&mut self) -> Result<Entry, ArchiveError> {
        self.started = true;
        let Some(Level { fd: Some(fd), .. }) = self.levels.first() else {
            return Err(self.failed("opening", Errno::BADF));
        };
        let fd = Arc::clone(fd);
        let stat = self.stat_fd(fd.as_fd())?;
        let mut meta = meta(&stat);
        meta.xattrs = self.xattrs(&Target::Open(fd.as_fd()))?;
        Ok(Entry { path: Vec::new(), kind: Kind::Dir, meta })
    }

    /// The entry for one name in the directory on top; `None` if it was deleted. `listed` is the type
    /// in the listing, which tells what may be opened before it is examined.
    fn visit(&mut self, name: &CStr, listed: FileType) -> Result<Option<Entry>, ArchiveError> {
        // Shared, to release the borrow of `self`; the top level's descriptor is always open.
        let dir = match self.levels.last().and_then(|level| level.fd.as_ref()) {
            Some(fd) => Arc::clone(fd),
            None => return Err(self.failed("opening", Errno::BADF)),
        };
        let opened = match listed {
            FileType::RegularFile => open_file(dir.as_fd(), name, false).map(Some),
            FileType::Directory => open_file(dir.as_fd(), name, true).map(Some),
            _ => Ok(None),
        };
        // A socket, which is mounted on a file, has nothing to open.
        let opened =
            if opened.as_ref().is_err_and(|e| *e == Errno::NXIO) { Ok(None) } else { opened };
        let examined = opened.and_then(|fd| {
            let stat = match &fd {
                Some(fd) => stat(fd.as_fd(), c"", AtFlags::EMPTY_PATH),
                None => stat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW),
            };
            stat.map(|stat| (fd, stat))
        });
        let (fd, stat) = match examined {
            Ok(examined) => examined,
            Err(Errno::NOENT) => {
                let text = format!("{} vanished while it was read", show(&self.path));
                self.warnings.push(text);
                return Ok(None);
            }
            Err(errno) => return Err(self.failed("opening", errno)),
        };
        let mut meta = meta(&stat);
        // Another type than the listed one if something is mounted on the file.
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
                let fd = match fd {
                    Some(fd) => fd,
                    None => self.open_seen(dir.as_fd(), name, directory, &stat)?,
                };
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
            _ => {
                let error = io::Error::other("unknown file type");
                return Err(self.failed("reading the metadata of", error));
            }
        };
        if !matches!(kind, Kind::Dir | Kind::File { .. }) {
            meta.xattrs = self.xattrs(&Target::In(dir.as_fd(), name))?;
        }
        Ok(Some(Entry { path: self.path.clone(), kind, meta }))
    }

    /// The first name of a file with several names; records the name if it is the first.
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

    /// Opens the file that `seen` describes, and no other.
    fn open_seen(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        directory: bool,
        seen: &Statx,
    ) -> Result<OwnedFd, ArchiveError> {
        let fd = open_file(dir, name, directory).map_err(|errno| self.failed("opening", errno))?;
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
        let data =
            FileData::new(File::from(fd), stat.stx_size, stat.stx_blocks.saturating_mul(512))
                .map_err(|error| self.failed("looking for holes in", error))?;
        let map = data.map.clone();
        self.data = Some(data);
        Ok(Kind::File { size: stat.stx_size, map })
    }

    fn xattrs(&mut self, target: &Target<'_>) -> Result<Xattrs, ArchiveError> {
        let read = self.host_xattrs.read(target, &mut self.warnings);
        read.map_err(|(what, errno)| self.failed(&what, errno))
    }
}

/// Opens a file or a directory, without following a symbolic link (invariant 1).
fn open_file(dir: BorrowedFd<'_>, name: &CStr, directory: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    flags.set(OFlags::DIRECTORY, directory);
    // Only the owner may use O_NOATIME.
    match rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(dir, name, flags, Mode::empty()),
        other => other,
    }
}

fn stat(dir: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
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

impl Windowed for DirSource {
    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

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
            let Some((name, listed)) = level.names.next() else {
                self.pop_level()?;
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
            if let Some(entry) = self.visit(&name, listed)? {
                return Ok(Some(entry));
            }
        }
    }

    window::data_methods!();

    fn many_files(&self) -> bool {
        true
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.done, None)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}
