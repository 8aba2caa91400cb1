//! Entries of a source becoming files of a volume.

use std::collections::HashMap;

use uxfs_archive::{Entry, Kind, Meta, Source, Time};
use uxfs_core::{Content, Error, Fs, NewInode, SetAttr, Times};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

use super::data::Movers;
use super::{ImportError, ImportSummary};

/// Directories whose inode is remembered; beyond that they are looked up anew.
const DIRS_REMEMBERED: usize = 100_000;
/// Bytes read at a time where data takes the slow way.
const SLOW_STEP: usize = 1 << 20;

/// The volume's tree while it is being filled.
pub(super) struct Tree<'a> {
    fs: &'a Fs,
    dirs: HashMap<Vec<u8>, Ino>,
    /// What directories are to look like when everything is in them.
    later: Vec<(Ino, SetAttr)>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(fs: &'a Fs) -> Self {
        Self { fs, dirs: HashMap::from([(Vec::new(), fs.root())]), later: Vec::new() }
    }

    /// Adds one entry, with its data.
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        movers: &mut Movers<'_>,
        summary: &mut ImportSummary,
    ) -> Result<(), ImportError> {
        let fail = |error: ImportError| match error {
            ImportError::Volume(source) => ImportError::Entry { path: entry.path.clone(), source },
            other => other,
        };
        self.add_inner(entry, source, movers, summary).map_err(fail)
    }

    fn add_inner(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        movers: &mut Movers<'_>,
        summary: &mut ImportSummary,
    ) -> Result<(), ImportError> {
        let (parent_path, name) = split(&entry.path);
        if name.is_empty() {
            return self.add_root(entry, summary);
        }
        let parent = self.dir(parent_path)?;
        let mut new = new_inode(&entry.meta);
        let xattrs = self.xattrs(entry, summary);
        new.attr_bytes = xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
        new.mode |= match &entry.kind {
            Kind::File { size, map } => {
                new.mode |= S_IFREG;
                return self
                    .add_file(parent, name, &new, &xattrs, (*size, map), source, movers)
                    .map(|bytes| summary.bytes += bytes);
            }
            Kind::Dir => {
                new.mode |= S_IFDIR;
                return self.add_dir(entry, parent, name, &new, &xattrs, movers);
            }
            Kind::Hardlink { target } => {
                let target = self.fs.resolve(target, false)?;
                if self.fs.lookup(parent, name).is_ok_and(|old| old == target) {
                    return Ok(());
                }
                return self.replacing(parent, name, movers, |fs| fs.link(target, parent, name));
            }
            Kind::Symlink { target } => {
                new.mode |= S_IFLNK;
                let content = Content::Target(target);
                return self.replacing(parent, name, movers, |fs| {
                    fs.build(parent, name, &new, &xattrs, content).map(|_| ())
                });
            }
            Kind::Char { major, minor } => {
                new.rdev = (*major, *minor);
                S_IFCHR
            }
            Kind::Block { major, minor } => {
                new.rdev = (*major, *minor);
                S_IFBLK
            }
            Kind::Fifo => S_IFIFO,
            Kind::Socket => S_IFSOCK,
        };
        self.replacing(parent, name, movers, |fs| {
            fs.build(parent, name, &new, &xattrs, Content::Empty).map(|_| ())
        })
    }

    /// Attributes that the volume has a place for.
    fn xattrs(&self, entry: &Entry, summary: &mut ImportSummary) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keep = |name: &[u8]| uxfs_core::attr::names::stored(name).is_ok();
        let mut kept = Vec::with_capacity(entry.meta.xattrs.len());
        for (name, value) in entry.meta.xattrs.iter() {
            if keep(name) {
                kept.push((name.to_vec(), value.to_vec()));
            } else {
                summary.warnings.push(format!(
                    "{}: attribute {} has no place in XFS and is left out",
                    entry.path.escape_ascii(),
                    name.escape_ascii()
                ));
            }
        }
        kept
    }

    /// Does `make`; if the name is taken by something else than a directory, that goes first.
    fn replacing<R>(
        &self,
        parent: Ino,
        name: &[u8],
        movers: &mut Movers<'_>,
        make: impl Fn(&Fs) -> uxfs_core::Result<R>,
    ) -> Result<R, ImportError> {
        match make(self.fs) {
            Err(Error::Exists) => {
                self.unlink(parent, name, movers)?;
                Ok(make(self.fs)?)
            }
            other => Ok(other?),
        }
    }

    /// Removes what is to be replaced, once no data is on its way to it.
    fn unlink(&self, parent: Ino, name: &[u8], movers: &mut Movers<'_>) -> Result<(), ImportError> {
        let old = self.fs.lookup(parent, name)?;
        if self.fs.stat(old)?.mode & S_IFMT == S_IFREG {
            movers.settle(&self.fs.segments(old)?);
        }
        Ok(self.fs.unlink(parent, name)?)
    }

    #[expect(clippy::too_many_arguments, reason = "one call, from the entry's parts")]
    fn add_file(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
        movers: &mut Movers<'_>,
    ) -> Result<u64, ImportError> {
        let block = u64::from(self.fs.geo.block_size);
        let segments = map.segments();
        let aligned = segments.iter().all(|(at, len)| {
            at.is_multiple_of(block) && (len.is_multiple_of(block) || at + len == size)
        });
        if !aligned {
            return self.add_file_slowly(parent, name, new, xattrs, (size, map), source, movers);
        }
        let content = Content::Data { size, segments };
        let (_, places) = self
            .replacing(parent, name, movers, |fs| fs.build(parent, name, new, xattrs, content))?;
        // A tar stream is one file from beginning to end; a directory's files are each their own.
        let from = if movers.can_copy { source.data_position() } else { None };
        let mut done = 0;
        for place in places {
            let Some(device) = place.device else { continue };
            match from {
                Some(from) => movers.copy(from + done, device, place.len, block as usize),
                None => movers
                    .stream(device, place.len, block as usize, |buf| read_exact(source, buf))?,
            }
            done += place.len;
        }
        Ok(done)
    }

    /// For segments that share blocks: through the volume's own write.
    #[expect(clippy::too_many_arguments, reason = "one call, from the entry's parts")]
    fn add_file_slowly(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
        movers: &mut Movers<'_>,
    ) -> Result<u64, ImportError> {
        let (ino, _) = self.replacing(parent, name, movers, |fs| {
            fs.build(parent, name, new, xattrs, Content::Empty)
        })?;
        let mut buf = vec![0; SLOW_STEP];
        let mut total = 0;
        for (at, len) in map.segments() {
            let mut done = 0;
            while done < *len {
                let step = (len - done).min(SLOW_STEP as u64) as usize;
                read_exact(source, &mut buf[..step])?;
                self.fs.write_at(ino, at + done, &buf[..step])?;
                done += step as u64;
            }
            total += len;
        }
        self.fs.truncate(ino, size)?;
        if let Some(times) = new.times {
            let change = SetAttr {
                atime: Some(times.atime),
                mtime: Some(times.mtime),
                ctime: Some(times.ctime),
                ..SetAttr::default()
            };
            self.fs.set_attr(ino, &change)?;
        }
        Ok(total)
    }

    fn add_root(&mut self, entry: &Entry, summary: &mut ImportSummary) -> Result<(), ImportError> {
        if entry.kind != Kind::Dir {
            return Err(Error::NotDir.into());
        }
        let root = self.fs.root();
        for (name, value) in self.xattrs(entry, summary) {
            self.fs.set_xattr(root, &name, &value, uxfs_core::XattrMode::Any)?;
        }
        self.later.push((root, dir_attrs(&new_inode(&entry.meta))));
        Ok(())
    }

    fn add_dir(
        &mut self,
        entry: &Entry,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        movers: &mut Movers<'_>,
    ) -> Result<(), ImportError> {
        let ino = match self.fs.build(parent, name, new, xattrs, Content::Empty) {
            Ok((ino, _)) => ino,
            Err(Error::Exists) => match self.dir_at(&entry.path)? {
                Some(old) => {
                    for (name, value) in xattrs {
                        self.fs.set_xattr(old, name, value, uxfs_core::XattrMode::Any)?;
                    }
                    old
                }
                None => {
                    self.unlink(parent, name, movers)?;
                    self.fs.build(parent, name, new, xattrs, Content::Empty)?.0
                }
            },
            Err(other) => return Err(other.into()),
        };
        self.later.push((ino, dir_attrs(new)));
        self.remember(&entry.path, ino);
        Ok(())
    }

    /// The directory that a path leads to, if it does lead to one.
    fn dir_at(&self, path: &[u8]) -> Result<Option<Ino>, ImportError> {
        match self.fs.resolve(path, true) {
            Ok(ino) => Ok((self.fs.stat(ino)?.mode & S_IFMT == S_IFDIR).then_some(ino)),
            // A symbolic link that leads nowhere.
            Err(Error::NotFound | Error::NotDir | Error::Loop) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn remember(&mut self, path: &[u8], ino: Ino) {
        if self.dirs.len() >= DIRS_REMEMBERED {
            self.dirs.clear();
        }
        self.dirs.insert(path.to_vec(), ino);
    }

    /// The directory at `path`, made if it is missing, as tar does for trees without entries for
    /// directories.
    fn dir(&mut self, path: &[u8]) -> Result<Ino, ImportError> {
        if let Some(ino) = self.dirs.get(path) {
            return Ok(*ino);
        }
        let ino = match self.fs.resolve(path, true) {
            Ok(ino) => ino,
            Err(Error::NotFound) => {
                let (parent_path, name) = split(path);
                let parent = self.dir(parent_path)?;
                self.fs.create(parent, name, &NewInode::dir(0o755))?
            }
            Err(other) => return Err(other.into()),
        };
        self.remember(path, ino);
        Ok(ino)
    }

    /// Gives directories the modes and times they are to have, now that they are full.
    pub(super) fn finish(&mut self) -> Result<(), ImportError> {
        for (ino, change) in &self.later {
            self.fs.set_attr(*ino, change)?;
        }
        Ok(())
    }
}

fn read_exact(source: &mut dyn Source, mut buf: &mut [u8]) -> Result<(), ImportError> {
    while !buf.is_empty() {
        let count = source.read(buf)?;
        if count == 0 {
            return Err(ImportError::Data(std::io::ErrorKind::UnexpectedEof.into()));
        }
        buf = &mut buf[count..];
    }
    Ok(())
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn stamp(time: Time) -> Timestamp {
    Timestamp { sec: time.sec, nsec: time.nsec }
}

fn new_inode(meta: &Meta) -> NewInode {
    let mtime = stamp(meta.mtime);
    let or = |time: Option<Time>| time.map_or(mtime, stamp);
    let mut new = NewInode::new((meta.mode & 0o7777) as u16);
    new.uid = meta.uid;
    new.gid = meta.gid;
    new.times = Some(Times {
        atime: or(meta.atime),
        mtime,
        ctime: or(meta.ctime),
        crtime: or(meta.crtime),
    });
    new
}

fn dir_attrs(new: &NewInode) -> SetAttr {
    SetAttr {
        permissions: Some(new.mode),
        uid: Some(new.uid),
        gid: Some(new.gid),
        atime: new.times.map(|t| t.atime),
        mtime: new.times.map(|t| t.mtime),
        ctime: new.times.map(|t| t.ctime),
        ..SetAttr::default()
    }
}
