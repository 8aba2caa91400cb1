//! A volume as source and target of a copy.

use std::io::Read;
use std::ops::ControlFlow;

use uxfs_core::{Fs, NewInode, SetAttr, Stat, Times, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

use super::sides::{
    Attributes, FileId, FileInfo, FileKind, Result, SourceTree, TargetTree, Xattrs, refused,
};
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
pub struct ImageFile {
    ino: Ino,
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

    /// Opens a file by inode number.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn open(&self, ino: Ino) -> Result<(Ino, FileInfo)> {
        Ok((ino, info(self.volume, &self.fs.stat(ino)?)))
    }
}

impl SourceTree for ImageSource<'_> {
    type Node = Ino;

    fn child(&self, dir: &Ino, name: &[u8], follow: bool) -> Result<(Ino, FileInfo)> {
        let ino = match follow {
            true => self.fs.resolve_at(*dir, name, true)?,
            false => self.fs.lookup(*dir, name)?,
        };
        self.open(ino)
    }

    fn names(&self, dir: &Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.fs.read_dir(*dir, 0, &mut |entry| {
            if !entry.is_dot() {
                names.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    fn link_target(&self, node: &Ino) -> Result<Vec<u8>> {
        Ok(self.fs.readlink(*node)?)
    }

    fn xattrs(&self, node: &Ino) -> Result<Xattrs> {
        let names = self.fs.list_xattrs(*node)?;
        names.into_iter().map(|name| Ok((name.clone(), self.fs.get_xattr(*node, &name)?))).collect()
    }

    fn data(&self, node: &Ino, _size: u64) -> Result<Vec<(u64, u64)>> {
        let segments = self.fs.segments(*node)?;
        Ok(segments.iter().filter(|s| s.device.is_some()).map(|s| (s.offset, s.len)).collect())
    }

    fn read(&self, node: &Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read_at(*node, offset, buf)?)
    }

    fn stream(&self, _node: &Ino) -> Result<Box<dyn Read + '_>> {
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

impl TargetTree for ImageTarget<'_> {
    type Dir = Ino;
    type File = ImageFile;
    type LinkHandle = Ino;

    fn find(&self, dir: &Ino, name: &[u8]) -> Result<Option<FileInfo>> {
        match self.fs.lookup(*dir, name) {
            Ok(ino) => Ok(Some(info(self.volume, &self.fs.stat(ino)?))),
            Err(uxfs_core::Error::NotFound) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn id(&self, dir: &Ino) -> Result<FileId> {
        Ok((self.volume, dir.0))
    }

    fn enter(&self, dir: &Ino, name: &[u8]) -> Result<Ino> {
        Ok(self.fs.lookup(*dir, name)?)
    }

    fn make_dir(&self, dir: &Ino, name: &[u8], want: &Attributes) -> Result<Ino> {
        let plan = self.plan(*dir, S_IFDIR, want)?;
        let ino = self.fs.create(*dir, name, &plan.new)?;
        if !want.exact {
            plan.finish(self.fs, ino)?;
        }
        Ok(ino)
    }

    fn finish_dir(&self, dir: &Ino, want: &Attributes) -> Result<()> {
        self.finish(*dir, want, false)
    }

    fn open_file(
        &self,
        dir: &Ino,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<ImageFile> {
        if exists {
            let ino = self.fs.lookup(*dir, name)?;
            self.fs.truncate(ino, 0)?;
            return Ok(ImageFile { ino, created: false });
        }
        let plan = self.plan(*dir, S_IFREG, want)?;
        let ino = self.fs.create(*dir, name, &plan.new)?;
        if !want.exact {
            plan.finish(self.fs, ino)?;
        }
        Ok(ImageFile { ino, created: true })
    }

    fn can_share(&self, (volume, _): FileId) -> bool {
        volume == self.volume && self.fs.geo.has_reflink()
    }

    fn share(&self, file: &ImageFile, (_, ino): FileId) -> Result<()> {
        Ok(self.fs.clone_file(Ino(ino), file.ino)?)
    }

    fn write(&self, file: &ImageFile, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.fs.write_at(file.ino, offset, data)?)
    }

    fn finish_file(&self, file: ImageFile, size: u64, want: &Attributes) -> Result<()> {
        if self.fs.stat(file.ino)?.size != size {
            self.fs.truncate(file.ino, size)?;
        }
        self.finish(file.ino, want, file.created)
    }

    fn make_symlink(&self, dir: &Ino, name: &[u8], target: &[u8], want: &Attributes) -> Result<()> {
        let plan = self.plan(*dir, S_IFLNK, want)?;
        let new = NewInode { mode: S_IFLNK | 0o777, ..plan.new };
        let ino = self.fs.symlink(*dir, name, target, &new)?;
        self.finish(ino, &Attributes { exact: false, ..want.clone() }, true)
    }

    fn make_special(
        &self,
        dir: &Ino,
        name: &[u8],
        info: &FileInfo,
        want: &Attributes,
    ) -> Result<()> {
        let FileKind::Special(kind) = info.kind else {
            return refused("not a device, fifo or socket");
        };
        let mut plan = self.plan(*dir, kind, want)?;
        plan.new.rdev = info.rdev;
        let ino = self.fs.create(*dir, name, &plan.new)?;
        if !want.exact {
            plan.finish(self.fs, ino)?;
        }
        self.finish(ino, want, true)
    }

    fn link_handle(&self, dir: &Ino, name: &[u8]) -> Result<Ino> {
        Ok(self.fs.lookup(*dir, name)?)
    }

    fn link(&self, link_handle: &Ino, dir: &Ino, name: &[u8]) -> Result<()> {
        Ok(self.fs.link(*link_handle, *dir, name)?)
    }

    fn remove(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        debug_assert!(posix::is_plain_name(name));
        Ok(self.fs.unlink(*dir, name)?)
    }
}
