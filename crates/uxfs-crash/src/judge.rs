//! Makes, recovers and judges one state of a workload.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use uxfs::clock::Clock;
use uxfs::journal::{JournalOptions, LogMode, RollPolicy};
use uxfs::quota::QuotaFlags;
use uxfs::{Fs, NewInode, OpenOptions, SyncMode, WritebackOptions};
use uxfs_check::{CheckOptions, Severity};
use uxfs_disk::BlockDev;
use uxfs_disk::MemDev;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::timestamp::Timestamp;
use uxfs_testkit::Rng;

use crate::cut::{Cut, RecordDev, Recording, rng};
use crate::explore::Explored;
use crate::history::{self, History};
use crate::rules::RuledDev;
use crate::volumes::{self, VOLUMES};
use crate::workload::{DataMode, Workload};

/// Steps of a workload.
const STEPS: usize = 120;
/// Longer than a workload takes: epochs are cut for other reasons than their age, so that a run repeats
/// exactly.
const NEVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Run {
    seed: u64,
    /// The volume, as options of mkfs.
    pub(crate) volume: &'static str,
    recording: Recording,
    history: History,
}

/// The problem, and the disk before the recovery.
type BadState = (String, Box<MemDev>);

/// The volume of the workload with this seed.
pub(crate) fn volume(seed: u64) -> &'static str {
    VOLUMES[(seed % VOLUMES.len() as u64) as usize]
}

/// The open options of a volume with this log stripe unit.
fn options(volume: &str, rng: &mut Rng, mode: DataMode) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 5 });
    options.seed = Some(rng.bits());
    let mut journal = JournalOptions::default();
    let unit = volumes::log_unit(volume);
    let buffer = (16 << 10) << rng.below(5);
    if buffer >= unit {
        journal.buffer = buffer;
    }
    journal.buffers = 2 + rng.below(7) as u32;
    journal.pipeline.size_max = [4 << 10, 32 << 10, 256 << 10][rng.below(3) as usize];
    journal.roll_policy = [RollPolicy::WhenFull, RollPolicy::Always, RollPolicy::AlwaysDurable]
        [rng.below(3) as usize];
    if rng.once_in(3) {
        journal.mode = LogMode::Immediate;
        journal.wsync = rng.once_in(3);
    }
    if mode == DataMode::Ordered {
        (journal.mode, journal.wsync) = (LogMode::Delayed, false);
        options.sync = SyncMode::Ordered { loss: NEVER };
        options.ahead = rng.once_in(2);
    }
    options.journal = journal;
    if volumes::accounts_quotas(volume) {
        options.quota = Some(QuotaFlags::all() - QuotaFlags::CHKD);
    }
    if mode != DataMode::AtOnce {
        let mut limits = WritebackOptions::default();
        limits.dirty_bytes = [64 << 10, 256 << 10, 4 << 20][rng.below(3) as usize];
        limits.dirty_background_bytes = limits.dirty_bytes / 4;
        options.writeback = Some(limits);
    }
    options
}

/// Every run must obey the trace rules, unless a fault was planted, which must be found by its
/// effects.
fn ruled(dev: &Arc<RecordDev>) -> Arc<dyn BlockDev> {
    let dev = Arc::<RecordDev>::clone(dev);
    if Fault::ALL.into_iter().chain(Fault::ORDERED).chain(Fault::ATOMIC).any(planted) {
        return dev;
    }
    Arc::new(RuledDev::new(dev))
}

/// The result of `f`, with a panic as text.
fn catch_panic<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        Err(format!("panicked: {text}"))
    })
}

impl Run {
    /// Runs the workload of a seed.
    ///
    /// # Errors
    /// A failure without any power cut.
    pub(crate) fn new(seed: u64, ordered: bool, explored: &mut Explored) -> Result<Self, String> {
        let volume = volume(seed);
        let run = || Self::record(seed, volume, ordered, explored);
        catch_panic(run).map_err(|e| format!("the workload: {e}"))
    }

    fn record(
        seed: u64,
        volume: &'static str,
        ordered: bool,
        explored: &mut Explored,
    ) -> Result<Self, String> {
        let mut rng = rng(seed);
        let before = volumes::make(volume)?;
        let fua = rng.once_in(3);
        let dev = Arc::new(RecordDev::new(before.clone()).in_pieces().with_fua(fua));
        let text = |e: uxfs::Error| e.to_string();
        let mode = match rng.once_in(3) {
            _ if ordered => DataMode::Ordered,
            true => DataMode::Delayed,
            false => DataMode::AtOnce,
        };
        let how = options(volume, &mut rng, mode);
        let fs = Fs::open(ruled(&dev), how).map_err(text)?;
        let mut workload = Workload::new(&fs, &dev, &mut rng, mode).map_err(text)?;
        workload.run(STEPS).map_err(text)?;
        workload.agrees().map_err(text)??;
        let Workload { history, operations, .. } = workload;
        explored.operations.extend(operations);
        explored.volumes.insert(volume);
        explored.workloads += 1;
        if seed.is_multiple_of(3) {
            fs.close().map_err(text)?;
        }
        let recording = Recording::new(before, dev.take(), volumes::sector(volume));
        Ok(Self { seed, volume, recording, history })
    }

    fn rng(&self, state: u64) -> Rng {
        rng(rng(self.seed).bits() ^ state.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    fn make(&self, rng: &mut Rng) -> Cut {
        let at = self.recording.choose(rng);
        Cut::of(&self.recording, at, rng)
    }

    /// One state of the disk, and the moments that it may show.
    pub(crate) fn state(&self, state: u64) -> Cut {
        self.make(&mut self.rng(state))
    }

    /// Makes, recovers and judges a state.
    ///
    /// # Errors
    /// The problem, and the disk before the failed recovery.
    pub(crate) fn judge(&self, state: u64, explored: &mut Explored) -> Result<(), BadState> {
        let mut rng = self.rng(state);
        let cut = self.make(&mut rng);
        let (at, events) = (cut.at, self.recording.len());
        // The power fails again during recovery.
        let again = rng.once_in(4);
        let dev = match again {
            true => RecordDev::new(cut.disk.clone()).in_pieces(),
            false => RecordDev::forgetful(cut.disk.clone()).in_pieces(),
        };
        let dev = Arc::new(dev.with_fua(rng.once_in(3)));
        let recovered = catch_panic(|| self.recover(&dev, &cut, &mut rng));
        let bad = |problem, cut: &Cut| {
            (format!("cut before event {at} of {events}: {problem}"), Box::new(cut.disk.clone()))
        };
        recovered.map_err(|problem| bad(problem, &cut))?;
        explored.states += 1;
        if !again {
            return Ok(());
        }
        let sector = volumes::sector(self.volume);
        let recovery = Recording::new(cut.disk.clone(), dev.take(), sector);
        let at = recovery.choose(&mut rng);
        let second = Cut::of(&recovery, at, &mut rng);
        let second = Cut { durable: cut.durable, begun: cut.begun, ..second };
        let dev = Arc::new(RecordDev::forgetful(second.disk.clone()).in_pieces());
        catch_panic(|| self.recover(&dev, &second, &mut rng)).map_err(|problem| {
            bad(format!("cut again before event {at} of recovery: {problem}"), &second)
        })?;
        explored.nested += 1;
        Ok(())
    }

    fn recover(&self, dev: &Arc<RecordDev>, cut: &Cut, rng: &mut Rng) -> Result<(), String> {
        let fs = Fs::open(ruled(dev), options(self.volume, rng, DataMode::AtOnce))
            .map_err(|e| format!("recovery: {e}"))?;
        self.compare(&fs, cut)?;
        // Not if the power fails again, because this work is in no history.
        if !dev.records() && rng.once_in(4) {
            exercise(&fs).map_err(|e| format!("in use after recovery: {e}"))?;
        }
        fs.close().map_err(|e| format!("closing: {e}"))?;
        check(&**dev)
    }

    /// Checks that an open volume shows a moment of the history.
    ///
    /// # Errors
    /// The difference.
    pub(crate) fn compare(&self, fs: &Fs, cut: &Cut) -> Result<(), String> {
        let recovered = history::read(fs).map_err(|e| format!("reading: {e}"))?;
        self.history.find(&recovered, cut.durable, cut.begun).map(|_| ())
    }
}

/// Checks a volume.
///
/// # Errors
/// The first finding.
pub(crate) fn check(dev: &dyn BlockDev) -> Result<(), String> {
    let mut checks = CheckOptions::default();
    checks.threads = 1;
    let report = uxfs_check::check(dev, &checks, &|_| {}).map_err(|e| format!("check: {e}"))?;
    match report.findings.iter().find(|f| f.severity > Severity::Note) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// Checks that a recovered volume can be used.
fn exercise(fs: &Fs) -> uxfs::Result<()> {
    let new = fs.create(fs.root(), b"after", &NewInode::file(0o600))?;
    fs.write_at(new, 100, &[0xff; 9000])?;
    let dir = fs.create(fs.root(), b"after.d", &NewInode::dir(0o700))?;
    fs.link(new, dir, b"again")?;
    fs.unlink(fs.root(), b"after")
}

/// A state for another program to recover.
pub struct State {
    run: Arc<Run>,
    cut: Cut,
}

impl State {
    /// The first `count` states of the workload with this seed, in ordered mode or not. Blocks of metadata are
    /// on the disk whole or not at all: the kernel's recovery looks at the LSN of a block, not at its
    /// checksum, so it takes a torn block for a new one.
    ///
    /// # Errors
    /// A failure of the workload.
    pub fn of(seed: u64, count: u64, ordered: bool) -> Result<Vec<Self>, String> {
        let mut run = Run::new(seed, ordered, &mut Explored::default())?;
        run.recording = run.recording.with_sector(volumes::largest_block(run.volume));
        let run = Arc::new(run);
        let state = |state| Self { run: Arc::clone(&run), cut: run.state(state) };
        Ok((0..count).map(state).collect())
    }

    /// The volume of the workload with this seed, as options of mkfs.
    pub fn volume(seed: u64) -> &'static str {
        volume(seed)
    }

    /// Does the workload with this seed account quotas? A kernel that mounts such a state without quotas leaves
    /// dquots in the log unrecovered.
    pub fn accounts_quotas(seed: u64) -> bool {
        volumes::accounts_quotas(volume(seed))
    }

    /// The disk after the cut.
    pub fn disk(&self) -> &MemDev {
        &self.cut.disk
    }

    /// Checks that an open volume, recovered from this state, shows a moment of the history.
    ///
    /// # Errors
    /// The difference.
    pub fn compare(&self, fs: &Fs) -> Result<(), String> {
        self.run.compare(fs, &self.cut)
    }
}
