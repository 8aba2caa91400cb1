//! Paths to inodes: the last name of a path and the directory that holds it.

use uxfs_core::{Error, Fs};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT};

use super::error::Fault;

/// The last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last<'a> {
    /// A name.
    Name(&'a [u8]),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// No part: the path is `/`.
    Root,
}

/// A path, taken apart: everything but the last part is found.
pub(super) struct Place<'a> {
    pub(super) dir: Ino,
    pub(super) last: Last<'a>,
    /// A slash follows the last part: it must be a directory.
    pub(super) slash: bool,
}

/// Takes a path apart that starts at `base`.
pub(super) fn place<'a>(fs: &Fs, base: Ino, path: &'a [u8]) -> Result<Place<'a>, Fault> {
    check(path)?;
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let slash = end < path.len();
    let bare = &path[..end];
    if bare.is_empty() {
        return Ok(Place { dir: fs.root(), last: Last::Root, slash });
    }
    let start = bare.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let dir = fs.resolve_at(base, &bare[..start], true)?;
    let last = match &bare[start..] {
        b"." => Last::Dot,
        b".." => Last::DotDot,
        name => Last::Name(name),
    };
    Ok(Place { dir, last, slash })
}

/// Refuses a path that no system call takes.
pub(super) fn check(path: &[u8]) -> Result<(), Fault> {
    if path.is_empty() {
        return Err(Fault::NOT_FOUND);
    }
    without_nul(path)
}

/// Refuses a path that holds a NUL.
pub(super) fn without_nul(path: &[u8]) -> Result<(), Fault> {
    if path.contains(&0) {
        return Err(Fault::invalid("a path cannot hold a NUL"));
    }
    Ok(())
}

/// The inode at the end of a path; a symbolic link there is followed if `follow` is set.
pub(super) fn inode(fs: &Fs, path: &[u8], follow: bool) -> Result<Ino, Fault> {
    check(path)?;
    Ok(fs.resolve(path, follow)?)
}

/// The inode of a name, if it exists.
pub(super) fn entry(fs: &Fs, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Fault> {
    match fs.lookup(dir, name) {
        Ok(ino) => Ok(Some(ino)),
        Err(Error::NotFound) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// The directory and the name of an entry to be created, which must not exist.
pub(super) fn vacant<'a>(
    fs: &Fs,
    path: &'a [u8],
    directory: bool,
) -> Result<(Ino, &'a [u8]), Fault> {
    let place = place(fs, fs.root(), path)?;
    let Last::Name(name) = place.last else { return Err(Error::Exists.into()) };
    if entry(fs, place.dir, name)?.is_some() {
        return Err(Error::Exists.into());
    }
    if place.slash && !directory {
        return Err(Fault::NOT_FOUND);
    }
    Ok((place.dir, name))
}

pub(super) fn is_dir(fs: &Fs, ino: Ino) -> Result<bool, Fault> {
    Ok(fs.stat(ino)?.mode & S_IFMT == S_IFDIR)
}

pub(super) fn is_symlink(fs: &Fs, ino: Ino) -> Result<bool, Fault> {
    Ok(fs.stat(ino)?.mode & S_IFMT == S_IFLNK)
}
