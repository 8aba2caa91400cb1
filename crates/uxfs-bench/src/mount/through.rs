//! A FUSE server that forwards reads and writes to files of the host: the cost of any mount over
//! the host's own files, on the same crate and settings. It has one directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bare::{self, Content, EISDIR, Node, ROOT};

/// Number of the first file.
const FIRST: u64 = ROOT + 1;

/// Files that were made, in the order of their numbers, by their names.
type Files = Vec<(Box<OsStr>, Arc<File>)>;

struct PassThrough {
    backing: PathBuf,
    files: Mutex<Files>,
}

/// Mounts the server on a directory and serves it until it is unmounted.
///
/// # Errors
/// The kernel refuses the mount, or serving it fails.
pub fn serve(backing: &Path, dir: &Path) -> io::Result<()> {
    let backing = backing.canonicalize()?;
    bare::serve(PassThrough { backing, files: Mutex::default() }, "through", dir)
}

impl PassThrough {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, ino: u64) -> io::Result<Arc<File>> {
        let at = ino.checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
        let file = at.and_then(|at| self.files().get(at).map(|(_, file)| Arc::clone(file)));
        file.ok_or_else(|| io::Error::from_raw_os_error(EISDIR))
    }
}

impl Content for PassThrough {
    fn find(&self, _: u64, name: &OsStr) -> io::Result<Option<Node>> {
        let found = self.files().iter().position(|(known, _)| **known == *name);
        found.map(|at| self.node(at as u64 + FIRST)).transpose()
    }

    fn node(&self, ino: u64) -> io::Result<Node> {
        if ino == ROOT {
            return Ok(Node { ino, is_dir: true, size: 0 });
        }
        Ok(Node { ino, is_dir: false, size: self.file(ino)?.metadata()?.len() })
    }

    fn make(&self, _: u64, name: &OsStr, is_dir: bool) -> io::Result<Node> {
        if is_dir {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let path = self.backing.join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let mut files = self.files();
        files.push((name.into(), Arc::new(file)));
        Ok(Node { ino: files.len() as u64 - 1 + FIRST, is_dir: false, size: 0 })
    }

    fn remove(&self, _: u64, name: &OsStr) -> io::Result<()> {
        std::fs::remove_file(self.backing.join(name))?;
        // Its number is not used again.
        let mut files = self.files();
        let gone = files.iter_mut().filter(|(known, _)| **known == *name);
        gone.for_each(|(known, _)| *known = OsStr::new("").into());
        Ok(())
    }

    fn resize(&self, ino: u64, size: u64) -> io::Result<()> {
        self.file(ino)?.set_len(size)
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
