//! Entries of a source becoming files of a volume.
//!
//! Plain trees are added as tar does it: directories that are there stay. Of layers what is above
//! replaces what is below, whatever it is, and whiteouts take away:
//! 1. What a whiteout names goes before anything of its layer comes ([`Tree::hide`]); when the
//!    layer itself is added, whiteouts are passed over.
//! 2. Directories that a layer does not mention keep their times, whatever goes on in them.
//! 3. An inode that was removed is forgotten at once: its number may be another file's by then.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use uxfs_archive::{Entry, Kind, Meta, Source, Time};
use uxfs_core::{Content, Error, Fs, NewInode, Segment, SetAttr, Times};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

use super::ImportError;
use super::data::DataWriters;

/// Bytes of paths of directories whose inode is remembered; beyond that they are looked up anew.
const PATHS_REMEMBERED: usize = 16 << 20;
/// Bytes read at a time where data takes the slow way.
const SLOW_STEP: usize = 1 << 20;

/// Begins the name of a whiteout.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of everything in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Begins the names of other things than files that layers may hold.
const RESERVED: &[u8] = b".wh..wh.";

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What became of an entry.
#[derive(Default)]
pub(super) struct Added {
    /// Bytes of data.
    pub(super) bytes: u64,
    /// What could not be kept.
    pub(super) warnings: Vec<String>,
}

/// The volume's tree while it is being filled.
pub(super) struct Tree<'a> {
    fs: &'a Fs,
    layered: bool,
    dirs: HashMap<Vec<u8>, Ino>,
    /// Bytes of the paths in `dirs`, and what each takes besides.
    remembered: usize,
    /// What directories are to look like when everything is in them.
    later: BTreeMap<Ino, SetAttr>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(fs: &'a Fs, layered: bool) -> Self {
        let dirs = HashMap::from([(Vec::new(), fs.root())]);
        Self { fs, layered, dirs, remembered: 0, later: BTreeMap::new() }
    }

    /// Adds one entry, with its data.
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        movers: &mut DataWriters,
    ) -> Result<Added, ImportError> {
        let mut added = Added::default();
        if self.layered && whiteout(entry)? != Whiteout::No {
            return Ok(added);
        }
        self.add_inner(entry, source, movers, &mut added).map_err(named(entry))?;
        Ok(added)
    }

    /// Takes away what an entry of the next layer hides, if it is a whiteout.
    pub(super) fn hide(&mut self, entry: &Entry) -> Result<(), ImportError> {
        self.hide_inner(entry).map_err(named(entry))
    }

    fn hide_inner(&mut self, entry: &Entry) -> Result<(), ImportError> {
        let what = whiteout(entry)?;
        if matches!(what, Whiteout::No | Whiteout::Other) {
            return Ok(());
        }
        let Some(dir) = self.dir_at(split(&entry.path).0, true)? else { return Ok(()) };
        self.keep_times(dir)?;
        let names = match what {
            Whiteout::Of(name) => vec![name.to_vec()],
            _ => self.names(dir)?,
        };
        for name in names {
            match self.remove(dir, &name, None) {
                Ok(()) | Err(ImportError::Volume(Error::NotFound)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    fn add_inner(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        movers: &mut DataWriters,
        added: &mut Added,
    ) -> Result<(), ImportError> {
        let (parent_path, name) = split(&entry.path);
        if name.is_empty() {
            return self.add_root(entry, added);
        }
        let parent = self.dir(parent_path)?;
        if self.layered {
            self.keep_times(parent)?;
        }
        let mut new = new_inode(&entry.meta);
        let xattrs = xattrs(entry, added);
        new.attr_bytes = xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
        new.mode |= match &entry.kind {
            Kind::File { size, map } => {
                new.mode |= S_IFREG;
                return self
                    .add_file(parent, name, &new, &xattrs, (*size, map), source, movers)
                    .map(|bytes| added.bytes += bytes);
            }
            Kind::Dir => {
                new.mode |= S_IFDIR;
                return self.add_dir(entry, parent, name, &new, &xattrs, movers);
            }
            Kind::Hardlink { target: path } => {
                let target = self.fs.resolve(path, false)?;
                if self.fs.lookup(parent, name).is_ok_and(|old| old == target) {
                    return Ok(());
                }
                // What is replaced may have been the target, or above it.
                return self.replacing(parent, name, movers, |fs, _| {
                    fs.link(fs.resolve(path, false)?, parent, name)
                });
            }
            Kind::Symlink { target } => {
                new.mode |= S_IFLNK;
                let content = Content::Target(target);
                return self.replacing(parent, name, movers, |fs, _| {
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
        self.replacing(parent, name, movers, |fs, _| {
            fs.build(parent, name, &new, &xattrs, Content::Empty).map(|_| ())
        })
    }

    /// Does `make`; if the name is taken, what has it goes first, unless that is a directory of a
    /// plain tree.
    fn replacing<R>(
        &mut self,
        parent: Ino,
        name: &[u8],
        movers: &mut DataWriters,
        mut make: impl FnMut(&Fs, &mut DataWriters) -> uxfs_core::Result<R>,
    ) -> Result<R, ImportError> {
        match make(self.fs, movers) {
            Err(Error::Exists) => {
                if self.layered {
                    self.remove(parent, name, Some(movers))?;
                } else {
                    self.unlink(parent, name, Some(movers))?;
                }
                Ok(make(self.fs, movers)?)
            }
            other => Ok(other?),
        }
    }

    /// Removes what is to be replaced, once no data is on its way to it.
    fn unlink(
        &mut self,
        parent: Ino,
        name: &[u8],
        movers: Option<&mut DataWriters>,
    ) -> Result<(), ImportError> {
        let old = self.fs.lookup(parent, name)?;
        match self.fs.stat(old)?.mode & S_IFMT {
            S_IFREG => {
                if let Some(movers) = movers {
                    movers.settle(&self.fs.segments(old)?);
                }
            }
            // Paths may have led through it.
            S_IFLNK => self.forget_dirs(),
            _ => {}
        }
        Ok(self.fs.unlink(parent, name)?)
    }

    /// Removes whatever has the name, with everything in it. `movers` if data may be on its way.
    fn remove(
        &mut self,
        parent: Ino,
        name: &[u8],
        mut movers: Option<&mut DataWriters>,
    ) -> Result<(), ImportError> {
        // A name stays on the stack, marked, while what is in it goes.
        let mut stack = vec![(parent, name.to_vec(), false)];
        while let Some((parent, name, empty)) = stack.pop() {
            let ino = self.fs.lookup(parent, &name)?;
            if !self.is_dir(ino)? {
                self.unlink(parent, &name, movers.as_deref_mut())?;
            } else if empty {
                self.fs.rmdir(parent, &name)?;
                self.later.remove(&ino);
                self.forget_dirs();
            } else {
                let inside = self.names(ino)?;
                stack.push((parent, name, true));
                stack.extend(inside.into_iter().map(|name| (ino, name, false)));
            }
        }
        Ok(())
    }

    fn is_dir(&self, ino: Ino) -> Result<bool, ImportError> {
        Ok(self.fs.stat(ino)?.mode & S_IFMT == S_IFDIR)
    }

    /// The names in a directory.
    fn names(&self, dir: Ino) -> Result<Vec<Vec<u8>>, ImportError> {
        let mut names = Vec::new();
        self.fs.read_dir(dir, 0, &mut |entry| {
            if !entry.is_dot() {
                names.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    fn forget_dirs(&mut self) {
        if self.dirs.len() > 1 {
            self.dirs = HashMap::from([(Vec::new(), self.fs.root())]);
            self.remembered = 0;
        }
    }

    /// Has the times of a directory that is about to change put back in the end, unless it is to
    /// have others.
    fn keep_times(&mut self, dir: Ino) -> Result<(), ImportError> {
        if !self.later.contains_key(&dir) {
            let stat = self.fs.stat(dir)?;
            let times = SetAttr {
                atime: Some(stat.atime),
                mtime: Some(stat.mtime),
                ctime: Some(stat.ctime),
                ..SetAttr::default()
            };
            self.later.insert(dir, times);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one call, from the entry's parts")]
    fn add_file(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
        movers: &mut DataWriters,
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
        let total: u64 = segments.iter().map(|(_, len)| len).sum();
        self.replacing(parent, name, movers, |fs, movers| {
            // A tar stream is one file from beginning to end; a directory's files are each their own.
            // One that ends too early is read here, where that is found out.
            let whole =
                |from: &u64| movers.can_copy.is_some_and(|len| total <= len - from.min(&len));
            let from = source.data_position().filter(whole);
            let mut failed = None;
            let mut all = Vec::new();
            let mut bring = |places: &[Segment]| {
                all.extend_from_slice(places);
                let brought = bring_data(movers, source, from, places, block as usize);
                brought.map_err(|error| {
                    failed = Some(error);
                    Error::Invalid("the source failed")
                })
            };
            let made = fs.build_with(parent, name, new, xattrs, content, &mut bring);
            if made.is_err() {
                movers.settle(&all);
            }
            Ok(match failed {
                Some(error) => Err(error),
                None => Ok(made.map(|_| ())?),
            })
        })??;
        Ok(total)
    }

    /// For segments that share blocks: through the volume's own write.
    #[expect(clippy::too_many_arguments, reason = "one call, from the entry's parts")]
    fn add_file_slowly(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
        movers: &mut DataWriters,
    ) -> Result<u64, ImportError> {
        let (ino, _) = self.replacing(parent, name, movers, |fs, _| {
            fs.build(parent, name, new, xattrs, Content::Empty)
        })?;
        let longest = map.segments().iter().map(|(_, len)| *len).max().unwrap_or(0);
        let mut buf = vec![0; longest.min(SLOW_STEP as u64) as usize];
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
        let end = map.segments().last().map_or(0, |(at, len)| at + len);
        if end != size {
            self.fs.truncate(ino, size)?;
        }
        if let Some(times) = new.times.filter(|_| size > 0) {
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

    fn add_root(&mut self, entry: &Entry, added: &mut Added) -> Result<(), ImportError> {
        if entry.kind != Kind::Dir {
            return Err(Error::NotDir.into());
        }
        let root = self.fs.root();
        self.set_xattrs(root, &xattrs(entry, added))?;
        self.later.insert(root, dir_attrs(&new_inode(&entry.meta)));
        Ok(())
    }

    /// Gives a directory that was there attributes; of layers, those alone.
    fn set_xattrs(&self, dir: Ino, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), ImportError> {
        if self.layered {
            for name in self.fs.list_xattrs(dir)? {
                if xattrs.iter().all(|(other, _)| *other != name) {
                    self.fs.remove_xattr(dir, &name)?;
                }
            }
        }
        for (name, value) in xattrs {
            self.fs.set_xattr(dir, name, value, uxfs_core::XattrMode::Any)?;
        }
        Ok(())
    }

    fn add_dir(
        &mut self,
        entry: &Entry,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        movers: &mut DataWriters,
    ) -> Result<(), ImportError> {
        let ino = match self.fs.build(parent, name, new, xattrs, Content::Empty) {
            Ok((ino, _)) => ino,
            // A link to a directory stands for one in plain trees only.
            Err(Error::Exists) => match self.dir_at(&entry.path, !self.layered)? {
                Some(old) => {
                    self.set_xattrs(old, xattrs)?;
                    old
                }
                None => {
                    self.unlink(parent, name, Some(movers))?;
                    self.fs.build(parent, name, new, xattrs, Content::Empty)?.0
                }
            },
            Err(other) => return Err(other.into()),
        };
        self.later.insert(ino, dir_attrs(new));
        self.remember(&entry.path, ino);
        Ok(())
    }

    /// The directory that a path leads to, if it does lead to one; `follow` says whether it may be
    /// a symbolic link itself.
    fn dir_at(&self, path: &[u8], follow: bool) -> Result<Option<Ino>, ImportError> {
        match self.fs.resolve(path, follow) {
            Ok(ino) => Ok(self.is_dir(ino)?.then_some(ino)),
            // A symbolic link that leads nowhere.
            Err(Error::NotFound | Error::NotDir | Error::Loop) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn remember(&mut self, path: &[u8], ino: Ino) {
        const EACH: usize = 64;
        if self.remembered > PATHS_REMEMBERED {
            self.forget_dirs();
        }
        self.remembered += path.len() + EACH;
        self.dirs.insert(path.to_vec(), ino);
    }

    /// The directory at `path`, made if it is missing, as tar does for trees without entries for
    /// directories.
    fn dir(&mut self, path: &[u8]) -> Result<Ino, ImportError> {
        if let Some(ino) = self.dirs.get(path) {
            return Ok(*ino);
        }
        let (parent_path, name) = split(path);
        let (mut ino, rest) = match self.dirs.get(parent_path) {
            Some(parent) => (*parent, name),
            None => (self.fs.root(), path),
        };
        // Name by name, whatever the depth: it is for the archive to say.
        for name in rest.split(|byte| *byte == b'/') {
            ino = match self.fs.resolve_at(ino, name, true) {
                Err(Error::NotFound) => self.fs.create(ino, name, &NewInode::dir(0o755))?,
                other => other?,
            };
        }
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

/// What an entry of a layer is.
#[derive(PartialEq, Eq)]
enum Whiteout<'a> {
    /// A file.
    No,
    /// It hides the file of this name.
    Of(&'a [u8]),
    /// It hides everything in its directory.
    Opaque,
    /// It is for other programs.
    Other,
}

fn whiteout(entry: &Entry) -> Result<Whiteout<'_>, ImportError> {
    let (dirs, name) = split(&entry.path);
    if dirs.split(|byte| *byte == b'/').any(|name| name.starts_with(RESERVED)) {
        return Ok(Whiteout::Other);
    }
    Ok(match name.strip_prefix(WHITEOUT) {
        _ if name == OPAQUE => Whiteout::Opaque,
        _ if name.starts_with(RESERVED) => Whiteout::Other,
        None => Whiteout::No,
        Some(b"" | b"." | b"..") => {
            let path = entry.path.escape_ascii();
            return Err(ImportError::Usage(format!("{path}: a whiteout that names nothing")));
        }
        Some(hidden) => Whiteout::Of(hidden),
    })
}

/// Says which entry an error of the volume is about.
fn named(entry: &Entry) -> impl FnOnce(ImportError) -> ImportError + '_ {
    |error| match error {
        ImportError::Volume(source) => ImportError::Entry { path: entry.path.clone(), source },
        other => other,
    }
}

/// Attributes that the volume has a place for.
fn xattrs(entry: &Entry, added: &mut Added) -> Pairs {
    let keep = |name: &[u8]| uxfs_core::attr::names::stored(name).is_ok();
    let mut kept = Vec::with_capacity(entry.meta.xattrs.len());
    for (name, value) in &entry.meta.xattrs {
        if keep(name) {
            kept.push((name.clone(), value.clone()));
        } else {
            added.warnings.push(format!(
                "{}: attribute {} has no place in XFS and is left out",
                entry.path.escape_ascii(),
                name.escape_ascii()
            ));
        }
    }
    kept
}

/// Hands a file's data over: from position `from` of the source's file, or as the source delivers it.
fn bring_data(
    movers: &mut DataWriters,
    source: &mut dyn Source,
    from: Option<u64>,
    places: &[Segment],
    block: usize,
) -> Result<(), ImportError> {
    let mut done = 0;
    for place in places {
        let Some(device) = place.device else { continue };
        match from {
            Some(from) => movers.copy(from + done, device, place.len, block),
            None => movers.stream(device, place.len, block, |buf| read_exact(source, buf))?,
        }
        done += place.len;
    }
    Ok(())
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
