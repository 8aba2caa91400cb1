//! Opens files below a directory of the host, for sources whose text names them.
//!
//! 1. No symbolic link below the directory is followed, so a text from elsewhere cannot name files
//!    outside. On Linux that holds whatever happens to the tree meanwhile.
//!
//! Used by the source of manifests.

use std::fs::File;
use std::io;
use std::path::Path;

use uxfs_host::{Stat, Type};

/// A directory whose files may be opened.
pub(crate) struct Beneath {
    #[cfg(target_os = "linux")]
    base: std::os::fd::OwnedFd,
    #[cfg(not(target_os = "linux"))]
    base: std::path::PathBuf,
}

impl Beneath {
    /// Opens the directory.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(base: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { base: rustix::fs::open(base, flags, Mode::empty())? })
    }

    /// Opens the directory.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(base: &Path) -> io::Result<Self> {
        match std::fs::metadata(base)?.is_dir() {
            true => Ok(Self { base: base.to_owned() }),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Opens the regular file at `path`, which is normal.
    pub(crate) fn open(&self, path: &[u8]) -> io::Result<(File, Stat)> {
        let file = self.open_any(path)?;
        let stat = Stat::of(&file.metadata()?);
        match stat.kind {
            Type::File => Ok((file, stat)),
            _ => Err(io::Error::other("not a regular file")),
        }
    }

    #[cfg(target_os = "linux")]
    fn open_any(&self, path: &[u8]) -> io::Result<File> {
        use std::os::fd::OwnedFd;

        use rustix::fs::{Mode, OFlags};
        let (dirs, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let common = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut dir: Option<OwnedFd> = None;
        for component in dirs.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let from = dir.as_ref().unwrap_or(&self.base);
            let flags = common | OFlags::PATH | OFlags::DIRECTORY;
            dir = Some(rustix::fs::openat(from, component, flags, Mode::empty())?);
        }
        let from = dir.as_ref().unwrap_or(&self.base);
        let flags = common | OFlags::RDONLY | OFlags::NONBLOCK;
        Ok(rustix::fs::openat(from, name, flags, Mode::empty())?.into())
    }

    #[cfg(not(target_os = "linux"))]
    fn open_any(&self, path: &[u8]) -> io::Result<File> {
        let mut at = self.base.clone();
        for name in path.split(|byte| *byte == b'/') {
            at.push(uxfs_host::plain_name(name).map_err(io::Error::other)?);
            let kind = std::fs::symlink_metadata(&at)?.file_type();
            if !kind.is_dir() && !kind.is_file() {
                return Err(io::Error::other("not a regular file"));
            }
        }
        File::open(at)
    }
}
