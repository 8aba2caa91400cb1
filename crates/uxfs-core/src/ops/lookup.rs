//! Finding files by name and by path, and reading directories.

use core::ops::ControlFlow;

use uxfs_format::Ino;
use uxfs_format::dir::FileType;

use super::names::check_dir;
use crate::dir;
use crate::error::{Error, Result};
use crate::fs::Fs;

/// Most symbolic links on one path.
const LINKS_MAX: u32 = 40;

impl Fs {
    /// The root directory.
    pub fn root(&self) -> Ino {
        self.geo.root_ino
    }

    /// Returns the inode of the entry `name` of a directory; `.` and `..` are valid names.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], or a damaged structure on the way.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        self.with_inode(dir, |inode| {
            check_dir(inode)?;
            match name {
                b"." => Ok(inode.ino),
                b".." => dir::parent(self, inode),
                _ if name.len() > super::NAME_MAX => Err(Error::NameTooLong),
                _ => dir::lookup(self, inode, name)?.map(|(ino, _)| ino).ok_or(Error::NotFound),
            }
        })
    }

    /// Returns the name with which a lookup of `name` in a directory succeeds, if the entry spells
    /// it in another way. That happens only on volumes whose names compare without case.
    ///
    /// # Errors
    /// As [`Fs::lookup`], but for [`Error::NotFound`].
    pub fn other_spelling(&self, dir: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.geo.naming.folds() {
            return Ok(None);
        }
        self.with_inode(dir, |inode| {
            check_dir(inode)?;
            let stored = dir::stored_name(self, inode, name)?;
            Ok((*stored != *name).then(|| stored.into_owned()))
        })
    }

    /// Returns the inode at the end of a path from the root. Symbolic links on the way are followed
    /// inside the volume; a link at the end is followed only if `follow` is set.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDir`], [`Error::Loop`], or a damaged structure on the way.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Ino> {
        self.resolve_at(self.root(), path, follow)
    }

    /// As [`Fs::resolve`], but a path without a leading slash starts at directory `dir`.
    ///
    /// # Errors
    /// As [`Fs::resolve`].
    pub fn resolve_at(&self, dir: Ino, path: &[u8], follow: bool) -> Result<Ino> {
        self.resolve_from(dir, path, follow, &mut 0)
    }

    fn resolve_from(&self, dir: Ino, path: &[u8], follow: bool, links: &mut u32) -> Result<Ino> {
        let mut at = if path.first() == Some(&b'/') { self.root() } else { dir };
        let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).peekable();
        let must_be_dir = path.last() == Some(&b'/');
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let (next, target) = match last && !follow && !must_be_dir {
                true => (self.lookup(at, part)?, None),
                false => self.entry_target(at, part)?,
            };
            at = match target {
                Some(target) => {
                    *links += 1;
                    if *links > LINKS_MAX {
                        return Err(Error::Loop);
                    }
                    self.resolve_from(at, &target, true, links)?
                }
                None => next,
            };
        }
        if must_be_dir {
            self.with_inode(at, check_dir)?;
        }
        Ok(at)
    }

    /// The inode of an entry, and its target if it is a symbolic link. Another thread may replace the
    /// entry meanwhile, which frees the inode that was found: then the new one counts.
    fn entry_target(&self, dir: Ino, name: &[u8]) -> Result<(Ino, Option<Vec<u8>>)> {
        let found = self.lookup(dir, name)?;
        // What is no link is used by its number alone, which the caller checks.
        if matches!(self.link_target(found), Ok(None)) {
            return Ok((found, None));
        }
        let held = self.hold_found(|| self.lookup(dir, name))?;
        let target = self.link_target(held);
        // Freeing what another thread replaced is not this one's failure.
        let _ = self.release(held, 1);
        Ok((held, target?))
    }

    fn link_target(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        self.with_inode(ino, |inode| {
            inode.core.is_symlink().then(|| crate::symlink::read(self, inode)).transpose()
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the inode is not a symbolic link, or a damaged structure on the way.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.link_target(ino)?.ok_or(Error::Invalid("not a symbolic link"))
    }

    /// The file type from the inode, for entries that do not store it; unknown if the inode cannot
    /// be read. `locked` is the directory that is being read. Volumes with such entries are opened
    /// for reading only, so readers do not wait for each other here.
    fn type_of(&self, ino: Ino, locked: Ino) -> FileType {
        if ino == locked {
            return FileType::Directory;
        }
        self.stat(ino).map(|stat| FileType::from_mode(stat.mode)).unwrap_or_default()
    }

    /// Calls `f` for the entries of a directory, with `.` and `..`, from cookie `from` on (0 for
    /// the start), until `f` returns `Break`. Cookies stay valid while other entries are added and
    /// removed.
    ///
    /// The directory is locked meanwhile: `f` must neither change the volume nor use this
    /// directory.
    ///
    /// # Errors
    /// [`Error::NotDir`], or a damaged structure on the way.
    pub fn read_dir(
        &self,
        dir: Ino,
        from: u64,
        f: &mut dyn FnMut(dir::DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.with_inode(dir, |inode| {
            check_dir(inode)?;
            if self.geo.dir.has_types() {
                return dir::read_dir(self, inode, from, f);
            }
            dir::read_dir(self, inode, from, &mut |entry| {
                f(dir::DirEntry { ftype: self.type_of(entry.ino, dir), ..entry })
            })
        })
    }
}
