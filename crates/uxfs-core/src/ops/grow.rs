//! Resizing a volume in place. Growing lengthens the last group and adds groups at the end; shrinking
//! cuts off an unused tail.
//!
//! 1. Neither operation moves anything: inode numbers and data stay. If the tail to be cut is in use,
//!    the operation fails and leaves the volume unchanged.
//! 2. The volume carries the needs-repair flag from before the first overwritten byte until all is on
//!    stable storage. An interrupted resize is thus recognised, and xfs_repair completes it.
//! 3. The primary superblock holds a larger length only after the new groups are on the device. The
//!    caller may truncate the device only after a shrink returns.
//!
//! Called by the library's resize, which writes the new groups' content and resizes the device.

use core::ops::Range;

use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgBlock, AgNo, Daddr, Geometry};

use crate::alloc::{self, Want, freelist};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::mount::Counters;
use crate::options::OpenOptions;
use crate::tx::Tx;

impl Fs {
    /// Grows the volume to `dblocks` blocks. Before the call, the caller has written the content of
    /// the new groups to the device after the present last group; `fresh_free` is the number of
    /// free blocks in them. No other program may have the volume open.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible length; device errors. After an error the volume may
    /// carry the needs-repair flag.
    pub fn grow(self, dblocks: u64, fresh_free: u64) -> Result<()> {
        self.check_resizable()?;
        let this = self.without_journal()?;
        this.grow_alone(dblocks, fresh_free)
    }

    fn check_resizable(&self) -> Result<()> {
        match self.geo.has_external_log() {
            true => Err(Error::Unsupported("resizing a volume with an external log".into())),
            false => self.check_writable(),
        }
    }

    /// Writes everything in place, cleans the log and turns logging off. During the resize the
    /// needs-repair flag takes the journal's role.
    fn without_journal(mut self) -> Result<Self> {
        if self.journal.is_some() {
            self.quiesce()?;
            self.drop_journal();
        }
        Ok(self)
    }

    fn grow_alone(self, dblocks: u64, fresh_free: u64) -> Result<()> {
        let old = self.geo.clone();
        let new = resized(&old, dblocks)?;
        if dblocks <= old.dblocks || self.dev.len() >> old.block_log < dblocks {
            return Err(Error::Invalid(
                "the new length must exceed the old one and fit the device",
            ));
        }
        let last = AgNo(old.ag_count - 1);
        let dev = std::sync::Arc::clone(&self.bare_dev);
        let options = OpenOptions { resuming: true, ..self.options.clone() };
        {
            let _alone = self.gate.write();
            self.sync_alone()?;
            // The new groups must be on the device before the superblock includes them.
            self.flush()?;
            self.add_free(fresh_free);
            let sector = self.edit_superblock(|sb| {
                set_len(sb, &new);
                sb.features_incompat.set((sb.incompat() | Incompat::NEEDSREPAIR).bits());
            });
            self.write_superblock(&sector)?;
            self.flush()?;
            set_group_len(&self, last, new.ag_len(last))?;
        }
        drop(self);
        let grown = Self::open(dev, options)?;
        let more = new.ag_len(last) - old.ag_len(last);
        if more > 0 {
            let mut tx = Tx::begin(&grown, 0)?;
            tx.lock_ag(last)?;
            freelist::fix(&mut tx, last)?;
            alloc::free_extent(&mut tx, last, AgBlock(old.ag_len(last)), more)?;
            tx.count(Counters { fdblocks: more.into(), ..Counters::default() });
            tx.commit()?;
        }
        grown.finish_resize(&new)
    }

    /// Shrinks the volume to `dblocks` blocks if the tail to be cut is unused. Returns `false` if
    /// it is in use; the volume is then unchanged. No other program may have the volume open.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible length; a damaged structure on the way; device errors.
    /// After an error the volume may carry the needs-repair flag.
    pub fn shrink(self, dblocks: u64) -> Result<bool> {
        self.check_resizable()?;
        let new = resized(&self.geo, dblocks)?;
        if dblocks >= self.geo.dblocks {
            return Err(Error::Invalid("the new length must be below the old one"));
        }
        let this = self.without_journal()?;
        let in_reach = |ag: AgNo| ag.0 < new.ag_count;
        if !this.geo.log_ag().is_none_or(in_reach) {
            return Ok(false);
        }
        this.shrink_alone(&new)
    }

    fn shrink_alone(self, new: &Geometry) -> Result<bool> {
        let mut tx = self.begin_freeing_tx_for(Op::Inode, 0)?;
        if !take_tail(&mut tx, new)? {
            return Ok(false);
        }
        tx.commit()?;
        {
            let _alone = self.gate.write();
            self.mark_in_danger()?;
            self.write_all()?;
            self.flush()?;
            let last = AgNo(new.ag_count - 1);
            set_group_len(&self, last, new.ag_len(last))?;
        }
        self.finish_resize(new)?;
        Ok(true)
    }

    /// Writes everything in place, then the superblock copies with the new length, then the primary
    /// superblock without the needs-repair flag.
    fn finish_resize(&self, new: &Geometry) -> Result<()> {
        let _alone = self.gate.write();
        self.write_all()?;
        let sector = self.edit_superblock(|sb| {
            set_len(sb, new);
            sb.features_incompat.set((sb.incompat() - Incompat::NEEDSREPAIR).bits());
        });
        self.put_copies(&sector, 1..new.ag_count)?;
        self.flush()?;
        self.write_superblock(&sector)?;
        self.flush()
    }

    /// Writes the superblock's copies in these groups.
    pub(crate) fn put_copies(&self, sector: &[u8], groups: Range<u32>) -> Result<()> {
        groups.map(AgNo).try_for_each(|ag| self.put(self.geo.ag_sector_daddr(ag, 0), sector))
    }

    fn put(&self, daddr: Daddr, sector: &[u8]) -> Result<()> {
        self.meta_dev.write_at(daddr.bytes(), sector).map_err(|source| {
            let error = Error::Io { what: "writing", daddr, source };
            self.shut_down(crate::cause::Cause::of("resizing", &error));
            error
        })
    }
}

/// The geometry with another length.
pub(crate) fn resized(geo: &Geometry, dblocks: u64) -> Result<Geometry> {
    let group = u64::from(geo.ag_blocks);
    let count = u32::try_from(dblocks.div_ceil(group));
    let rest = dblocks % group;
    match count {
        Ok(count @ 1..) if rest == 0 || rest >= GROUP_MIN => {
            let mut new = geo.clone();
            (new.dblocks, new.ag_count) = (dblocks, count);
            Ok(new)
        }
        _ => Err(Error::Invalid("no volume can have this length: its last group is too short")),
    }
}

/// Minimum length of the last group in blocks.
const GROUP_MIN: u64 = 64;

/// The greatest possible length of a volume of this geometry that is not above `dblocks`. A last
/// group that would be too short is left out.
pub fn whole_groups(geo: &Geometry, dblocks: u64) -> u64 {
    let rest = dblocks % u64::from(geo.ag_blocks);
    if rest < GROUP_MIN { dblocks - rest } else { dblocks }
}

pub(crate) fn set_len(sb: &mut Superblock, new: &Geometry) {
    sb.dblocks.set(new.dblocks);
    sb.agcount.set(new.ag_count);
}

/// Removes all blocks past the new end from free space. Returns `false` if one of them is in use.
fn take_tail(tx: &mut Tx<'_>, new: &Geometry) -> Result<bool> {
    let old = tx.fs().geo.clone();
    let last = AgNo(new.ag_count - 1);
    let (keep, len) = (new.ag_len(last), old.ag_len(last));
    tx.lock_ag(last)?;
    let mut gone = u64::from(len - keep);
    if len > keep {
        let len = len - keep;
        let want = Want { min: len, max: len, near: AgBlock(keep), ..Want::default() };
        match alloc::take_extent(tx, last, &want)? {
            Some((start, _)) if start == AgBlock(keep) => {}
            _ => return Ok(false),
        }
    }
    for ag in (new.ag_count..old.ag_count).map(AgNo) {
        tx.lock_ag(ag)?;
        let agf = tx.agf(ag);
        let free = u64::from(agf.freeblks.get())
            + u64::from(agf.flcount.get())
            + u64::from(agf.btreeblks.get());
        let empty = tx.agi(ag).count.get() == 0
            && free == u64::from(old.ag_len(ag)) - u64::from(fixed_blocks(&old));
        if !empty {
            return Ok(false);
        }
        gone += free;
    }
    // A group has fewer than 2^31 blocks, a volume fewer than 2^63.
    let gone = i64::try_from(gone).unwrap_or(i64::MAX);
    tx.count(Counters { fdblocks: -gone, ..Counters::default() });
    Ok(true)
}

/// Blocks of an empty group: its headers and the roots of its trees.
fn fixed_blocks(geo: &Geometry) -> u32 {
    let optional = [geo.has_finobt(), geo.has_rmap(), geo.has_reflink()];
    geo.ag_header_blocks() + 3 + optional.iter().filter(|has| **has).count() as u32
}

/// Writes a group's new length into its headers directly, because the buffers know the old
/// geometry.
fn set_group_len(fs: &Fs, ag: AgNo, len: u32) -> Result<()> {
    let headers = [(fs.geo.agf_daddr(ag), BufKind::Agf), (fs.geo.agi_daddr(ag), BufKind::Agi)];
    for (daddr, kind) in headers {
        let mut sector = vec![0; fs.geo.sector_size as usize];
        let read = fs.dev.read_at(daddr.bytes(), &mut sector);
        read.map_err(|source| Error::Io { what: "reading", daddr, source })?;
        verify::check(&sector, kind, daddr, &fs.geo)?;
        match kind {
            BufKind::Agf => Agf::view_mut(&mut sector).length.set(len),
            _ => Agi::view_mut(&mut sector).length.set(len),
        }
        verify::stamp_checksum(&mut sector, kind);
        fs.put(daddr, &sector)?;
    }
    Ok(())
}
