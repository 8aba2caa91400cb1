//! Turns the entries of a source into files of a volume.
//!
//! A plain tree is added as tar does it: existing directories stay. In a stack of layers, an entry
//! of an upper layer replaces what lower layers have at its path, of whatever type, and whiteouts
//! remove files of lower layers:
//! 1. The whiteouts of a layer are applied before its other entries ([`Tree::apply_whiteout`]).
//!    When the layer itself is added, whiteouts are skipped. A whiteout never hides anything through a
//!    symbolic link: the layer may replace the link by the directory that the whiteout is about.
//! 2. Directories that a layer does not contain keep their times, even if their contents change.
//! 3. A removed inode is forgotten at once: its number may belong to another file soon.

mod fsx;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use uxfs_archive::{Entry, Kind, Meta, Source, Time};
use uxfs_core::{
    BulkError, BulkWriter, Content, Error, Fallocate, Fs, Fsx, NewInode, Segment, SetAttr, Times,
};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

use super::adjust::Adjust;
use super::error::ImportError;
use crate::labels::{FileContexts, FileKind, Labeller};

/// Bytes of directory paths whose inode is cached; above this the cache is emptied.
const CACHED_PATH_BYTES: usize = 16 << 20;
/// Bytes read at a time for data that goes through [`Fs::write_at`].
const WRITE_STEP: usize = 1 << 20;

/// Prefix of the name of a whiteout.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout that hides everything in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of names in layers that are not files.
const RESERVED: &[u8] = b".wh..wh.";

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The result of adding an entry.
#[derive(Default)]
pub(super) struct Added {
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Properties that could not be kept.
    pub(super) warnings: Vec<String>,
}

/// The volume's tree while it is filled.
pub(super) struct Tree<'a> {
    fs: &'a Fs,
    layered: bool,
    dirs: HashMap<Vec<u8>, Ino>,
    /// Bytes used by the paths in `dirs`, with overhead.
    cached_bytes: usize,
    /// Attributes that directories get when everything is in them.
    final_attrs: BTreeMap<Ino, SetAttr>,
    /// Flags and projects that files get then, too.
    final_fsx: BTreeMap<Ino, Fsx>,
    /// Labels directories that have no entry.
    labeller: Option<Labeller<&'a FileContexts>>,
    /// User and group of directories that have no entry.
    owner: (u32, u32),
}

impl<'a> Tree<'a> {
    pub(super) fn new(fs: &'a Fs, layered: bool, adjust: &'a Adjust) -> Self {
        let dirs = HashMap::from([(Vec::new(), fs.root())]);
        let labeller = adjust.labelling.contexts().map(|contexts| Labeller::new(&**contexts));
        let owner = adjust.owners.of_root();
        Self {
            fs,
            layered,
            dirs,
            cached_bytes: 0,
            final_attrs: BTreeMap::new(),
            final_fsx: BTreeMap::new(),
            labeller,
            owner,
        }
    }

    /// Adds one entry with its data.
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        writer: &BulkWriter<'_>,
    ) -> Result<Added, ImportError> {
        let mut added = Added::default();
        if self.layered && whiteout(entry)? != Whiteout::No {
            return Ok(added);
        }
        self.add_inner(entry, source, writer, &mut added).map_err(named(entry))?;
        self.add_fsx(entry, &mut added).map_err(named(entry))?;
        Ok(added)
    }

    /// If the entry of the next layer is a whiteout, removes what it hides.
    pub(super) fn apply_whiteout(&mut self, entry: &Entry) -> Result<(), ImportError> {
        self.apply_whiteout_inner(entry).map_err(named(entry))
    }

    fn apply_whiteout_inner(&mut self, entry: &Entry) -> Result<(), ImportError> {
        let what = whiteout(entry)?;
        if matches!(what, Whiteout::No | Whiteout::Other) {
            return Ok(());
        }
        let Some(dir) = self.real_dir(split(&entry.path).0)? else { return Ok(()) };
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
        writer: &BulkWriter<'_>,
        added: &mut Added,
    ) -> Result<(), ImportError> {
        let (parent_path, name) = split(&entry.path);
        if name.is_empty() {
            return self.add_root(entry, added);
        }
        let parent = self.dir(parent_path)?;
        self.one_spelling(parent, name, &entry.path)?;
        if self.layered {
            self.keep_times(parent)?;
        }
        let mut new = new_inode(&entry.meta);
        let xattrs = xattrs(entry, added);
        new.attr_bytes = xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
        new.mode |= match &entry.kind {
            Kind::File { .. } if entry.meta.reserve > 0 => {
                new.mode |= S_IFREG;
                return self.add_reserved(parent, name, &new, &xattrs, entry.meta.reserve, writer);
            }
            Kind::File { size, map } if entry.meta.fsx.extsize != 0 => {
                // The hint guides the allocation, so it precedes the data.
                new.mode |= S_IFREG;
                let (ino, _) = self.make_replacing(parent, name, writer, |fs, _| {
                    fs.build(parent, name, &new, &xattrs, Content::Empty)
                })?;
                self.set_fsx(ino, entry, added)?;
                added.bytes += self.write_file(ino, &new, (*size, map), source)?;
                return Ok(self.fs.set_attr(ino, &times_of(&new))?);
            }
            Kind::File { size, map } => {
                new.mode |= S_IFREG;
                return self
                    .add_file(parent, name, &new, &xattrs, (*size, map), source, writer)
                    .map(|bytes| added.bytes += bytes);
            }
            Kind::Dir => {
                new.mode |= S_IFDIR;
                return self.add_dir(entry, parent, name, &new, &xattrs, writer);
            }
            Kind::Hardlink { target: path } => {
                let target = self.link_target(entry, path)?;
                if self.fs.lookup(parent, name).is_ok_and(|old| old == target) {
                    return Ok(());
                }
                // The replaced file may have been the target, or a directory on its path.
                return self.make_replacing(parent, name, writer, |fs, _| {
                    fs.link(fs.resolve(path, false)?, parent, name)
                });
            }
            Kind::Symlink { target } => {
                new.mode |= S_IFLNK;
                let content = Content::Target(target);
                return self.make_replacing(parent, name, writer, |fs, _| {
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
        self.make_replacing(parent, name, writer, |fs, _| {
            fs.build(parent, name, &new, &xattrs, Content::Empty).map(|_| ())
        })
    }

    /// Refuses a name that is there in another spelling. `path` is that of the name.
    fn one_spelling(&self, dir: Ino, name: &[u8], path: &[u8]) -> Result<(), ImportError> {
        match self.fs.other_spelling(dir, name)? {
            Some(stored) => Err(ImportError::Spelling { path: path.to_vec(), stored }),
            None => Ok(()),
        }
    }

    /// The file that a hard link names.
    fn link_target(&self, entry: &Entry, target: &[u8]) -> Result<Ino, ImportError> {
        self.fs.resolve(target, false).map_err(|error| match error {
            Error::NotFound | Error::NotDir => {
                ImportError::Link { path: entry.path.clone(), target: target.to_vec() }
            }
            other => other.into(),
        })
    }

    /// Runs `make`. If the name exists, its file is removed first; a directory of a plain tree is
    /// not.
    fn make_replacing<R>(
        &mut self,
        parent: Ino,
        name: &[u8],
        writer: &BulkWriter<'_>,
        mut make: impl FnMut(&Fs, &BulkWriter<'_>) -> uxfs_core::Result<R>,
    ) -> Result<R, ImportError> {
        match make(self.fs, writer) {
            Err(Error::Exists) => {
                if self.layered {
                    self.remove(parent, name, Some(writer))?;
                } else {
                    self.unlink(parent, name, Some(writer))?;
                }
                Ok(make(self.fs, writer)?)
            }
            other => Ok(other?),
        }
    }

    /// Removes a file that is to be replaced, after all writes in flight to it.
    fn unlink(
        &mut self,
        parent: Ino,
        name: &[u8],
        writer: Option<&BulkWriter<'_>>,
    ) -> Result<(), ImportError> {
        let old = self.fs.lookup(parent, name)?;
        let stat = self.fs.stat(old)?;
        if stat.nlink == 1 {
            self.final_fsx.remove(&old);
        }
        match stat.mode & S_IFMT {
            S_IFREG => {
                if let Some(writer) = writer {
                    writer.wait_for(&self.fs.segments(old)?);
                }
            }
            // Cached paths may have led through the link.
            S_IFLNK => self.clear_dir_cache(),
            _ => {}
        }
        Ok(self.fs.unlink(parent, name)?)
    }

    /// Removes the file or directory tree with this name. `writer` is given if writes to it may be
    /// in flight.
    fn remove(
        &mut self,
        parent: Ino,
        name: &[u8],
        writer: Option<&BulkWriter<'_>>,
    ) -> Result<(), ImportError> {
        // A directory stays on the stack, marked as visited, until its contents are removed.
        let mut stack = vec![(parent, name.to_vec(), false)];
        while let Some((parent, name, empty)) = stack.pop() {
            let ino = self.fs.lookup(parent, &name)?;
            if !self.is_dir(ino)? {
                self.unlink(parent, &name, writer)?;
            } else if empty {
                self.fs.rmdir(parent, &name)?;
                self.final_attrs.remove(&ino);
                self.final_fsx.remove(&ino);
                self.clear_dir_cache();
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

    /// Lists the names in a directory.
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

    fn clear_dir_cache(&mut self) {
        if self.dirs.len() > 1 {
            self.dirs = HashMap::from([(Vec::new(), self.fs.root())]);
            self.cached_bytes = 0;
        }
    }

    /// Records the times of a directory that is about to change; they are restored at the end,
    /// unless the directory gets others.
    fn keep_times(&mut self, dir: Ino) -> Result<(), ImportError> {
        if !self.final_attrs.contains_key(&dir) {
            let stat = self.fs.stat(dir)?;
            let times = SetAttr {
                atime: Some(stat.atime),
                mtime: Some(stat.mtime),
                ctime: Some(stat.ctime),
                ..SetAttr::default()
            };
            self.final_attrs.insert(dir, times);
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
        writer: &BulkWriter<'_>,
    ) -> Result<u64, ImportError> {
        let block = u64::from(self.fs.geo.block_size);
        let segments = map.segments();
        let aligned = segments.iter().all(|(at, len)| {
            at.is_multiple_of(block) && (len.is_multiple_of(block) || at + len == size)
        });
        if !aligned {
            return self.add_file_unaligned(parent, name, new, xattrs, (size, map), source, writer);
        }
        let content = Content::Data { size, segments };
        let total: u64 = segments.iter().map(|(_, len)| len).sum();
        self.make_replacing(parent, name, writer, |fs, writer| {
            // A tar stream is one file from beginning to end; each file of a directory is its own.
            // If the stream ends too early, the data is read here, where that is detected.
            let whole =
                |from: &u64| writer.source_len().is_some_and(|len| total <= len - from.min(&len));
            let from = source.data_position().filter(whole);
            let mut failed = None;
            let mut all = Vec::new();
            let mut write_data = |segments_out: &[Segment]| {
                all.extend_from_slice(segments_out);
                let written = write_segments(writer, source, from, segments_out);
                written.map_err(|error| {
                    failed = Some(error);
                    Error::Invalid("the source failed")
                })
            };
            let made = fs.build_with(parent, name, new, xattrs, content, &mut write_data);
            if made.is_err() {
                writer.wait_for(&all);
            }
            Ok(match failed {
                Some(error) => Err(error),
                None => Ok(made.map(|_| ())?),
            })
        })??;
        Ok(total)
    }

    /// Adds a file without data for which space is set aside.
    fn add_reserved(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        reserve: u64,
        writer: &BulkWriter<'_>,
    ) -> Result<(), ImportError> {
        let (ino, _) = self.make_replacing(parent, name, writer, |fs, _| {
            fs.build(parent, name, new, xattrs, Content::Empty)
        })?;
        self.fs.fallocate(ino, Fallocate::Allocate { keep_size: true }, 0, reserve)?;
        Ok(self.fs.set_attr(ino, &times_of(new))?)
    }

    /// Adds a file whose segments share blocks, through the volume's own write.
    #[expect(clippy::too_many_arguments, reason = "one call, from the entry's parts")]
    fn add_file_unaligned(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
        writer: &BulkWriter<'_>,
    ) -> Result<u64, ImportError> {
        let (ino, _) = self.make_replacing(parent, name, writer, |fs, _| {
            fs.build(parent, name, new, xattrs, Content::Empty)
        })?;
        self.write_file(ino, new, (size, map), source)
    }

    /// Writes the data of an empty file through the volume's own write.
    fn write_file(
        &self,
        ino: Ino,
        new: &NewInode,
        (size, map): (u64, &uxfs_archive::SparseMap),
        source: &mut dyn Source,
    ) -> Result<u64, ImportError> {
        let longest = map.segments().iter().map(|(_, len)| *len).max().unwrap_or(0);
        let mut buf = vec![0; longest.min(WRITE_STEP as u64) as usize];
        let mut total = 0;
        for (at, len) in map.segments() {
            let mut done = 0;
            while done < *len {
                let step = (len - done).min(WRITE_STEP as u64) as usize;
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
        if size > 0 {
            self.fs.set_attr(ino, &times_of(new))?;
        }
        Ok(total)
    }

    fn add_root(&mut self, entry: &Entry, added: &mut Added) -> Result<(), ImportError> {
        if entry.kind != Kind::Dir {
            return Err(Error::NotDir.into());
        }
        let root = self.fs.root();
        let xattrs = xattrs(entry, added);
        self.set_xattrs(root, &xattrs)?;
        self.final_attrs.insert(root, dir_attrs(&new_inode(&entry.meta)));
        Ok(())
    }

    /// Sets the attributes of an existing directory; in layers, removes all others.
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
        writer: &BulkWriter<'_>,
    ) -> Result<(), ImportError> {
        let ino = match self.fs.build(parent, name, new, xattrs, Content::Empty) {
            Ok((ino, _)) => ino,
            // A link to a directory counts as a directory in plain trees only.
            Err(Error::Exists) => match self.dir_at(&entry.path, !self.layered)? {
                Some(old) => {
                    self.set_xattrs(old, xattrs)?;
                    old
                }
                None => {
                    self.unlink(parent, name, Some(writer))?;
                    self.fs.build(parent, name, new, xattrs, Content::Empty)?.0
                }
            },
            Err(other) => return Err(other.into()),
        };
        self.final_attrs.insert(ino, dir_attrs(new));
        self.cache_dir(&entry.path, ino);
        Ok(())
    }

    /// The directory at `path`, if there is one; `follow` says whether the last name may be a
    /// symbolic link.
    fn dir_at(&self, path: &[u8], follow: bool) -> Result<Option<Ino>, ImportError> {
        match self.fs.resolve(path, follow) {
            Ok(ino) => Ok(self.is_dir(ino)?.then_some(ino)),
            // A symbolic link without a target.
            Err(Error::NotFound | Error::NotDir | Error::Loop) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The directory at `path`, if there is one and no symbolic link on the way.
    fn real_dir(&self, path: &[u8]) -> Result<Option<Ino>, ImportError> {
        let mut dir = self.fs.root();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = match self.fs.lookup(dir, name) {
                Ok(ino) if self.is_dir(ino)? => ino,
                Ok(_) | Err(Error::NotFound) => return Ok(None),
                Err(other) => return Err(other.into()),
            };
        }
        Ok(Some(dir))
    }

    fn cache_dir(&mut self, path: &[u8], ino: Ino) {
        const EACH: usize = 64;
        if self.cached_bytes > CACHED_PATH_BYTES {
            self.clear_dir_cache();
        }
        self.cached_bytes += path.len() + EACH;
        self.dirs.insert(path.to_vec(), ino);
    }

    /// The directory at `path`. It is created if it is missing: archives may lack entries for
    /// directories, as in tar.
    fn dir(&mut self, path: &[u8]) -> Result<Ino, ImportError> {
        if let Some(ino) = self.dirs.get(path) {
            return Ok(*ino);
        }
        let (parent_path, name) = split(path);
        let (mut ino, rest) = match self.dirs.get(parent_path) {
            Some(parent) => (*parent, name),
            None => (self.fs.root(), path),
        };
        let mut end = path.len() - rest.len();
        // One name at a time: the archive decides how deep the path is.
        for name in rest.split(|byte| *byte == b'/') {
            end += name.len();
            self.one_spelling(ino, name, &path[..end])?;
            ino = match self.fs.resolve_at(ino, name, true) {
                Err(Error::NotFound) => self.make_dir(ino, name, &path[..end])?,
                other => other?,
            };
            end += 1;
        }
        self.cache_dir(path, ino);
        Ok(ino)
    }

    /// Makes a directory that has no entry of its own.
    fn make_dir(&mut self, parent: Ino, name: &[u8], path: &[u8]) -> Result<Ino, ImportError> {
        let mut new = NewInode::dir(0o755);
        (new.uid, new.gid) = self.owner;
        let ino = self.fs.create(parent, name, &new)?;
        let mut xattrs = Pairs::new();
        if let Some(labeller) = &mut self.labeller {
            labeller.set(&mut xattrs, path, FileKind::Dir)?;
        }
        for (name, value) in &xattrs {
            self.fs.set_xattr(ino, name, value, uxfs_core::XattrMode::Any)?;
        }
        Ok(ino)
    }

    /// Sets the modes and times of directories after they are filled, and the flags that forbid changes.
    pub(super) fn finish(&mut self) -> Result<(), ImportError> {
        self.finish_fsx()?;
        for (ino, change) in &self.final_attrs {
            self.fs.set_attr(*ino, change)?;
        }
        self.forbid_changes()
    }
}

/// Is this entry of a layer a whiteout by its name?
pub(super) fn is_whiteout(entry: &Entry) -> bool {
    split(&entry.path).1.starts_with(WHITEOUT)
}

/// The kind of a layer's entry.
#[derive(PartialEq, Eq)]
enum Whiteout<'a> {
    /// A file.
    No,
    /// Hides the file of this name.
    Of(&'a [u8]),
    /// Hides everything in its directory.
    Opaque,
    /// Metadata of other programs.
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

/// Adds the entry's path to an error of the volume.
fn named(entry: &Entry) -> impl FnOnce(ImportError) -> ImportError + '_ {
    |error| match error {
        ImportError::Volume(source) => ImportError::Entry { path: entry.path.clone(), source },
        other => other,
    }
}

/// The attributes that XFS can store; the others become warnings.
fn xattrs<'e>(entry: &'e Entry, added: &mut Added) -> Cow<'e, [(Vec<u8>, Vec<u8>)]> {
    let all = &entry.meta.xattrs;
    let keep = |name: &[u8]| uxfs_core::attr::names::stored(name).is_ok();
    if all.iter().all(|(name, _)| keep(name)) {
        return Cow::Borrowed(all);
    }
    let (kept, lost): (Pairs, Pairs) = all.iter().cloned().partition(|(name, _)| keep(name));
    for (name, _) in lost {
        added.warnings.push(format!(
            "{}: XFS cannot store attribute {}: it is left out",
            entry.path.escape_ascii(),
            name.escape_ascii()
        ));
    }
    Cow::Owned(kept)
}

/// Hands a file's data to the writer: from offset `from` of the source's file, or read from the
/// source.
fn write_segments(
    writer: &BulkWriter<'_>,
    source: &mut dyn Source,
    from: Option<u64>,
    segments_out: &[Segment],
) -> Result<(), ImportError> {
    let mut done = 0;
    for segment in segments_out {
        let Some(device) = segment.device else { continue };
        match from {
            Some(from) => writer.copy(from + done, device, segment.len),
            None => writer.stream(device, segment.len, |buf| read_exact(source, buf))?,
        }
        done += segment.len;
    }
    Ok(())
}

fn read_exact(source: &mut dyn Source, mut buf: &mut [u8]) -> Result<(), ImportError> {
    while !buf.is_empty() {
        let count = source.read(buf)?;
        if count == 0 {
            return Err(BulkError::Source(std::io::ErrorKind::UnexpectedEof.into()).into());
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
    SetAttr { permissions: Some(new.mode), uid: Some(new.uid), gid: Some(new.gid), ..times_of(new) }
}

fn times_of(new: &NewInode) -> SetAttr {
    SetAttr {
        atime: new.times.map(|t| t.atime),
        mtime: new.times.map(|t| t.mtime),
        ctime: new.times.map(|t| t.ctime),
        ..SetAttr::default()
    }
}
