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
    /// [`Fs::set_pending_data`]. If this fails after `bring` was called, the data must not arrive later than
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
            let made = self.retry_enospc(|| file.at_once(self, bring));
            // Attributes by themselves reserve less.
            if file.attrs.lens.len() <= 1 || !matches!(made, Err(Error::NoSpace)) {
                let made = made??;
                self.balance()?;
                return Ok(made);
            }
        }
        let made = file.in_steps(self, bring)?;
        self.balance()?;
        Ok(made)
    }
}

/// A file to be made.
struct Build<'a> {
    /// Directory and name.
    place: (Ino, &'a [u8]),
    new: &'a NewInode,
    attrs: Batches<'a>,
    content: Content<'a>,
    /// The target in `content`.
    target: Option<&'a [u8]>,
    /// Most blocks that the data takes.
    data: u64,
}

type Bring<'a> = dyn FnMut(&[Segment]) -> Result<()> + 'a;

impl Build<'_> {
    /// Makes it in one transaction. The outer error may be gone at the next attempt; the inner
    /// result is what came of it after the data was handed over, which is done but once.
    fn at_once(&self, fs: &Fs, bring: &mut Bring<'_>) -> Result<Result<Ino>> {
        let (parent, name) = self.place;
        let more = self.target.map_or(0, |_| symlink::blocks(&fs.geo));
        let blocks = self.attrs.blocks(&fs.geo) + more;
        let (mut tx, slot) = fs.begin_create(parent, name, self.new, blocks, self.data)?;
        self.attrs.set_all(&mut tx, slot)?;
        if let Some(target) = self.target {
            symlink::write(&mut tx, slot, target)?;
        }
        self.finish(fs, tx, slot, bring)
    }

    /// Makes it in several transactions, of which the last shows it.
    fn in_steps(&self, fs: &Fs, bring: &mut Bring<'_>) -> Result<Ino> {
        let (parent, name) = self.place;
        let ino = fs.create_unlinked(parent, name, self.new, self.target)?;
        let named = self.attrs.set_apart(fs, ino).and_then(|()| {
            fs.retry_enospc(|| {
                let (tx, slot) = fs.begin_link(parent, name, ino, self.data)?;
                self.finish(fs, tx, slot, bring)
            })
        });
        match named {
            Ok(Ok(ino)) => Ok(ino),
            // Its data may still be on the way to blocks that are free again.
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

    /// Allocates the blocks of the data, hands it over, and commits.
    fn finish(
        &self,
        fs: &Fs,
        mut tx: Tx<'_>,
        slot: InodeSlot,
        bring: &mut Bring<'_>,
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
            if fs.journal.is_some() && fs.pending_data.lock().is_none() {
                return Err(Error::Invalid(
                    "nobody is known to bring the data of files made whole",
                ));
            }
            fs.before_data()?;
            if let Err(error) = bring(&places) {
                return Ok(Err(error));
            }
            return Ok(tx.commit().map(|_| ino));
        }
        tx.commit()?;
        Ok(Ok(ino))
    }
}
