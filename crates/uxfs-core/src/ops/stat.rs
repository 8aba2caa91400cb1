//! Reporting the attributes of a file and the totals of the volume.

use uxfs_format::inode::{Flags, ForkFormat, decode_dev};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{Ino, Uuid};

use uxfs_format::inode::Fork;

use crate::delalloc::Delalloc;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::InodeState;

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub ino: Ino,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Number of names.
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
    /// Generation: differs each time the number is used again.
    pub generation: u32,
    /// Project.
    pub projid: u32,
    /// XFS' flags of the inode.
    pub flags: Flags,
}

/// What is known of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for data and metadata, the log not counted.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes allocated or that could be.
    pub files: u64,
    /// Free inodes, and those that could be allocated.
    pub free_files: u64,
    /// UUID that the user sees.
    pub uuid: Uuid,
    /// Label.
    pub label: Vec<u8>,
}

impl InodeState {
    /// What is known of the file.
    pub fn stat(&self) -> Stat {
        let core = &self.core;
        let rdev = match (core.format, self.fork(Fork::Data).first_chunk::<4>()) {
            (ForkFormat::Dev, Some(raw)) => decode_dev(u32::from_be_bytes(*raw)),
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
    /// Runs `f` over an inode in use, locked for reading.
    pub(crate) fn with_inode<R>(
        &self,
        ino: Ino,
        f: impl FnOnce(&InodeState) -> Result<R>,
    ) -> Result<R> {
        let cell = self.inodes.get(self, ino)?;
        let state = crate::sync::read(&cell);
        if state.core.mode == 0 {
            return Err(Error::NotFound);
        }
        f(&state)
    }

    /// What is known of a file.
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

    /// What is known of the volume.
    pub fn statfs(&self) -> StatFs {
        let sb = self.superblock();
        let (icount, ifree) = self.inode_counts();
        // What is kept for trees of files on their way is nobody's.
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
