//! Atomic writes: ranges of several files change wholly or not at all, also across a power cut.
//!
//! 1. New content goes to blocks that show nothing yet: newly allocated ones, or unwritten ones of the file.
//! 2. One transaction maps the blocks of all ranges, after they hold the content. It is not rolled before all
//!    are mapped; only the freeing of the old blocks is deferred.
//! 3. The iolocks of all files are held from start to end, so a reader of a file sees all of its ranges or none.

use std::borrow::Cow;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock, Ino};

use crate::alloc::Goal;
use crate::bmap;
use crate::error::{Error, Result};
use crate::file::{SIZE_MAX, check_write};
use crate::fs::Fs;
use crate::limits::{EXTENTS_A_STEP, TREE_BLOCKS};
use crate::tx::{InodeSlot, Tx};

/// A range of a file, and its new content.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRange<'a> {
    /// The file.
    pub ino: Ino,
    /// Offset of the first byte.
    pub offset: u64,
    /// The new content.
    pub data: &'a [u8],
}

impl AtomicRange<'_> {
    /// Most ranges of one write.
    pub const MOST: usize = 16;
    /// Most bytes of one write, all ranges together.
    pub const MOST_BYTES: u64 = 16 << 20;

    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl Fs {
    /// Writes ranges of one or more files wholly or not at all. After a crash either all of them have the new
    /// content, or all have the old one. The write is durable when a later [`Fs::fsync`] of one of the files
    /// returns, or in ordered mode like every other change.
    ///
    /// Ranges need no alignment, and may extend their files. Those of one file must not overlap.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use uxfs_disk::{BlockDev, MemDev};
    /// # use uxfs_core::{AtomicRange, Fs, NewInode, OpenOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(512 << 20));
    /// # let layout = uxfs_mkfs::Layout::new(&uxfs_mkfs::Options::default(), dev.len())?;
    /// # uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default())?;
    /// # let fs = Fs::open(dev, OpenOptions::default())?;
    /// let table = fs.create(fs.root(), b"table", &NewInode::file(0o644))?;
    /// let index = fs.create(fs.root(), b"index", &NewInode::file(0o644))?;
    /// fs.write_atomic(&[
    ///     AtomicRange { ino: table, offset: 0, data: &[1; 8192] },
    ///     AtomicRange { ino: table, offset: 1 << 20, data: &[2; 8192] },
    ///     AtomicRange { ino: index, offset: 4096, data: &[3; 100] },
    /// ])?;
    /// fs.fsync(table)?;
    /// # fs.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than [`AtomicRange::MOST`] ranges or [`AtomicRange::MOST_BYTES`] bytes, for
    /// ranges that overlap, and if the ranges have more extents than one transaction can change;
    /// [`Error::Unsupported`] without a journal; otherwise as [`Fs::write_at`]. A failed call has changed
    /// nothing.
    pub fn write_atomic(&self, ranges: &[AtomicRange<'_>]) -> Result<()> {
        let _inside = self.changes();
        self.check_writable()?;
        if self.journal.is_none() {
            return Err(Error::Unsupported("atomic writes need the volume's journal".into()));
        }
        let ranges = sorted(ranges)?;
        let mut inos: Vec<Ino> = ranges.iter().map(|range| range.ino).collect();
        inos.dedup();
        let _contents = self.iolocks.change_all(&inos);
        let _blocked = self.flush_and_block_all(&inos)?;
        ranges.iter().try_for_each(|range| self.free_shared_behind(range.ino, range.offset))?;
        if planted(Fault::AtomicInParts) {
            for range in &ranges {
                self.retry_enospc(|| self.replace_all(&[range.ino], std::slice::from_ref(range)))?;
                self.wait(self.ticket())?;
            }
            return Ok(());
        }
        if !ranges.is_empty() {
            self.retry_enospc(|| self.replace_all(&inos, &ranges))?;
        }
        self.balance()
    }

    /// Replaces the content of all ranges in one transaction.
    fn replace_all(&self, inos: &[Ino], ranges: &[AtomicRange<'_>]) -> Result<()> {
        let mut tx = self.begin_tx(0)?;
        tx.lock_sorted(inos)?;
        let blocks = |range: &AtomicRange<'_>| {
            let size = u64::from(self.geo.block_size);
            self.geo.blocks_for(range.offset % size + range.data.len() as u64) + TREE_BLOCKS
        };
        tx.reserve_more(ranges.iter().map(blocks).sum())?;
        let mut room = EXTENTS_A_STEP;
        for (at, range) in ranges.iter().enumerate() {
            let slot = tx.lock_inode(range.ino)?;
            self.replace(&mut tx, slot, range, &mut room)?;
            if at + 1 < ranges.len() && !tx.has_room() {
                return Err(TOO_MANY_EXTENTS);
            }
        }
        tx.commit()
    }

    /// Gives a range other blocks, with its new content. Takes the extents that change from `room`.
    fn replace(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        range: &AtomicRange<'_>,
        room: &mut u64,
    ) -> Result<()> {
        let inode = tx.inode(slot);
        let size = inode.core.size;
        check_write(inode, range.offset, size)?;
        if range.offset > size {
            self.zero_behind(inode, size, range.offset)?;
        }
        let content = self.whole_blocks(tx, slot, range)?;
        let first = FileBlock(range.offset >> self.geo.block_log);
        let end = FileBlock(self.geo.blocks_for(range.end()));
        let mut at = first;
        while at < end {
            if planted(Fault::AtomicInPlace)
                && let Some(old) = bmap::lookup(self, tx.inode(slot), Fork::Data, at)?
            {
                let old = bmap::slice(&old, at, end);
                self.fill(&old, first, &content)?;
                bmap::mark_written(tx, slot, at, old.len)?;
                at = old.end();
                continue;
            }
            let unwritten = self.next_unwritten(tx, slot, (at, end), room)?;
            let stop = unwritten.map_or(end, |extent| extent.offset);
            if stop > at {
                bmap::unmap(tx, slot, Fork::Data, at, stop.0 - at.0, u64::MAX)?;
            }
            let goal = Goal::Stream(self.geo.ino_ag(range.ino));
            while at < stop {
                let new = bmap::alloc_some(tx, slot, Fork::Data, at, stop.0 - at.0, false, goal)?;
                *room = room.checked_sub(1).ok_or(Error::NoSpace)?;
                self.fill(&new, first, &content)?;
                at = new.end();
            }
            if let Some(extent) = unwritten {
                self.fill(&extent, first, &content)?;
                bmap::mark_written(tx, slot, extent.offset, extent.len)?;
                at = extent.end();
            }
        }
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = core.size.max(range.end());
        (core.mtime, core.ctime) = (now, now);
        Ok(())
    }

    /// The first unwritten extent among the blocks `at..end`. Takes the extents up to it from `room`.
    fn next_unwritten(
        &self,
        tx: &Tx<'_>,
        slot: InodeSlot,
        (mut at, end): (FileBlock, FileBlock),
        room: &mut u64,
    ) -> Result<Option<Extent>> {
        while at < end
            && let Some(extent) = bmap::at_or_after(self, tx.inode(slot), Fork::Data, at)?
            && extent.offset < end
        {
            *room = room.checked_sub(1).ok_or(TOO_MANY_EXTENTS)?;
            let extent = bmap::slice(&extent, at, end);
            if extent.unwritten {
                return Ok(Some(extent));
            }
            at = extent.end();
        }
        Ok(None)
    }

    /// The new content of the blocks of a range: where the range covers a block in part, with the old content
    /// around it.
    fn whole_blocks<'d>(
        &self,
        tx: &Tx<'_>,
        slot: InodeSlot,
        range: &AtomicRange<'d>,
    ) -> Result<Cow<'d, [u8]>> {
        let inode = tx.inode(slot);
        let block_size = u64::from(self.geo.block_size);
        let (from, to) = (range.offset, range.end());
        let (low, high) = (from - from % block_size, to.next_multiple_of(block_size));
        if (low, high) == (from, to) {
            return Ok(Cow::Borrowed(range.data));
        }
        let mut bytes = vec![0; (high - low) as usize];
        for (start, stop) in [(low, from), (to, high)] {
            let live = stop.min(inode.core.size);
            if start < live {
                let part = &mut bytes[(start - low) as usize..(live - low) as usize];
                self.read_mapped(inode, start, part)?;
            }
        }
        bytes[(from - low) as usize..(to - low) as usize].copy_from_slice(range.data);
        Ok(Cow::Owned(bytes))
    }

    /// Writes the content of an extent. `content` begins with block `first` of the file.
    fn fill(&self, extent: &Extent, first: FileBlock, content: &[u8]) -> Result<()> {
        let skip = ((extent.offset.0 - first.0) << self.geo.block_log) as usize;
        let len = (extent.len << self.geo.block_log) as usize;
        let start = self.geo.fsb_daddr(extent.start).bytes();
        self.write_device(start, &content[skip..skip + len])
    }
}

const TOO_MANY_EXTENTS: Error = Error::Invalid(
    "the ranges of an atomic write have more extents than one transaction can change",
);

/// The ranges that are not empty, by file and offset.
fn sorted<'a>(ranges: &[AtomicRange<'a>]) -> Result<Vec<AtomicRange<'a>>> {
    let mut all: Vec<_> = ranges.iter().filter(|range| !range.data.is_empty()).copied().collect();
    if all.len() > AtomicRange::MOST {
        return Err(Error::Invalid("an atomic write has at most 16 ranges"));
    }
    let bytes: u64 = all.iter().map(|range| range.data.len() as u64).sum();
    if bytes > AtomicRange::MOST_BYTES {
        return Err(Error::Invalid("an atomic write has at most 16 MiB"));
    }
    let fits = |range: &AtomicRange<'_>| {
        range.offset.checked_add(range.data.len() as u64).is_some_and(|end| end <= SIZE_MAX)
    };
    if !all.iter().all(fits) {
        return Err(Error::FileTooBig);
    }
    all.sort_by_key(|range| (range.ino, range.offset));
    let overlap =
        |pair: &[AtomicRange<'_>]| pair[0].ino == pair[1].ino && pair[0].end() > pair[1].offset;
    match all.windows(2).any(overlap) {
        true => Err(Error::Invalid("the ranges of an atomic write overlap")),
        false => Ok(all),
    }
}
