//! Plays dbench's load: carries out the operations of one client on a volume.
//!
//! Operations are mapped as dbench maps them: a flush is an `fsync`; a name that is not found is
//! looked up again, ignoring case, by reading its directory; locks of ranges do not reach the file
//! system.
//!
//! The player resolves names, keeps the table of open files and fixes the order of calls. A
//! [`Server`] makes the calls whose effect or cost differs between a measurement and a model.

use std::ops::ControlFlow;

use rustc_hash::FxHashMap;
use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::{Error, Fs, NewInode, RenameFlags, Result, SetAttr};

use crate::loadfile::{Disposition, Handle, Op};

/// How [`Op::Deltree`] resolves the name of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deltree {
    /// Exact case. The client's own directory has the empty name; its content is removed.
    Exact,
    /// Ignoring case, as other names. The client's own directory is not found.
    IgnoreCase,
}

/// A call of the file system that follows, so that a model can account for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The lookup of one part of a name.
    Lookup,
    /// The reading of a directory, except for [`Op::Deltree`].
    ReadDir,
    /// Creating, removing or renaming a name, except for [`Op::Open`] and `rmdir`.
    Name,
    /// A change of an inode, or `rmdir`.
    Change,
}

/// The file server of one client.
pub trait Server {
    type Dir;
    type File;

    /// How [`Op::Deltree`] resolves its name.
    const DELTREE: Deltree;

    fn fs(&self) -> &Fs;

    fn home(&self) -> Self::Dir;

    /// The directory `name` in `parent`, whose inode is `ino`.
    fn subdir(&self, parent: &Self::Dir, name: &[u8], ino: Ino) -> Self::Dir;

    fn dir_ino(dir: &Self::Dir) -> Ino;

    fn file_ino(file: &Self::File) -> Ino;

    /// The last part of a name, as it is passed to the file system.
    fn last_name(part: &[u8]) -> Vec<u8> {
        part.to_vec()
    }

    fn before(&self, _call: Call) {}

    /// `name` in `dir` is about to change its meaning or its content.
    fn invalidate(&self, _dir: &Self::Dir, _name: &[u8]) {}

    /// Opens the client's own directory.
    fn open_home(&mut self) -> Self::File;

    /// Opens the existing file or directory `name` in `dir`, whose inode is `ino`.
    ///
    /// # Errors
    /// An error of the volume.
    fn open(
        &mut self,
        dir: Self::Dir,
        name: Vec<u8>,
        ino: Ino,
        directory: bool,
    ) -> Result<Self::File>;

    /// Creates and opens a file or directory.
    ///
    /// # Errors
    /// An error of the volume.
    fn create(&mut self, dir: Self::Dir, name: Vec<u8>, directory: bool) -> Result<Self::File>;

    /// Reads. Returns the number of bytes.
    ///
    /// # Errors
    /// An error of the volume.
    fn read(&mut self, file: &Self::File, offset: u64, len: u32) -> Result<u64>;

    /// Writes. Returns the number of bytes.
    ///
    /// # Errors
    /// An error of the volume.
    fn write(&mut self, file: &mut Self::File, offset: u64, len: u32) -> Result<u64>;

    /// Makes a file durable.
    ///
    /// # Errors
    /// An error of the volume.
    fn fsync(&mut self, file: &mut Self::File) -> Result<()>;
}

/// What [`Op::Open`] creates.
pub fn new_inode(directory: bool) -> NewInode {
    if directory { NewInode::dir(0o700) } else { NewInode::file(0o600) }
}

/// One client of a [`Server`], with its open files.
pub struct Player<S: Server> {
    pub server: S,
    open: FxHashMap<Handle, S::File>,
}

impl<S: Server> Player<S> {
    /// A client without open files.
    pub fn new(server: S) -> Self {
        Self { server, open: FxHashMap::default() }
    }

    /// Carries out one operation. Returns the number of bytes that it read or wrote. Errors that a
    /// file server reports to its client, such as a missing name, are not errors here.
    ///
    /// # Errors
    /// Any other error of the volume.
    pub fn play(&mut self, op: &Op) -> Result<u64> {
        match self.attempt(op) {
            Ok(bytes) => Ok(bytes),
            Err(
                Error::NotFound | Error::Exists | Error::NotDir | Error::IsDir | Error::NotEmpty,
            ) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn attempt(&mut self, op: &Op) -> Result<u64> {
        match op {
            Op::Open { name, directory, how, handle } => {
                let file = self.open(name, *directory, *how)?;
                self.open.insert(*handle, file);
            }
            Op::Close(handle) => {
                self.open.remove(handle);
            }
            Op::Read { handle, offset, len } => {
                let file = self.open.get(handle).ok_or(Error::NotFound)?;
                return self.server.read(file, *offset, *len);
            }
            Op::Write { handle, offset, len } => {
                let file = self.open.get_mut(handle).ok_or(Error::NotFound)?;
                return self.server.write(file, *offset, *len);
            }
            Op::Flush(handle) => {
                let file = self.open.get_mut(handle).ok_or(Error::NotFound)?;
                self.server.fsync(file)?;
            }
            Op::Unlink(name) => {
                let (dir, name) = self.find(name)?;
                self.server.invalidate(&dir, &name);
                self.unlink(&dir, &name)?;
            }
            Op::Rename(from, to) => {
                let (dir, from) = self.find(from)?;
                let (to_dir, to) = self.find(to).or_else(|_| self.parent(to))?;
                self.server.invalidate(&dir, &from);
                self.server.invalidate(&to_dir, &to);
                self.server.before(Call::Name);
                let (dir, to_dir) = (S::dir_ino(&dir), S::dir_ino(&to_dir));
                self.server.fs().rename(dir, &from, to_dir, &to, RenameFlags::default())?;
            }
            Op::Mkdir(name) => {
                let (dir, name) = self.parent(name)?;
                self.server.before(Call::Name);
                self.server.fs().create(S::dir_ino(&dir), &name, &NewInode::dir(0o777))?;
            }
            Op::Deltree(name) => {
                let dir = match S::DELTREE {
                    Deltree::Exact => self.walk(name)?,
                    Deltree::IgnoreCase => {
                        let (dir, name) = self.find(name)?;
                        let ino = self.lookup(&dir, &name)?;
                        self.server.subdir(&dir, &name, ino)
                    }
                };
                self.deltree(&dir)?;
            }
            Op::QueryPath(name) => {
                let (dir, name) = self.find(name)?;
                self.server.fs().stat(self.lookup(&dir, &name)?)?;
            }
            Op::QueryFile(handle) => {
                let file = self.open.get(handle).ok_or(Error::NotFound)?;
                self.server.fs().stat(S::file_ino(file))?;
            }
            Op::QueryFs => {
                self.server.fs().statfs();
            }
            Op::SetFile(handle) => {
                let file = self.open.get(handle).ok_or(Error::NotFound)?;
                self.server.before(Call::Change);
                let now = Timestamp { nsec: 0, ..self.server.fs().now() };
                let times = SetAttr { atime: Some(now), mtime: Some(now), ..SetAttr::default() };
                self.server.fs().set_attr(S::file_ino(file), &times)?;
            }
            Op::Find(pattern) => {
                // The pattern itself may be a name.
                let (dir, _) = self.find(pattern).or_else(|_| self.parent(pattern))?;
                self.server.before(Call::ReadDir);
                let dir = S::dir_ino(&dir);
                self.server.fs().read_dir(dir, 0, &mut |_| ControlFlow::Continue(()))?;
            }
            Op::Lock => {}
        }
        Ok(0)
    }

    fn open(&mut self, name: &[Box<[u8]>], directory: bool, how: Disposition) -> Result<S::File> {
        if name.is_empty() {
            return Ok(self.server.open_home());
        }
        match self.find(name) {
            Ok((dir, name)) => {
                let ino = self.lookup(&dir, &name)?;
                if how == Disposition::Overwrite && !directory {
                    self.server.invalidate(&dir, &name);
                    self.server.before(Call::Change);
                    self.server.fs().truncate(ino, 0)?;
                }
                self.server.open(dir, name, ino, directory)
            }
            Err(Error::NotFound) if how != Disposition::Open => {
                let (dir, name) = self.parent(name)?;
                self.server.create(dir, name, directory)
            }
            Err(error) => Err(error),
        }
    }

    fn unlink(&self, dir: &S::Dir, name: &[u8]) -> Result<()> {
        self.server.before(Call::Name);
        self.server.fs().unlink(S::dir_ino(dir), name)
    }

    fn lookup(&self, dir: &S::Dir, name: &[u8]) -> Result<Ino> {
        self.server.fs().lookup(S::dir_ino(dir), name)
    }

    /// The directory of a path below the client's own. Exact case.
    fn walk(&self, parts: &[Box<[u8]>]) -> Result<S::Dir> {
        parts.iter().try_fold(self.server.home(), |dir, part| {
            self.server.before(Call::Lookup);
            let ino = self.lookup(&dir, part)?;
            Ok(self.server.subdir(&dir, part, ino))
        })
    }

    /// The parent directory of a path, and the path's last name.
    fn parent(&self, name: &[Box<[u8]>]) -> Result<(S::Dir, Vec<u8>)> {
        let (last, above) = name.split_last().ok_or(Error::NotFound)?;
        Ok((self.walk(above)?, S::last_name(last)))
    }

    /// The same for an existing name, ignoring case.
    fn find(&self, name: &[Box<[u8]>]) -> Result<(S::Dir, Vec<u8>)> {
        let (dir, last) = self.parent(name)?;
        self.server.before(Call::Lookup);
        match self.lookup(&dir, &last) {
            Ok(_) => return Ok((dir, last)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        let mut found = None;
        self.server.before(Call::ReadDir);
        self.server.fs().read_dir(S::dir_ino(&dir), 0, &mut |entry| {
            if entry.name.eq_ignore_ascii_case(&last) {
                found = Some(S::last_name(entry.name));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        found.map(|name| (dir, name)).ok_or(Error::NotFound)
    }

    /// Removes all that a directory contains.
    fn deltree(&self, dir: &S::Dir) -> Result<()> {
        let mut entries = Vec::new();
        self.server.fs().read_dir(S::dir_ino(dir), 0, &mut |entry| {
            if !entry.is_dot() {
                entries.push((entry.ino, S::last_name(entry.name)));
            }
            ControlFlow::Continue(())
        })?;
        for (ino, name) in entries {
            self.server.invalidate(dir, &name);
            if self.server.fs().stat(ino)?.mode & 0o170_000 == 0o040_000 {
                self.deltree(&self.server.subdir(dir, &name, ino))?;
                self.server.before(Call::Change);
                self.server.fs().rmdir(S::dir_ino(dir), &name)?;
            } else {
                self.unlink(dir, &name)?;
            }
        }
        Ok(())
    }
}
