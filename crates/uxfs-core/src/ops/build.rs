//! Making a file whole in one transaction: inode, name, attributes, and room for its data. What an
//! image builder wants, once for each file.

use uxfs_format::Ino;
use uxfs_format::inode::S_IFLNK;

use super::NewInode;
use crate::attr::{self, names};
use crate::error::{Error, Result};
use crate::file::{SIZE_MAX, Segment};
use crate::fs::Fs;
use crate::symlink;

/// What a new file holds.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Nothing.
    Empty,
    /// The target of a symbolic link.
    Target(&'a [u8]),
    /// Data of `size` bytes, present in these segments (offset and length, each starting at a
    /// multiple of the block size and ending at one or at the end of the file), holes elsewhere.
    Data {
        /// Length of the file.
        size: u64,
        /// Where it has data.
        segments: &'a [(u64, u64)],
    },
}

impl Fs {
    /// Makes a file with its attributes (Linux' names and values) and allocates the blocks of its
    /// data, which the caller writes to the device at the places returned, zeroing the rest of the
    /// last block. Until the data is there the blocks hold what they held before: the data must be
    /// written before the volume is synced or closed.
    ///
    /// # Errors
    /// As [`Fs::create`], [`Fs::symlink`] and [`Fs::set_xattr`]; nothing is made then.
    pub fn build(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
    ) -> Result<(Ino, Vec<Segment>)> {
        let (mut blocks, mut data) = (0, 0u64);
        for (_, value) in xattrs {
            blocks += attr::set_blocks(&self.geo, value.len());
        }
        let mut new = new.clone();
        match content {
            Content::Empty => {}
            Content::Target(target) => {
                symlink::check_target(target)?;
                new.mode = S_IFLNK | new.mode & 0o7777;
                blocks += self.geo.blocks_for(1024) + 4;
            }
            Content::Data { size, segments } => {
                let beyond =
                    |(at, len): &(u64, u64)| at.checked_add(*len).is_none_or(|end| end > SIZE_MAX);
                if size > SIZE_MAX || segments.iter().any(beyond) {
                    return Err(Error::FileTooBig);
                }
                for (_, len) in segments {
                    data = data.saturating_add(self.geo.blocks_for(*len) + 1);
                }
            }
        }
        let made = self.with_patience(|| {
            self.try_build((parent, name), &new, xattrs, content, (blocks, data))
        })?;
        self.balance()?;
        Ok(made)
    }

    fn try_build(
        &self,
        (parent, name): (Ino, &[u8]),
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
        (blocks, data): (u64, u64),
    ) -> Result<(Ino, Vec<Segment>)> {
        let (mut tx, slot) = self.begin_create(parent, name, new, blocks, data)?;
        for (name, value) in xattrs {
            let stored = names::stored(name)?;
            if let Some(value) = stored.coding.encode(value)? {
                attr::set(&mut tx, slot, stored.namespace, stored.name, &value)?;
            }
        }
        let mut places = Vec::new();
        match content {
            Content::Empty => {}
            Content::Target(target) => symlink::write(&mut tx, slot, target)?,
            Content::Data { size, segments } => {
                for (offset, len) in segments {
                    places.extend(self.allocate_in(&mut tx, slot, *offset, *len)?);
                }
                let core = tx.core_mut(slot);
                core.size = core.size.max(size);
            }
        }
        let ino = tx.inode(slot).ino;
        if !places.is_empty() {
            self.before_data()?;
        }
        tx.commit()?;
        Ok((ino, places))
    }
}
