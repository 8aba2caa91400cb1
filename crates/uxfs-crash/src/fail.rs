//! A device that fails at every call of a workload (a sample is tried; `UXFS_EVERY=1` tries all,
//! `UXFS_COUNT` sets the number of workloads):
//!
//! 1. The caller gets an errno; nothing panics.
//! 2. After a failed write or flush of log or metadata every later change fails, and nothing more
//!    reaches the device; unless the host is full, when the volume may continue.
//! 3. The next open of the image, whether the unflushed writes reached it or not, recovers to a
//!    moment of the history, not before the last that was acknowledged.
//! 4. Every waiter is woken once: its work is durable, or cannot become durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uxfs::clock::Clock;
use uxfs::journal::JournalOptions;
use uxfs::{Error, Fs, NewInode, OpenOptions, mkfs};
use uxfs_disk::BlockDev;
use uxfs_format::timestamp::Timestamp;

use uxfs_disk::MemDev;
use uxfs_testkit::{FaultDev, Op, Rule};

use crate::cut::{Cut, Event, RecordDev, Recording, rng};
use crate::history::{self, History};
use crate::rules::RuledDev;
use crate::workload::{DataMode, Workload};

const VOLUME: u64 = 48 << 20;
const STEPS: usize = 50;
const LINES: [&str; 3] =
    ["-l size=6m", "-b size=1k -m rmapbt=1 -l size=8m", "-m reflink=0 -n parent=1 -l size=16m"];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn make(line: &str) -> MemDev {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        options.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
    }
    let layout = mkfs::Layout::new(&options, VOLUME).unwrap();
    let disk = MemDev::new(VOLUME);
    mkfs::write(&layout, &disk, &mkfs::WriteOptions::default()).unwrap();
    disk
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 5 });
    options.seed = Some(11);
    // A small cache, so that the workload reads from the device.
    options.cache_bytes = 1 << 16;
    let mut journal = JournalOptions::default();
    journal.pipeline.size_max = 16 << 10;
    // A full host stays full, so nothing waits for space.
    journal.host_full_timeout = std::time::Duration::ZERO;
    options.journal = journal;
    options
}

/// A volume over a device that fails.
struct Run {
    record: Arc<RecordDev>,
    failing: Arc<FaultDev<Arc<RecordDev>>>,
    ruled: Arc<RuledDev>,
}

impl Run {
    fn new(before: &MemDev, fault: Rule) -> Self {
        let record = Arc::new(RecordDev::new(before.clone()).in_pieces());
        let failing = Arc::new(FaultDev::new(Arc::clone(&record)).in_pieces());
        failing.add(fault);
        let below = Arc::clone(&failing) as Arc<dyn BlockDev>;
        let ruled = RuledDev::with_view(below, Arc::<RecordDev>::clone(&record));
        let ruled = Arc::new(ruled);
        Self { record, failing, ruled }
    }

    /// Runs the workload of a seed, and closes the volume.
    fn work(&self, seed: u64) -> (Result<(), Error>, Option<Fs>, History) {
        let fs = match Fs::open(Arc::<RuledDev>::clone(&self.ruled), options()) {
            Ok(fs) => fs,
            Err(error) => return (Err(error), None, History::default()),
        };
        let mut rng = rng(seed);
        let (done, history) = match Workload::new(&fs, &self.record, &mut rng, DataMode::AtOnce) {
            Ok(mut workload) => (workload.run(STEPS), workload.history),
            Err(error) => (Err(error), History::default()),
        };
        (done, Some(fs), history)
    }

    fn changes(&self) -> u64 {
        self.failing.calls(Op::CHANGES)
    }
}

/// After the failure every operation fails, and nothing is written.
fn assert_stopped(at: &str, run: &Run, fs: Fs) {
    run.ruled.stopped();
    let before = run.changes();
    let refused = |done: Result<(), Error>| match done {
        Err(error) => {
            assert!(matches!(error, Error::Shutdown(_)) && error.errno() == 5, "{at}: {error}")
        }
        Ok(()) => panic!("{at}: an operation succeeded after a failure"),
    };
    refused(fs.create(fs.root(), b"one more", &NewInode::file(0o600)).map(drop));
    refused(fs.sync());
    refused(fs.wait(fs.ticket()));
    refused(fs.fsync(fs.root()));
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    fs.when_durable(fs.ticket(), move |result| {
        counter.fetch_add(1 + usize::from(result.is_ok()), Ordering::Relaxed);
    });
    refused(fs.close());
    assert_eq!(run.changes(), before, "{at}: something was written after a failure");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "{at}: the waiter gets one failure");
    assert!(run.ruled.verdict().is_ok(), "{at}: {:?}", run.ruled.violation());
}

/// The image recovers, as it is and after a power cut.
fn assert_recovers(at: &str, before: &MemDev, events: Vec<Event>, history: &History, seed: u64) {
    let recording = Recording::new(before.clone(), events, 512);
    let mut rng = rng(seed);
    for _ in 0..2 {
        let cut = Cut::of(&recording, recording.len(), &mut rng);
        let dev = Arc::new(RuledDev::new(Arc::new(cut.disk)));
        let fs = Fs::open(Arc::<RuledDev>::clone(&dev) as Arc<dyn BlockDev>, options());
        let fs = fs.unwrap_or_else(|e| panic!("{at}: recovery: {e}"));
        let state = history::read(&fs).unwrap_or_else(|e| panic!("{at}: {e}"));
        history.find(&state, cut.durable, cut.begun).unwrap_or_else(|e| panic!("{at}: {e}"));
        fs.close().unwrap_or_else(|e| panic!("{at}: {e}"));
        let report =
            uxfs_check::check(&*dev, &uxfs_check::CheckOptions::default(), &|_| {}).unwrap();
        let worst = report.findings.iter().find(|f| f.severity > uxfs_check::Severity::Note);
        assert!(worst.is_none(), "{at}: {worst:?}");
    }
}

/// Runs the workload with one fault. Returns whether the volume had to shut down, or `None` if the
/// fault did not occur.
fn run_with(before: &MemDev, seed: u64, fault: Rule, clean: &History) -> Option<bool> {
    let at = format!("seed {seed}, {fault:?}");
    let run = Run::new(before, fault);
    let (done, fs, _) = run.work(seed);
    let mut must_stop = run.ruled.failure();
    let done = match (done, fs) {
        (Ok(()), Some(fs)) if !run.failing.failed() => {
            let closed = fs.close();
            must_stop = run.ruled.failure();
            closed
        }
        (done, Some(fs)) => {
            if must_stop {
                assert_stopped(&at, &run, fs);
            }
            done
        }
        (done, None) => done,
    };
    if !run.failing.failed() {
        done.unwrap_or_else(|e| panic!("{at}: {e}"));
        return None;
    }
    match done {
        Err(Error::Corrupt(corrupt)) => panic!("{at}: {corrupt}"),
        Err(error) => assert!(error.errno() > 0, "{at}: {error}"),
        // The fault hit unsynced data, or an optional call.
        Ok(()) => assert!(!must_stop, "{at}: no caller got the error"),
    }
    assert!(run.ruled.verdict().is_ok(), "{at}: {:?}", run.ruled.violation());
    assert_recovers(&at, before, run.record.take(), clean, seed);
    Some(must_stop)
}

#[test]
fn every_failing_call_is_survived() {
    let every = setting("UXFS_EVERY", 5);
    let (mut tried, mut stops) = (0u64, 0u64);
    for round in 0..setting("UXFS_COUNT", LINES.len() as u64) {
        let seed = setting("UXFS_SEED", 0) + round;
        let before = make(LINES[(seed % LINES.len() as u64) as usize]);
        let no_fault = Rule::on(&[]);
        let complete = Run::new(&before, no_fault);
        let (done, fs, clean) = complete.work(seed);
        done.unwrap();
        fs.unwrap().close().unwrap();
        for ops in [Op::WRITES, &[Op::Flush], &[Op::Read]] {
            for number in (round % every..complete.failing.calls(ops)).step_by(every as usize) {
                for (times, errno) in [(1, 5), (u64::MAX, 5), (u64::MAX, 28)] {
                    if errno == 28 && ops != Op::WRITES {
                        continue;
                    }
                    let fault = Rule::on(ops).after(number).times(times).fail(errno);
                    if let Some(stop) = run_with(&before, seed, fault, &clean) {
                        tried += 1;
                        stops += u64::from(stop);
                    }
                }
            }
        }
    }
    println!("{tried} failures, {stops} shutdowns");
    assert!(stops > 10);
}

/// Each waiter is woken once, whichever write fails.
#[test]
fn every_waiter_is_woken_once() {
    let before = make("-m reflink=0 -l size=6m");
    let mut number = 0;
    loop {
        let fault = Rule::on(Op::WRITES).after(number).fail(5);
        let run = Run::new(&before, fault);
        let fs = Fs::open(Arc::<RuledDev>::clone(&run.ruled), options()).unwrap();
        let wakeups: Vec<Arc<AtomicUsize>> = (0..300).map(|_| Arc::default()).collect();
        let mut waiters = 0;
        for count in &wakeups {
            let name = format!("file {waiters}");
            if fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).is_err() {
                break;
            }
            let count = Arc::clone(count);
            fs.when_durable(fs.ticket(), move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            waiters += 1;
        }
        let closed = fs.close();
        assert_eq!(closed.is_err(), run.failing.failed(), "write {number}");
        for (waiter, count) in wakeups[..waiters].iter().enumerate() {
            let times = count.load(Ordering::Relaxed);
            assert_eq!(
                times, 1,
                "write {number} fails: waiter {waiter} of {waiters} was woken {times} times"
            );
        }
        if !run.failing.failed() {
            break;
        }
        number += 1;
    }
    assert!(number > 10, "{number} writes");
}
