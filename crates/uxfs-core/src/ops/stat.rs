//! Reporting the attributes of a file and the totals of the volume.

use uxfs_format::inode::{DEV, Flags, ForkFormat, decode_dev};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{Ino, Uuid};

use uxfs_format::inode::Fork;

use crate::delalloc::Delalloc;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::InodeState;

/// The attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub ino: Ino,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Number of links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in file system blocks.
    pub blocks: u64,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Generation: changes each time the inode number is used again.
    pub generation: u32,
    /// Project ID.
    pub projid: u32,
    /// On-disk flags of the inode.
    pub flags: Flags,
}

/// The totals of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks for data and metadata, without the log.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes that are allocated or could be allocated.
    pub files: u64,
    /// Inodes that are free or could be allocated.
    pub free_files: u64,
    /// The user-visible UUID.
    pub uuid: Uuid,
    /// Label.
    pub label: Vec<u8>,
}

impl InodeState {
    /// Returns the attributes of the file.
    pub fn stat(&self) -> Stat {
        let core = &self.core;
        let rdev = match core.format {
            ForkFormat::Dev => decode_dev(DEV.get(self.fork(Fork::Data))),
            _ => (0, 0),
        };
        Stat {
            ino: self.ino,
            mode: core.mode,
            nlink: core.nlink,
            uid: core.uid,
            gid: core.gid,
            size: core.size,
            blocks: core.nblocks,
            rdev,
            atime: core.atime,
            mtime: core.mtime,
            ctime: core.ctime,
            crtime: core.crtime,
            generation: core.generation,
            projid: core.projid,
            flags: core.flags,
        }
    }
}

impl Fs {
    /// Calls `f` with an inode in use, locked for reading.
    pub(crate) fn with_inode<R>(
        &self,
        ino: Ino,
        f: impl FnOnce(&InodeState) -> Result<R>,
    ) -> Result<R> {
        let cell = self.inodes.get(self, ino)?;
        let state = uxfs_sync::read(&cell);
        if state.core.mode == 0 {
            return Err(Error::NotFound);
        }
        f(&state)
    }

    /// Returns the attributes of a file.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an inode that is not in use, or a damaged structure on the way.
    pub fn stat(&self, ino: Ino) -> Result<Stat> {
        self.with_inode(ino, |inode| {
            let mut stat = inode.stat();
            self.stat_delayed(&mut stat);
            Ok(stat)
        })
    }

    /// Returns the totals of the volume.
    pub fn statfs(&self) -> StatFs {
        let sb = self.superblock();
        let (icount, ifree) = self.inode_counts();
        // Blocks that delayed allocation keeps for extent trees count as free.
        let free = self.available_blocks() + self.delalloc.as_ref().map_or(0, Delalloc::pooled);
        let possible = icount.saturating_add(free << self.geo.inopb_log);
        let percent = u64::from(self.geo.imax_pct);
        let most = (self.geo.dblocks / 100).saturating_mul(percent) << self.geo.inopb_log;
        let files = if percent == 0 { possible } else { possible.min(most.max(icount)) };
        StatFs {
            block_size: self.geo.block_size,
            blocks: self.geo.dblocks.saturating_sub(self.geo.log_blocks.into()),
            free_blocks: free,
            files,
            free_files: files - (icount - ifree.min(icount)).min(files),
            uuid: Uuid(sb.uuid),
            label: sb.label().to_vec(),
        }
    }
}
