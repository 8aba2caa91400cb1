//! The mount: a volume's geometry, devices, caches and counters. The rest of the engine builds on
//! it.
//!
//! 1. `fdblocks` counts free blocks; `available` counts those that can still be reserved. Open
//!    reservations make the difference.
//! 2. After [`Mount::shut_down`] nothing is written any more, and every operation that needs an
//!    inode fails.
//! 3. The superblock in memory is authoritative. [`Mount::edit_superblock`] returns its sector for
//!    writing, with current counters and checksum.
//!
//! It does not know transactions or the journal, which [`crate::engine::Engine`] adds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use uxfs_disk::BlockDev;
use uxfs_format::features::Version;
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{AgNo, Check, Geometry, Place};
use uxfs_sync::{Mutex, Rank, RwLock};

use crate::ag::{AgCell, AgState};
use crate::buf::Cache;
use crate::bulk_data::BulkData;
use crate::cause::{Cause, Stop};
use crate::clock::Numbers;
use crate::devices::Device;
use crate::dquot::Quota;
use crate::error::{Error, Result};
use crate::freed_inodes::FreedInodes;
use crate::full::Full;
use crate::growing::{GrowTable, GrowingGeometry};
use crate::inode::{InodeCell, InodeState, Inodes};
use crate::instrumented::{DevRole, InstrumentedDev};
use crate::options::OpenOptions;
use crate::point_in_time::Keeper;
use crate::reserve_floor::ReserveFloor;
use crate::rolled_inodes::RolledInodes;
use crate::stats::{Counts, Stats};
use crate::unsettled::Unsettled;

/// Changes to the counters of the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Free blocks.
    pub fdblocks: i64,
    /// Allocated inodes.
    pub icount: i64,
    /// Free inodes among them.
    pub ifree: i64,
}

/// A volume's geometry, devices, caches and counters.
pub struct Mount {
    /// The geometry.
    pub geo: Arc<GrowingGeometry>,
    /// The device, for file data.
    pub(crate) dev: Arc<dyn BlockDev>,
    /// The same device, for metadata written in place.
    pub(crate) meta_dev: Arc<dyn BlockDev>,
    /// Keeps what is overwritten through `meta_dev` while a scrub reads.
    pub(crate) keeper: Arc<Keeper>,
    /// The same device, for the log.
    pub(crate) log_dev: Arc<dyn BlockDev>,
    /// The same device, without counting.
    pub(crate) bare_dev: Arc<dyn BlockDev>,
    pub(crate) counts: Arc<Counts>,
    /// The realtime device, if the volume has one and it was passed to open.
    pub(crate) realtime: Option<Device>,
    pub(crate) bufs: Cache,
    pub(crate) inodes: Inodes,
    /// Copies of the inodes of rolling transactions.
    pub(crate) rolled_inodes: RolledInodes<InodeCell, InodeState>,
    /// Inodes in memory whose chunk was freed.
    pub(crate) freed_inodes: FreedInodes<InodeCell>,
    /// The gate. Transactions hold it shared; a thread that holds it exclusively keeps transactions
    /// out.
    pub(crate) gate: RwLock<()>,
    /// Held shared by transactions and writers of file data in ordered mode, and exclusively while an
    /// epoch is cut.
    pub(crate) freeze: RwLock<()>,
    /// Is the volume opened in ordered mode?
    pub(crate) ordered: bool,
    /// Freed blocks that data must not use yet, in ordered mode.
    pub(crate) unsettled: Unsettled,
    pub(crate) numbers: Numbers,
    /// The quotas that are accounted; `None` if none is.
    pub(crate) quota: Option<Quota>,
    pub(crate) options: OpenOptions,
    /// Changes are logged, so a write in place that fails because the host is full can be retried.
    pub(crate) logged: bool,
    /// File data that another writer has not written yet.
    pub(crate) bulk_data: Mutex<Option<Arc<BulkData>>>,
    ags: GrowTable<AgCell>,
    superblock: Mutex<Vec<u8>>,
    available: AtomicI64,
    fdblocks: AtomicI64,
    icount: AtomicI64,
    ifree: AtomicI64,
    /// Available blocks that cannot be reserved while data is dirty.
    pub(crate) reserve_floor: Arc<ReserveFloor>,
    stop: Arc<Stop>,
    pub(crate) full: Full,
    /// The host had no space for the whole log at open.
    log_without_room: bool,
    /// An inode got its first attribute, which the superblock's version must show.
    attr_bit: AtomicBool,
    /// The superblock changed in more than its counters, and is not logged yet.
    superblock_changed: AtomicBool,
    /// The last checkpoint that holds the superblock, and its sector as logged there.
    logged_superblock: Mutex<(u64, Vec<u8>)>,
    /// Is the volume marked as needing repair, or being overwritten?
    pub(crate) marked: Mutex<bool>,
    /// Blocks were freed that still belong to a file on the device.
    pub(crate) freed: AtomicBool,
    /// Blocks of each group kept for the reference counts of open transactions.
    kept: GrowTable<AtomicU32>,
    /// The group that gets the next new directory.
    pub(crate) next_dir_ag: AtomicU64,
}

/// The arguments of [`Mount::new`].
pub(crate) struct Parts {
    pub(crate) geo: Arc<GrowingGeometry>,
    pub(crate) dev: Arc<dyn BlockDev>,
    pub(crate) realtime: Option<Device>,
    /// The primary superblock's sector, verified.
    pub(crate) sector: Vec<u8>,
    pub(crate) options: OpenOptions,
    pub(crate) seed: u64,
    pub(crate) logged: bool,
    pub(crate) log_without_room: bool,
}

impl Mount {
    /// Creates the mount of the volume with this superblock.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { geo, dev, realtime, sector, options, seed, logged, log_without_room } = parts;
        let sb = Superblock::view(&sector).expect("verified by the caller");
        let (fdblocks, icount, ifree) = (sb.fdblocks.get(), sb.icount.get(), sb.ifree.get());
        let aside = aside(&geo);
        let ordered = logged && options.sync.is_ordered();
        let cache_bytes = options.cache_bytes;
        let barrier = options.journal.barrier || !options.logs();
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(Stop::default());
        let instrumented = |role| InstrumentedDev::over(&dev, &counts, &stop, role, barrier);
        let keeper = Keeper::new(&dev);
        let meta_dev = keeper.over(instrumented(DevRole::Metadata));
        Self {
            bufs: Cache::new(Arc::clone(&meta_dev), Arc::clone(&geo), cache_bytes),
            inodes: Inodes::new(cache_bytes / 4096),
            rolled_inodes: RolledInodes::default(),
            freed_inodes: FreedInodes::default(),
            gate: RwLock::ranked(Rank::Gate, ()),
            freeze: RwLock::ranked(Rank::Freeze, ()),
            ordered,
            unsettled: Unsettled::default(),
            numbers: Numbers::new(seed),
            quota: None,
            logged,
            bulk_data: Mutex::default(),
            ags: GrowTable::new(geo.ag_count as usize, new_ag),
            superblock: Mutex::new(sector),
            available: AtomicI64::new(fdblocks.saturating_sub(aside) as i64),
            fdblocks: AtomicI64::new(fdblocks as i64),
            icount: AtomicI64::new(icount as i64),
            ifree: AtomicI64::new(ifree as i64),
            reserve_floor: Arc::default(),
            full: Full::default(),
            log_without_room,
            attr_bit: AtomicBool::new(false),
            superblock_changed: AtomicBool::new(false),
            logged_superblock: Mutex::default(),
            marked: Mutex::ranked(Rank::Marked, options.resuming),
            freed: AtomicBool::new(false),
            kept: GrowTable::new(geo.ag_count as usize, AtomicU32::default),
            next_dir_ag: AtomicU64::new(0),
            options,
            dev: instrumented(DevRole::Data),
            log_dev: instrumented(DevRole::Log),
            stop: Arc::clone(&stop),
            geo,
            meta_dev,
            keeper,
            bare_dev: dev,
            counts,
            realtime,
        }
    }

    /// The counters since open.
    pub fn stats(&self) -> Stats {
        self.counts.read()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDev> {
        &self.dev
    }

    /// A copy of the superblock as read, with the current label and counters.
    pub fn superblock(&self) -> Superblock {
        let mut sb = *Superblock::view(&self.superblock.lock()).expect("checked when opened");
        self.fill_counters(&mut sb);
        sb
    }

    pub(crate) fn fill_counters(&self, sb: &mut Superblock) {
        sb.fdblocks.set(self.fdblocks.load(Ordering::Relaxed).max(0) as u64);
        sb.icount.set(self.icount.load(Ordering::Relaxed).max(0) as u64);
        sb.ifree.set(self.ifree.load(Ordering::Relaxed).max(0) as u64);
    }

    pub(crate) fn edit_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut sector = self.superblock.lock();
        let sb = Superblock::view_mut(&mut sector).expect("checked when opened");
        self.fill_counters(sb);
        if self.attr_bit.load(Ordering::Relaxed) {
            sb.versionnum.set(sb.versionnum.get() | Version::ATTR.bits());
        }
        change(sb);
        uxfs_format::crc::stamp(&mut sector, superblock::CRC_OFFSET);
        sector.clone()
    }

    pub(crate) fn ag(&self, ag: AgNo) -> Result<&AgCell> {
        self.ags.get(ag.0 as usize).ok_or_else(|| {
            Error::corrupt(
                "AG number",
                Place::Volume,
                Check::Range,
                format!("{ag} of {}", self.ags.len()),
            )
        })
    }

    /// The group for the next new directory.
    pub(crate) fn next_dir_group(&self) -> u32 {
        let turn = self.next_dir_ag.fetch_add(1, Ordering::Relaxed);
        (turn % u64::from(self.geo.ag_count)) as u32
    }

    /// May this many more inodes be allocated under the volume's `imax_pct`?
    pub(crate) fn inodes_allowed(&self, more: u64) -> bool {
        let percent = u64::from(self.geo.imax_pct);
        if percent == 0 {
            return true;
        }
        let blocks = u128::from(self.geo.dblocks) * u128::from(percent) / 100;
        let most = blocks << self.geo.inopb_log;
        u128::from(self.inode_counts().0 + more) <= most
    }

    /// The preferred location of an inode's blocks: near the inode.
    pub(crate) fn inode_goal(&self, ino: uxfs_format::Ino) -> uxfs_format::FsBlock {
        let agino = self.geo.ino_agino(ino);
        self.geo.fsb(self.geo.ino_ag(ino), self.geo.agino_block(agino))
    }

    /// The current time by the volume's clock.
    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Free blocks, including reserved ones.
    pub fn free_blocks(&self) -> u64 {
        self.fdblocks.load(Ordering::Relaxed).max(0) as u64
    }

    /// Blocks that can still be reserved.
    pub fn available_blocks(&self) -> u64 {
        self.available.load(Ordering::Relaxed).max(0) as u64
    }

    /// Allocated inodes and free ones among them.
    pub fn inode_counts(&self) -> (u64, u64) {
        let get = |n: &AtomicI64| n.load(Ordering::Relaxed).max(0) as u64;
        (get(&self.icount), get(&self.ifree))
    }

    /// Blocks of a group kept for the reference counts of open transactions.
    pub(crate) fn kept(&self, ag: AgNo) -> u32 {
        self.kept.get(ag.0 as usize).map_or(0, |kept| kept.load(Ordering::Relaxed))
    }

    /// Keeps more or fewer of them. The caller has locked the group.
    pub(crate) fn keep(&self, ag: AgNo, blocks: u32, give_up: bool) {
        if let Some(kept) = self.kept.get(ag.0 as usize) {
            match give_up {
                false => kept.fetch_add(blocks, Ordering::Relaxed),
                true => kept.fetch_sub(blocks, Ordering::Relaxed),
            };
        }
    }

    pub(crate) fn reserve(&self, blocks: u64) -> Result<()> {
        self.reserve_above(blocks, if self.ordered { kept_for_overwrites(&self.geo) } else { 0 })
    }

    /// As [`Mount::reserve`], for new blocks in place of a file's own, which become free. In ordered mode
    /// some blocks are kept for that, so that a full volume can be overwritten.
    pub(crate) fn reserve_overwrite(&self, blocks: u64) -> Result<()> {
        self.reserve_above(blocks, 0)
    }

    fn reserve_above(&self, blocks: u64, kept: i64) -> Result<()> {
        let want = blocks as i64;
        let before = self.available.fetch_sub(want, Ordering::AcqRel);
        let floor = self.reserve_floor.blocks() + self.unsettled.blocks() + kept;
        if want > 0 && (before < want || before - want < floor) {
            self.available.fetch_add(want, Ordering::AcqRel);
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Blocks that can still be reserved; negative if some were withdrawn.
    pub(crate) fn available(&self) -> i64 {
        self.available.load(Ordering::Acquire)
    }

    /// Blocks that cannot be reserved, because the free-space btrees may need them to grow.
    pub(crate) fn aside(&self) -> u64 {
        aside(&self.geo)
    }

    /// Releases reserved blocks.
    pub(crate) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.available.fetch_add(blocks as i64, Ordering::AcqRel);
        }
    }

    /// Returns blocks that a transaction freed to the reservation that they came from.
    pub(crate) fn take_back(&self, blocks: u64) {
        self.available.fetch_sub(blocks as i64, Ordering::AcqRel);
    }

    /// Ends a reservation of `reserved` blocks that changed the counters by `change`. `kept` of it
    /// stays reserved.
    pub(crate) fn apply(&self, reserved: u64, change: Counters, kept: u64) {
        self.available.fetch_add(reserved as i64 - kept as i64 + change.fdblocks, Ordering::AcqRel);
        self.fdblocks.fetch_add(change.fdblocks, Ordering::AcqRel);
        self.icount.fetch_add(change.icount, Ordering::AcqRel);
        self.ifree.fetch_add(change.ifree, Ordering::AcqRel);
    }

    /// Publishes the geometry after a growth, with the groups that it adds. Nothing may be allocated until
    /// the growth is on the device.
    pub(crate) fn publish_geometry(&self, new: Geometry) {
        let groups = new.ag_count as usize;
        let more = aside(&new).saturating_sub(self.aside());
        self.ags.lengthen(groups, new_ag);
        self.kept.lengthen(groups, AtomicU32::default);
        self.geo.replace(new);
        self.take_back(more);
    }

    /// Adds the blocks of new groups.
    pub(crate) fn add_free(&self, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.available.fetch_add(blocks, Ordering::AcqRel);
        self.fdblocks.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Notes that the volume now has extended attributes.
    pub(crate) fn note_attr(&self) {
        if self.attr_bit.load(Ordering::Acquire) {
            return;
        }
        // Logging the superblock takes this lock. So who sees that it changed logs the bit, and who sees the
        // bit commits after, or together with, the superblock that has it.
        let sector = self.superblock.lock();
        let bit = Version::ATTR.bits();
        let known = Superblock::view(&sector).is_some_and(|sb| sb.versionnum.get() & bit != 0);
        if !known {
            self.superblock_changed.store(true, Ordering::Release);
        }
        self.attr_bit.store(true, Ordering::Release);
    }

    /// Changes the superblock in more than its counters; the next transaction logs it.
    pub(crate) fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        self.edit_superblock(change);
        self.superblock_changed.store(true, Ordering::Release);
    }

    /// The superblock's sector, which checkpoint `seq` logs.
    pub(crate) fn log_superblock(&self, seq: u64) -> Vec<u8> {
        let sector = self.edit_superblock(|_| {});
        *self.logged_superblock.lock() = (seq, sector.clone());
        sector
    }

    /// The superblock's sector as checkpoint `last` or an earlier one logs it, with current counters; `None`
    /// if a later one does.
    pub(crate) fn logged_superblock(&self, last: u64) -> Option<Vec<u8>> {
        let mut sector = {
            let logged = self.logged_superblock.lock();
            (logged.0 <= last).then(|| logged.1.clone())?
        };
        self.fill_counters(Superblock::view_mut(&mut sector)?);
        uxfs_format::crc::stamp(&mut sector, superblock::CRC_OFFSET);
        Some(sector)
    }

    /// Did the superblock change since the last call?
    pub(crate) fn take_superblock_change(&self) -> bool {
        self.superblock_changed.load(Ordering::Acquire)
            && self.superblock_changed.swap(false, Ordering::AcqRel)
    }

    /// Fails if the volume may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_running()
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        self.stop.check()
    }

    /// The reason why the volume is stopped, if it is: [`Fs::stop`], or a failure.
    pub fn stopped_by(&self) -> Option<String> {
        self.shutdown_cause().map(|cause| cause.to_string())
    }

    /// As [`Fs::stopped_by`], with the failed operation, its place, and the errno.
    pub fn shutdown_cause(&self) -> Option<Cause> {
        self.stop.cause()
    }

    /// A warning about the device, which still works: for example that the image file has no name
    /// any more.
    pub fn device_warning(&self) -> Option<String> {
        let room = || {
            let size = u64::from(self.geo.log_blocks) << self.geo.block_log;
            format!(
                "the host has no room for the log, {} MiB: make some, or changes may have to wait for it",
                size >> 20
            )
        };
        self.bare_dev.warning().or_else(|| self.log_without_room.then(room))
    }

    /// Stops all further changes and writes, because something failed in the middle of a change.
    pub(crate) fn shut_down(&self, why: impl Into<Cause>) {
        self.stop.stop(why);
    }
}

/// A twentieth of the volume, at most 8192 blocks.
fn kept_for_overwrites(geo: &Geometry) -> i64 {
    (geo.dblocks / 20).min(8192) as i64
}

fn new_ag() -> AgCell {
    AgCell::ranked(Rank::Ag, AgState::default())
}

fn aside(geo: &Geometry) -> u64 {
    u64::from(geo.ag_count) * 12
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Devices;
    use crate::examine::Examined;
    use crate::fs::Fs;

    /// A thread that logs the superblock when it sees that it changed, logs the bit.
    #[test]
    fn a_superblock_that_is_logged_has_the_attribute_bit() {
        let dev: Arc<dyn BlockDev> = Arc::new(uxfs_disk::MemDev::new(400 << 20));
        let layout = uxfs_mkfs::Layout::new(&uxfs_mkfs::Options::default(), dev.len()).unwrap();
        uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
        let volume = Examined::new(Devices::new(dev), OpenOptions::unlogged()).unwrap();
        let fs = Fs::assemble(volume, None).unwrap();
        let bit = Version::ATTR.bits();
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        let rounds = 20_000;
        let await_turn = |turn: &AtomicU64, round| {
            while turn.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    await_turn(&begun, round);
                    fs.note_attr();
                    ended.store(round, Ordering::Release);
                }
            });
            let mut without = 0;
            for round in 1..=rounds {
                fs.attr_bit.store(false, Ordering::Release);
                fs.edit_superblock(|sb| sb.versionnum.set(sb.versionnum.get() & !bit));
                begun.store(round, Ordering::Release);
                while !fs.take_superblock_change() {
                    std::hint::spin_loop();
                }
                fs.edit_superblock(|sb| without += u64::from(sb.versionnum.get() & bit == 0));
                await_turn(&ended, round);
            }
            assert_eq!(without, 0, "of {rounds} superblocks lack the bit");
        });
    }
}
