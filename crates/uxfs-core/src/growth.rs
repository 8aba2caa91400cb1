//! Growth of a volume in use: new groups are written behind its end, and while it is frozen, its last group
//! becomes longer and the new groups are added.
//!
//! 1. The new groups are on stable storage before a transaction is committed that makes them part of the
//!    volume. They are written before the volume is frozen: changes wait for the transaction only.
//! 2. That transaction begins on an empty log. Its records change blocks of the old groups only, because a
//!    recovery reads the log with the superblock that is in place.
//! 3. Nothing is allocated in the new room before the transaction is durable and the superblock in place: the
//!    volume is frozen until then.
//! 4. A power cut leaves the volume with its old length, or with the new one after a recovery.
//! 5. The copies of the superblock in the old groups are written last, as by the kernel. Those in the new
//!    groups are older: what else changes in the superblock of a volume in use, no copy has to have.
//! 6. After an error from the transaction on, or a panic, the volume stops. Before, it is as it was.
//! 7. One growth at a time, from the first write of its groups on.
//!
//! Called by `uxfs::growth`, which writes the new groups. [`crate::ops`] grows a volume that is not in use.

use core::ops::Range;
use std::sync::atomic::Ordering;

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

/// A growth whose new groups are on stable storage. Until [`Growth::commit`] the volume is as it was.
#[must_use = "the volume grows when this is committed"]
pub struct Growth<'a> {
    old: Geometry,
    new: Geometry,
    /// The free blocks of the new groups.
    free: u64,
    turn: Turn<'a>,
}

/// No other growth begins until this is dropped.
struct Turn<'a>(&'a Fs);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.freeze_levels.growing.store(false, Ordering::Release);
    }
}

/// A volume that stops when this is dropped: half of its growth is done.
struct HalfGrown<'a>(&'a Fs);

impl Drop for HalfGrown<'_> {
    fn drop(&mut self) {
        self.0.stop("the volume could not be grown");
    }
}

impl Growth<'_> {
    /// Makes the new room part of the volume. Changes wait meanwhile, reads go on.
    ///
    /// # Errors
    /// [`Error::Busy`] if the volume is frozen; those of the device, and of a damaged structure.
    pub fn commit(self) -> Result<()> {
        let fs = self.turn.0;
        {
            let _frozen = fs.freeze_for_now()?;
            fs.commit_growth(&self.old, &self.new, self.free)?;
        }
        fs.watch_grown_space();
        Ok(())
    }
}

impl Fs {
    /// Can the volume grow now?
    ///
    /// # Errors
    /// [`Error::Busy`] if it is frozen; [`Error::ReadOnly`]; [`Error::Unsupported`] without a journal, or
    /// with a log or a realtime part of its own.
    pub fn check_growable(&self) -> Result<()> {
        self.check_writable()?;
        if self.journal.is_none() || self.geo.has_external_log() {
            return Err(Error::Unsupported(
                "growth in use of a volume without an internal log".into(),
            ));
        }
        if self.geo.rt_blocks > 0 {
            return Err(Error::Unsupported(
                "growth in use of a volume with a realtime part".into(),
            ));
        }
        match self.is_frozen() {
            true => Err(Error::Busy),
            false => Ok(()),
        }
    }

    /// Grows the volume to `dblocks` blocks while it is in use. The device is long enough.
    ///
    /// # Errors
    /// As [`Fs::prepare_growth`] and [`Growth::commit`].
    pub fn grow_in_use<E: From<Error>>(
        &self,
        dblocks: u64,
        write_groups: WriteGroups<'_, E>,
    ) -> core::result::Result<(), E> {
        Ok(self.prepare_growth(dblocks, write_groups)?.commit()?)
    }

    /// Writes the new groups of a growth to `dblocks` blocks. The device is long enough. Nothing waits.
    ///
    /// # Errors
    /// As [`Fs::check_growable`]; [`Error::Invalid`] for an impossible length; [`Error::Busy`] while another
    /// growth is under way; those of `write_groups` and of the device.
    pub fn prepare_growth<E: From<Error>>(
        &self,
        dblocks: u64,
        write_groups: WriteGroups<'_, E>,
    ) -> core::result::Result<Growth<'_>, E> {
        self.check_growable()?;
        if self.freeze_levels.growing.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy.into());
        }
        let turn = Turn(self);
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
        Ok(Growth { old, new, free, turn })
    }

    fn commit_growth(&self, old: &Geometry, new: &Geometry, free: u64) -> Result<()> {
        let last = AgNo(old.ag_count - 1);
        let mut tx = Tx::begin_freeing_for(self, Op::Extents, 0)?;
        tx.lock_ag(last)?;
        let half_grown = HalfGrown(self);
        // From here on what is written is verified by the new geometry.
        self.publish_geometry(new.clone());
        self.extend_last_group(tx, old, new, free)?;
        self.settle()?;
        self.put_copies(&self.edit_superblock(|_| {}), 1..old.ag_count)?;
        self.flush()?;
        std::mem::forget(half_grown);
        Ok(())
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
