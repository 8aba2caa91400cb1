//! Creating files: regular files, directories, symbolic links and device nodes.

use uxfs_format::inode::{
    DEV, Flags, Flags2, Fork, ForkFormat, InodeCore, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK,
    S_IFREG, S_IFSOCK, encode_dev,
};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{AgIno, Ino, dir::FileType};

use super::guard;
use super::names::{check_dir, check_name};
use crate::dquot::Usage;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};
use crate::{attr, dir, ialloc, quota, symlink};

/// What a new file uses.
pub(super) const ONE_INODE: Usage = Usage { blocks: 0, inodes: 1 };

/// The times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
}

impl Times {
    /// All four times set to `moment`.
    pub fn all(moment: Timestamp) -> Self {
        Self { atime: moment, mtime: moment, ctime: moment, crtime: moment }
    }
}

/// Attributes of a file to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number, for devices.
    pub rdev: (u32, u32),
    /// The file's times; `None` for the present time.
    pub times: Option<Times>,
    /// Bytes of extended attributes (names and values) that will follow. The inode reserves space
    /// for them.
    pub attr_bytes: usize,
}

impl NewInode {
    /// A file of type and permissions `mode`, owned by root.
    pub fn new(mode: u16) -> Self {
        Self { mode, uid: 0, gid: 0, rdev: (0, 0), times: None, attr_bytes: 0 }
    }

    /// A regular file.
    pub fn file(permissions: u16) -> Self {
        Self::new(S_IFREG | permissions)
    }

    /// A directory.
    pub fn dir(permissions: u16) -> Self {
        Self::new(S_IFDIR | permissions)
    }
}

impl Fs {
    /// Creates a file, directory, device, fifo or socket, as the type in `new.mode` says, with the
    /// name `name` in directory `parent`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotDir`], [`Error::NameTooLong`], [`Error::NoSpace`],
    /// [`Error::NotPermitted`] if the directory's flags forbid it, [`Error::Invalid`] for a mode
    /// without a type, or a damaged structure on the way.
    pub fn create(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let _inside = self.changes();
        if new.mode & uxfs_format::inode::S_IFMT == S_IFLNK {
            return Err(Error::Invalid("use symlink to create a symbolic link"));
        }
        let ino = self.retry_enospc(|| {
            let (tx, slot) = self.begin_create(parent, name, new, 0, 0)?;
            let ino = tx.inode(slot).ino;
            tx.commit()?;
            Ok(ino)
        })?;
        self.balance()?;
        Ok(ino)
    }

    /// Creates a symbolic link to `target` with the name `name` in directory `parent`.
    ///
    /// # Errors
    /// As [`Fs::create`]; [`Error::NameTooLong`] also for a target over 1023 bytes.
    pub fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        let _inside = self.changes();
        symlink::check_target(target)?;
        let new = NewInode { mode: S_IFLNK | (new.mode & 0o7777), ..new.clone() };
        let blocks = symlink::blocks(&self.geo);
        let ino = self.retry_enospc(|| {
            let (mut tx, slot) = self.begin_create(parent, name, &new, blocks, 0)?;
            symlink::write(&mut tx, slot, target)?;
            let ino = tx.inode(slot).ino;
            tx.commit()?;
            Ok(ino)
        })?;
        self.balance()?;
        Ok(ino)
    }

    /// Creates the inode and its name in an open transaction: the part common to all types.
    pub(crate) fn begin_create<'fs>(
        &'fs self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        meta_blocks: u64,
        data_blocks: u64,
    ) -> Result<(Tx<'fs>, InodeSlot)> {
        check_name(name)?;
        let kind = new.mode & uxfs_format::inode::S_IFMT;
        let blocks = dir::insert_blocks(&self.geo)
            + ialloc::blocks(self)
            + meta_blocks
            + self.parent_blocks();
        let op = Op::Create(blocks);
        let (mut tx, dp, core) = self.with_dquots(|| {
            let total = blocks.saturating_add(data_blocks).min(1 << 62);
            let mut tx = self.begin_tx_for(op, total)?;
            let dp = tx.lock_inode(parent)?;
            self.may_enter(&tx, dp, name, kind)?;
            let core = self.new_core(&tx.inode(dp).core, new)?;
            Ok((tx, dp, core))
        })?;
        tx.hold(&core, ONE_INODE)?;
        let slot = ialloc::alloc(&mut tx, parent, core)?;
        first_content(&mut tx, slot, parent, new);
        enter(&mut tx, dp, slot, name)?;
        Ok((tx, slot))
    }

    /// Begins a transaction that makes a file of a core, when its owners have quota records.
    ///
    /// # Errors
    /// Those of `begin`, and those of making records.
    pub(super) fn with_dquots<'fs>(
        &'fs self,
        mut begin: impl FnMut() -> Result<(Tx<'fs>, InodeSlot, InodeCore)>,
    ) -> Result<(Tx<'fs>, InodeSlot, InodeCore)> {
        loop {
            let (tx, slot, core) = begin()?;
            if !self.lacks_dquots(&core)? {
                return Ok((tx, slot, core));
            }
            drop(tx);
            quota::provide(self, &core)?;
        }
    }

    /// Checks that a file of this type may get the name `name` in the locked directory.
    pub(super) fn may_enter(
        &self,
        tx: &Tx<'_>,
        dp: InodeSlot,
        name: &[u8],
        kind: u16,
    ) -> Result<()> {
        check_dir(tx.inode(dp))?;
        let up = &tx.inode(dp).core;
        if up.nlink == 0 {
            return Err(Error::NotFound);
        }
        if kind == S_IFDIR && up.nlink >= i32::MAX as u32 {
            return Err(Error::TooManyLinks);
        }
        if dir::lookup(self, tx.inode(dp), name)?.is_some() {
            return Err(Error::Exists);
        }
        guard::may_add(up)?;
        if kind == S_IFLNK && up.flags.contains(Flags::NOSYMLINKS) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    pub(super) fn new_core(&self, parent: &InodeCore, new: &NewInode) -> Result<InodeCore> {
        let kind = new.mode & uxfs_format::inode::S_IFMT;
        let format = match kind {
            S_IFREG | S_IFLNK => ForkFormat::Extents,
            S_IFDIR => ForkFormat::Local,
            S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => ForkFormat::Dev,
            _ => return Err(Error::Invalid("the mode has no valid file type")),
        };
        if new.rdev.0 > 0x3fff || new.rdev.1 > 0x3_ffff {
            return Err(Error::Invalid("XFS cannot store this device number"));
        }
        let times = new.times.unwrap_or_else(|| Times::all(self.now()));
        let inherit = parent.flags.contains(Flags::PROJINHERIT);
        let (flags, flags2) = inherited(parent, kind);
        let forkoff = attr::default_forkoff(&self.geo, new.mode, new.attr_bytes);
        if forkoff != 0 {
            self.note_attr();
        }
        let sized = flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT);
        Ok(InodeCore {
            mode: new.mode,
            format,
            uid: new.uid,
            gid: new.gid,
            nlink: if kind == S_IFDIR { 2 } else { 1 },
            projid: if inherit { parent.projid } else { 0 },
            atime: times.atime,
            mtime: times.mtime,
            ctime: times.ctime,
            crtime: times.crtime,
            extsize: if sized { parent.extsize } else { 0 },
            forkoff,
            aformat: ForkFormat::Extents,
            flags,
            flags2,
            cowextsize: if flags2.contains(Flags2::COWEXTSIZE) { parent.cowextsize } else { 0 },
            next_unlinked: AgIno::NULL,
            ..InodeCore::default()
        })
    }
}

/// Writes the first content that the type requires: an empty directory, or a device number.
pub(super) fn first_content(tx: &mut Tx<'_>, slot: InodeSlot, parent: Ino, new: &NewInode) {
    match new.mode & uxfs_format::inode::S_IFMT {
        S_IFDIR => dir::init(tx, slot, parent),
        S_IFCHR | S_IFBLK => {
            let rdev = encode_dev(new.rdev.0, new.rdev.1);
            DEV.set(tx.fork_mut(slot, Fork::Data), rdev);
        }
        _ => {}
    }
}

/// Gives an inode its first name.
pub(super) fn enter(tx: &mut Tx<'_>, dp: InodeSlot, slot: InodeSlot, name: &[u8]) -> Result<()> {
    let (ino, mode) = (tx.inode(slot).ino, tx.inode(slot).core.mode);
    dir::insert(tx, dp, name, ino, FileType::from_mode(mode))?;
    super::parent::add(tx, slot, dp, name)?;
    let now = tx.fs().now();
    let is_dir = tx.inode(slot).core.is_dir();
    let up = tx.core_mut(dp);
    (up.mtime, up.ctime) = (now, now);
    up.nlink += u32::from(is_dir);
    Ok(())
}

/// The flags that a new file of this type inherits from its directory.
fn inherited(parent: &InodeCore, kind: u16) -> (Flags, Flags2) {
    const ANY: Flags = Flags::NOATIME
        .union(Flags::NODUMP)
        .union(Flags::SYNC)
        .union(Flags::NODEFRAG)
        .union(Flags::FILESTREAM);
    const DIRS: Flags = Flags::PROJINHERIT.union(Flags::EXTSZINHERIT).union(Flags::RTINHERIT);
    let sized = parent.flags.contains(Flags::EXTSZINHERIT);
    let own = match kind {
        S_IFDIR => parent.flags & DIRS,
        S_IFREG if sized => Flags::EXTSIZE,
        S_IFREG => Flags::empty(),
        _ => return (Flags::empty(), Flags2::empty()),
    };
    (parent.flags & ANY | own, parent.flags2 & (Flags2::DAX | Flags2::COWEXTSIZE))
}
