//! Trees that hold a policy: a directory of the host, and a volume.
//!
//! Symbolic links are resolved within the tree, and only regular files are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use uxfs_core::{Error, Fs};
use uxfs_format::inode::{S_IFMT, S_IFREG};
use uxfs_selinux::PolicyRoot;

/// Largest file of a policy in bytes. The largest known have less than one hundredth of this.
const LARGEST: u64 = 64 << 20;

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "too large for a file of a policy")
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// A directory of the host as the root of a tree.
pub struct HostRoot {
    #[cfg(target_os = "linux")]
    dir: std::os::fd::OwnedFd,
    #[cfg(not(target_os = "linux"))]
    dir: std::path::PathBuf,
}

impl HostRoot {
    /// Opens the directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    #[cfg(target_os = "linux")]
    pub fn open(dir: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(Self { dir: rustix::fs::open(dir, flags, Mode::empty())? })
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// The directory cannot be examined, or is none.
    #[cfg(not(target_os = "linux"))]
    pub fn open(dir: &Path) -> io::Result<Self> {
        match std::fs::metadata(dir)?.is_dir() {
            true => Ok(Self { dir: dir.to_owned() }),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Opens a file; `None` if there is none.
    #[cfg(target_os = "linux")]
    fn file(&self, path: &Path) -> io::Result<Option<File>> {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        use rustix::io::Errno;
        // A FIFO must not block.
        let flags = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            other => Ok(Some(File::from(other?))),
        }
    }

    /// Opens a file; `None` if there is none. This system cannot follow symbolic links within the
    /// tree, so it follows none.
    #[cfg(not(target_os = "linux"))]
    fn file(&self, path: &Path) -> io::Result<Option<File>> {
        let mut at = self.dir.clone();
        for part in path.components() {
            match part {
                std::path::Component::Normal(name) => at.push(name),
                std::path::Component::RootDir | std::path::Component::CurDir => continue,
                _ => return Ok(None),
            }
            match std::fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_symlink() => {
                    let problem = format!(
                        "{}: a symbolic link, which this system does not follow within a tree",
                        at.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
                }
                Ok(meta) if !meta.is_dir() && !meta.is_file() => return Err(not_regular()),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        match std::fs::metadata(&at)?.is_file() {
            true => File::open(at).map(Some),
            false => Err(not_regular()),
        }
    }
}

impl PolicyRoot for HostRoot {
    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.file(path)? else { return Ok(None) };
        if !file.metadata()?.is_file() {
            return Err(not_regular());
        }
        let mut text = Vec::new();
        let count = file.take(LARGEST + 1).read_to_end(&mut text)?;
        if count as u64 > LARGEST { Err(too_large()) } else { Ok(Some(text)) }
    }
}

/// A volume as a tree.
pub struct VolumeRoot<'a> {
    fs: &'a Fs,
}

impl<'a> VolumeRoot<'a> {
    /// The tree of this volume.
    pub fn new(fs: &'a Fs) -> Self {
        Self { fs }
    }
}

impl PolicyRoot for VolumeRoot<'_> {
    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let ino = match self.fs.resolve(path.as_os_str().as_encoded_bytes(), true) {
            Err(Error::NotFound | Error::NotDir) => return Ok(None),
            other => other.map_err(io::Error::other)?,
        };
        let stat = self.fs.stat(ino).map_err(io::Error::other)?;
        if stat.mode & S_IFMT != S_IFREG {
            return Err(not_regular());
        }
        if stat.size > LARGEST {
            return Err(too_large());
        }
        let mut text = vec![0; usize::try_from(stat.size).unwrap_or_default()];
        let mut done = 0;
        while done < text.len() {
            let count = self.fs.read_at(ino, done as u64, &mut text[done..]);
            match count.map_err(io::Error::other)? {
                0 => break,
                count => done += count,
            }
        }
        text.truncate(done);
        Ok(Some(text))
    }
}
