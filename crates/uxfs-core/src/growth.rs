//! Growth of a volume in use: while it is frozen, its last group becomes longer and new groups are added.
//!
//! 1. The new groups are on stable storage before a transaction is committed that makes them part of the
//!    volume.
//! 2. That transaction begins on an empty log. Its records change blocks of the old groups only, because a
//!    recovery reads the log with the superblock that is in place.
//! 3. Nothing is allocated in the new room before the transaction is durable and the superblock in place: the
//!    volume is frozen until then.
//! 4. A power cut leaves the volume with its old length, or with the new one after a recovery.
//! 5. The copies of the superblock in the old groups are written last, as by the kernel.
//! 6. After an error from the transaction on, the volume stops. Before, it is as it was.
//!
//! Called by `uxfs::growth`, which writes the new groups. [`crate::ops`] grows a volume that is not in use.

use core::ops::Range;

use uxfs_disk::BlockDev;
use uxfs_format::superblock::Superblock;
use uxfs_format::{AgBlock, AgNo, Geometry};

use crate::alloc::{self, freelist};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::mount::Counters;
use crate::ops::{resized, set_len};
use crate::tx::Tx;

/// Writes the metadata of groups by which a volume grows. Its arguments are the superblock after the growth,
/// the new groups, and the device; it returns the free blocks of the new groups.
pub type WriteGroups<'a, E> =
    &'a dyn Fn(&Superblock, Range<u32>, &dyn BlockDev) -> core::result::Result<u64, E>;

impl Fs {
    /// Grows the volume to `dblocks` blocks while it is in use. The device is long enough. Changes wait
    /// meanwhile, reads go on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible length; [`Error::Busy`] if the volume is frozen;
    /// [`Error::Unsupported`] without a journal, or with a log or a realtime part of its own; those of
    /// `write_groups`, of the device, and of a damaged structure.
    pub fn grow_in_use<E: From<Error>>(
        &self,
        dblocks: u64,
        write_groups: WriteGroups<'_, E>,
    ) -> core::result::Result<(), E> {
        self.check_writable()?;
        if self.journal.is_none() || self.geo.log_start.0 == 0 {
            return Err(Error::Unsupported(
                "growth in use of a volume without an internal log".into(),
            )
            .into());
        }
        if self.geo.rt_blocks > 0 {
            return Err(Error::Unsupported(
                "growth in use of a volume with a realtime part".into(),
            )
            .into());
        }
        self.freeze()?;
        let grown = self.grow_frozen(dblocks, write_groups);
        // Thaw a volume that stopped, too: the operations that wait return its error.
        let thawed = self.thaw();
        grown?;
        self.watch_grown_space();
        Ok(thawed?)
    }

    fn grow_frozen<E: From<Error>>(
        &self,
        dblocks: u64,
        write_groups: WriteGroups<'_, E>,
    ) -> core::result::Result<(), E> {
        let old = Geometry::clone(&self.geo);
        let new = resized(&old, dblocks)?;
        if dblocks <= old.dblocks || self.dev.len() >> old.block_log < dblocks {
            let why = "the new length must exceed the old one and fit the device";
            return Err(Error::Invalid(why).into());
        }
        let mut sb = self.superblock();
        set_len(&mut sb, &new);
        let mut free = 0;
        if new.ag_count > old.ag_count {
            free = write_groups(&sb, old.ag_count..new.ag_count, &*self.meta_dev)?;
            self.flush()?;
        }
        Ok(self.commit_growth(&old, &new, free)?)
    }

    fn commit_growth(&self, old: &Geometry, new: &Geometry, free: u64) -> Result<()> {
        let last = AgNo(old.ag_count - 1);
        let mut tx = Tx::begin_freeing_for(self, Op::Extents, 0)?;
        tx.lock_ag(last)?;
        // From here on what is written is verified by the new geometry.
        self.publish_geometry(new.clone());
        let done = self.extend_last_group(tx, old, new, free).and_then(|()| {
            self.settle()?;
            self.put_copies(&self.edit_superblock(|_| {}), 1..old.ag_count)?;
            self.flush()
        });
        if done.is_err() {
            self.stop("the volume could not be grown");
        }
        done
    }

    /// Commits the new length, with the room that the last group gets.
    fn extend_last_group(
        &self,
        mut tx: Tx<'_>,
        old: &Geometry,
        new: &Geometry,
        free: u64,
    ) -> Result<()> {
        let last = AgNo(old.ag_count - 1);
        let len = new.ag_len(last);
        let more = len - old.ag_len(last);
        if more > 0 {
            tx.edit_agf(last, |agf| agf.length.set(len));
            tx.edit_agi(last, |agi| agi.length.set(len));
            freelist::fix(&mut tx, last)?;
            alloc::free_extent(&mut tx, last, AgBlock(old.ag_len(last)), more)?;
        }
        let blocks = i64::try_from(free + u64::from(more)).unwrap_or(i64::MAX);
        tx.count(Counters { fdblocks: blocks, ..Counters::default() });
        self.change_superblock(|sb| set_len(sb, new));
        tx.commit()
    }
}
