//! Directories of the host at any depth, with a bounded number of descriptors.
//!
//! 1. At most [`OPEN_MAX`] directories of a walk are open at a time, plus its root, whatever the
//!    depth. The directory that was opened first is closed to open another.
//! 2. A closed directory is opened again through `..` of its child or, name by name, from the
//!    nearest open ancestor. It must be the same directory as before. A symbolic link is followed
//!    only where the first opening followed it.
//! 3. A level takes the memory of its own name.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs_format::timestamp::Timestamp;

use crate::copy::sides::{FileId, FileInfo, FileKind, Result, refused};

/// Directories open at a time.
const OPEN_MAX: usize = 16;

/// Flags for opening a file for reading.
pub(super) const OPEN_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
const OPEN_DIR: OFlags = OPEN_FLAGS.union(OFlags::DIRECTORY);

/// The open directories, in the order in which they were opened.
#[derive(Default)]
struct Pool {
    open: RefCell<VecDeque<Weak<HostDir>>>,
}

/// A directory of the host.
pub struct HostDir {
    parent: Option<Rc<HostDir>>,
    /// Name in the parent directory.
    name: CString,
    /// True if a symbolic link was followed to open this directory.
    follow: bool,
    id: FileId,
    /// `None` while the directory is closed; the root's stays open.
    fd: RefCell<Option<Rc<OwnedFd>>>,
    pool: Rc<Pool>,
}

impl HostDir {
    /// The root of a walk.
    pub(super) fn root(fd: OwnedFd) -> Result<Rc<Self>> {
        let id = id_of(&fd)?;
        let (fd, pool) = (RefCell::new(Some(Rc::new(fd))), Rc::default());
        Ok(Rc::new(Self { parent: None, name: CString::default(), follow: false, id, fd, pool }))
    }

    /// A child directory that is already open.
    pub(super) fn child(
        self: &Rc<Self>,
        name: CString,
        follow: bool,
        id: FileId,
        fd: OwnedFd,
    ) -> Rc<Self> {
        let (parent, pool) = (Some(Rc::clone(self)), Rc::clone(&self.pool));
        let child = Rc::new(Self { parent, name, follow, id, fd: RefCell::default(), pool });
        child.keep(Rc::new(fd));
        child
    }

    /// Opens a child directory; a symbolic link is not followed.
    pub(super) fn enter(self: &Rc<Self>, name: CString) -> Result<Rc<Self>> {
        let fd = rustix::fs::openat(self.fd()?, &name, OPEN_DIR, Mode::empty())?;
        let id = id_of(&fd)?;
        Ok(self.child(name, false, id, fd))
    }

    /// The identity of the directory.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// The descriptor; a closed directory is opened again.
    pub(super) fn fd(self: &Rc<Self>) -> Result<Rc<OwnedFd>> {
        if let Some(fd) = &*self.fd.borrow() {
            return Ok(Rc::clone(fd));
        }
        let mut closed = vec![self];
        let mut at = loop {
            let Some(parent) = closed.last().and_then(|dir| dir.parent.as_ref()) else {
                return refused("the directory is no longer open");
            };
            if let Some(fd) = &*parent.fd.borrow() {
                break Rc::clone(fd);
            }
            closed.push(parent);
        };
        for dir in closed.into_iter().rev() {
            let flags = if dir.follow { OPEN_DIR - OFlags::NOFOLLOW } else { OPEN_DIR };
            let fd = rustix::fs::openat(&at, &dir.name, flags, Mode::empty())?;
            if id_of(&fd)? != dir.id {
                return refused("the directory was moved or replaced during the copy");
            }
            at = Rc::new(fd);
        }
        self.keep(Rc::clone(&at));
        Ok(at)
    }

    /// Opens the parent directory through `..`, if it is closed: the shortest way to reach it.
    pub(super) fn open_parent(&self) {
        let Some(parent) = &self.parent else { return };
        if parent.fd.borrow().is_some() {
            return;
        }
        let Some(fd) = self.fd.borrow().clone() else { return };
        // If this fails or leads elsewhere, `fd` opens the parent from above.
        if let Ok(above) = rustix::fs::openat(&fd, c"..", OPEN_DIR, Mode::empty())
            && id_of(&above).is_ok_and(|id| id == parent.id)
        {
            parent.keep(Rc::new(above));
        }
    }

    fn keep(self: &Rc<Self>, fd: Rc<OwnedFd>) {
        *self.fd.borrow_mut() = Some(fd);
        let mut open = self.pool.open.borrow_mut();
        open.retain(|dir| dir.strong_count() > 0);
        open.push_back(Rc::downgrade(self));
        while open.len() > OPEN_MAX {
            if let Some(dir) = open.pop_front().and_then(|dir| dir.upgrade()) {
                *dir.fd.borrow_mut() = None;
            }
        }
    }
}

impl Drop for HostDir {
    /// Drops ancestors in a loop: recursion in a deep tree would exhaust the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(dir) = parent {
            parent = Rc::into_inner(dir).and_then(|mut dir| dir.parent.take());
        }
    }
}

pub(super) fn statx(dir: BorrowedFd<'_>, name: &CString, flags: AtFlags) -> Result<Statx> {
    let mask = StatxFlags::BASIC_STATS;
    Ok(rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, mask)?)
}

pub(super) fn info(stat: &Statx) -> FileInfo {
    let kind = match stat.stx_mode & S_IFMT {
        S_IFREG => FileKind::File,
        S_IFDIR => FileKind::Dir,
        S_IFLNK => FileKind::Symlink,
        other => FileKind::Special(other),
    };
    let time = |t: StatxTimestamp| Timestamp { sec: t.tv_sec, nsec: t.tv_nsec };
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    FileInfo {
        kind,
        mode: stat.stx_mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        nlink: stat.stx_nlink,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        id: (device, stat.stx_ino),
    }
}

fn id_of(fd: &OwnedFd) -> Result<FileId> {
    Ok(info(&statx(fd.as_fd(), &CString::default(), AtFlags::EMPTY_PATH)?).id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_in_pool(dir: &HostDir) -> usize {
        let open = dir.pool.open.borrow();
        open.iter().filter_map(Weak::upgrade).filter(|dir| dir.fd.borrow().is_some()).count()
    }

    #[test]
    fn deep_trees_use_a_bounded_number_of_descriptors() {
        const DEPTH: usize = 300;
        let temp = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(temp.path(), OPEN_DIR, Mode::empty()).unwrap();
        let root = HostDir::root(fd).unwrap();
        let mut levels = vec![root];
        for _ in 0..DEPTH {
            let parent = levels.last().unwrap();
            rustix::fs::mkdirat(parent.fd().unwrap(), c"d", Mode::RWXU).unwrap();
            let down = parent.enter(c"d".into()).unwrap();
            assert!(open_in_pool(&down) <= OPEN_MAX);
            levels.push(down);
        }
        // From the deepest upwards by `..`, and once from the top by names.
        let middle = Rc::clone(&levels[DEPTH / 2]);
        assert!(middle.fd.borrow().is_none());
        assert_eq!(id_of(&middle.fd().unwrap()).unwrap(), middle.id());
        while let Some(dir) = levels.pop() {
            assert_eq!(id_of(&dir.fd().unwrap()).unwrap(), dir.id());
            dir.open_parent();
            assert!(dir.parent.as_ref().is_none_or(|parent| parent.fd.borrow().is_some()));
            assert!(open_in_pool(&dir) <= OPEN_MAX);
        }
    }

    #[test]
    fn a_replaced_directory_is_detected() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        let fd = rustix::fs::open(temp.path(), OPEN_DIR, Mode::empty()).unwrap();
        let root = HostDir::root(fd).unwrap();
        let dir = root.enter(c"d".into()).unwrap();
        *dir.fd.borrow_mut() = None;
        std::fs::rename(temp.path().join("d"), temp.path().join("other")).unwrap();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        assert!(dir.fd().is_err());
        std::fs::remove_dir(temp.path().join("d")).unwrap();
        std::os::unix::fs::symlink("other", temp.path().join("d")).unwrap();
        assert!(dir.fd().is_err());
    }
}
