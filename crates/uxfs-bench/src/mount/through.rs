//! A FUSE server that forwards everything to files of the host: the cost of any mount over the
//! host's own files, on the same crate and settings.
//!
//! 1. An inode that the kernel knows is held open, so that a read or write is one call of the host.
//!    Forgotten inodes are closed.
//! 2. Modes and owners are not kept, links and device nodes not made.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uxfs_transport::{Kind, Name, SetAttr, SetTime};

use super::bare::{self, Content, Node, ROOT};

/// An inode that the kernel knows.
struct Known {
    file: Arc<File>,
    /// References of the kernel.
    count: u64,
}

struct PassThrough {
    root: Arc<File>,
    known: Mutex<HashMap<u64, Known>>,
}

/// Mounts the server on a directory and serves it until it is unmounted.
///
/// # Errors
/// The kernel refuses the mount, or serving it fails.
pub fn serve(backing: &Path, dir: &Path) -> io::Result<()> {
    // Each inode takes a descriptor.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let root = Arc::new(File::open(backing)?);
    bare::serve(PassThrough { root, known: Mutex::default() }, "through", dir)
}

/// Opens a file for reading and writing, or a directory.
fn open(dir: &File, name: &OsStr, extra: OFlags) -> rustix::io::Result<File> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o666);
    let opened = match rustix::fs::openat(dir, name, flags | OFlags::RDWR | extra, mode) {
        Err(Errno::ISDIR) => {
            rustix::fs::openat(dir, name, flags | OFlags::RDONLY | OFlags::DIRECTORY, mode)
        }
        other => other,
    };
    opened.map(File::from)
}

impl PassThrough {
    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, ino: u64) -> io::Result<Arc<File>> {
        if ino == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let file = self.known().get(&ino).map(|known| Arc::clone(&known.file));
        file.ok_or_else(|| Errno::STALE.into())
    }

    /// Holds an inode for the kernel.
    fn hold(&self, file: File) -> io::Result<Node> {
        let node = node_of(&file)?;
        let mut known = self.known();
        let known = known.entry(node.ino);
        known.or_insert_with(|| Known { file: Arc::new(file), count: 0 }).count += 1;
        Ok(node)
    }
}

/// An inode with the number that it has on the host.
fn node_of(file: &File) -> io::Result<Node> {
    let meta = file.metadata()?;
    Ok(Node { ino: meta.ino(), is_dir: meta.is_dir(), size: meta.len() })
}

fn moment(time: SetTime) -> SystemTime {
    match time {
        SetTime::Now => SystemTime::now(),
        SetTime::To(time) => {
            UNIX_EPOCH + Duration::new(u64::try_from(time.sec).unwrap_or(0), time.nsec)
        }
    }
}

fn kind(of: FileType) -> Kind {
    match of {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Regular,
    }
}

impl Content for PassThrough {
    fn find(&self, dir: u64, name: &OsStr) -> io::Result<Option<Node>> {
        match open(&*self.file(dir)?, name, OFlags::empty()) {
            Ok(file) => self.hold(file).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn node(&self, ino: u64) -> io::Result<Node> {
        Ok(Node { ino, ..node_of(&*self.file(ino)?)? })
    }

    fn make(&self, dir: u64, name: &OsStr, is_dir: bool) -> io::Result<Node> {
        let dir = self.file(dir)?;
        if is_dir {
            rustix::fs::mkdirat(&*dir, name, Mode::from_raw_mode(0o777))?;
            return self.hold(open(&dir, name, OFlags::empty())?);
        }
        self.hold(open(&dir, name, OFlags::CREATE | OFlags::EXCL)?)
    }

    fn remove(&self, dir: u64, name: &OsStr, is_dir: bool) -> io::Result<()> {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(rustix::fs::unlinkat(&*self.file(dir)?, name, flags)?)
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> io::Result<()> {
        let (dir, to_dir) = (self.file(from.0)?, self.file(to.0)?);
        Ok(rustix::fs::renameat(&*dir, from.1, &*to_dir, to.1)?)
    }

    fn list(&self, dir: u64, from: u64, add: &mut dyn FnMut(&Name<'_>) -> bool) -> io::Result<()> {
        let mut entries = Dir::read_from(&*self.file(dir)?)?;
        entries.seek(from.cast_signed())?;
        for entry in entries {
            let entry = entry?;
            let name = Name {
                ino: entry.ino(),
                next: entry.offset().cast_unsigned(),
                kind: kind(entry.file_type()),
                name: entry.file_name().to_bytes(),
            };
            if !add(&name) {
                break;
            }
        }
        Ok(())
    }

    fn forget(&self, ino: u64, count: u64) {
        let mut all = self.known();
        let Some(known) = all.get_mut(&ino) else { return };
        known.count = known.count.saturating_sub(count);
        if known.count == 0 {
            let gone = all.remove(&ino);
            // Closing may free an unlinked file, which takes time.
            drop(all);
            drop(gone);
        }
    }

    fn change(&self, ino: u64, change: &SetAttr) -> io::Result<()> {
        let file = self.file(ino)?;
        if let Some(size) = change.size {
            file.set_len(size)?;
        }
        let mut times = FileTimes::new();
        if let Some(time) = change.atime {
            times = times.set_accessed(moment(time));
        }
        if let Some(time) = change.mtime {
            times = times.set_modified(moment(time));
        }
        match (change.atime, change.mtime) {
            (None, None) => Ok(()),
            _ => file.set_times(times),
        }
    }

    fn read(&self, ino: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file(ino)?.read_at(into, offset)
    }

    fn write(&self, ino: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file(ino)?.write_all_at(data, offset)
    }

    fn sync(&self, ino: u64) -> io::Result<()> {
        self.file(ino)?.sync_all()
    }
}
