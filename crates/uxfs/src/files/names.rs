//! Calls that change names and attributes, or report them.

use std::path::{Path, PathBuf};

use uxfs_core::{Error, Fs, RenameFlags, SetAttr};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT, S_IFREG};

use super::error::{Fault, Result};
use super::file::Held;
use super::lookup::{self, Last};
use super::metadata::{FileTimes, Metadata, Permissions};
use super::path::{bytes_of, os_string};
use super::volume::Volume;
use crate::posix;

type Outcome<T> = core::result::Result<T, Fault>;

const BUSY: Fault = Fault::Refused(16, "a path that ends in '.' or '..', or the root");

impl Volume {
    /// The attributes of a file; a symbolic link is followed.
    ///
    /// # Errors
    /// Those of looking the path up.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.on_path("metadata", path.as_ref(), |fs, bytes| self.metadata_of(fs, bytes, true))
    }

    /// The attributes of a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// Those of looking the path up.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.on_path("symlink_metadata", path, |fs, bytes| self.metadata_of(fs, bytes, false))
    }

    /// Does the path lead to a file? False for a symbolic link that leads nowhere.
    ///
    /// # Errors
    /// Those of looking the path up, except ENOENT.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.on_path("exists", path.as_ref(), |fs, bytes| match lookup::inode(fs, bytes, true) {
            Ok(_) => Ok(true),
            Err(Fault::Volume(Error::NotFound)) => Ok(false),
            Err(other) => Err(other),
        })
    }

    /// Creates a directory, with mode 0o777 without the umask's bits.
    ///
    /// # Errors
    /// EEXIST; the errors of [`Fs::create`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Creates a directory with these permissions, before the umask.
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        self.on_path("create_dir", path.as_ref(), |fs, bytes| {
            let (dir, name) = lookup::vacant(fs, bytes, true)?;
            let mode = S_IFDIR | mode & 0o7777;
            self.0.options.creator.create(fs, dir, name, mode, (0, 0))?;
            Ok(())
        })
    }

    /// Creates a device, FIFO, socket or empty file, as mknod(2) does. `mode` holds the type, a regular
    /// file if it holds none; `rdev` is the major and minor number of a device.
    ///
    /// # Errors
    /// EEXIST; EPERM for a directory; the errors of [`Fs::create`].
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u16, rdev: (u32, u32)) -> Result<()> {
        self.on_path("mknod", path.as_ref(), |fs, bytes| {
            let mode = match mode & S_IFMT {
                0 => S_IFREG | mode,
                S_IFDIR => return Err(Fault::Refused(1, "create_dir makes directories")),
                _ => mode,
            };
            let (dir, name) = lookup::vacant(fs, bytes, false)?;
            self.0.options.creator.create(fs, dir, name, mode, rdev)?;
            Ok(())
        })
    }

    /// Removes a name of a file that is not a directory. Open files stay until they are closed.
    ///
    /// # Errors
    /// EISDIR; the errors of [`Fs::unlink`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.on_path("remove_file", path.as_ref(), |fs, bytes| {
            let place = lookup::place(fs, fs.root(), bytes)?;
            let Last::Name(name) = place.last else { return Err(Error::IsDir.into()) };
            if place.slash {
                let ino = fs.lookup(place.dir, name)?;
                let dir = lookup::is_dir(fs, ino)?;
                return Err(if dir { Error::IsDir } else { Error::NotDir }.into());
            }
            Ok(fs.unlink(place.dir, name)?)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTDIR, ENOTEMPTY; the errors of [`Fs::rmdir`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.on_path("remove_dir", path.as_ref(), |fs, bytes| {
            let place = lookup::place(fs, fs.root(), bytes)?;
            match place.last {
                Last::Name(name) => Ok(fs.rmdir(place.dir, name)?),
                Last::Dot => Err(Fault::invalid("a path that ends in '.'")),
                Last::DotDot => Err(Error::NotEmpty.into()),
                Last::Root => Err(BUSY),
            }
        })
    }

    /// Gives a file another name. An existing file of that name is replaced; so is an empty
    /// directory, by a directory.
    ///
    /// # Errors
    /// The errors of [`Fs::rename`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::Replace)
    }

    /// As [`Volume::rename`]; `flags` say what to do if the new name exists.
    ///
    /// # Errors
    /// The errors of [`Fs::rename`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.on_path("rename", from.as_ref(), |fs, from| {
            let to = bytes_of(to.as_ref());
            lookup::without_nul(&to)?;
            rename(fs, from, &to, flags)
        })
    }

    /// Gives a file one more name. A symbolic link is not followed.
    ///
    /// # Errors
    /// EEXIST, EPERM for a directory; the errors of [`Fs::link`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.on_path("hard_link", original.as_ref(), |fs, original| {
            let link = bytes_of(link.as_ref());
            lookup::without_nul(&link)?;
            let held = self.held(fs, original, false)?;
            let (dir, name) = lookup::vacant(fs, &link, false)?;
            Ok(fs.link(held.ino, dir, name)?)
        })
    }

    /// Creates a symbolic link at `link` that leads to `original`, which need not exist.
    ///
    /// # Errors
    /// EEXIST; ENOENT for an empty target, ENAMETOOLONG for one over 1023 bytes; the errors of
    /// [`Fs::symlink`].
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.on_path("symlink", link.as_ref(), |fs, link| {
            let target = bytes_of(original.as_ref());
            lookup::without_nul(&target)?;
            lookup::without_nul(link)?;
            if target.is_empty() {
                return Err(Fault::NOT_FOUND);
            }
            let (dir, name) = lookup::vacant(fs, link, false)?;
            self.0.options.creator.symlink(fs, dir, name, &target)?;
            Ok(())
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the file is not a symbolic link; those of looking the path up.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.on_path("read_link", path.as_ref(), |fs, bytes| {
            let target = fs.readlink(self.held(fs, bytes, false)?.ino)?;
            Ok(PathBuf::from(os_string(target)))
        })
    }

    /// Changes the permissions of a file, and its access list with them. A symbolic link is followed.
    ///
    /// # Errors
    /// The errors of [`Fs::set_attr`].
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        self.on_path("set_permissions", path.as_ref(), |fs, bytes| {
            let held = self.held(fs, bytes, true)?;
            Ok(posix::change_mode(fs, held.ino, permissions.bits())?)
        })
    }

    /// Changes the times of a file. A symbolic link is followed if `follow` is set.
    ///
    /// # Errors
    /// The errors of [`Fs::set_attr`].
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes, follow: bool) -> Result<()> {
        self.on_path("set_times", path.as_ref(), |fs, bytes| {
            set_times(fs, self.held(fs, bytes, follow)?.ino, times)
        })
    }

    /// Changes owner and group of a file, as chown(2): a regular file loses its set-ID bits and
    /// capabilities. `None` keeps one. A symbolic link is followed if `follow` is set.
    ///
    /// # Errors
    /// The errors of [`Fs::set_attr`].
    pub fn chown(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Result<()> {
        self.on_path("chown", path.as_ref(), |fs, bytes| {
            Ok(posix::change_owner(fs, self.held(fs, bytes, follow)?.ino, uid, gid)?)
        })
    }

    /// Changes the length of a file. A symbolic link is followed.
    ///
    /// # Errors
    /// EISDIR; the errors of [`Fs::truncate`].
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> Result<()> {
        self.on_path("truncate", path.as_ref(), |fs, bytes| {
            let held = self.held(fs, bytes, true)?;
            let _beside = self.0.change(held.ino);
            Ok(fs.truncate(held.ino, len)?)
        })
    }
}

impl Volume {
    /// The file at the end of a path, held: a call that changes it by number changes no other.
    pub(super) fn held(&self, fs: &Fs, path: &[u8], follow: bool) -> Outcome<Held> {
        self.hold(fs, || lookup::inode(fs, path, follow))
    }

    fn metadata_of(&self, fs: &Fs, path: &[u8], follow: bool) -> Outcome<Metadata> {
        let stat = fs.stat(self.held(fs, path, follow)?.ino)?;
        Ok(Metadata { stat, block_size: fs.geo.block_size })
    }
}

pub(super) fn set_times(fs: &Fs, ino: Ino, times: FileTimes) -> Outcome<()> {
    let change = SetAttr { atime: times.accessed, mtime: times.modified, ..SetAttr::default() };
    if change != SetAttr::default() {
        fs.set_attr(ino, &change)?;
    }
    Ok(())
}

fn rename(fs: &Fs, from: &[u8], to: &[u8], flags: RenameFlags) -> Outcome<()> {
    let from = lookup::place(fs, fs.root(), from)?;
    let to = lookup::place(fs, fs.root(), to)?;
    let (Last::Name(name), Last::Name(new_name)) = (from.last, to.last) else { return Err(BUSY) };
    let ino = fs.lookup(from.dir, name)?;
    let target = lookup::entry(fs, to.dir, new_name)?;
    if (from.slash || to.slash) && !lookup::is_dir(fs, ino)? {
        return Err(Error::NotDir.into());
    }
    let renamed = fs.rename(from.dir, name, to.dir, new_name, flags);
    match (renamed, target) {
        // As the kernel, which looks at the directories above before it compares types.
        (Err(Error::IsDir), Some(target)) if is_above(fs, target, from.dir)? => {
            Err(Error::NotEmpty.into())
        }
        (renamed, _) => Ok(renamed?),
    }
}

/// Is `ino` the directory `dir`, or one of those above it?
fn is_above(fs: &Fs, ino: Ino, dir: Ino) -> Outcome<bool> {
    let mut at = dir;
    for _ in 0..=fs.statfs().files {
        if at == ino {
            return Ok(true);
        }
        if at == fs.root() {
            return Ok(false);
        }
        at = fs.lookup(at, b"..")?;
    }
    Ok(false)
}
