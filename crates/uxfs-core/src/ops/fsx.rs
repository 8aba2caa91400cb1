//! Flags, hints and project ID of a file (FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR).

use uxfs_format::Ino;
use uxfs_format::extent::MAX_EXTENT_LEN;
use uxfs_format::inode::{Flags, Flags2, InodeCore};

use super::quota::Owners;
use crate::error::{Error, Result};
use crate::fs::Fs;

bitflags::bitflags! {
    /// Flags of a file, with the values of Linux's `FS_XFLAG_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Xflags: u32 {
        /// Data lies on the realtime device.
        const REALTIME = 0x1;
        /// Blocks were preallocated. Read-only.
        const PREALLOC = 0x2;
        /// The file may not be changed.
        const IMMUTABLE = 0x8;
        /// The file may only grow at its end; a directory may only gain entries.
        const APPEND = 0x10;
        /// Writes are synchronous.
        const SYNC = 0x20;
        /// Reads do not update the access time.
        const NOATIME = 0x40;
        /// Backups skip the file.
        const NODUMP = 0x80;
        /// New files lie on the realtime device. Directories only.
        const RTINHERIT = 0x100;
        /// New files inherit the project ID. Directories only.
        const PROJINHERIT = 0x200;
        /// No symbolic links may be created here. Directories only.
        const NOSYMLINKS = 0x400;
        /// [`Fsx::extsize`] applies to this file. Regular files only.
        const EXTSIZE = 0x800;
        /// New files inherit [`Fsx::extsize`]. Directories only.
        const EXTSZINHERIT = 0x1000;
        /// Defragmentation skips the file.
        const NODEFRAG = 0x2000;
        /// Files of this directory are allocated as streams.
        const FILESTREAM = 0x4000;
        /// Direct access to persistent memory. Regular files and directories only.
        const DAX = 0x8000;
        /// [`Fsx::cowextsize`] applies to this file, or to new files in this directory.
        const COWEXTSIZE = 0x1_0000;
        /// The file has extended attributes. Read-only.
        const HASATTR = 0x8000_0000;
    }
}

/// Flags with the same bits on disk that files of every type can have.
const COMMON: Flags = Flags::IMMUTABLE
    .union(Flags::APPEND)
    .union(Flags::SYNC)
    .union(Flags::NOATIME)
    .union(Flags::NODUMP)
    .union(Flags::NODEFRAG)
    .union(Flags::FILESTREAM);
/// Flags that only directories have.
const OF_DIRS: Flags =
    Flags::RTINHERIT.union(Flags::PROJINHERIT).union(Flags::NOSYMLINKS).union(Flags::EXTSZINHERIT);
/// Flags that only regular files have.
const OF_FILES: Flags = Flags::REALTIME.union(Flags::EXTSIZE);
/// Flags that callers cannot change.
const KEPT: Flags = Flags::PREALLOC.union(Flags::NEWRTBM);

/// Flags, allocation hints and project ID of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fsx {
    /// The flags.
    pub xflags: Xflags,
    /// Allocation unit in bytes for new space; 0 for no hint.
    pub extsize: u64,
    /// Number of data extents. Read-only.
    pub nextents: u64,
    /// Project ID.
    pub projid: u32,
    /// Allocation unit in bytes for copy on write; 0 for no hint.
    pub cowextsize: u64,
}

fn fsx_of(core: &InodeCore, block_log: u32) -> Fsx {
    let mut xflags = Xflags::from_bits_truncate(u32::from((core.flags - Flags::NEWRTBM).bits()));
    xflags.set(Xflags::DAX, core.flags2.contains(Flags2::DAX));
    xflags.set(Xflags::COWEXTSIZE, core.flags2.contains(Flags2::COWEXTSIZE));
    xflags.set(Xflags::HASATTR, core.has_attr_fork());
    let extsize = if core.flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT) {
        u64::from(core.extsize) << block_log
    } else {
        0
    };
    let cow = core.flags2.contains(Flags2::COWEXTSIZE);
    let cowextsize = if cow { u64::from(core.cowextsize) << block_log } else { 0 };
    Fsx { xflags, extsize, nextents: core.nextents, projid: core.projid, cowextsize }
}

impl Fs {
    /// Returns flags, hints and project ID of a file.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub fn get_fsx(&self, ino: Ino) -> Result<Fsx> {
        self.write_back_file(ino)?;
        self.get_fsx_on_disk(ino)
    }

    /// As [`Fs::get_fsx`], but leaves data in memory, whose extents are not counted.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub fn get_fsx_on_disk(&self, ino: Ino) -> Result<Fsx> {
        self.with_inode(ino, |inode| Ok(fsx_of(&inode.core, self.geo.block_log)))
    }

    /// Sets flags, hints and project ID of a file. Read-only fields are ignored, and so are flags
    /// that the file's type does not have. A hint of 0 clears its flag.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a hint that is not a multiple of the block size, is larger than half
    /// an allocation group, does not apply to the file's type, changes the hint of a regular file
    /// with data, or comes without its flag; for [`Xflags::REALTIME`], because the volume has no
    /// realtime device; for [`Xflags::COWEXTSIZE`] on a volume that cannot share blocks.
    pub fn set_fsx(&self, ino: Ino, want: &Fsx) -> Result<()> {
        let _inside = self.changes();
        // A file that has data keeps its hint: delayed data counts too.
        self.write_back_file(ino)?;
        let owners = Owners { projid: Some(want.projid), ..Owners::default() };
        let (mut tx, slot) = self.begin_owners(ino, &owners, false)?;
        let core = &tx.inode(slot).core;
        let xflags = self.check_fsx(core, want)?;
        // Most flags have the same bits on disk. The other flags are above bit 15 and drop out
        // here.
        let flags = Flags::from_bits_truncate(xflags.bits() as u16);
        let mut allowed = COMMON;
        if core.is_dir() {
            allowed |= OF_DIRS;
        } else if core.is_reg() {
            allowed |= OF_FILES;
        }
        let flags = core.flags & KEPT | flags & allowed;
        let blocks = |bytes: u64| (bytes >> self.geo.block_log) as u32;
        let now = self.now();
        let core = tx.core_mut(slot);
        core.flags = flags;
        core.flags2.set(Flags2::DAX, xflags.contains(Xflags::DAX));
        core.flags2.set(Flags2::COWEXTSIZE, xflags.contains(Xflags::COWEXTSIZE));
        core.extsize = blocks(want.extsize);
        core.cowextsize = blocks(want.cowextsize);
        core.projid = want.projid;
        core.ctime = now;
        tx.commit()?;
        self.balance()
    }

    /// Checks the requested values. Returns the flags that remain.
    fn check_fsx(&self, core: &InodeCore, want: &Fsx) -> Result<Xflags> {
        let mut xflags = want.xflags;
        let (dir, reg) = (core.is_dir(), core.is_reg());
        let wrong_type = xflags.contains(Xflags::EXTSIZE) && !reg
            || xflags.contains(Xflags::EXTSZINHERIT) && !dir
            || xflags.intersects(Xflags::COWEXTSIZE | Xflags::DAX) && !dir && !reg;
        if wrong_type {
            return Err(Error::Invalid("files of this type cannot have this flag"));
        }
        if want.extsize == 0 {
            xflags.remove(Xflags::EXTSIZE | Xflags::EXTSZINHERIT);
        }
        if want.cowextsize == 0 {
            xflags.remove(Xflags::COWEXTSIZE);
        }
        if want.extsize != 0 && !xflags.intersects(Xflags::EXTSIZE | Xflags::EXTSZINHERIT)
            || want.cowextsize != 0 && !xflags.contains(Xflags::COWEXTSIZE)
        {
            return Err(Error::Invalid("a hint needs its flag"));
        }
        for hint in [want.extsize, want.cowextsize] {
            let blocks = hint >> self.geo.block_log;
            if blocks << self.geo.block_log != hint {
                return Err(Error::Invalid("a hint must be a multiple of the block size"));
            }
            if blocks > MAX_EXTENT_LEN.min(u64::from(self.geo.ag_blocks / 2)) {
                return Err(Error::Invalid("a hint must not exceed half an allocation group"));
            }
        }
        let old = fsx_of(core, self.geo.block_log);
        if reg && core.nextents > 0 && want.extsize != old.extsize {
            return Err(Error::Invalid("the hint of a file that has data cannot change"));
        }
        if xflags.contains(Xflags::REALTIME) {
            return Err(Error::Invalid("the volume has no realtime device"));
        }
        if xflags.contains(Xflags::COWEXTSIZE) && !self.geo.has_reflink() {
            return Err(Error::Invalid("the volume cannot share blocks (reflink=0)"));
        }
        Ok(xflags)
    }
}
