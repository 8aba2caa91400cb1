//! Calls that concern whole trees, and copies of files.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use uxfs_core::{Error, Fs};
use uxfs_format::Ino;

use super::dir::{DirEntry, ReadDir};
use super::error::{Fault, PathError, Result};
use super::file::{File, Held};
use super::lookup::{self, Last};
use super::options::FileOptions;
use super::volume::Volume;
use crate::posix;

/// Bytes copied at a time.
const WINDOW: usize = 1 << 20;
/// Most entries of a tree that may be gone before they are removed.
const GONE_MAX: u32 = 1 << 20;

impl Volume {
    /// Creates a directory and those above it that do not exist.
    ///
    /// # Errors
    /// EEXIST if a file that is not a directory has the name; ENOTDIR if one is on the way; the
    /// errors of [`Fs::create`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let mut missing = Vec::new();
        for step in path.ancestors().filter(|step| !step.as_os_str().is_empty()) {
            match self.ensure_dir(step) {
                Ok(()) => break,
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && step.parent().is_some() =>
                {
                    missing.push(step);
                }
                Err(error) => return Err(error),
            }
        }
        missing.into_iter().rev().try_for_each(|step| self.ensure_dir(step))
    }

    fn ensure_dir(&self, path: &Path) -> Result<()> {
        match self.create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let there = self.metadata(path).is_ok_and(|meta| meta.is_dir());
                if there { Ok(()) } else { Err(error) }
            }
            done => done,
        }
    }

    /// Removes a directory with everything in it. Symbolic links are removed, not followed. Entries
    /// that another thread removes meanwhile are no error.
    ///
    /// # Errors
    /// ENOTDIR if the path leads to a file, or to a link and ends in a slash; the errors of
    /// [`Fs::unlink`] and [`Fs::rmdir`]. What was removed before the error stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.on_path("remove_dir_all", path.as_ref(), |fs, bytes| {
            let place = lookup::place(fs, fs.root(), bytes)?;
            let Last::Name(name) = place.last else {
                return Err(Fault::invalid("a path that ends in '.' or '..', or the root"));
            };
            // The entry itself: a slash behind a link would lead to the directory behind it.
            let held = self.hold(fs, || Ok(fs.lookup(place.dir, name)?))?;
            if lookup::is_symlink(fs, held.ino)? && !place.slash {
                return Ok(fs.unlink(place.dir, name)?);
            }
            if !lookup::is_dir(fs, held.ino)? {
                return Err(Error::NotDir.into());
            }
            self.remove_tree(fs, place.dir, name, held)
        })
    }

    /// Copies content and permissions of a regular file to another one, which is created or emptied,
    /// and returns the length in bytes. On volumes with reflink the copies share their blocks until
    /// one of them changes.
    ///
    /// # Errors
    /// EINVAL if `from` is not a regular file, or if both paths lead to one file (which `std::fs`
    /// would empty); the errors of reading and writing.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from.as_ref())?;
        let meta = source.metadata()?;
        let refused = |text| PathError::new("copy", from.as_ref(), Fault::invalid(text));
        if !meta.is_file() {
            return Err(refused("not a regular file"));
        }
        let options = FileOptions::new().write(true).create(true);
        let target = self.open_file_with(to.as_ref(), &options.mode(meta.stat.mode))?;
        if target.ino() == source.ino() {
            return Err(refused("both paths lead to the same file"));
        }
        target.set_len(0)?;
        let shared = self.on_path("copy", from.as_ref(), |fs, _| {
            let able = fs.geo.has_reflink() && !meta.is_empty();
            let _beside = self.0.change(target.ino());
            Ok(able && fs.clone_file(source.ino(), target.ino()).is_ok())
        });
        if !shared? {
            copy_data(&source, &target)?;
        }
        target.set_permissions(meta.permissions())?;
        Ok(meta.len())
    }

    /// The entries of a tree, depth first: a directory before its content. Symbolic links are not
    /// followed. The directory itself is not among them.
    ///
    /// # Errors
    /// As [`Volume::read_dir`].
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let open = vec![self.read_dir(path)?];
        Ok(Walk { volume: self.clone(), open, entered: HashSet::new() })
    }
}

/// A directory that is being emptied: its name in the one above, and a reference to it.
struct Level {
    parent: Ino,
    name: Vec<u8>,
    dir: Held,
}

impl Volume {
    fn remove_tree(
        &self,
        fs: &Fs,
        parent: Ino,
        name: &[u8],
        top: Held,
    ) -> core::result::Result<(), Fault> {
        let mut entered = HashSet::from([parent, top.ino]);
        let mut gone = 0;
        let mut levels = vec![Level { parent, name: name.to_vec(), dir: top }];
        while let Some(Level { parent, name, dir }) = levels.last() {
            let mut first = None;
            fs.read_dir(dir.ino, 0, &mut |entry| {
                if entry.is_dot() || !posix::is_plain_name(entry.name) {
                    return std::ops::ControlFlow::Continue(());
                }
                first = Some(entry.name.to_vec());
                std::ops::ControlFlow::Break(())
            })?;
            let Some(below) = first else {
                unless_gone(fs.rmdir(*parent, name).map_err(Fault::from))?;
                levels.pop();
                continue;
            };
            let found = self.hold(fs, || Ok(fs.lookup(dir.ino, &below)?));
            let removed = match unless_gone(found)? {
                Some(found) if lookup::is_dir(fs, found.ino)? => Err(found),
                Some(_) => Ok(unless_gone(fs.unlink(dir.ino, &below).map_err(Fault::from))?),
                None => Ok(None),
            };
            let found = match removed {
                Err(below) => below,
                Ok(Some(())) => continue,
                Ok(None) => {
                    // In a damaged directory an entry may be listed and never found.
                    gone += 1;
                    if gone > GONE_MAX {
                        return Err(Fault::NOT_FOUND);
                    }
                    continue;
                }
            };
            if !entered.insert(found.ino) {
                let what = uxfs_format::Place::Inode(found.ino);
                let detail = "is reached by two paths";
                let check = uxfs_format::Check::Loop;
                return Err(Error::corrupt("directory", what, check, detail).into());
            }
            levels.push(Level { parent: dir.ino, name: below, dir: found });
        }
        Ok(())
    }
}

/// `None` if the file is gone: another thread removed it.
fn unless_gone<T>(
    outcome: core::result::Result<T, Fault>,
) -> core::result::Result<Option<T>, Fault> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(Fault::Volume(Error::NotFound)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Copies data window by window; windows of zeroes become holes.
fn copy_data(source: &File, target: &File) -> Result<()> {
    let mut window = vec![0; WINDOW];
    let mut at = 0;
    loop {
        let len = source.read_at(&mut window, at)?;
        if len == 0 {
            return target.set_len(at);
        }
        if window[..len].iter().any(|byte| *byte != 0) {
            target.write_all_at(&window[..len], at)?;
        }
        at += len as u64;
    }
}

/// The entries of a tree. See [`Volume::walk`].
#[derive(Debug)]
pub struct Walk {
    volume: Volume,
    /// The directories that are being read, from the top down.
    open: Vec<ReadDir>,
    /// Inodes of directories, so that a damaged volume cannot make the walk endless.
    entered: HashSet<u64>,
}

impl Walk {
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        if entry.file_type()?.is_dir() && self.entered.insert(entry.ino()) {
            self.open.push(self.volume.read_dir(entry.path())?);
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    /// An error concerns one directory; the walk continues behind it.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.open.last_mut()?.next() {
                None => drop(self.open.pop()),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => return Some(self.enter(&entry).map(|()| entry)),
            }
        }
    }
}
