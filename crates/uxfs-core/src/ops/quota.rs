//! Quotas: what users, groups and projects use, their limits, and changes of a file's owners.

use uxfs_format::dquot::{self, Dquot, QuotaFlags, QuotaType};
use uxfs_format::inode::InodeCore;
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Daddr, Ino};

use crate::dquot::{Change, Limits};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::quota;
use crate::tx::{InodeSlot, Tx};

/// The state of a type of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// Users, groups or projects.
    pub kind: QuotaType,
    /// Is usage accounted?
    pub accounted: bool,
    /// Are limits enforced?
    pub enforced: bool,
    /// Was all usage counted? If not, the next open for writing counts it.
    pub checked: bool,
    /// The inode that holds the records, if there is one.
    pub inode: Option<Ino>,
    /// The blocks of that inode.
    pub blocks: u64,
    /// The extents of that inode.
    pub extents: u64,
    /// Seconds that a soft limit of blocks may be passed.
    pub blocks_grace: u64,
    /// Seconds that a soft limit of inodes may be passed.
    pub inodes_grace: u64,
    /// Seconds that a soft limit of realtime blocks may be passed.
    pub rt_blocks_grace: u64,
}

/// New owners of a file; `None` keeps one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owners {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) projid: Option<u32>,
}

impl Owners {
    fn any(&self) -> bool {
        [self.uid, self.gid, self.projid].iter().any(Option::is_some)
    }

    fn of(&self, core: &InodeCore) -> InodeCore {
        InodeCore {
            mode: core.mode,
            uid: self.uid.unwrap_or(core.uid),
            gid: self.gid.unwrap_or(core.gid),
            projid: self.projid.unwrap_or(core.projid),
            nblocks: core.nblocks,
            ..InodeCore::default()
        }
    }
}

impl Fs {
    /// The state of each type of quota.
    ///
    /// # Errors
    /// A damaged structure on the way.
    pub fn quota_states(&self) -> Result<[QuotaState; 3]> {
        let sb = self.superblock();
        let flags = QuotaFlags::from_bits_truncate(sb.qflags.get());
        let mut states = QuotaType::ALL.map(|kind| QuotaState {
            kind,
            accounted: flags.contains(kind.acct()),
            enforced: flags.contains(kind.enfd()),
            checked: flags.contains(kind.chkd()),
            inode: kind.inode_of(&sb),
            blocks: 0,
            extents: 0,
            blocks_grace: dquot::GRACE,
            inodes_grace: dquot::GRACE,
            rt_blocks_grace: dquot::GRACE,
        });
        for state in &mut states {
            let Some(ino) = state.inode else { continue };
            (state.blocks, state.extents) =
                self.with_inode(ino, |inode| Ok((inode.core.nblocks, inode.core.nextents)))?;
            let Some(defaults) = self.dquot(state.kind, 0)? else { continue };
            let grace = |timer: u64| if timer == 0 { dquot::GRACE } else { timer };
            state.blocks_grace = grace(defaults.blocks.timer);
            state.inodes_grace = grace(defaults.inodes.timer);
            state.rt_blocks_grace = grace(defaults.rt_blocks.timer);
        }
        Ok(states)
    }

    /// The records of a type that say something, in the order of their ids.
    ///
    /// # Errors
    /// A damaged structure on the way.
    pub fn dquots(&self, kind: QuotaType) -> Result<Vec<Dquot>> {
        let Some(ino) = kind.inode_of(&self.superblock()) else { return Ok(Vec::new()) };
        let places = quota::places(self, ino)?;
        let mut all = Vec::new();
        let mut next = places.from(0);
        while let Some((number, daddr)) = next {
            next = number.checked_add(1).and_then(|number| places.from(number));
            let records = self.dquots_in(kind, number, daddr)?;
            all.extend(records.into_iter().filter(|record| !record.is_empty()));
        }
        Ok(all)
    }

    /// The record of an id; `None` if there is none.
    ///
    /// # Errors
    /// A damaged structure on the way.
    pub fn dquot(&self, kind: QuotaType, id: u32) -> Result<Option<Dquot>> {
        let Some(ino) = kind.inode_of(&self.superblock()) else { return Ok(None) };
        let number = id / dquot::records(self.geo.block_size);
        let Some(daddr) = quota::places(self, ino)?.get(number) else { return Ok(None) };
        let records = self.dquots_in(kind, number, daddr)?;
        Ok(records.into_iter().find(|record| record.id == id))
    }

    /// The records of a block.
    fn dquots_in(&self, kind: QuotaType, number: u32, daddr: Daddr) -> Result<Vec<Dquot>> {
        let buf =
            self.bufs.get(daddr, self.geo.block_size, &[BufKind::Dquot(kind)], Owner::Volume)?;
        let first = number.wrapping_mul(dquot::records(self.geo.block_size));
        let content = buf.read();
        let record = |(index, raw): (usize, &[u8])| {
            let id = first.wrapping_add(index as u32);
            let known = self.quota.as_ref().and_then(|quota| quota.known(kind, id));
            match known {
                Some(record) => Ok(record),
                None => Dquot::decode(raw, kind, id)
                    .map_err(|problem| buf.corrupt(problem.check, problem.detail)),
            }
        };
        content.chunks_exact(dquot::LEN).enumerate().map(record).collect()
    }

    /// Sets limits of a user, group or project. Those of id 0 are the defaults of ids that have none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the type is not accounted, or a soft limit would be above a hard one;
    /// [`Error::NoSpace`] for a new record, or a damaged structure on the way.
    pub fn set_limits(&self, kind: QuotaType, id: u32, limits: &Limits) -> Result<()> {
        let _inside = self.changes();
        self.check_writable()?;
        let Some(quota) = self.quota.as_ref().filter(|quota| quota.inode(kind).is_some()) else {
            return Err(Error::Invalid("quota of this type is not accounted"));
        };
        self.retry_enospc(|| quota::make(self, kind, id))?;
        let dquot = quota.get_counted(&self.bufs, kind, id)?;
        let mut new = dquot.state.lock().record;
        limits.apply(&mut new);
        let above = |hard: u64, soft: u64| hard != 0 && soft > hard;
        if above(new.blocks.hard, new.blocks.soft) || above(new.inodes.hard, new.inodes.soft) {
            return Err(Error::Invalid("a soft limit must not be above the hard one"));
        }
        let mut tx = self.begin_tx_for(Op::Inode, 0)?;
        tx.change_dquot(dquot.clone(), Change { limits: *limits, ..Change::default() });
        tx.commit()?;
        if id == 0 {
            let record = dquot.state.lock().record;
            quota.defaults_changed(record);
        }
        self.balance()
    }

    /// Is there an owner of a file of this core without a quota record?
    pub(super) fn lacks_dquots(&self, core: &InodeCore) -> Result<bool> {
        match &self.quota {
            Some(quota) => Ok(quota.lacks(&self.bufs, core)?.is_some()),
            None => Ok(false),
        }
    }

    /// Begins the transaction that gives a file other owners, when these have quota records. Returns it with
    /// the file locked.
    ///
    /// # Errors
    /// As [`Tx::lock_inode`]; those of making records; [`Error::QuotaExceeded`] if limits bind the caller.
    pub(super) fn begin_owners(
        &self,
        ino: Ino,
        owners: &Owners,
        limited: bool,
    ) -> Result<(Tx<'_>, InodeSlot)> {
        if self.quota.is_some() && owners.any() {
            // Dirty data is reserved for the owners at the time of its writing.
            self.write_back_file(ino)?;
        }
        let (mut tx, slot, new) = self.with_dquots(|| {
            let mut tx = self.begin_tx_for(Op::Inode, 0)?;
            let slot = tx.lock_inode(ino)?;
            let core = owners.of(&tx.inode(slot).core);
            Ok((tx, slot, core))
        })?;
        if limited {
            tx.hold_for_new_owners(slot, &new)?;
        }
        Ok((tx, slot))
    }
}
