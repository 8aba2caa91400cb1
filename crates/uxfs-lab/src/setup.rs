//! A run: a volume on a modelled disk, the clients that work on it, and all observations.
//!
//! The processor time of operations is stated ([`Cpu`]), not measured: it is one of the inputs of a
//! run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use uxfs::LogWorker;
use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFMT};
use uxfs::journal::{JournalOptions, LogWorkOptions};
use uxfs::{Fs, NewInode, OpenOptions, RenameFlags, SyncMode, WritebackOptions, clock, mkfs};
use uxfs_disk::fault::Fault;
use uxfs_models::{Description, Model};

use crate::durability::{Ack, DurabilityLevel, Fsyncs, Promise};
use crate::history::{Change, History, Kind, Written};
use crate::sim::{DATE, DeviceFault, Sim, SimDev, Store, StoreDev, Trace};
use crate::{LabError, Result};

/// The processor time of operations in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    pub processors: u32,
    /// Creating, removing or renaming a name.
    pub name_us: f64,
    /// The serial part of every change: joining the log.
    pub serial_us: f64,
    /// Looking up a name, or reading an inode.
    pub look_us: f64,
    /// A call that reads or writes, apart from its bytes.
    pub call_us: f64,
    /// Each KiB that is read or written.
    pub kib_us: f64,
    /// A call of fsync, apart from what it waits for.
    pub sync_us: f64,
}

impl Default for Cpu {
    /// Values of about 2010, when Dave Chinner posted that one client alone created 19,000 files
    /// per second in memory, 53 µs each.
    fn default() -> Self {
        Self {
            processors: 8,
            name_us: 45.0,
            serial_us: 8.0,
            look_us: 2.0,
            call_us: 3.0,
            kib_us: 0.25,
            sync_us: 5.0,
        }
    }
}

/// How a log force affects other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Force {
    /// As in the engine: only the caller waits.
    #[default]
    Ours,
    /// As in the first delayed logging: during a log force no client commits.
    Exclusive,
}

/// A client that misreports its operations, for tests of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyClient {
    /// An fsync is acknowledged before it is done.
    Early,
    Never,
    /// Every tenth fsync is not done.
    Sometimes,
    /// Only the file's data is made durable.
    DataOnly,
}

/// Prepares a volume.
pub type Prepare = Arc<dyn Fn(&Fs) -> uxfs::Result<()> + Send + Sync>;

#[derive(Clone)]
pub struct Setup {
    pub disk: Description,
    pub mkfs: Vec<(char, String)>,
    /// The log's mount options.
    pub mount: Vec<String>,
    /// Whether force-unit-access is used.
    pub fua: bool,
    pub writeback: Option<WritebackOptions>,
    /// What fsync and its kin do.
    pub fsyncs: Fsyncs,
    pub cpu: Cpu,
    /// How log forces affect others.
    pub force: Force,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of power cuts afterwards.
    pub cuts: u32,
    /// The preparation of the volume, outside the simulation.
    pub prepare: Option<Prepare>,
    pub device_fault: Option<DeviceFault>,
    pub client_fault: Option<FaultyClient>,
    /// A fault planted in the engine.
    pub fault: Option<Fault>,
}

impl Setup {
    /// A run on this disk, with all defaults.
    pub fn new(disk: &Description, seed: u64) -> Self {
        Self {
            disk: disk.clone(),
            mkfs: vec![('l', "size=128m".into())],
            mount: vec!["logbsize=262144".into()],
            fua: false,
            writeback: Some(WritebackOptions::default()),
            fsyncs: Fsyncs::Waited,
            cpu: Cpu::default(),
            force: Force::Ours,
            seed,
            cuts: 8,
            prepare: None,
            device_fault: None,
            client_fault: None,
            fault: None,
        }
    }

    /// Adds mount options of the log.
    #[must_use]
    pub fn mount(mut self, words: &[&str]) -> Self {
        self.mount.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    #[must_use]
    pub fn mkfs(mut self, letter: char, text: &str) -> Self {
        self.mkfs.push((letter, text.into()));
        self
    }

    #[must_use]
    pub fn fsyncs(mut self, fsyncs: Fsyncs) -> Self {
        self.fsyncs = fsyncs;
        self
    }

    /// How much time a power cut may take back in ordered mode.
    fn loss(&self) -> Option<Duration> {
        match self.fsyncs {
            Fsyncs::Ordered { loss_s } => Some(Duration::from_secs(loss_s.into())),
            Fsyncs::Waited | Fsyncs::Ignored => None,
        }
    }

    fn journal(&self) -> Result<JournalOptions> {
        let mut journal = JournalOptions::default();
        for word in &self.mount {
            let known = journal.apply(word).map_err(|e| LabError::new(word.clone(), e))?;
            if !known {
                return Err(LabError::new(word.clone(), "not an option of the log"));
            }
        }
        Ok(journal)
    }

    fn open_options(&self) -> Result<OpenOptions> {
        let mut options = OpenOptions::default();
        options.journal = self.journal()?;
        options.writeback = self.writeback;
        options.seed = Some(self.seed);
        Ok(options)
    }

    /// The promised durability of a synced operation, by the options and the kind of disk.
    pub fn promise(&self) -> Result<Promise> {
        let journal = self.journal()?;
        let waited = promise_of(&journal, self.writeback.as_ref(), is_volatile(&self.disk.disk));
        Ok(match self.loss() {
            None if self.fsyncs == Fsyncs::Waited => waited,
            loss => Promise {
                synced: DurabilityLevel::Memory,
                within_s: loss.map_or(waited.within_s, |loss| loss.as_secs_f64()),
                fsyncs: self.fsyncs,
            },
        })
    }

    /// An empty volume as mkfs makes it.
    pub(crate) fn volume(&self) -> Result<Store> {
        let capacity = self.disk.build(self.seed).map_err(|e| LabError::new("disk", e))?.capacity();
        let size = capacity / 4096 * 4096;
        let made = |e: mkfs::MkfsError| LabError::new("mkfs", e);
        let mut shape = mkfs::Options::default();
        for (letter, text) in &self.mkfs {
            shape.apply(*letter, text).map_err(made)?;
        }
        shape.apply('m', "uuid=6c616200-0000-4000-8000-000000000001").map_err(made)?;
        let layout = mkfs::Layout::new(&shape, size).map_err(made)?;
        let dev = StoreDev::new(Store::new(size));
        let mut how = mkfs::WriteOptions::default();
        how.now = Some(DATE);
        mkfs::write(&layout, &dev, &how).map_err(made)?;
        let Some(prepare) = &self.prepare else { return Ok(dev.store()) };
        let dev = Arc::new(dev);
        let failed = |e: uxfs::Error| LabError::new("preparing the volume", e);
        let mut options = self.open_options()?;
        options.clock = clock::Clock::Fixed(DATE);
        let device: Arc<dyn uxfs::disk::BlockDev> = dev.clone();
        let fs = Fs::open(device, options).map_err(failed)?;
        prepare(&fs).map_err(failed)?;
        fs.close().map_err(failed)?;
        Ok(dev.store())
    }

    /// Runs `body` on a new volume, as the first client.
    ///
    /// # Errors
    /// If the volume cannot be made or opened, `body` fails, or the simulation does not end.
    pub fn run<R>(&self, body: impl FnOnce(&Arc<Lab>) -> uxfs::Result<R>) -> Result<RunResult<R>> {
        let store = self.volume()?;
        let mut options = self.open_options()?;
        if let Some(loss) = self.loss() {
            options.sync = SyncMode::Ordered { loss };
        }
        let disk = self.disk.build(self.seed).map_err(|e| LabError::new("disk", e))?;
        let processors = self.cpu.processors as usize;
        let simulated = Sim::run(processors, vec![disk], self.fault, |sim| {
            sim.record(0);
            let dev = SimDev::new(sim, 0, store.clone(), self.fua, self.device_fault);
            let dev: Arc<dyn uxfs::disk::BlockDev> = Arc::new(dev);
            let failed = |e: uxfs::Error| LabError::new("the run", e);
            let fs = Arc::new(Fs::open(dev, options).map_err(failed)?);
            let service = LogWorker::start(&fs, LogWorkOptions::default()).map_err(failed)?;
            let lab = Arc::new(Lab::new(sim, &fs, self));
            lab.begin();
            let value = body(&lab).map_err(failed)?;
            if lab.ended.load(Ordering::Relaxed) == 0 {
                lab.end();
            }
            let ended = lab.ended.load(Ordering::Relaxed);
            let watched = match self.loss() {
                Some(loss) => {
                    sim.rest(loss * 2);
                    lab.now()
                }
                None => ended,
            };
            let busy = lab.busy.1.load(Ordering::Relaxed) - lab.busy.0.load(Ordering::Relaxed);
            let trace = sim.take_trace(0);
            let sb = fs.superblock();
            let block = u64::from(fs.geo.block_size);
            let start = fs.geo.fsb_daddr(uxfs::format::FsBlock(sb.logstart.get())).bytes();
            let log = start..start + u64::from(sb.logblocks.get()) * block;
            drop(service);
            let acks = core::mem::take(&mut *lab.acks.lock());
            Ok(RunResult {
                value,
                trace,
                log,
                begun: lab.begun.load(Ordering::Relaxed),
                ended,
                watched,
                history: lab.history.as_ref().map(|history| core::mem::take(&mut *history.lock())),
                acks,
                busy_ns: busy,
                latencies: core::mem::take(&mut *lab.latencies.lock()),
                initial: store,
                volatile: is_volatile(&self.disk.disk),
                promise: self.promise()?,
            })
        });
        simulated.map_err(|e| LabError::new("the simulation", e))?
    }
}

/// The promised durability of a synced operation on a volatile or non-volatile disk, and the
/// seconds after which other data is written at the latest.
pub(crate) fn promise_of(
    journal: &JournalOptions,
    writeback: Option<&WritebackOptions>,
    volatile: bool,
) -> Promise {
    let synced =
        if journal.barrier || !volatile { DurabilityLevel::Stable } else { DurabilityLevel::Cache };
    let dirty = writeback
        .map_or(0.0, |w| f64::from(w.dirty_expire_centisecs + w.dirty_writeback_centisecs) / 100.0);
    let fsyncs = Fsyncs::Waited;
    Promise { synced, fsyncs, within_s: journal.pipeline.age_max.as_secs_f64() + dirty }
}

/// Does a disk lose its cache when the power fails?
pub fn is_volatile(model: &Model) -> bool {
    match model {
        Model::Spindle(spec) => spec.write_cache && spec.cache_mib > 0.0,
        Model::Flash(spec) => spec.cache_mib > 0.0 && !spec.protected,
        Model::Cloud(_) | Model::Battery { .. } => false,
        Model::Sata { disk }
        | Model::Mirror { disk, .. }
        | Model::Concat { disk, .. }
        | Model::Stripe { disk, .. } => is_volatile(disk),
    }
}

pub struct RunResult<R> {
    pub value: R,
    pub trace: Trace,
    /// The byte range of the log.
    pub log: core::ops::Range<u64>,
    /// Start and end of the measured part.
    pub begun: u64,
    pub ended: u64,
    /// The end of the trace: in ordered mode a time later, until all is written; otherwise `ended`.
    pub watched: u64,
    /// The clients' calls, in ordered mode.
    pub history: Option<History>,
    pub acks: Vec<Ack>,
    /// Nanoseconds of processor time.
    pub busy_ns: u64,
    /// Latencies of the timed operations in nanoseconds.
    pub latencies: Vec<u64>,
    pub initial: Store,
    /// The disk's cache is volatile.
    pub volatile: bool,
    pub promise: Promise,
}

impl<R> RunResult<R> {
    /// Length of the measured part in seconds.
    pub fn seconds(&self) -> f64 {
        (self.ended.saturating_sub(self.begun)) as f64 / 1e9
    }

    /// A percentile of the latencies in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let mut all = self.latencies.clone();
        all.sort_unstable();
        let at = (all.len() as f64 * percent / 100.0).ceil() as usize;
        all.get(at.max(1) - 1).map_or(0.0, |ns| *ns as f64 / 1e6)
    }
}

pub struct Lab {
    pub sim: Arc<Sim>,
    pub fs: Arc<Fs>,
    pub cpu: Cpu,
    /// The seed of all random numbers.
    pub seed: u64,
    force: Force,
    fsyncs: Fsyncs,
    history: Option<Mutex<History>>,
    client_fault: Option<FaultyClient>,
    syncs: AtomicU64,
    /// The time from which on commits are not delayed.
    serial: Mutex<u64>,
    forcing: crate::sim_mutex::SimMutex,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Processor time in nanoseconds at start and end.
    busy: (AtomicU64, AtomicU64),
    acks: Mutex<Vec<Ack>>,
    /// The acknowledgements that are still valid, by path.
    open: Mutex<FxHashMap<(String, String), Vec<usize>>>,
    latencies: Mutex<Vec<u64>>,
}

fn us(us: f64) -> Duration {
    // As whole nanoseconds, which are the same on every machine.
    Duration::from_nanos((us * 1e3).round() as u64)
}

impl Lab {
    fn new(sim: &Arc<Sim>, fs: &Arc<Fs>, setup: &Setup) -> Self {
        Self {
            sim: Arc::clone(sim),
            fs: Arc::clone(fs),
            cpu: setup.cpu,
            seed: setup.seed,
            force: setup.force,
            fsyncs: setup.fsyncs,
            history: setup.loss().map(|_| Mutex::default()),
            client_fault: setup.client_fault,
            syncs: AtomicU64::new(0),
            serial: Mutex::new(0),
            forcing: crate::sim_mutex::SimMutex::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            busy: Default::default(),
            acks: Mutex::default(),
            open: Mutex::default(),
            latencies: Mutex::default(),
        }
    }

    pub fn begin(&self) {
        self.begun.store(self.now(), Ordering::Relaxed);
        self.busy.0.store(self.sim.busy_ns(), Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.ended.store(self.now(), Ordering::Relaxed);
        self.busy.1.store(self.sim.busy_ns(), Ordering::Relaxed);
    }

    /// Drops all acknowledgements and latencies so far.
    pub fn forget(&self) {
        self.acks.lock().clear();
        self.open.lock().clear();
        self.latencies.lock().clear();
    }

    pub fn now(&self) -> u64 {
        self.sim.now().0
    }

    /// Records an acknowledgement. Where fsync waits for nothing, it acknowledges nothing as durable.
    pub fn ack(&self, mut ack: Ack) {
        ack.synced &= self.fsyncs == Fsyncs::Waited;
        let mut acks = self.acks.lock();
        let place = (ack.dir.to_string(), ack.name.clone());
        self.open.lock().entry(place).or_default().push(acks.len());
        acks.push(ack);
    }

    pub fn took(&self, since: u64) {
        let now = self.now();
        self.latencies.lock().push(now - since);
    }

    /// Invalidates the acknowledgements of a path whose meaning is about to change.
    pub fn touch(&self, dir: &str, name: &str) {
        let now = self.now();
        let open = self.open.lock().remove(&(dir.to_owned(), name.to_owned()));
        let mut acks = self.acks.lock();
        for number in open.into_iter().flatten() {
            acks[number].until = now;
        }
    }

    fn join_log(&self) {
        let span = us(self.cpu.serial_us).as_nanos() as u64;
        let now = self.now();
        let until = {
            let mut free = self.serial.lock();
            *free = (*free).max(now) + span;
            *free
        };
        self.sim.rest(Duration::from_nanos(until - now));
        if self.force == Force::Exclusive {
            self.forcing.wait_free(&self.sim);
        }
    }

    /// Spends the processor time of a change of names.
    pub(crate) fn name(&self) {
        self.sim.work(us(self.cpu.name_us));
        self.join_log();
    }

    /// Does something to the volume, and records what it changed if the run has a history.
    pub fn recorded<R>(
        &self,
        act: impl FnOnce(&Fs) -> uxfs::Result<R>,
        change: impl FnOnce(&R) -> Change,
    ) -> uxfs::Result<R> {
        let Some(history) = &self.history else { return act(&self.fs) };
        let begin = history.lock().position(self.now());
        let value = act(&self.fs)?;
        history.lock().ended(begin, self.now(), change(&value));
        Ok(value)
    }

    pub fn create(&self, dir: Ino, name: &str, new: &NewInode) -> uxfs::Result<Ino> {
        self.name();
        self.put(dir, name, new)
    }

    /// As [`Lab::create`], without processor time.
    pub fn put(&self, dir: Ino, name: &str, new: &NewInode) -> uxfs::Result<Ino> {
        let kind = if new.mode & S_IFMT == S_IFDIR { Kind::Dir } else { Kind::File };
        self.recorded(
            |fs| fs.create(dir, name.as_bytes(), new),
            |ino| Change::Made { dir, name: name.to_owned(), ino: *ino, kind },
        )
    }

    pub fn unlink(&self, dir: Ino, name: &str) -> uxfs::Result<()> {
        self.name();
        self.recorded(
            |fs| fs.unlink(dir, name.as_bytes()),
            |()| Change::Removed { dir, name: name.to_owned() },
        )
    }

    pub fn rename(&self, dir: Ino, from: &str, to_dir: Ino, to: &str) -> uxfs::Result<()> {
        self.name();
        self.recorded(
            |fs| fs.rename(dir, from.as_bytes(), to_dir, to.as_bytes(), RenameFlags::default()),
            |()| {
                let (name, to_name) = (from.to_owned(), to.to_owned());
                Change::Renamed { dir, name, to_dir, to_name }
            },
        )
    }

    pub fn lookup_cost(&self) {
        self.sim.work(us(self.cpu.look_us));
    }

    /// Spends the processor time of a call that moves bytes.
    pub fn call(&self, bytes: usize) {
        self.sim.work(us(self.cpu.call_us + bytes as f64 / 1024.0 * self.cpu.kib_us));
    }

    /// Spends the processor time of another change.
    pub fn change(&self) {
        self.sim.work(us(self.cpu.call_us));
        self.join_log();
    }

    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> uxfs::Result<()> {
        self.call(data.len());
        self.fill(ino, offset, data)
    }

    /// As [`Lab::write`], without processor time.
    pub fn fill(&self, ino: Ino, at: u64, data: &[u8]) -> uxfs::Result<()> {
        self.recorded(
            |fs| fs.write_at(ino, at, data),
            |()| Change::Wrote { ino, at, bytes: Written::new(data) },
        )
    }

    pub fn truncate(&self, ino: Ino, size: u64) -> uxfs::Result<()> {
        self.change();
        self.recorded(|fs| fs.truncate(ino, size), |()| Change::Cut { ino, size })
    }

    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> uxfs::Result<usize> {
        self.call(buf.len());
        self.fs.read_at(ino, offset, buf)
    }

    pub fn fsync(&self, ino: Ino) -> uxfs::Result<()> {
        if self.fsyncs == Fsyncs::Ignored {
            return Ok(());
        }
        self.sim.work(us(self.cpu.sync_us));
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        match self.client_fault {
            Some(FaultyClient::Never) => return Ok(()),
            Some(FaultyClient::Sometimes) if number % 10 == 9 => return Ok(()),
            Some(FaultyClient::DataOnly) => return self.fs.write_back_file(ino),
            Some(FaultyClient::Early) => return self.begin_fsync(ino).map(|_| ()),
            Some(FaultyClient::Sometimes) | None => {}
        }
        match self.force {
            Force::Ours => self.fs.fsync(ino),
            Force::Exclusive => {
                let _alone = self.forcing.take(&self.sim);
                self.fs.fsync(ino)
            }
        }
    }

    /// Makes a file's data durable, with the metadata needed to find it.
    pub fn fdatasync(&self, ino: Ino) -> uxfs::Result<()> {
        if self.fsyncs == Fsyncs::Ignored {
            return Ok(());
        }
        self.sim.work(us(self.cpu.sync_us));
        self.fs.fdatasync(ino)
    }

    /// Starts to make a file durable. The ticket stands for it.
    pub fn begin_fsync(&self, ino: Ino) -> uxfs::Result<uxfs::journal::Ticket> {
        let mut cursor = self.fs.error_cursor(ino);
        self.fs.begin_fsync(ino, uxfs::SyncKind::All, &mut cursor)
    }

    /// Makes everything durable in the log, as sync(2) does.
    pub fn sync(&self) -> uxfs::Result<()> {
        if self.fsyncs == Fsyncs::Ignored {
            return Ok(());
        }
        self.sim.work(us(self.cpu.sync_us));
        let ticket = self.fs.begin_sync()?;
        self.fs.wait(ticket)
    }

    /// Makes everything durable in every mode.
    pub fn durable(&self) -> uxfs::Result<()> {
        let wait = |fs: &Fs| fs.durable().and_then(|ticket| fs.wait(ticket));
        self.recorded(wait, |()| Change::MadeDurable)
    }

    /// What fsync and its kin do.
    pub fn fsyncs(&self) -> Fsyncs {
        self.fsyncs
    }
}
