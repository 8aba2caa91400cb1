//! Dquots: what users, groups and projects use and may use, in memory.
//!
//! 1. There is at most one [`Dquot`] of a type and id; all transactions share it. It stays in memory, with the
//!    buffer of its block.
//! 2. Its record is the truth. Its bytes in the buffer are out of date until an AIL push, or without a journal
//!    the commit, writes the record there.
//! 3. A record changes when a transaction commits, under the lock of the open checkpoint: the change is in
//!    the checkpoint of the transaction that caused it. Transactions only add and subtract, so they need not
//!    hold a dquot until they end.
//! 4. The places of all blocks of records are known, so finding a dquot needs no lock of a quota inode.
//!
//! Called by transactions, by the journal, and by [`crate::quota`], which fills it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use uxfs_format::dquot::{self as disk, GRACE, QuotaType, Resource};
use uxfs_format::inode::InodeCore;
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, Daddr, Geometry, Ino, Lsn};
use uxfs_sync::{Mutex, MutexGuard};

use crate::buf::{BufRef, Cache};
use crate::dquot_places::Places;
use crate::error::{Error, Result};
use crate::growing::GrowingGeometry;

/// A shared reference to a dquot.
pub(crate) type DquotRef = Arc<Dquot>;

/// The dquots that a transaction changes.
pub(crate) type Changes = Vec<(DquotRef, Change)>;

/// What a transaction holds of dquots.
pub(crate) type Holds = SmallVec<[(DquotRef, Usage); 3]>;

/// The dquots whose limits bind a file.
pub(crate) type Limiting = SmallVec<[DquotRef; 3]>;

/// A dquot in memory.
pub struct Dquot {
    /// Whose it is.
    pub(crate) kind: QuotaType,
    pub(crate) id: u32,
    /// The block of its record, and the record's offset there.
    pub(crate) buf: BufRef,
    pub(crate) offset: usize,
    pub(crate) state: Mutex<DquotState>,
    /// Blocks reserved for data that has no blocks yet.
    delayed: AtomicU64,
}

/// What changes of a dquot.
pub(crate) struct DquotState {
    pub(crate) record: disk::Dquot,
    /// The checkpoint in which it changed last; 0 for none.
    pub(crate) changed: u64,
    /// Its place in that checkpoint's list.
    pub(crate) slot: u32,
    /// It changed since it was last written in place.
    pub(crate) dirty: bool,
    /// What open transactions may come to use.
    held: Usage,
}

/// Blocks and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
}

/// A change of a dquot, made when its transaction commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Blocks that are used more, or fewer.
    pub(crate) blocks: i64,
    /// Inodes that are used more, or fewer.
    pub(crate) inodes: i64,
    /// What the transaction held of it, and holds no longer.
    pub(crate) held: Usage,
    /// New limits.
    pub(crate) limits: Limits,
}

/// Limits of a user, a group or a project; `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Blocks that may never be used; 0 for any number.
    pub blocks_hard: Option<u64>,
    /// Blocks that may be used only for the grace period; 0 for any number.
    pub blocks_soft: Option<u64>,
    /// When the grace period of blocks ends, in seconds since 1970. For id 0 the period itself in seconds.
    pub blocks_timer: Option<u64>,
    /// Inodes that may never be used; 0 for any number.
    pub inodes_hard: Option<u64>,
    /// Inodes that may be used only for the grace period; 0 for any number.
    pub inodes_soft: Option<u64>,
    /// When the grace period of inodes ends, in seconds since 1970. For id 0 the period itself in seconds.
    pub inodes_timer: Option<u64>,
}

impl Limits {
    pub(crate) fn apply(&self, record: &mut disk::Dquot) {
        let set = |to: &mut u64, from: Option<u64>| *to = from.unwrap_or(*to);
        set(&mut record.blocks.hard, self.blocks_hard);
        set(&mut record.blocks.soft, self.blocks_soft);
        set(&mut record.blocks.timer, self.blocks_timer);
        set(&mut record.inodes.hard, self.inodes_hard);
        set(&mut record.inodes.soft, self.inodes_soft);
        set(&mut record.inodes.timer, self.inodes_timer);
    }
}

impl Dquot {
    /// Makes a change in memory, and locks the state that it leads to.
    pub(crate) fn apply(
        &self,
        change: &Change,
        quota: &Quota,
        now: u64,
    ) -> MutexGuard<'_, DquotState> {
        let defaults = quota.defaults(self.kind);
        let mut state = self.state.lock();
        let record = &mut state.record;
        // A record that counts too little is damaged; it must not stop what frees space.
        record.blocks.used = record.blocks.used.saturating_add_signed(change.blocks);
        record.inodes.used = record.inodes.used.saturating_add_signed(change.inodes);
        change.limits.apply(record);
        if self.id != 0 {
            settle(&mut record.blocks, &defaults.blocks, now);
            settle(&mut record.inodes, &defaults.inodes, now);
            settle(&mut record.rt_blocks, &defaults.rt_blocks, now);
        }
        state.held.release(change.held);
        state
    }

    /// Writes the record into its block's buffer.
    pub(crate) fn put(&self, record: &disk::Dquot, lsn: Option<Lsn>, geo: &Geometry) {
        let mut content = self.buf.content.write();
        let raw = &mut content.bytes[self.offset..self.offset + disk::LEN];
        record.encode(raw, geo);
        if let Some(lsn) = lsn {
            disk::LSN.set(raw, lsn);
        }
        uxfs_format::crc::stamp(raw, disk::CRC_OFFSET);
    }

    /// Holds what a transaction may come to use, if the limits allow it.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn hold(&self, quota: &Quota, more: Usage, now: u64) -> Result<()> {
        let defaults = quota.defaults(self.kind);
        let mut state = self.state.lock();
        self.admit(quota, &defaults, &state, more, now)?;
        state.held.blocks += more.blocks;
        state.held.inodes += more.inodes;
        Ok(())
    }

    /// Ends a hold.
    pub(crate) fn release(&self, held: Usage) {
        self.state.lock().held.release(held);
    }

    /// Counts blocks that are reserved for data that is written later, if the limits allow it.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; nothing is counted then.
    pub(crate) fn admit_delayed(&self, quota: &Quota, blocks: u64, now: u64) -> Result<()> {
        let defaults = quota.defaults(self.kind);
        let state = self.state.lock();
        self.admit(quota, &defaults, &state, Usage { blocks, inodes: 0 }, now)?;
        // Before another thread can look at the limits.
        self.count_delayed(blocks, true);
        Ok(())
    }

    /// Counts blocks that are reserved for data, or no longer are.
    pub(crate) fn count_delayed(&self, blocks: u64, more: bool) {
        match more {
            true => self.delayed.fetch_add(blocks, Ordering::AcqRel),
            false => self.delayed.fetch_sub(blocks, Ordering::AcqRel),
        };
    }

    fn admit(
        &self,
        quota: &Quota,
        defaults: &disk::Dquot,
        state: &DquotState,
        more: Usage,
        now: u64,
    ) -> Result<()> {
        // No limits bind id 0.
        if self.id == 0 || !quota.is_enforced(self.kind) {
            return Ok(());
        }
        let (held, delayed) = (state.held, self.delayed.load(Ordering::Acquire));
        let blocks = more.blocks + held.blocks + delayed;
        let inodes = more.inodes + held.inodes;
        let fit = (more.blocks == 0 || fits(&state.record.blocks, &defaults.blocks, blocks, now))
            && (more.inodes == 0 || fits(&state.record.inodes, &defaults.inodes, inodes, now));
        if fit { Ok(()) } else { Err(Error::QuotaExceeded(self.kind)) }
    }
}

impl Usage {
    fn release(&mut self, held: Self) {
        self.blocks -= held.blocks;
        self.inodes -= held.inodes;
    }
}

/// May this much more be used of a resource?
fn fits(of: &Resource, defaults: &Resource, more: u64, now: u64) -> bool {
    let or = |own: u64, default: u64| if own == 0 { default } else { own };
    let (hard, soft) = (or(of.hard, defaults.hard), or(of.soft, defaults.soft));
    let total = of.used.saturating_add(more);
    let over = soft != 0 && total > soft && of.timer != 0 && now > of.timer;
    (hard == 0 || total <= hard) && !over
}

/// Gives a resource the default limits that it lacks, and starts or stops its grace period.
fn settle(of: &mut Resource, defaults: &Resource, now: u64) {
    if of.hard == 0 {
        of.hard = defaults.hard;
    }
    if of.soft == 0 {
        of.soft = defaults.soft;
    }
    let passed = of.soft != 0 && of.used > of.soft || of.hard != 0 && of.used > of.hard;
    match (passed, of.timer) {
        (true, 0) => of.timer = now + if defaults.timer == 0 { GRACE } else { defaults.timer },
        (false, _) => of.timer = 0,
        (true, _) => {}
    }
}

/// A type of quota that is accounted.
struct Accounted {
    ino: Ino,
    enforced: bool,
    /// Where the blocks of records lie.
    places: Mutex<Places>,
}

/// The quotas that a volume accounts.
pub(crate) struct Quota {
    accounted: [Option<Accounted>; 3],
    /// The records of id 0.
    defaults: [Mutex<disk::Dquot>; 3],
    dquots: Mutex<FxHashMap<(QuotaType, u32), DquotRef>>,
    geo: Arc<GrowingGeometry>,
}

impl Quota {
    /// Nothing is accounted yet.
    pub(crate) fn new(geo: &Arc<GrowingGeometry>) -> Self {
        Self {
            accounted: [const { None }; 3],
            defaults: QuotaType::ALL.map(|kind| Mutex::new(disk::Dquot::new(kind, 0))),
            dquots: Mutex::default(),
            geo: Arc::clone(geo),
        }
    }

    /// Accounts a type, whose records lie in these blocks of a quota inode.
    pub(crate) fn account(&mut self, kind: QuotaType, ino: Ino, enforced: bool, places: Places) {
        self.accounted[kind as usize] =
            Some(Accounted { ino, enforced, places: Mutex::new(places) });
    }

    /// The types that are accounted.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = QuotaType> + '_ {
        QuotaType::ALL.into_iter().filter(|kind| self.accounted[*kind as usize].is_some())
    }

    /// Is nothing accounted?
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds().next().is_none()
    }

    /// Are limits of this type enforced?
    pub(crate) fn is_enforced(&self, kind: QuotaType) -> bool {
        self.accounted[kind as usize].as_ref().is_some_and(|accounted| accounted.enforced)
    }

    /// The defaults of a type: the record of id 0.
    fn defaults(&self, kind: QuotaType) -> disk::Dquot {
        *self.defaults[kind as usize].lock()
    }

    /// Notes that the record of id 0 changed.
    pub(crate) fn defaults_changed(&self, record: disk::Dquot) {
        *self.defaults[record.kind as usize].lock() = record;
    }

    /// Are limits of any type enforced?
    pub(crate) fn enforces(&self) -> bool {
        self.accounted.iter().flatten().any(|accounted| accounted.enforced)
    }

    /// The dquots that a file of this core counts in and whose limits are enforced.
    ///
    /// # Errors
    /// As [`Quota::get_counted`].
    pub(crate) fn limits_of(&self, bufs: &Cache, core: &InodeCore) -> Result<Limiting> {
        let kinds = QuotaType::ALL.into_iter().filter(|kind| self.is_enforced(*kind));
        kinds.map(|kind| self.get_counted(bufs, kind, kind.id_of(core))).collect()
    }

    /// The quota inode of a type that is accounted.
    pub(crate) fn inode(&self, kind: QuotaType) -> Option<Ino> {
        self.accounted[kind as usize].as_ref().map(|accounted| accounted.ino)
    }

    /// Is this a quota inode? Quota inodes are not accounted.
    pub(crate) fn is_quota_inode(&self, ino: Ino) -> bool {
        self.accounted.iter().flatten().any(|accounted| accounted.ino == ino)
    }

    /// The number of the block that holds the record of an id.
    pub(crate) fn block_of(&self, id: u32) -> u32 {
        id / disk::records(self.geo.block_size)
    }

    /// The number of the first block of records of a type from block `number` on.
    pub(crate) fn block_from(&self, kind: QuotaType, number: u32) -> Option<u32> {
        let found = self.accounted[kind as usize].as_ref()?.places.lock().from(number);
        found.map(|(number, _)| number)
    }

    /// Notes a new block of records.
    pub(crate) fn block_made(&self, kind: QuotaType, block: u32, daddr: Daddr) {
        if let Some(accounted) = &self.accounted[kind as usize] {
            accounted.places.lock().add(block.into(), 1, daddr);
        }
    }

    /// The dquot of an id; `None` if its record has no block yet, or the type is not accounted.
    ///
    /// # Errors
    /// If the block of its record cannot be read or is damaged.
    pub(crate) fn get(&self, bufs: &Cache, kind: QuotaType, id: u32) -> Result<Option<DquotRef>> {
        if let Some(dquot) = self.dquots.lock().get(&(kind, id)) {
            return Ok(Some(Arc::clone(dquot)));
        }
        let Some(accounted) = &self.accounted[kind as usize] else { return Ok(None) };
        let Some(daddr) = accounted.places.lock().get(self.block_of(id)) else {
            return Ok(None);
        };
        let buf = bufs.get(daddr, self.geo.block_size, &[BufKind::Dquot(kind)], Owner::Volume)?;
        let offset = (id % disk::records(self.geo.block_size)) as usize * disk::LEN;
        let record = disk::Dquot::decode(&buf.read()[offset..], kind, id);
        let record = record.map_err(|problem| buf.corrupt(problem.check, problem.detail))?;
        if id == 0 {
            self.defaults_changed(record);
        }
        let held = Usage::default();
        let state = Mutex::new(DquotState { record, changed: 0, slot: 0, dirty: false, held });
        let dquot = Dquot { kind, id, buf, offset, state, delayed: AtomicU64::new(0) };
        // Another thread may have been faster; no transaction has changed its dquot's buffer then.
        Ok(Some(Arc::clone(self.dquots.lock().entry((kind, id)).or_insert_with(|| dquot.into()))))
    }

    /// The record of an id as it is in memory; `None` if it is not there.
    pub(crate) fn known(&self, kind: QuotaType, id: u32) -> Option<disk::Dquot> {
        let dquot = self.dquots.lock().get(&(kind, id)).cloned();
        dquot.map(|dquot| dquot.state.lock().record)
    }

    /// As [`Quota::get`], for an id that some inode counts for.
    ///
    /// # Errors
    /// As [`Quota::get`]; if there is no record.
    pub(crate) fn get_counted(&self, bufs: &Cache, kind: QuotaType, id: u32) -> Result<DquotRef> {
        self.get(bufs, kind, id)?.ok_or_else(|| {
            let ino = self.inode(kind).unwrap_or_default();
            let problem = format!(
                "no record of {} {id}, which has files; uxfs repair has everything counted again",
                kind.name()
            );
            Error::corrupt("quota inode", uxfs_format::Place::Inode(ino), Check::Missing, problem)
        })
    }

    /// Has every subject that an inode of this core counts for a record?
    ///
    /// # Errors
    /// As [`Quota::get`].
    pub(crate) fn lacks(&self, bufs: &Cache, core: &InodeCore) -> Result<Option<(QuotaType, u32)>> {
        for kind in self.kinds() {
            let id = kind.id_of(core);
            if self.get(bufs, kind, id)?.is_none() {
                return Ok(Some((kind, id)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_runs_while_a_limit_is_passed() {
        let none = Resource::default();
        let mut of = Resource { used: 5, soft: 5, hard: 10, ..none };
        settle(&mut of, &none, 1000);
        assert_eq!(of.timer, 0);
        of.used = 6;
        settle(&mut of, &none, 1000);
        settle(&mut of, &none, 2000);
        assert_eq!(of.timer, 1000 + GRACE);
        of.used = 5;
        settle(&mut of, &none, 3000);
        assert_eq!(of.timer, 0);
        of.used = 11;
        of.soft = 0;
        settle(&mut of, &Resource { timer: 60, ..none }, 4000);
        assert_eq!(of.timer, 4060);
    }

    #[test]
    fn a_hard_limit_is_never_passed_and_a_soft_one_only_for_a_time() {
        let none = Resource::default();
        let of = Resource { used: 8, soft: 9, hard: 12, timer: 100, ..none };
        assert!(fits(&of, &none, 4, 100) && !fits(&of, &none, 5, 100));
        assert!(fits(&of, &none, 1, 101) && !fits(&of, &none, 2, 101));
        let unlimited = Resource { used: 8, ..none };
        assert!(fits(&unlimited, &none, u64::MAX, 101));
        assert!(fits(&unlimited, &of, 4, 101) && !fits(&unlimited, &of, 5, 101));
    }

    #[test]
    fn limits_that_are_missing_are_the_defaults() {
        let defaults = Resource { soft: 3, hard: 4, ..Resource::default() };
        let mut of = Resource { used: 4, hard: 9, ..Resource::default() };
        settle(&mut of, &defaults, 1);
        assert_eq!((of.soft, of.hard, of.timer), (3, 9, 1 + GRACE));
    }

    /// Writers of two files of one owner are not both admitted below one limit.
    #[cfg(unix)]
    #[test]
    fn what_was_admitted_is_counted_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        uxfs_oracle::mkfs(&path, 300 << 20, &[]);
        let dev = uxfs_disk::FileDev::open(&path, uxfs_disk::OpenMode::Write).unwrap();
        let quota = disk::QuotaFlags::USER_ACCT | disk::QuotaFlags::USER_ENFD;
        let options = crate::OpenOptions { quota: Some(quota), ..Default::default() };
        let fs = crate::Fs::open(Arc::new(dev), options).unwrap();
        let limits = Limits { blocks_hard: Some(10), ..Limits::default() };
        fs.set_limits(QuotaType::User, 7, &limits).unwrap();
        let core = InodeCore { uid: 7, ..InodeCore::default() };
        let quota = fs.quota.as_ref().unwrap();
        let owners = quota.limits_of(&fs.bufs, &core).unwrap();
        let admit = |blocks| owners[0].admit_delayed(quota, blocks, 0);
        admit(6).unwrap();
        assert!(matches!(admit(6), Err(Error::QuotaExceeded(QuotaType::User))));
        admit(4).unwrap();
        owners[0].count_delayed(10, false);
        admit(10).unwrap();
        owners[0].count_delayed(10, false);
        fs.close().unwrap();
    }
}
