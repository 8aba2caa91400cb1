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
//! acknowledged file is looked up, and `uxfs-check` checks the volume.
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

use crate::setup::RunResult;
use crate::sim::{DATE, Kind, Store, StoreDev};

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

/// The durability that a run's options promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
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
    pub failed: bool,
    pub problem: Option<String>,
}

impl Durability {
    /// The label beside a figure.
    pub fn label(&self) -> String {
        let worth = match self.found.min(self.promised) {
            DurabilityLevel::Stable => "stable storage".to_owned(),
            DurabilityLevel::Cache => format!("volatile cache, up to {}", self.exposed()),
            DurabilityLevel::Memory if self.acknowledged == 0 => {
                format!("memory, for {:.0} s at most", self.within_s)
            }
            DurabilityLevel::Memory => {
                format!("memory, up to {} (at most {:.0} s)", self.exposed(), self.within_s)
            }
        };
        match self.failed {
            true => format!("FAILED: promised {}, worth {worth}", name(self.promised)),
            false => worth,
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
        format!("checked: {} cuts, {} acknowledged files lost{unsound}", self.cuts, self.lost)
    }
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
        DurabilityLevel::Stable => {
            found.found < DurabilityLevel::Stable || found.broken > 0 || found.unsound > 0
        }
        DurabilityLevel::Cache => found.found < DurabilityLevel::Cache,
        DurabilityLevel::Memory => {
            found.broken > 0 || found.unsound > 0 && ran.promise.synced == DurabilityLevel::Stable
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
        let end = ack.until.min(ran.ended.max(ack.at));
        open |= kept > end && ack.until == u64::MAX;
        exposed = exposed.max(kept.min(end).saturating_sub(ack.at));
    }
    let during = |kind| {
        let count = events.iter().filter(|e| e.kind == kind && e.asked >= ran.begun);
        count.count() as u64
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
        failed: false,
        problem: None,
    }
}

/// Cuts the power, and checks.
fn check<R>(ran: &RunResult<R>, cuts: u32, seed: u64, found: &mut Durability) {
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

/// The disk after a cut at this moment. Of the unsafe writes, about this fraction is there.
fn cut<R>(ran: &RunResult<R>, safe: &[u64], moment: u64, part: f64, rng: &mut Rng) -> Store {
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
    let dev = Arc::new(StoreDev::new(store));
    let mut options = OpenOptions::default();
    options.journal = JournalOptions::default();
    options.seed = Some(1);
    options.clock = clock::Clock::Fixed(DATE);
    let device: Arc<dyn uxfs::disk::BlockDev> = dev.clone();
    let fs = Fs::open(device, options).map_err(|e| format!("recovery: {e}"))?;
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
    fs.close().map_err(|e| format!("closing: {e}"))?;
    let mut checks = CheckOptions::default();
    checks.threads = 1;
    let report = uxfs_check::check(&*dev, &checks, &|_| {}).map_err(|e| format!("check: {e}"))?;
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
