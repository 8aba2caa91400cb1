//! The durability of acknowledged operations: derived from the disk's requests, and checked by cutting
//! the power.
//!
//! Derived: for each acknowledgement, from the trace of the disk. The data written to the file must be
//! safe (flushed after its write, forced, or on a disk without a volatile cache). The first log record
//! written after the operation began must be safe too, and all records before it. This is an upper
//! bound, because the log's content is not read.
//!
//! Checked: the trace is cut at random moments, half of them right after an acknowledgement. Of the
//! writes that were not safe then, any part is on the disk. The engine recovers the volume, every
//! acknowledged file is looked up, and `uxfs-check` checks the volume. In ordered mode the whole tree must be
//! that of one moment ([`crate::moment`]), which may not be older than promised ([`crate::loss`]).
//!
//! 1. The printed durability is the lesser of the derived and the promised one. If it is less than
//!    promised, or the check finds anything, the row has failed.
//! 2. The derivation uses the disk's requests only, and nothing that the engine reports.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use uxfs::format::Ino;
use uxfs::journal::JournalOptions;
use uxfs::{Fs, OpenOptions, clock};
use uxfs_check::{CheckOptions, Severity};
use uxfs_testkit::Rng;

use crate::loss::BusyTimes;
use crate::moment::Moments;
use crate::setup::RunResult;
use crate::sim::{DATE, Event, Kind, Store, StoreDev};

/// Most acknowledged files that are looked up after each cut.
const LOOKUPS_MAX: usize = 400;

/// Where data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityLevel {
    /// Memory: lost with the process or the machine.
    Memory,
    /// A volatile cache: lost without power.
    Cache,
    /// Stable storage.
    Stable,
}

/// What fsync and its kin do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsyncs {
    /// They wait for stable storage.
    #[default]
    Waited,
    /// They return at once, on a mount with `sync=ordered`.
    Ordered { loss_s: u32 },
    /// They do nothing, as under eatmydata.
    Ignored,
}

impl Fsyncs {
    fn is_waited(&self) -> bool {
        *self == Self::Waited
    }
}

/// The durability that a run's options promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    pub fsyncs: Fsyncs,
    /// The durability of synced operations.
    pub synced: DurabilityLevel,
    /// Seconds after which other data is written at the latest.
    pub within_s: f64,
}

#[derive(Clone, Debug)]
pub struct Ack {
    /// Start of the acknowledged operation.
    pub began: u64,
    pub at: u64,
    /// Start of the first operation that may undo it; `u64::MAX` for none.
    pub until: u64,
    /// It was acknowledged as durable.
    pub synced: bool,
    /// Its directory, from the root, without slashes at the ends.
    pub dir: Arc<str>,
    pub name: String,
    /// The first byte filled with the word.
    pub from: u64,
    /// Minimum length in bytes; the word fills it up to here.
    pub size: u64,
    /// The word that fills it; 0 if unknown.
    pub word: u64,
    /// A log record is needed to find it after a power cut. Data overwritten in place needs none.
    pub logged: bool,
}

/// The durability of the acknowledged operations of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Durability {
    pub promised: DurabilityLevel,
    /// The lowest derived durability.
    pub found: DurabilityLevel,
    /// Longest time in seconds for which an acknowledged operation could still be lost.
    pub exposed_s: f64,
    /// Seconds after which unsynced data is written at the latest.
    pub within_s: f64,
    /// An acknowledged operation could still be lost when the run ended.
    pub open_end: bool,
    pub acknowledged: u64,
    /// Flushes in the measured part.
    pub flushes: u64,
    /// Forced writes there.
    pub forced: u64,
    pub cuts: u32,
    /// Acknowledged files looked up.
    pub looked_for: u64,
    /// Number of them that were lost or incomplete.
    pub lost: u64,
    /// Number of them that should not have been.
    pub broken: u64,
    /// Cuts after which the volume could not be recovered or was not sound.
    pub unsound: u32,
    #[serde(default, skip_serializing_if = "Fsyncs::is_waited")]
    pub fsyncs: Fsyncs,
    /// The moments that cuts left, in ordered mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<MomentsFound>,
    pub failed: bool,
    pub problem: Option<String>,
}

/// The moments that cuts left in ordered mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MomentsFound {
    /// Cuts that left one moment.
    pub whole: u32,
    /// Cuts that left a mixture.
    pub mixed: u32,
    /// Moments and acknowledgements that were lost for longer than promised.
    pub late: u64,
    /// Age of the oldest moment in seconds.
    pub oldest_s: f64,
}

impl MomentsFound {
    fn and(self, other: Self) -> Self {
        Self {
            whole: self.whole + other.whole,
            mixed: self.mixed + other.mixed,
            late: self.late + other.late,
            oldest_s: self.oldest_s.max(other.oldest_s),
        }
    }
}

impl Durability {
    /// The label beside a figure.
    pub fn label(&self) -> String {
        let worth = match self.fsyncs {
            Fsyncs::Waited => self.worth(),
            Fsyncs::Ordered { loss_s } => self.moment(loss_s),
            Fsyncs::Ignored => format!("nothing promised; {}", self.worth()),
        };
        match self.failed {
            true => format!("FAILED: promised {}, worth {worth}", self.promise()),
            false => worth,
        }
    }

    fn worth(&self) -> String {
        match self.found.min(self.promised) {
            DurabilityLevel::Stable => "stable storage".to_owned(),
            DurabilityLevel::Cache => format!("volatile cache, up to {}", self.exposed()),
            DurabilityLevel::Memory if self.acknowledged == 0 => {
                format!("memory, for {:.0} s at most", self.within_s)
            }
            DurabilityLevel::Memory => {
                format!("memory, up to {} (at most {:.0} s)", self.exposed(), self.within_s)
            }
        }
    }

    /// What an ordered run is worth.
    fn moment(&self, loss_s: u32) -> String {
        let found = self.moments.unwrap_or_default();
        let oldest = self.exposed_s.max(found.oldest_s);
        match () {
            () if found.mixed > 0 => "a mixture of moments".into(),
            () if oldest <= loss_s.into() => one_moment(loss_s),
            () => format!("one earlier moment, up to {oldest:.1} s old"),
        }
    }

    fn promise(&self) -> String {
        match self.fsyncs {
            Fsyncs::Ordered { loss_s } => one_moment(loss_s),
            Fsyncs::Waited | Fsyncs::Ignored => name(self.promised).into(),
        }
    }

    /// The common durability of two runs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            promised: self.promised.min(other.promised),
            found: self.found.min(other.found),
            exposed_s: self.exposed_s.max(other.exposed_s),
            within_s: self.within_s.max(other.within_s),
            open_end: self.open_end || other.open_end,
            acknowledged: self.acknowledged + other.acknowledged,
            flushes: self.flushes + other.flushes,
            forced: self.forced + other.forced,
            cuts: self.cuts + other.cuts,
            looked_for: self.looked_for + other.looked_for,
            lost: self.lost + other.lost,
            broken: self.broken + other.broken,
            unsound: self.unsound + other.unsound,
            fsyncs: self.fsyncs,
            moments: self.moments.zip(other.moments).map(|(one, two)| one.and(two)),
            failed: self.failed || other.failed,
            problem: self.problem.or(other.problem),
        }
    }

    fn exposed(&self) -> String {
        let more = if self.open_end { " and more" } else { "" };
        match self.exposed_s {
            s if s >= 1.0 => format!("{s:.1} s{more}"),
            s if s >= 0.001 => format!("{:.0} ms{more}", s * 1e3),
            s => format!("{:.0} µs{more}", s * 1e6),
        }
    }

    /// The result of power cuts.
    pub fn checked(&self) -> String {
        let unsound = match self.unsound {
            0 => String::new(),
            n => format!(", {n} volumes unsound"),
        };
        let found = match self.moments {
            None => format!("{} acknowledged files lost", self.lost),
            Some(MomentsFound { mixed: 0, oldest_s, .. }) => {
                format!("each left one moment, at most {oldest_s:.1} s old")
            }
            Some(MomentsFound { mixed, .. }) => format!("{mixed} left a mixture of moments"),
        };
        format!("checked: {} cuts, {found}{unsound}", self.cuts)
    }
}

fn one_moment(loss_s: u32) -> String {
    format!("one earlier moment, at most {loss_s} s old")
}

fn name(worth: DurabilityLevel) -> &'static str {
    match worth {
        DurabilityLevel::Memory => "memory",
        DurabilityLevel::Cache => "a volatile cache",
        DurabilityLevel::Stable => "stable storage",
    }
}

/// Derives and checks.
pub fn judge<R>(ran: &RunResult<R>, cuts: u32, seed: u64) -> Durability {
    let mut found = derive(ran);
    check(ran, cuts, seed, &mut found);
    let broken = match found.promised {
        _ if found.moments.is_some_and(|moments| moments.mixed > 0 || moments.late > 0) => true,
        DurabilityLevel::Stable => {
            found.found < DurabilityLevel::Stable || found.broken > 0 || found.unsound > 0
        }
        DurabilityLevel::Cache => found.found < DurabilityLevel::Cache,
        DurabilityLevel::Memory => {
            let sound = ran.promise.synced == DurabilityLevel::Stable
                || ran.promise.fsyncs != Fsyncs::Waited;
            found.broken > 0 || found.unsound > 0 && sound
        }
    };
    found.failed = broken;
    found
}

/// Derives the durability from the trace.
fn derive<R>(ran: &RunResult<R>) -> Durability {
    let safe = ran.trace.safe(ran.volatile);
    let events = &ran.trace.events;
    // For the log: when each write was submitted and completed, and from when on it and all before
    // are safe.
    let mut log: Vec<(u64, u64, u64)> = Vec::new();
    let mut data: FxHashMap<u64, (u64, u64)> = FxHashMap::default();
    let mut prefix = 0;
    for (number, event) in ran.trace.writes() {
        if ran.log.contains(&event.at) {
            prefix = prefix.max(safe[number]);
            log.push((event.asked, event.done, prefix));
        } else if let Some(content) = &event.content {
            for word in content.words() {
                let entry = data.entry(word).or_insert((0, 0));
                *entry = (entry.0.max(event.done), entry.1.max(safe[number]));
            }
        }
    }
    let any_synced = ran.acks.iter().any(|ack| ack.synced);
    let mut least =
        if ran.acks.is_empty() { DurabilityLevel::Memory } else { DurabilityLevel::Stable };
    let (mut exposed, mut open) = (0, false);
    let busy = busy_times(ran);
    let mut moments = busy.as_ref().map(|_| MomentsFound::default());
    for ack in ran.acks.iter().filter(|ack| ack.synced == any_synced) {
        let first = log.partition_point(|(asked, ..)| *asked < ack.began);
        let (_, written, kept) = match ack.logged {
            true => log.get(first).copied().unwrap_or((0, u64::MAX, u64::MAX)),
            false => (0, 0, 0),
        };
        let (data_written, data_kept) = match ack.word {
            0 => (0, 0),
            _ if ack.size == ack.from => (0, 0),
            word => data.get(&word).copied().unwrap_or((u64::MAX, u64::MAX)),
        };
        let (written, kept) = (written.max(data_written), kept.max(data_kept));
        let worth = match () {
            () if kept <= ack.at => DurabilityLevel::Stable,
            () if written <= ack.at => DurabilityLevel::Cache,
            () => DurabilityLevel::Memory,
        };
        least = least.min(worth);
        let end = ack.until.min(ran.watched.max(ack.at));
        open |= kept > end && ack.until == u64::MAX;
        exposed = exposed.max(kept.min(end).saturating_sub(ack.at));
        if let (Some(busy), Some(moments)) = (&busy, &mut moments) {
            moments.late += u64::from(!busy.excuse(ack.at, kept.min(end).max(ack.at)));
        }
    }
    let during = |kind| {
        let measured = |e: &&Event| e.asked >= ran.begun && e.asked <= ran.ended;
        events.iter().filter(|e| e.kind == kind).filter(measured).count() as u64
    };
    Durability {
        promised: if any_synced { ran.promise.synced } else { DurabilityLevel::Memory },
        found: least,
        exposed_s: exposed as f64 / 1e9,
        within_s: ran.promise.within_s,
        open_end: open,
        acknowledged: ran.acks.len() as u64,
        flushes: during(Kind::Flush),
        forced: during(Kind::Fua),
        cuts: 0,
        looked_for: 0,
        lost: 0,
        broken: 0,
        unsound: 0,
        fsyncs: ran.promise.fsyncs,
        moments,
        failed: false,
        problem: None,
    }
}

/// The disk's busy times, in ordered mode.
fn busy_times<R>(ran: &RunResult<R>) -> Option<BusyTimes> {
    match ran.promise.fsyncs {
        Fsyncs::Ordered { loss_s } => Some(BusyTimes::new(&ran.trace, loss_s)),
        Fsyncs::Waited | Fsyncs::Ignored => None,
    }
}

/// Cuts the power, and checks.
fn check<R>(ran: &RunResult<R>, cuts: u32, seed: u64, found: &mut Durability) {
    let ordered = busy_times(ran).zip(ran.history.as_ref());
    if let Some((busy, history)) = ordered {
        let moments = Moments::new(&ran.initial, history);
        return check_moments(ran, cuts, seed, &busy, moments, found);
    }
    let safe = ran.trace.safe(ran.volatile);
    let synced: Vec<&Ack> = ran.acks.iter().filter(|ack| ack.synced).collect();
    let mut rng = Rng::spread(seed ^ 0x6375_7473);
    for number in 0..cuts {
        let moment = match synced.is_empty() || number % 2 == 0 {
            true => ran.begun + rng.scaled(ran.ended.saturating_sub(ran.begun).max(1)),
            false => synced[rng.scaled(synced.len() as u64) as usize].at,
        };
        let part = [0.0, 0.3, 0.7, 1.0][(number / 2 % 4) as usize];
        let store = cut(ran, &safe, moment, part, &mut rng);
        found.cuts += 1;
        if let Err(problem) = check_recovered(ran, store, moment, &mut rng, found) {
            found.unsound += 1;
            found.problem.get_or_insert(problem);
        }
    }
}

/// As [`check`], in ordered mode. A quarter of the cuts each is when the log was written or a flush began, and when
/// everything was made durable.
fn check_moments<R>(
    ran: &RunResult<R>,
    cuts: u32,
    seed: u64,
    busy: &BusyTimes,
    moments: Result<Moments<'_>, String>,
    found: &mut Durability,
) {
    let safe = ran.trace.safe(ran.volatile);
    let of_log = |event: &Event| ran.log.contains(&event.at).then_some(event.done);
    let turns = ran.trace.events.iter().filter_map(|event| match event.kind {
        Kind::Flush => Some(event.asked),
        Kind::Write | Kind::Fua => of_log(event),
        Kind::Read => None,
    });
    let turns: Vec<u64> = turns.filter(|at| (ran.begun..ran.watched).contains(at)).collect();
    let durable = ran.history.iter().flat_map(|history| history.made_durable());
    let durable: Vec<u64> = durable.filter(|at| *at >= ran.begun).collect();
    let mut rng = Rng::spread(seed ^ 0x6d6f_6d65);
    let mut all = MomentsFound {
        late: found.moments.map_or(0, |moments| moments.late),
        ..Default::default()
    };
    for number in 0..cuts {
        let mut one_of = |times: &[u64]| times[rng.scaled(times.len() as u64) as usize];
        let moment = match number % 4 {
            3 if !durable.is_empty() => one_of(&durable),
            1 | 3 if !turns.is_empty() => one_of(&turns),
            _ => ran.begun + rng.scaled(ran.watched.saturating_sub(ran.begun).max(1)),
        };
        let part = [0.0, 0.3, 0.7, 1.0][(number / 4 % 4) as usize];
        let store = cut(ran, &safe, moment, part, &mut rng);
        found.cuts += 1;
        let judged = recover(store).and_then(|(dev, fs)| {
            let left =
                moments.as_ref().map_err(Clone::clone).and_then(|moments| moments.of(&fs, moment));
            close_and_check(&dev, fs).map(|()| left)
        });
        let problem = match judged {
            Ok(Ok(since)) => {
                all.whole += 1;
                all.oldest_s = all.oldest_s.max((moment - since) as f64 / 1e9);
                if busy.excuse(since, moment) {
                    continue;
                }
                all.late += 1;
                format!("the tree is {:.3} s old", (moment - since) as f64 / 1e9)
            }
            Ok(Err(problem)) => {
                all.mixed += 1;
                problem
            }
            Err(problem) => {
                found.unsound += 1;
                problem
            }
        };
        found.problem.get_or_insert(problem);
    }
    found.moments = Some(all);
}

/// The disk after a cut at this moment. Of the unsafe writes, about this fraction is there.
pub(crate) fn cut<R>(
    ran: &RunResult<R>,
    safe: &[u64],
    moment: u64,
    part: f64,
    rng: &mut Rng,
) -> Store {
    let mut store = ran.initial.clone();
    for (number, event) in ran.trace.writes() {
        let Some(content) = event.content.as_ref().filter(|_| event.asked <= moment) else {
            continue;
        };
        // The simulated disk accepted these writes, so this one does too.
        let there = safe[number] <= moment || part >= 1.0 && event.done <= moment;
        let _ = if there {
            store.write(content)
        } else if rng.chance(0.25) {
            store.write_some(content, || rng.chance(part))
        } else if rng.chance(part) {
            store.write(content)
        } else {
            Ok(())
        };
    }
    store
}

/// Recovers the volume, looks up the acknowledged files, and checks the volume.
fn check_recovered<R>(
    ran: &RunResult<R>,
    store: Store,
    moment: u64,
    rng: &mut Rng,
    found: &mut Durability,
) -> Result<(), String> {
    let (dev, fs) = recover(store)?;
    let bound = (ran.promise.within_s * 1e9) as u64;
    let mut dirs = FxHashMap::default();
    for ack in sample(ran, moment, rng) {
        let due = ack.synced || ack.at.saturating_add(bound) < moment;
        found.looked_for += 1;
        if let Err(problem) = find(&fs, ack, &mut dirs) {
            found.lost += 1;
            if due {
                found.broken += 1;
                let place = format!("{}/{}", ack.dir, ack.name);
                found.problem.get_or_insert(format!("{place}: {problem}"));
            }
        }
    }
    close_and_check(&dev, fs)
}

pub(crate) fn recover(store: Store) -> Result<(Arc<StoreDev>, Fs), String> {
    let dev = Arc::new(StoreDev::new(store));
    let mut options = OpenOptions::default();
    options.journal = JournalOptions::default();
    options.seed = Some(1);
    options.clock = clock::Clock::Fixed(DATE);
    let device: Arc<dyn uxfs::disk::BlockDev> = dev.clone();
    let fs = Fs::open(device, options).map_err(|e| format!("recovery: {e}"))?;
    Ok((dev, fs))
}

fn close_and_check(dev: &StoreDev, fs: Fs) -> Result<(), String> {
    fs.close().map_err(|e| format!("closing: {e}"))?;
    let mut checks = CheckOptions::default();
    checks.threads = 1;
    let report = uxfs_check::check(dev, &checks, &|_| {}).map_err(|e| format!("check: {e}"))?;
    match report.findings.iter().find(|f| f.severity > Severity::Note) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// Acknowledgements valid at a moment: the most recent, and some of the others.
fn sample<'a, R>(ran: &'a RunResult<R>, moment: u64, rng: &mut Rng) -> Vec<&'a Ack> {
    let held = |ack: &&Ack| ack.at <= moment && ack.until > moment;
    let mut all: Vec<&Ack> = ran.acks.iter().filter(held).collect();
    // Only the last acknowledgement of each path counts.
    let mut seen = FxHashSet::default();
    all.sort_by_key(|ack| core::cmp::Reverse(ack.at));
    all.retain(|ack| seen.insert((&*ack.dir, ack.name.as_str(), ack.from)));
    if all.len() > LOOKUPS_MAX {
        let young = LOOKUPS_MAX / 2;
        for place in young..LOOKUPS_MAX {
            let other = place + rng.scaled((all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        all.truncate(LOOKUPS_MAX);
    }
    all
}

/// Is the file there and complete?
fn find(fs: &Fs, ack: &Ack, dirs: &mut FxHashMap<Arc<str>, Ino>) -> Result<(), String> {
    let dir = match dirs.get(&ack.dir) {
        Some(dir) => *dir,
        None => {
            let dir = fs.resolve(format!("/{}", ack.dir).as_bytes(), false);
            let dir = dir.map_err(|e| format!("its directory: {e}"))?;
            dirs.insert(Arc::clone(&ack.dir), dir);
            dir
        }
    };
    let ino = fs.lookup(dir, ack.name.as_bytes()).map_err(|e| e.to_string())?;
    let stat = fs.stat(ino).map_err(|e| e.to_string())?;
    if stat.size < ack.size {
        return Err(format!("{} bytes of {}", stat.size, ack.size));
    }
    if ack.word == 0 || ack.size == ack.from {
        return Ok(());
    }
    let word = ack.word.to_le_bytes();
    let mut buf = vec![0; 64 << 10];
    let mut at = ack.from;
    while at < ack.size {
        let len = (buf.len() as u64).min(ack.size - at) as usize;
        let got = fs.read_at(ino, at, &mut buf[..len]).map_err(|e| e.to_string())?;
        let wrong = buf[..got].iter().enumerate().find(|(i, byte)| **byte != word[i % 8]);
        if let Some((i, _)) = wrong {
            return Err(format!("byte {} is another's", at + i as u64));
        }
        if got < len {
            return Err("is shorter than it says".into());
        }
        at += got as u64;
    }
    Ok(())
}
