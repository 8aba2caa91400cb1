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
    /// written before the volume is synced or closed. On a volume with a journal that is too late:
    /// there [`Fs::build_with`] makes files that have data.
    ///
    /// # Errors
    /// As [`Fs::create`], [`Fs::symlink`] and [`Fs::set_xattr`]; [`Error::Invalid`] for data with a
    /// journal. Nothing is made then.
    pub fn build(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
    ) -> Result<(Ino, Vec<Segment>)> {
        let mut all = Vec::new();
        let mut later = |places: &[Segment]| {
            if self.journal.is_some() && !places.is_empty() {
                return Err(Error::Invalid("with a journal, data comes before what shows it"));
            }
            all.extend_from_slice(places);
            Ok(())
        };
        let ino = self.build_with(parent, name, new, xattrs, content, &mut later)?;
        Ok((ino, all))
    }

    /// As [`Fs::build`]; `bring` hands the data over to whoever brings it to the device. It is called
    /// at most once, before the file is there for anybody and with locks held: it makes no call of this
    /// volume's. With a journal, the checkpoint that shows the file waits for the data: see
    /// [`Fs::set_arrivals`]. If this fails after `bring` was called, the data must not arrive later than
    /// the caller's next call: the places are free again.
    ///
    /// # Errors
    /// As [`Fs::create`], [`Fs::symlink`] and [`Fs::set_xattr`]; those of `bring`. Nothing is made then.
    pub fn build_with(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
        bring: &mut dyn FnMut(&[Segment]) -> Result<()>,
    ) -> Result<Ino> {
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
            self.try_build((parent, name), &new, xattrs, content, (blocks, data), bring)
        })??;
        self.balance()?;
        Ok(made)
    }

    /// An error that may be gone at the next attempt, or what came of it after the data was handed
    /// over, which is done but once.
    fn try_build(
        &self,
        (parent, name): (Ino, &[u8]),
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
        (blocks, data): (u64, u64),
        bring: &mut dyn FnMut(&[Segment]) -> Result<()>,
    ) -> Result<Result<Ino>> {
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
            if self.journal.is_some() && self.arrivals.lock().is_none() {
                return Err(Error::Invalid(
                    "nobody is known to bring the data of files made whole",
                ));
            }
            self.before_data()?;
            if let Err(error) = bring(&places) {
                return Ok(Err(error));
            }
            return Ok(tx.commit().map(|_| ino));
        }
        tx.commit()?;
        Ok(Ok(ino))
    }
}
