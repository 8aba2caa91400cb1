//! Creating a complete file in one call: inode, name, attributes, and blocks for its data. Image
//! builders call this once for each file.
//!
//! 1. The file becomes visible only when it is complete, also after a power cut.
//! 2. One transaction creates the file, unless it has more attributes than one transaction can
//!    reserve space for ([`super::batches`]). Such a file is created without a name
//!    ([`super::unlinked`]).

use uxfs_format::Ino;
use uxfs_format::inode::S_IFLNK;

use super::batches::Batches;
use super::create::NewInode;
use crate::attr::{self, names};
use crate::error::{Error, Result};
use crate::file::{SIZE_MAX, Segment};
use crate::fs::Fs;
use crate::symlink;
use crate::tx::{InodeSlot, Tx};

/// The content of a new file.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Nothing.
    Empty,
    /// The target of a symbolic link.
    Target(&'a [u8]),
    /// Data of `size` bytes. `segments` lists the ranges with data (offset and length); the rest is
    /// holes. Each range starts at a multiple of the block size and ends at one or at the end of
    /// the file.
    Data {
        /// Length of the file.
        size: u64,
        /// The ranges with data.
        segments: &'a [(u64, u64)],
    },
}

impl Fs {
    /// Creates a file with its attributes (Linux names and values) and allocates the blocks for its
    /// data. The caller writes the data to the returned device addresses and zeroes the rest of the
    /// last block.
    ///
    /// Until then the blocks hold their old content. The caller must therefore write the data
    /// before the volume is synced or closed. With a journal the file can become durable earlier,
    /// so there use [`Fs::build_with`] for files with data.
    ///
    /// # Errors
    /// As [`Fs::create`], [`Fs::symlink`] and [`Fs::set_xattr`]; [`Error::Invalid`] for data with a
    /// journal. No file is created then.
    pub fn build(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
    ) -> Result<(Ino, Vec<Segment>)> {
        let _inside = self.changes();
        let mut all = Vec::new();
        let mut later = |places: &[Segment]| {
            if self.journal.is_some() && !places.is_empty() {
                return Err(Error::Invalid("with a journal, use build_with for files with data"));
            }
            all.extend_from_slice(places);
            Ok(())
        };
        let ino = self.build_with(parent, name, new, xattrs, content, &mut later)?;
        Ok((ino, all))
    }

    /// As [`Fs::build`], but calls `write_data` with the allocated segments, so that it can start
    /// writing the data.
    ///
    /// `write_data` is called at most once, before the file is visible and with locks held. It must
    /// not call this volume. With a journal, the checkpoint that makes the file visible waits for
    /// the data, which goes through a [`crate::BulkWriter`]. If this function fails after it called `write_data`,
    /// the blocks are free again: the data must not be written later than the caller's next call.
    ///
    /// # Errors
    /// As [`Fs::create`], [`Fs::symlink`] and [`Fs::set_xattr`]; errors of `write_data`. No file is
    /// created then.
    pub fn build_with(
        &self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        content: Content<'_>,
        write_data: &mut dyn FnMut(&[Segment]) -> Result<()>,
    ) -> Result<Ino> {
        let _inside = self.changes();
        let mut new = new.clone();
        let mut data = 0u64;
        let mut target = None;
        match content {
            Content::Empty => {}
            Content::Target(text) => {
                symlink::check_target(text)?;
                new.mode = S_IFLNK | new.mode & 0o7777;
                target = Some(text);
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
        let set = |tx: &mut Tx<'_>, slot: InodeSlot, at: usize| {
            let (name, value) = &xattrs[at];
            let stored = names::stored(name)?;
            match stored.coding.encode(value)? {
                Some(value) => attr::set(tx, slot, stored.namespace, stored.name, &value),
                None => Ok(()),
            }
        };
        let lens = xattrs.iter().map(|(_, value)| value.len()).collect();
        let attrs = Batches { lens, set: &set };
        let file = Build { place: (parent, name), new: &new, attrs, content, target, data };
        if file.attrs.are_few(&self.geo) {
            let made = self.retry_enospc(|| file.at_once(self, write_data));
            // Without its attributes the file needs a smaller reservation.
            if file.attrs.lens.len() <= 1 || !matches!(made, Err(Error::NoSpace)) {
                let made = made??;
                self.balance()?;
                return Ok(made);
            }
        }
        let made = file.in_steps(self, write_data)?;
        self.balance()?;
        Ok(made)
    }
}

/// A file to be created.
struct Build<'a> {
    /// Directory and name.
    place: (Ino, &'a [u8]),
    new: &'a NewInode,
    attrs: Batches<'a>,
    content: Content<'a>,
    /// The link target in `content`.
    target: Option<&'a [u8]>,
    /// Most blocks that the data takes.
    data: u64,
}

type DataWriter<'a> = dyn FnMut(&[Segment]) -> Result<()> + 'a;

impl Build<'_> {
    /// Creates the file in one transaction. After an outer error the caller may try again. The
    /// inner result is final: `write_data` was called, which happens only once.
    fn at_once(&self, fs: &Fs, write_data: &mut DataWriter<'_>) -> Result<Result<Ino>> {
        let (parent, name) = self.place;
        let more = self.target.map_or(0, |_| symlink::blocks(&fs.geo));
        let blocks = self.attrs.blocks(&fs.geo) + more;
        let (mut tx, slot) = fs.begin_create(parent, name, self.new, blocks, self.data)?;
        self.attrs.set_all(&mut tx, slot)?;
        if let Some(target) = self.target {
            symlink::write(&mut tx, slot, target)?;
        }
        self.finish(fs, tx, slot, write_data)
    }

    /// Creates the file in several transactions. The last one makes it visible.
    fn in_steps(&self, fs: &Fs, write_data: &mut DataWriter<'_>) -> Result<Ino> {
        let (parent, name) = self.place;
        let ino = fs.create_unlinked(parent, name, self.new, self.target)?;
        let named = self.attrs.set_apart(fs, ino).and_then(|()| {
            fs.retry_enospc(|| {
                let (tx, slot) = fs.begin_link(parent, name, ino, self.data, |_, _| Ok(()))?;
                self.finish(fs, tx, slot, write_data)
            })
        });
        match named {
            Ok(Ok(ino)) => Ok(ino),
            // The data may still be in flight to blocks that are free again.
            Ok(Err(error)) => {
                fs.abandon_later(ino);
                Err(error)
            }
            Err(error) => {
                fs.abandon(ino);
                Err(error)
            }
        }
    }

    /// Allocates the blocks of the data, calls `write_data`, and commits.
    fn finish(
        &self,
        fs: &Fs,
        mut tx: Tx<'_>,
        slot: InodeSlot,
        write_data: &mut DataWriter<'_>,
    ) -> Result<Result<Ino>> {
        let mut places = Vec::new();
        if let Content::Data { size, segments } = self.content {
            for (offset, len) in segments {
                places.extend(fs.allocate_in(&mut tx, slot, *offset, *len)?);
            }
            let core = tx.core_mut(slot);
            core.size = core.size.max(size);
        }
        let ino = tx.inode(slot).ino;
        if !places.is_empty() {
            if fs.journal.is_some() && fs.bulk_data.lock().is_none() {
                return Err(Error::Invalid("building a file with data needs a bulk writer"));
            }
            fs.before_data()?;
            if let Err(error) = write_data(&places) {
                return Ok(Err(error));
            }
            return Ok(tx.commit().map(|_| ino));
        }
        tx.commit()?;
        Ok(Ok(ino))
    }
}
