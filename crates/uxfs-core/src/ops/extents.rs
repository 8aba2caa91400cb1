//! Reporting where a file's blocks lie.

use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock, Ino};

use crate::bmap;
use crate::error::Result;
use crate::file::check_file;
use crate::fs::Fs;

impl Fs {
    /// The extents of a regular file in file order, with unwritten extents and extents past its
    /// end.
    ///
    /// # Errors
    /// As [`Fs::read_at`].
    pub fn extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let _content = self.iolocks.read(ino);
        self.write_back_file(ino)?;
        self.with_inode(ino, |inode| {
            check_file(inode)?;
            let mut all = Vec::new();
            let mut at = FileBlock(0);
            while let Some(extent) = bmap::at_or_after(self, inode, Fork::Data, at)? {
                at = extent.end();
                all.push(extent);
            }
            Ok(all)
        })
    }
}
