//! Sharing blocks between files (FICLONE and FICLONERANGE).
//!
//! 1. Each transaction replaces one piece of the target with one piece of the source. A reader sees
//!    either the old piece or the new one, and the reference counts are exact.
//! 2. Only written blocks are shared. A source range that reads as zeroes becomes a hole.
//! 3. Both inodes get the reflink flag before the first block is shared.

use uxfs_format::inode::{Flags2, Fork};
use uxfs_format::{Extent, FileBlock, Ino};

use crate::error::{Error, Result};
use crate::file::{SIZE_MAX, check_file, check_mutable, refuse_realtime};
use crate::fs::Fs;
use crate::limits::TREE_BLOCKS;
use crate::tx::{InodeSlot, Tx};
use crate::{alloc, bmap};

/// A range of blocks to be shared.
#[derive(Clone, Copy)]
struct Job {
    from: Ino,
    from_at: FileBlock,
    to: Ino,
    to_at: FileBlock,
    blocks: u64,
    /// End of the range in the target, in bytes. The target is at least this long afterwards.
    end: u64,
    /// The target takes over the source's CoW extent size hint.
    hint: bool,
}

impl Fs {
    /// Replaces `len` bytes of file `to` at `to_at` by those of file `from` at `from_at`, by
    /// sharing the blocks that hold them. A length of 0 means up to the end of `from`.
    ///
    /// Offsets must be multiples of the block size. The length must be one too, unless the range
    /// ends at the end of `from` and not before the end of `to`. Both files may be the same if the
    /// ranges do not overlap.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a rule above is violated, or for a range past the end of `from`;
    /// [`Error::Unsupported`] on a volume without shared blocks, [`Error::IsDir`],
    /// [`Error::NotPermitted`] if `to` is immutable or append-only, [`Error::FileTooBig`],
    /// [`Error::NoSpace`], or a damaged structure on the way. Blocks shared before a failure stay
    /// shared.
    pub fn share(&self, from: Ino, from_at: u64, to: Ino, to_at: u64, len: u64) -> Result<()> {
        let _inside = self.changes();
        self.check_writable()?;
        let mut both = vec![from.min(to), from.max(to)];
        both.dedup();
        let _contents = self.iolocks.change_all(&both);
        let _blocked = self.flush_and_block_all(&both)?;
        let Some(job) = self.plan_share((from, from_at), (to, to_at), len)? else {
            return Ok(());
        };
        self.free_shared_behind(to, to_at)?;
        self.begin_share(&job, to_at)?;
        let mut done = 0;
        while done < job.blocks {
            done += self.retry_enospc(|| self.share_piece(&job, done))?;
            self.balance()?;
        }
        Ok(())
    }

    /// Replaces the content of file `to`, from its start, by that of file `from`, by sharing its
    /// blocks. Content of `to` past the length of `from` stays.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use uxfs_disk::{BlockDev, MemDev};
    /// # use uxfs_core::{Fallocate, Fs, NewInode, OpenOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(512 << 20));
    /// # let layout = uxfs_mkfs::Layout::new(&uxfs_mkfs::Options::default(), dev.len())?;
    /// # uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default())?;
    /// # let fs = Fs::open(dev, OpenOptions::default())?;
    /// let one = fs.create(fs.root(), b"one", &NewInode::file(0o644))?;
    /// let two = fs.create(fs.root(), b"two", &NewInode::file(0o644))?;
    /// fs.write_at(one, 0, &[7; 64 << 10])?;
    /// let free = fs.free_blocks();
    /// fs.clone_file(one, two)?;
    /// assert!(free - fs.free_blocks() < 4, "the data takes no new blocks");
    ///
    /// // A write to one file does not change the other.
    /// fs.write_at(two, 0, b"other")?;
    /// let mut first = [0; 1];
    /// fs.read_at(one, 0, &mut first)?;
    /// assert_eq!(first, [7]);
    /// fs.fallocate(two, Fallocate::PunchHole, 0, 32 << 10)?;
    /// # fs.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::share`].
    pub fn clone_file(&self, from: Ino, to: Ino) -> Result<()> {
        let _inside = self.changes();
        self.share(from, 0, to, 0, 0)
    }

    /// Checks the request. Returns `None` if there is nothing to do.
    fn plan_share(
        &self,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<Option<Job>> {
        let block_size = u64::from(self.geo.block_size);
        let source = self.with_inode(from, |inode| {
            check_file(inode)?;
            refuse_realtime(inode)?;
            Ok(inode.core.clone())
        })?;
        let target = self.with_inode(to, |inode| {
            check_file(inode)?;
            check_mutable(inode)?;
            Ok(inode.core.clone())
        })?;
        if !self.geo.has_reflink() {
            return Err(Error::Unsupported("the volume cannot share blocks (reflink=0)".into()));
        }
        if from_at > source.size {
            return Err(Error::Invalid("the range lies beyond the end of the source"));
        }
        let len = match len {
            0 => source.size - from_at,
            len => len,
        };
        if len == 0 {
            return Ok(None);
        }
        if !from_at.is_multiple_of(block_size) || !to_at.is_multiple_of(block_size) {
            return Err(Error::Invalid("offsets must be multiples of the block size"));
        }
        let from_end = from_at.checked_add(len).filter(|end| *end <= source.size);
        let Some(from_end) = from_end else {
            return Err(Error::Invalid("the range lies beyond the end of the source"));
        };
        let end = to_at.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooBig)?;
        if !len.is_multiple_of(block_size) && (from_end != source.size || end < target.size) {
            return Err(Error::Invalid(
                "a partial block can be shared only at the end of both files",
            ));
        }
        let blocks = self.geo.blocks_for(len);
        let bytes = blocks * block_size;
        if from == to && to_at < from_at + bytes && from_at < to_at + bytes {
            return Err(Error::Invalid("the ranges overlap"));
        }
        let hint = from_at == 0
            && to_at == 0
            && len == source.size
            && len >= target.size
            && source.flags2.contains(Flags2::COWEXTSIZE)
            && !target.flags2.contains(Flags2::COWEXTSIZE);
        let block = |at: u64| FileBlock(at >> self.geo.block_log);
        let (from_at, to_at) = (block(from_at), block(to_at));
        Ok(Some(Job { from, from_at, to, to_at, blocks, end, hint }))
    }

    /// Sets the reflink flag of both files, and zeroes the target past its end.
    fn begin_share(&self, job: &Job, to_at: u64) -> Result<()> {
        let mut tx = self.begin_tx(0)?;
        let [from, to] = tx.lock_inodes([job.from, job.to])?;
        for slot in [from, to] {
            if !tx.inode(slot).core.flags2.contains(Flags2::REFLINK) {
                tx.core_mut(slot).flags2.insert(Flags2::REFLINK);
            }
        }
        let hint = tx.inode(from).core.cowextsize;
        let size = tx.inode(to).core.size;
        if to_at > size {
            self.zero_behind(tx.inode(to), size, to_at)?;
        }
        let now = self.now();
        let core = tx.core_mut(to);
        (core.mtime, core.ctime) = (now, now);
        if job.hint {
            core.cowextsize = hint;
            core.flags2.insert(Flags2::COWEXTSIZE);
        }
        tx.commit()
    }

    /// Shares the piece that starts `done` blocks into the range. Returns its length.
    fn share_piece(&self, job: &Job, done: u64) -> Result<u64> {
        let mut tx = self.begin_tx(2 * TREE_BLOCKS)?;
        let [from, to] = tx.lock_inodes([job.from, job.to])?;
        check_mutable(tx.inode(to))?;
        let left = job.blocks - done;
        let source = self.piece(&tx, from, job.from_at.plus(done), left)?;
        let target = self.piece(&tx, to, job.to_at.plus(done), source.len)?;
        let len = target.len;
        let new = source.written.map(|start| Extent {
            offset: job.to_at.plus(done),
            start,
            len,
            unwritten: false,
        });
        // Blocks that are shared already, and holes over holes, stay as they are.
        if new.is_some() && source.written != target.written || new.is_none() && target.mapped {
            if let Some(new) = &new {
                let ag = self.geo.fsb_ag(new.start);
                tx.lock_ag(ag)?;
                if !alloc::keep_for_counts(&mut tx, ag) {
                    return Err(Error::NoSpace);
                }
            }
            bmap::unmap(&mut tx, to, Fork::Data, job.to_at.plus(done), len, u64::MAX)?;
            if let Some(new) = new {
                bmap::map_shared(&mut tx, to, new)?;
            }
        }
        let end = (job.to_at.0 + done + len) << self.geo.block_log;
        let core = &tx.inode(to).core;
        if core.size < end.min(job.end) {
            tx.core_mut(to).size = end.min(job.end);
        }
        tx.commit()?;
        Ok(len)
    }

    /// The mapping of block `at` of a file, for at most `most` blocks.
    fn piece(&self, tx: &Tx<'_>, slot: InodeSlot, at: FileBlock, most: u64) -> Result<Piece> {
        let found = bmap::at_or_after(self, tx.inode(slot), Fork::Data, at)?;
        Ok(match found {
            Some(extent) if extent.offset <= at => Piece {
                len: most.min(extent.end().0 - at.0),
                mapped: true,
                written: (!extent.unwritten).then(|| extent.start.plus(at.0 - extent.offset.0)),
            },
            Some(extent) => {
                Piece { len: most.min(extent.offset.0 - at.0), mapped: false, written: None }
            }
            None => Piece { len: most, mapped: false, written: None },
        })
    }
}

/// A range of a file with one kind of mapping.
struct Piece {
    len: u64,
    mapped: bool,
    /// The first block on disk, if the range holds data.
    written: Option<uxfs_format::FsBlock>,
}
