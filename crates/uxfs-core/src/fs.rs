//! The file system: opening a volume, its state in memory, and closing it.
//!
//! 1. A volume is opened for writing only if every feature is known and no repair is due; a dirty
//!    log is recovered first, in memory only if the volume is opened for reading. Version 4, a log
//!    on another device and realtime data are for reading only.
//! 2. `available` is what may still be reserved; `fdblocks` is what is free. Reservations that are
//!    open make the first smaller than the second.
//! 3. The log's blocks are allocated on the host before a volume that is open for writing is changed. A
//!    host without room for them is warned of ([`Fs::device_warning`]).
//! 4. After [`Fs::shut_down`] nothing is written any more, and whatever needs an inode fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use uxfs_disk::{BlockDev, host};
use uxfs_format::features::{Incompat, LogIncompat, RoCompat, Version, describe};
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{AgNo, Geometry, Place};
use uxfs_journal::LogGeometry;
use uxfs_log::{Log, State};

use crate::ag::AgCell;
use crate::buf::Cache;
use crate::cause::{Cause, Stop};
use crate::clean_log;
use crate::clock::{Clock, Numbers};
use crate::delalloc::{Delalloc, WritebackOptions};
use crate::devices::{Device, Devices};
use crate::error::{Error, Result};
use crate::full::Full;
use crate::inode::Inodes;
use crate::instrumented::{DevRole, InstrumentedDev};
use crate::journal::{Journal, JournalOptions, LogPlace};
use crate::pending_data::PendingData;
use crate::recovery::{self, Recovery};
use crate::sb;
use crate::stats::{Counts, Stats};
use crate::sync::{Mutex, RwLock};
use crate::tx::Counters;

/// How to open a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Refuse all changes, and never write to the device.
    pub read_only: bool,
    /// Read a volume whose log is dirty as it lies there, without what the log holds. Goes with
    /// `read_only`.
    pub norecovery: bool,
    /// The volume is being made: nobody looks at it before it is finished, so it may be unfinished
    /// (`inprogress`) now and be written back at any time.
    pub unfinished: bool,
    /// Where times of changes come from.
    pub clock: Clock,
    /// Seed of inode generations; `None` takes one from the time.
    pub seed: Option<u64>,
    /// About how many bytes of clean metadata to keep in memory. Half as much again may wait to be
    /// written, and an inode for each KiB; twice that at most while a service looks after the journal,
    /// which begins to bring it home from the same limit on.
    pub cache_bytes: usize,
    /// The volume is in the midst of a change of its length, and marked as needing repair by it.
    pub(crate) resuming: bool,
    /// How often recovery was done: a log that is not clean after the second time will not become so.
    pub(crate) recovered: u8,
    /// Log changes in the volume's journal, so that they survive a power cut; `None` brings them
    /// home all at once instead, and marks the volume as needing repair meanwhile.
    pub journal: Option<JournalOptions>,
    /// Let written data gather in memory, and choose blocks for it when it is written back; needs
    /// the journal. `None` writes data to the device at once.
    pub writeback: Option<WritebackOptions>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            norecovery: false,
            unfinished: false,
            clock: Clock::Real,
            seed: None,
            cache_bytes: 64 << 20,
            resuming: false,
            recovered: 0,
            journal: None,
            writeback: None,
        }
    }
}

impl OpenOptions {
    /// For reading only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}

/// An open volume.
pub struct Fs {
    /// Its shape.
    pub geo: Arc<Geometry>,
    /// The device, by which file data is read and written.
    pub(crate) dev: Arc<dyn BlockDev>,
    /// The same device, by which metadata goes home.
    pub(crate) meta_dev: Arc<dyn BlockDev>,
    /// The same, by which the log is written.
    pub(crate) log_dev: Arc<dyn BlockDev>,
    /// The same, not counted.
    pub(crate) bare_dev: Arc<dyn BlockDev>,
    pub(crate) counts: Arc<Counts>,
    /// The realtime device, if the volume has one and it was given.
    pub(crate) realtime: Option<Device>,
    pub(crate) bufs: Cache,
    pub(crate) inodes: Inodes,
    pub(crate) gate: RwLock<()>,
    pub(crate) next_tx: AtomicU64,
    pub(crate) scratch: Mutex<Vec<crate::tx::Scratch>>,
    pub(crate) numbers: Numbers,
    pub(crate) options: OpenOptions,
    pub(crate) journal: Option<Journal>,
    /// Data that is not on the device yet.
    pub(crate) delalloc: Option<Delalloc>,
    /// Who else brings data to the device.
    pub(crate) pending_data: Mutex<Option<Arc<dyn PendingData>>>,
    ags: Vec<AgCell>,
    superblock: Mutex<Vec<u8>>,
    available: AtomicI64,
    fdblocks: AtomicI64,
    icount: AtomicI64,
    ifree: AtomicI64,
    stop: Arc<Stop>,
    pub(crate) full: Full,
    /// The host had no room for the whole log when the volume was opened.
    log_without_room: bool,
    /// What recovery did when the volume was opened, if its log was dirty.
    pub(crate) recovery: Option<Recovery>,
    /// Some inode got its first attribute: the superblock's version has to say so.
    attr_bit: AtomicBool,
    /// The superblock changed in more than its counters, and that is not logged yet.
    superblock_changed: AtomicBool,
    /// Is the volume marked as needing repair, or being overwritten?
    pub(crate) marked: Mutex<bool>,
    /// Blocks were freed that still belong to something on the device.
    pub(crate) freed: AtomicBool,
    /// Blocks of each group that are kept for reference counts of transactions under way.
    kept: Box<[AtomicU32]>,
    /// What stood between operations and free space.
    pub(crate) enospc_causes: crate::enospc::EnospcCauses,
    /// Held while an inode is taken off its list of unlinked ones.
    pub(crate) inactivation: Mutex<()>,
    /// Locks of the content of files.
    pub(crate) iolocks: crate::iolock::IoLocks,
    /// Files that outlive their last name.
    pub(crate) open_refs: crate::open_refs::OpenRefs,
    /// Held while a file moves between directories.
    pub(crate) moves: Mutex<()>,
    /// The group that gets the next new directory.
    pub(crate) next_dir_ag: AtomicU64,
}

impl Fs {
    /// Opens the volume on `dev`.
    ///
    /// # Errors
    /// [`Error::NotXfs`], [`Error::Corrupt`], [`Error::DirtyLog`], or [`Error::Unsupported`] with
    /// the names of the features that stand in the way.
    pub fn open(dev: Arc<dyn BlockDev>, options: OpenOptions) -> Result<Self> {
        Self::open_devices(Devices::new(dev), options)
    }

    /// Opens a volume that may have a log or a realtime device besides.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub fn open_devices(devices: Devices, options: OpenOptions) -> Result<Self> {
        if options.writeback.is_some() && options.journal.is_none() && !options.read_only {
            return Err(Error::Invalid("data is written back later only with the journal"));
        }
        let dev = Arc::clone(&devices.data);
        let sector = sb::read(&*dev)?;
        let sb = Superblock::verify(&sector)?;
        let read_only = options.read_only || dev.read_only();
        let options = OpenOptions { read_only, ..options };
        check_features(sb, &options)?;
        let geo = Arc::new(Geometry::new(sb));
        if dev.len() >> geo.block_log < geo.dblocks {
            let (blocks, size) = (geo.dblocks, geo.block_size);
            let (needed, there) = (blocks.saturating_mul(size.into()), dev.len());
            let problem = format!(
                "the volume has {needed} bytes and its device only {there}: an image that was cut \
                 short, or not all of it was copied"
            );
            return Err(Error::corrupt("superblock", Place::Volume, problem));
        }
        let mut log_without_room = false;
        if !read_only && !options.unfinished && options.recovered == 0 && geo.log_start.0 != 0 {
            // Before anything is changed. A host without room now may have some when it is needed;
            // until then writes of the log are tried again ([`crate::full`]).
            let (daddr, len) = (geo.fsb_daddr(geo.log_start), u64::from(geo.log_blocks));
            let what = "setting aside room for the log on the host";
            let allocated = dev.allocate(daddr.bytes(), len << geo.block_log);
            match allocated {
                Err(error) if host::is_full_for_now(&error) => log_without_room = true,
                other => other.map_err(|source| Error::Io { what, daddr, source })?,
            }
        }
        let mut place = None;
        if !options.norecovery && !options.unfinished {
            if sb.is_v4() || geo.log_start.0 == 0 {
                clean_log::require_clean(&devices, &geo, sb)?;
            } else {
                let log = Log::new(sb)?;
                let bounds = log.find(&*dev)?;
                let logs = options.journal.is_some() && !read_only;
                let dirty = bounds.state == State::Dirty;
                let torn = bounds.torn.is_some()
                    || !dirty && logs && log.is_stale_ahead(&*dev, &bounds)?;
                if options.recovered > 1 && (torn || dirty) {
                    return Err(Error::DirtyLog(format!(
                        "after its recovery it still holds records behind its head at {}:{}; run \
                         xfs_repair -L",
                        bounds.head.cycle(),
                        bounds.head.block()
                    )));
                }
                if dirty {
                    return recovery::open(&devices, sb, options, &log, bounds);
                }
                if torn {
                    return recovery::torn_at_start(&devices, &log, bounds, options);
                }
                let (cycle, block) = (bounds.head.cycle(), bounds.head.block());
                place = Some(LogPlace { start: geo.fsb_daddr(geo.log_start), cycle, block });
            }
        }
        let realtime = devices.realtime_of(&geo)?;
        let (fdblocks, icount, ifree) = (sb.fdblocks.get(), sb.icount.get(), sb.ifree.get());
        let aside = aside(&geo);
        let seed = options.seed.unwrap_or_else(|| {
            let now = Clock::Real.now();
            (now.sec as u64).rotate_left(30) ^ u64::from(now.nsec)
        });
        let cache_bytes = options.cache_bytes;
        let journal = match (place, options.journal) {
            (Some(place), Some(journal)) if !read_only => {
                let shape = LogGeometry {
                    length: u64::from(geo.log_blocks) << geo.block_log,
                    unit: sb.logsunit.get().max(1),
                    buffer: journal.buffer_for(sb.logsunit.get())?,
                    uuid: sb.uuid,
                };
                let journal = journal.with_fua(dev.has_fua());
                Some(Journal::new(&geo, place, shape, journal, seed))
            }
            _ => None,
        };
        let barrier = options.journal.is_none_or(|journal| journal.barrier);
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(Stop::default());
        let metered = |what| InstrumentedDev::over(&dev, &counts, &stop, what, barrier);
        let meta_dev = metered(DevRole::Metadata);
        let dirty = options.writeback.filter(|_| journal.is_some()).map(Delalloc::new);
        let fs = Self {
            journal,
            delalloc: dirty,
            pending_data: Mutex::default(),
            superblock_changed: AtomicBool::new(false),
            bufs: Cache::new(Arc::clone(&meta_dev), Arc::clone(&geo), cache_bytes),
            inodes: Inodes::new(cache_bytes / 4096),
            gate: RwLock::new(()),
            next_tx: AtomicU64::new(1),
            scratch: Mutex::default(),
            numbers: Numbers::new(seed),
            ags: (0..geo.ag_count).map(|_| AgCell::default()).collect(),
            available: AtomicI64::new(fdblocks.saturating_sub(aside) as i64),
            fdblocks: AtomicI64::new(fdblocks as i64),
            icount: AtomicI64::new(icount as i64),
            ifree: AtomicI64::new(ifree as i64),
            stop: Arc::clone(&stop),
            full: Full::default(),
            log_without_room,
            recovery: None,
            attr_bit: AtomicBool::new(false),
            marked: Mutex::new(options.resuming),
            freed: AtomicBool::new(false),
            kept: (0..geo.ag_count).map(|_| AtomicU32::new(0)).collect(),
            enospc_causes: crate::enospc::EnospcCauses::default(),
            inactivation: Mutex::new(()),
            iolocks: crate::iolock::IoLocks::default(),
            open_refs: crate::open_refs::OpenRefs::default(),
            moves: Mutex::new(()),
            next_dir_ag: AtomicU64::new(0),
            superblock: Mutex::new(sector),
            options,
            geo,
            dev: metered(DevRole::Data),
            log_dev: metered(DevRole::Log),
            meta_dev,
            bare_dev: dev,
            counts,
            realtime,
        };
        if let Some(dirty) = &fs.delalloc {
            fs.fill_pool(dirty);
        }
        Ok(fs)
    }

    /// What recovery did when the volume was opened; `None` if its log was clean.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// What was done since the volume was opened.
    pub fn stats(&self) -> Stats {
        self.counts.read()
    }

    /// How changes are logged; `None` without a journal.
    pub fn journal_options(&self) -> Option<&JournalOptions> {
        self.options.journal.as_ref().filter(|_| self.journal.is_some())
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDev> {
        &self.dev
    }

    /// A copy of the superblock's sector as it was read, with label and counters brought up to
    /// date.
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
            Error::corrupt("AG number", Place::Volume, format!("{ag} of {}", self.ags.len()))
        })
    }

    /// The group whose turn it is to take a new directory.
    pub(crate) fn next_dir_group(&self) -> u32 {
        let turn = self.next_dir_ag.fetch_add(1, Ordering::Relaxed);
        (turn % u64::from(self.geo.ag_count)) as u32
    }

    /// May this many more inodes be allocated, by the volume's limit on their share of it?
    pub(crate) fn inodes_allowed(&self, more: u64) -> bool {
        let percent = u64::from(self.geo.imax_pct);
        if percent == 0 {
            return true;
        }
        let blocks = u128::from(self.geo.dblocks) * u128::from(percent) / 100;
        let most = blocks << self.geo.inopb_log;
        u128::from(self.inode_counts().0 + more) <= most
    }

    /// Where blocks of an inode lie best: near the inode itself.
    pub(crate) fn inode_goal(&self, ino: uxfs_format::Ino) -> uxfs_format::FsBlock {
        let agino = self.geo.ino_agino(ino);
        self.geo.fsb(self.geo.ino_ag(ino), self.geo.agino_block(agino))
    }

    /// The present moment by this volume's clock.
    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Free blocks, those reserved by running operations included.
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

    /// Blocks of a group that are kept for reference counts of transactions under way.
    pub(crate) fn kept(&self, ag: AgNo) -> u32 {
        self.kept.get(ag.0 as usize).map_or(0, |kept| kept.load(Ordering::Relaxed))
    }

    /// Keeps more of them, whose group's lock the caller has, or gives them up.
    pub(crate) fn keep(&self, ag: AgNo, blocks: u32, give_up: bool) {
        if let Some(kept) = self.kept.get(ag.0 as usize) {
            match give_up {
                false => kept.fetch_add(blocks, Ordering::Relaxed),
                true => kept.fetch_sub(blocks, Ordering::Relaxed),
            };
        }
    }

    pub(crate) fn reserve(&self, blocks: u64) -> Result<()> {
        let want = blocks as i64;
        let before = self.available.fetch_sub(want, Ordering::AcqRel);
        let floor = self.delalloc.as_ref().map_or(0, Delalloc::floor);
        if want > 0 && (before < want || before - want < floor) {
            self.available.fetch_add(want, Ordering::AcqRel);
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Blocks that can still be reserved; fewer than none when some were taken back.
    pub(crate) fn available(&self) -> i64 {
        self.available.load(Ordering::Acquire)
    }

    /// Blocks that nobody may reserve: the trees' own growth may need them.
    pub(crate) fn aside(&self) -> u64 {
        aside(&self.geo)
    }

    /// Gives up reserved blocks.
    pub(crate) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.available.fetch_add(blocks as i64, Ordering::AcqRel);
        }
    }

    /// Takes blocks that a transaction gave up back into the reservation that they came from.
    pub(crate) fn take_back(&self, blocks: u64) {
        self.available.fetch_sub(blocks as i64, Ordering::AcqRel);
    }

    /// Ends a reservation of `reserved` blocks that changed the counters by `change`, `kept` of it
    /// going on.
    pub(crate) fn apply(&self, reserved: u64, change: Counters, kept: u64) {
        self.available.fetch_add(reserved as i64 - kept as i64 + change.fdblocks, Ordering::AcqRel);
        self.fdblocks.fetch_add(change.fdblocks, Ordering::AcqRel);
        self.icount.fetch_add(change.icount, Ordering::AcqRel);
        self.ifree.fetch_add(change.ifree, Ordering::AcqRel);
    }

    /// Counts blocks of groups that were just added.
    pub(crate) fn add_free(&self, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.available.fetch_add(blocks, Ordering::AcqRel);
        self.fdblocks.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Tells that there are extended attributes on the volume now.
    pub(crate) fn note_attr(&self) {
        let bit = Version::ATTR.bits();
        let known = || {
            let sector = self.superblock.lock();
            Superblock::view(&sector).is_some_and(|sb| sb.versionnum.get() & bit != 0)
        };
        if !self.attr_bit.load(Ordering::Relaxed) && !known() {
            self.superblock_changed.store(true, Ordering::Release);
        }
        self.attr_bit.store(true, Ordering::Relaxed);
    }

    /// Changes the superblock in more than its counters; the next transaction logs it.
    pub(crate) fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        self.edit_superblock(change);
        self.superblock_changed.store(true, Ordering::Release);
    }

    /// Did the superblock change since this was last asked?
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

    /// Fails if the volume is stopped, or if its device is no longer the one that was opened; that
    /// stops it.
    pub(crate) fn check_device(&self) -> Result<()> {
        self.check_running()?;
        let Err(source) = self.dev.check_present() else { return Ok(()) };
        let cause = Cause::device("looking at the device", &source);
        Err(match &self.journal {
            Some(journal) => journal.fail(self, cause),
            None => {
                self.shut_down(cause.clone());
                Error::Shutdown(cause.to_string())
            }
        })
    }

    /// Stops the volume for good, for those who find that something is wrong of which it cannot know
    /// itself, such as a panic in a thread that worked on it: nothing more is changed or written, and
    /// all who wait are told. What was durable stays so; what was not is as after a power cut.
    pub fn stop(&self, why: &str) {
        match &self.journal {
            Some(journal) => drop(journal.fail(self, why)),
            None => self.shut_down(why),
        }
    }

    /// Why the volume is stopped, if it is: by [`Fs::stop`], or because something failed.
    pub fn stopped_by(&self) -> Option<String> {
        self.shutdown_cause().map(|cause| cause.to_string())
    }

    /// As [`Fs::stopped_by`], with what failed, where, and the errno.
    pub fn shutdown_cause(&self) -> Option<Cause> {
        self.stop.cause()
    }

    /// What the user of the volume should know of its device although it works, such as that the
    /// image has no name any more.
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

    /// Stops all further changes and writes: something failed in the midst of a change.
    pub(crate) fn shut_down(&self, why: impl Into<Cause>) {
        self.stop.stop(why);
    }
}

fn aside(geo: &Geometry) -> u64 {
    u64::from(geo.ag_count) * 12
}

/// Features that are read and written.
const INCOMPAT_KNOWN: Incompat = Incompat::FTYPE
    .union(Incompat::SPINODES)
    .union(Incompat::META_UUID)
    .union(Incompat::BIGTIME)
    .union(Incompat::NREXT64)
    .union(Incompat::EXCHRANGE)
    .union(Incompat::PARENT);

/// Version 4 has no words for features that may be ignored: an unknown one forbids opening.
fn check_v4(sb: &Superblock) -> Result<()> {
    let unknown = sb.version_flags().bits() & !Version::all().bits();
    if unknown != 0 {
        return Err(Error::Unsupported(format!("version 4 feature unknown: {unknown:#x}")));
    }
    if !sb.version_flags().contains(Version::EXTFLG) {
        let why = "extents without a state (version 4, before EXTFLG) are not supported";
        return Err(Error::Unsupported(why.into()));
    }
    Ok(())
}

fn check_features(sb: &Superblock, options: &OpenOptions) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported(what));
    let incompat = sb.incompat();
    if incompat.contains(Incompat::NEEDSREPAIR) && !options.resuming {
        return refuse(
            "the volume needs a repair (an earlier change did not finish): run \
                       xfs_repair on it first"
                .into(),
        );
    }
    let unknown = incompat - INCOMPAT_KNOWN - Incompat::NEEDSREPAIR;
    if !unknown.is_empty() {
        return refuse(format!("incompatible feature not supported: {}", describe(unknown)));
    }
    if sb.inprogress != 0 && !options.unfinished {
        return refuse("the volume is unfinished (its making or import was interrupted)".into());
    }
    let flags = sb.version_flags();
    if sb.is_v4() {
        check_v4(sb)?;
    }
    if flags.contains(Version::BORG) {
        return refuse("names without case (ascii-ci) not supported".into());
    }
    if options.read_only {
        return Ok(());
    }
    if sb.is_v4() {
        return refuse(
            "writing XFS version 4 (v4, made with crc=0) is not supported; it can be read".into(),
        );
    }
    if sb.logstart.get() == 0 {
        return refuse("writing a volume with an external log is not supported".into());
    }
    let ro = sb.ro_compat() - RoCompat::all();
    if !ro.is_empty() {
        return refuse(format!(
            "read-only compatible feature unknown: {}; the volume can be read only",
            describe(ro)
        ));
    }
    let log = sb.log_incompat() - LogIncompat::all();
    if !log.is_empty() {
        return refuse(format!("log feature unknown: {}", describe(log)));
    }
    if sb.rblocks.get() != 0 {
        return refuse("writing a volume with a realtime section is not supported".into());
    }
    if flags.contains(Version::QUOTA) && sb.qflags.get() != 0 {
        return refuse("writing a volume with quota accounting not supported".into());
    }
    Ok(())
}
