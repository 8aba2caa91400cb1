//! Random edits of the tree on a volume.

use std::collections::BTreeSet;

use uxfs::{Error, Fallocate, Fs, NewInode, RenameFlags, Result, SetAttr, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT, S_IFREG};
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::Rng;

use crate::{listing, names};

/// A name, and the inode it refers to.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) dir: Ino,
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Ino,
    pub(crate) mode: u16,
}

/// Every name of a volume, directories before their entries.
pub(crate) fn walk(fs: &Fs) -> Result<Vec<Found>> {
    let (mut all, mut todo) = (Vec::new(), vec![fs.root()]);
    let mut seen = BTreeSet::new();
    while let Some(dir) = todo.pop() {
        if !seen.insert(dir) {
            continue;
        }
        for (name, ino) in listing::names(fs, dir)? {
            let mode = fs.stat(ino)?.mode;
            if mode & S_IFMT == S_IFDIR {
                todo.push(ino);
            }
            all.push(Found { dir, name, ino, mode });
        }
    }
    Ok(all)
}

/// Is this a permitted outcome of an edit of a sound volume?
pub(crate) fn expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NoSpace
            | Error::Exists
            | Error::NotFound
            | Error::NotEmpty
            | Error::IsDir
            | Error::NotDir
            | Error::Invalid(_)
            | Error::NoAttr
            | Error::NotPermitted
            | Error::OtherProject
            | Error::FileTooBig
    )
}

/// Edits a volume at random.
pub(crate) struct Editor<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) rng: &'a mut Rng,
    pub(crate) all: Vec<Found>,
    dirs: Vec<Ino>,
}

impl<'a> Editor<'a> {
    pub(crate) fn new(fs: &'a Fs, rng: &'a mut Rng) -> Result<Self> {
        let all = walk(fs)?;
        let dirs = all.iter().filter(|f| f.mode & S_IFMT == S_IFDIR).map(|f| f.ino);
        let dirs = std::iter::once(fs.root()).chain(dirs).collect();
        Ok(Self { fs, rng, all, dirs })
    }

    fn dir(&mut self) -> Ino {
        self.dirs[self.rng.index(self.dirs.len())]
    }

    fn any(&mut self) -> Found {
        let at = self.rng.index(self.all.len());
        let root = self.fs.root();
        let none = Found { dir: root, name: b"none".to_vec(), ino: root, mode: S_IFDIR };
        self.all.get(at).cloned().unwrap_or(none)
    }

    fn file(&mut self) -> Found {
        for _ in 0..20 {
            let found = self.any();
            if found.mode & S_IFMT == S_IFREG {
                return found;
            }
        }
        self.any()
    }

    /// Writes, truncates or removes a file, or changes its allocation.
    pub(crate) fn change_content(&mut self, found: &Found) -> Result<()> {
        let size = self.fs.stat(found.ino)?.size;
        match self.rng.below(14) {
            0 => self.fs.unlink(found.dir, &found.name),
            1 => self.fs.truncate(found.ino, self.rng.below(size + 1)),
            2 => self.fs.truncate(found.ino, size + self.rng.below(100_000)),
            3..=5 => self.change_space(found.ino, size.min(1 << 40)),
            6 | 7 if self.fs.geo.has_reflink() => {
                let source = self.file().ino;
                let length = self.fs.stat(source)?.size;
                let block = u64::from(self.fs.geo.block_size);
                let from = self.rng.below(length.min(1 << 40) / block + 1) * block;
                let to = self.rng.below(size.min(1 << 40) / block + 2) * block;
                let len = if self.rng.once_in(2) { 0 } else { (1 + self.rng.below(20)) * block };
                self.fs.share(source, from, found.ino, to, len)
            }
            _ => {
                let len = 1 + self.rng.index(60_000);
                let data = self.rng.bytes(len);
                self.fs.write_at(found.ino, self.rng.below(size.min(1 << 40) + 5000), &data)
            }
        }
    }

    fn change_space(&mut self, ino: Ino, size: u64) -> Result<()> {
        let keep_size = self.rng.once_in(2);
        let mode = match self.rng.below(6) {
            0 => Fallocate::Allocate { keep_size },
            1 => Fallocate::PunchHole,
            2 => Fallocate::ZeroRange { keep_size },
            3 => Fallocate::CollapseRange,
            4 => Fallocate::InsertRange,
            _ => Fallocate::Unshare { keep_size },
        };
        let block = u64::from(self.fs.geo.block_size);
        let offset = self.rng.below(size / block + 2) * block;
        self.fs.fallocate(ino, mode, offset, (1 + self.rng.below(30)) * block)
    }

    /// One edit.
    pub(crate) fn step(&mut self) -> Result<()> {
        let (found, dir) = (self.any(), self.dir());
        let name = names::name(self.rng);
        match self.rng.below(20) {
            0..=5 => {
                let file = self.file();
                self.change_content(&file)
            }
            6 | 7 => {
                let ino = self.fs.create(dir, &name, &NewInode::file(0o640))?;
                self.all.push(Found { dir, name, ino, mode: S_IFREG });
                let len = self.rng.index(20_000);
                let data = self.rng.bytes(len);
                self.fs.write_at(ino, 0, &data)
            }
            8 => {
                let ino = self.fs.create(dir, &name, &NewInode::dir(0o750))?;
                self.dirs.push(ino);
                Ok(())
            }
            9 => {
                let target = vec![b't'; 1 + self.rng.index(1023)];
                self.fs.symlink(dir, &name, &target, &NewInode::new(0)).map(drop)
            }
            10 => self.fs.link(found.ino, dir, &name),
            11 => self.fs.unlink(found.dir, &found.name),
            12 => self.fs.rmdir(found.dir, &found.name),
            13 | 14 => {
                let other = self.any();
                let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange];
                let flags = flags[self.rng.index(3)];
                let (to, name) =
                    if self.rng.once_in(2) { (other.dir, other.name) } else { (dir, name) };
                self.fs.rename(found.dir, &found.name, to, &name, flags)
            }
            15 => {
                let names = self.fs.list_xattrs(found.ino)?;
                match names.first() {
                    Some(name) => self.fs.remove_xattr(found.ino, name),
                    None => Ok(()),
                }
            }
            16 | 17 => {
                let value = names::xattr_value(self.rng);
                let mut name = names::xattr_name(self.rng);
                if found.mode & S_IFMT != S_IFREG && name.starts_with(b"user.") {
                    name.splice(..5, *b"trusted.");
                }
                self.fs.set_xattr(found.ino, &name, &value, XattrMode::Any)
            }
            18 if found.mode & S_IFMT == S_IFREG => {
                let acl = names::acl(self.rng, 30);
                self.fs.set_xattr(found.ino, b"system.posix_acl_access", &acl, XattrMode::Any)
            }
            _ => {
                let moment = Timestamp { sec: self.rng.below(1 << 31) as i64, nsec: 5 };
                let mut change = SetAttr { mtime: Some(moment), ..SetAttr::default() };
                change.uid = Some(self.rng.below(70_000) as u32);
                self.fs.set_attr(found.ino, &change)
            }
        }
    }
}

/// Runs `steps` edits; none may fail unexpectedly.
pub(crate) fn edit(fs: &Fs, rng: &mut Rng, steps: u64, at: &str) {
    let mut editor = Editor::new(fs, rng).unwrap_or_else(|e| panic!("{at}: {e}"));
    for step in 0..steps {
        match editor.step() {
            Err(e) if !expected(&e) => panic!("{at}, step {step}: {e}"),
            _ => {}
        }
        if step % 200 == 199 {
            editor = Editor::new(fs, rng).unwrap_or_else(|e| panic!("{at}, step {step}: {e}"));
        }
    }
}
