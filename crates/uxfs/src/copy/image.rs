//! A volume as source and target of a copy.
//!
//! Other threads may change the volume during a copy. So files and directories are held while they are
//! used by number: a number that is freed could come to belong to another file. What was found by name
//! is looked up again once it is held.

use std::io::Read;
use std::ops::ControlFlow;

use uxfs_core::{Fs, NewInode, SetAttr, Stat, Times, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

use super::sides::{
    Attributes, FileId, FileInfo, FileKind, Result, SourceTree, TargetTree, Xattrs, refused,
};
use crate::held::HeldInode;
use crate::posix::{self, Creator, Plan};

/// A volume as a source.
pub struct ImageSource<'a> {
    fs: &'a Fs,
    volume: u64,
}

/// A volume as a target.
pub struct ImageTarget<'a> {
    fs: &'a Fs,
    volume: u64,
    creator: Creator,
}

/// A regular file of a volume that is open for writing.
pub struct ImageFile<'a> {
    held: HeldInode<'a>,
    created: bool,
}

/// The metadata of a file; `volume` identifies the volume in [`FileId`]s.
fn info(volume: u64, stat: &Stat) -> FileInfo {
    let kind = match stat.mode & S_IFMT {
        S_IFREG => FileKind::File,
        S_IFDIR => FileKind::Dir,
        S_IFLNK => FileKind::Symlink,
        other => FileKind::Special(other),
    };
    FileInfo {
        kind,
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        rdev: stat.rdev,
        nlink: stat.nlink,
        atime: stat.atime,
        mtime: stat.mtime,
        id: (volume, stat.ino.0),
    }
}

impl<'a> ImageSource<'a> {
    /// A source on `fs`. `volume` distinguishes it from other volumes and from the host's devices.
    pub fn new(fs: &'a Fs, volume: u64) -> Self {
        Self { fs, volume }
    }

    /// Opens the file that `find` finds, which is called more than once.
    ///
    /// # Errors
    /// Those of `find`; the inode cannot be read.
    pub fn open(
        &self,
        find: impl Fn() -> uxfs_core::Result<Ino>,
    ) -> Result<(HeldInode<'a>, FileInfo)> {
        let held = HeldInode::find(self.fs, find)?;
        let info = info(self.volume, &self.fs.stat(held.ino())?);
        Ok((held, info))
    }
}

impl<'a> SourceTree for ImageSource<'a> {
    type Node = HeldInode<'a>;

    fn child(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        follow: bool,
    ) -> Result<(HeldInode<'a>, FileInfo)> {
        self.open(|| match follow {
            true => self.fs.resolve_at(dir.ino(), name, true),
            false => self.fs.lookup(dir.ino(), name),
        })
    }

    fn names(&self, dir: &HeldInode<'a>) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.fs.read_dir(dir.ino(), 0, &mut |entry| {
            if !entry.is_dot() {
                names.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    fn link_target(&self, node: &HeldInode<'a>) -> Result<Vec<u8>> {
        Ok(self.fs.readlink(node.ino())?)
    }

    fn xattrs(&self, node: &HeldInode<'a>) -> Result<Xattrs> {
        let names = self.fs.list_xattrs(node.ino())?;
        names
            .into_iter()
            .map(|name| Ok((name.clone(), self.fs.get_xattr(node.ino(), &name)?)))
            .collect()
    }

    fn data(&self, node: &HeldInode<'a>, _size: u64) -> Result<Vec<(u64, u64)>> {
        let segments = self.fs.segments(node.ino())?;
        Ok(segments.iter().filter(|s| s.device.is_some()).map(|s| (s.offset, s.len)).collect())
    }

    fn read(&self, node: &HeldInode<'a>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read_at(node.ino(), offset, buf)?)
    }

    fn stream(&self, _node: &HeldInode<'a>) -> Result<Box<dyn Read + '_>> {
        refused(
            "is a device, FIFO or socket, which has no content in an image: -r copies the file itself",
        )
    }
}

impl<'a> ImageTarget<'a> {
    /// A target on `fs`; new files get the credentials of `creator`.
    pub fn new(fs: &'a Fs, volume: u64, creator: Creator) -> Self {
        Self { fs, volume, creator }
    }

    /// A directory by number, in which to create files.
    pub fn dir(&self, ino: Ino) -> HeldInode<'a> {
        HeldInode::new(self.fs, ino)
    }

    /// Creates a planned file or directory, with the ACLs that it inherits.
    fn make(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        want: &Attributes,
        plan: &Plan,
    ) -> Result<HeldInode<'a>> {
        let ino = match want.exact {
            true => self.fs.create(dir.ino(), name, &plan.new)?,
            false => plan.create(self.fs, dir.ino(), name)?,
        };
        Ok(HeldInode::created(self.fs, dir.ino(), name, ino)?)
    }

    /// Plans the inode to create for `want`.
    fn plan(&self, dir: Ino, kind: u16, want: &Attributes) -> Result<Plan> {
        let mut plan = self.creator.plan(self.fs, dir, kind | want.mode)?;
        if want.exact {
            plan.new.mode = kind | want.mode;
        }
        if let Some((uid, gid)) = want.owner {
            (plan.new.uid, plan.new.gid) = (uid, gid);
        }
        plan.new.times = self.times(want);
        plan.new.attr_bytes = plan
            .new
            .attr_bytes
            .max(want.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8).sum());
        Ok(plan)
    }

    fn times(&self, want: &Attributes) -> Option<Times> {
        let now = self.fs.now();
        want.times.map(|(atime, mtime)| Times { atime, mtime, ctime: now, crtime: now })
    }

    /// Sets what the creation of the inode could not set: attributes, and values that later steps
    /// changed.
    fn finish(&self, ino: Ino, want: &Attributes, created: bool) -> Result<()> {
        for (name, value) in &want.xattrs {
            self.fs.set_xattr(ino, name, value, XattrMode::Any)?;
        }
        let mut change = SetAttr::default();
        if want.exact {
            change.permissions = Some(want.mode);
        }
        if let (Some((uid, gid)), false) = (want.owner, created) {
            (change.uid, change.gid) = (Some(uid), Some(gid));
        }
        if let Some((atime, mtime)) = want.times {
            (change.atime, change.mtime) = (Some(atime), Some(mtime));
        }
        if change != SetAttr::default() {
            self.fs.set_attr(ino, &change)?;
        }
        Ok(())
    }
}

impl<'a> TargetTree for ImageTarget<'a> {
    type Dir = HeldInode<'a>;
    type File = ImageFile<'a>;
    type LinkHandle = HeldInode<'a>;

    fn find(&self, dir: &HeldInode<'a>, name: &[u8]) -> Result<Option<FileInfo>> {
        // Overwriting it would mix two files of the source that are one file here.
        if let Some(stored) = self.fs.other_spelling(dir.ino(), name)? {
            let (name, stored) = (name.escape_ascii(), stored.escape_ascii());
            return refused(format!(
                "there is already \"{stored}\", and on this volume \"{name}\" is the same name"
            ));
        }
        match HeldInode::find(self.fs, || self.fs.lookup(dir.ino(), name)) {
            Ok(found) => Ok(Some(info(self.volume, &self.fs.stat(found.ino())?))),
            Err(uxfs_core::Error::NotFound) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn id(&self, dir: &HeldInode<'a>) -> Result<FileId> {
        Ok((self.volume, dir.ino().0))
    }

    fn enter(&self, dir: &HeldInode<'a>, name: &[u8]) -> Result<HeldInode<'a>> {
        Ok(HeldInode::find(self.fs, || self.fs.lookup(dir.ino(), name))?)
    }

    fn make_dir(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        want: &Attributes,
    ) -> Result<HeldInode<'a>> {
        self.make(dir, name, want, &self.plan(dir.ino(), S_IFDIR, want)?)
    }

    fn finish_dir(&self, dir: &HeldInode<'a>, want: &Attributes) -> Result<()> {
        self.finish(dir.ino(), want, false)
    }

    fn open_file(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<ImageFile<'a>> {
        if exists {
            let held = self.enter(dir, name)?;
            self.fs.truncate(held.ino(), 0)?;
            return Ok(ImageFile { held, created: false });
        }
        let held = self.make(dir, name, want, &self.plan(dir.ino(), S_IFREG, want)?)?;
        Ok(ImageFile { held, created: true })
    }

    fn can_share(&self, (volume, _): FileId) -> bool {
        volume == self.volume && self.fs.geo.has_reflink()
    }

    fn share(&self, file: &ImageFile<'a>, (_, ino): FileId) -> Result<()> {
        Ok(self.fs.clone_file(Ino(ino), file.held.ino())?)
    }

    fn write(&self, file: &ImageFile<'a>, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.fs.write_at(file.held.ino(), offset, data)?)
    }

    fn finish_file(&self, file: ImageFile<'a>, size: u64, want: &Attributes) -> Result<()> {
        if self.fs.stat(file.held.ino())?.size != size {
            self.fs.truncate(file.held.ino(), size)?;
        }
        self.finish(file.held.ino(), want, file.created)
    }

    fn make_symlink(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        target: &[u8],
        want: &Attributes,
    ) -> Result<()> {
        let plan = self.plan(dir.ino(), S_IFLNK, want)?;
        let new = NewInode { mode: S_IFLNK | 0o777, ..plan.new };
        let ino = self.fs.symlink(dir.ino(), name, target, &new)?;
        let held = HeldInode::created(self.fs, dir.ino(), name, ino)?;
        self.finish(held.ino(), &Attributes { exact: false, ..want.clone() }, true)
    }

    fn make_special(
        &self,
        dir: &HeldInode<'a>,
        name: &[u8],
        info: &FileInfo,
        want: &Attributes,
    ) -> Result<()> {
        let FileKind::Special(kind) = info.kind else {
            return refused("not a device, fifo or socket");
        };
        let mut plan = self.plan(dir.ino(), kind, want)?;
        plan.new.rdev = info.rdev;
        let held = self.make(dir, name, want, &plan)?;
        self.finish(held.ino(), want, true)
    }

    fn link_handle(&self, dir: &HeldInode<'a>, name: &[u8]) -> Result<HeldInode<'a>> {
        self.enter(dir, name)
    }

    fn link(&self, link_handle: &HeldInode<'a>, dir: &HeldInode<'a>, name: &[u8]) -> Result<()> {
        Ok(self.fs.link(link_handle.ino(), dir.ino(), name)?)
    }

    fn remove(&self, dir: &HeldInode<'a>, name: &[u8]) -> Result<()> {
        debug_assert!(posix::is_plain_name(name));
        Ok(self.fs.unlink(dir.ino(), name)?)
    }
}
