//! Ordered mode with several writers: whenever the power fails, each writer's writes survive in their
//! order, as a prefix.
//!
//! A writer's i-th step writes the number i into the same place of three files, one after the other. After
//! a cut each file must hold exactly its writer's first steps, the first file at most one step more than
//! the last, and no file less than what was acknowledged as durable. Other threads cut epochs all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::Ino;
use uxfs_testkit::{RecordDev, Recording, Rng};

use super::{make_volume, options};
use crate::ops::NewInode;
use crate::tx::Tx;
use crate::{DefragOptions, Error, Fallocate, Fs, OpenOptions, SyncMode, WritebackOptions};

pub(super) const LEN: usize = 96 << 20;
const WRITERS: usize = 3;
const STEPS: u64 = 150;
const FILES: usize = 3;
/// Bytes of a file.
const BYTES: usize = 96 << 10;

/// Everything up to this step of this writer is durable.
struct Durable(usize, u64);

pub(super) fn ordered(rng: &mut Rng) -> OpenOptions {
    let dirty_bytes = [128 << 10, 1 << 20, 16 << 20][rng.index(3)];
    let mut options = options(WritebackOptions {
        dirty_bytes,
        dirty_background_bytes: dirty_bytes / 4,
        ..WritebackOptions::default()
    });
    options.sync = SyncMode::Ordered { loss: Duration::from_secs(3600) };
    options.journal.pipeline.size_max = [16 << 10, 128 << 10, 1 << 20][rng.index(3)];
    options
}

fn name(writer: usize, file: usize) -> Vec<u8> {
    format!("{writer}-{file}").into_bytes()
}

/// What step `step` of a writer does.
enum Step {
    Write(usize, usize),
    Punch(usize, usize),
    /// Zeroes from here to the end, by two truncations.
    Cut(usize),
}

/// The step, from the writer's random numbers.
fn step(rng: &mut Rng) -> Step {
    let from = rng.index(BYTES - 1);
    // A write of at most a quarter of `dirty_bytes` is one step.
    let most = [100, 5000, 32_000][rng.index(3)];
    let len = 1 + rng.index(most).min(BYTES - from - 1);
    match rng.below(12) {
        0 => Step::Punch(from, len),
        1 => Step::Cut(from),
        _ => Step::Write(from, len),
    }
}

fn write(fs: &Fs, disk: &RecordDev<MemDev, Durable>, seed: u64, writer: usize) {
    let mut rng = Rng::new(seed ^ (writer as u64 + 1) << 32);
    let mut other = Rng::new(seed ^ (writer as u64 + 1) << 48);
    let inos: Vec<_> =
        (0..FILES).map(|file| fs.lookup(fs.root(), &name(writer, file)).unwrap()).collect();
    for number in 1..=STEPS {
        let step = step(&mut rng);
        for ino in &inos {
            match step {
                Step::Write(from, len) => {
                    fs.write_at(*ino, from as u64, &vec![number as u8 | 1; len]).unwrap();
                }
                Step::Punch(from, len) => {
                    fs.fallocate(*ino, Fallocate::PunchHole, from as u64, len as u64).unwrap();
                }
                Step::Cut(from) => {
                    fs.truncate(*ino, from as u64).unwrap();
                    fs.truncate(*ino, BYTES as u64).unwrap();
                }
            }
        }
        if other.once_in(10) {
            fs.defrag(inos[other.index(FILES)], DefragOptions { shared: true }).unwrap();
        }
        if other.once_in(40) {
            fs.wait(fs.durable().unwrap()).unwrap();
            disk.mark(Durable(writer, number));
        }
    }
}

fn record(seed: u64) -> Recording<Durable> {
    let mut rng = Rng::new(seed);
    let before = MemDev::from_bytes(&vec![0xee; LEN]);
    make_volume(&before, "-l size=16m");
    let disk = Arc::new(RecordDev::new(before.clone()));
    let fs = Fs::open(Arc::clone(&disk) as Arc<dyn BlockDev>, ordered(&mut rng)).unwrap();
    for (writer, file) in (0..WRITERS).flat_map(|w| (0..FILES).map(move |f| (w, f))) {
        let ino = fs.create(fs.root(), &name(writer, file), &NewInode::file(0o644)).unwrap();
        fs.truncate(ino, BYTES as u64).unwrap();
    }
    fs.wait(fs.durable().unwrap()).unwrap();
    (0..WRITERS).for_each(|writer| disk.mark(Durable(writer, 0)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (fs, disk) = (&fs, &disk);
                scope.spawn(move || write(fs, disk, seed, writer))
            })
            .collect();
        let epochs = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                fs.wait(fs.durable().unwrap()).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        epochs.join().unwrap();
        ended.into_iter().for_each(|writer| writer.unwrap());
    });
    drop(fs);
    Recording::new(before, disk.take(), 512)
}

/// The steps of a writer after which a file holds `content`, perhaps with a part of the next one; several
/// if a step changed nothing.
fn steps_shown(content: &[u8], seed: u64, writer: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed ^ (writer as u64 + 1) << 32);
    let mut all = vec![0; BYTES];
    let mut shown = Vec::new();
    for number in 0..=STEPS {
        let before = all.clone();
        let step = step(&mut rng);
        match step {
            Step::Write(from, len) => all[from..from + len].fill((number + 1) as u8 | 1),
            Step::Punch(from, len) => all[from..from + len].fill(0),
            Step::Cut(from) => all[from..].fill(0),
        }
        // These take several transactions.
        let in_parts = matches!(step, Step::Punch(..) | Step::Cut(_));
        let mut bytes = content.iter().zip(before.iter().zip(&all));
        if before == content || in_parts && bytes.all(|(c, (b, a))| c == b || c == a) {
            shown.push(number);
        }
    }
    shown
}

fn judge(fs: &Fs, seed: u64, durable: [u64; WRITERS]) -> Result<(), String> {
    for (writer, durable) in durable.into_iter().enumerate() {
        let mut last: Option<Vec<u64>> = None;
        for file in 0..FILES {
            let found = fs.lookup(fs.root(), &name(writer, file));
            let ino = found.map_err(|e| format!("{writer}-{file}: {e}"))?;
            let mut content = vec![0; fs.stat(ino).map_err(|e| e.to_string())?.size as usize];
            fs.read_at(ino, 0, &mut content).map_err(|e| e.to_string())?;
            // A step in two transactions shows the first alone.
            if content.len() < BYTES {
                content.resize(BYTES, 0);
            }
            let steps = steps_shown(&content, seed, writer);
            let after = |before: &Vec<u64>| {
                steps.iter().any(|step| before.iter().any(|b| *b == *step || *b == *step + 1))
            };
            if steps.iter().all(|step| *step < durable) || !last.as_ref().is_none_or(after) {
                return Err(format!(
                    "{writer}-{file} shows steps {steps:?}, the file before it {last:?}, durable \
                     {durable}"
                ));
            }
            last = Some(steps);
        }
    }
    Ok(())
}

#[test]
fn each_writers_writes_survive_in_order() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let first = setting("UXFS_SEED", 0);
    for seed in first..first + setting("UXFS_ROUNDS", 3) {
        let recording = record(seed);
        let mut rng = Rng::new(!seed);
        for state in 0..setting("UXFS_STATES", 60) {
            let at = rng.index(recording.len() + 1);
            let where_ = format!("seed {seed}, state {state}, before event {at}");
            let marks = || recording.marks_before(at);
            // The volume is not set up yet.
            if marks().next().is_none() {
                continue;
            }
            let durable = core::array::from_fn(|writer| {
                let of = |mark: &Durable| (mark.0 == writer).then_some(mark.1);
                marks().find_map(of).unwrap_or(0)
            });
            let disk: Arc<dyn BlockDev> = Arc::new(recording.cut(at, &mut rng));
            let fs = Fs::open(disk, OpenOptions::default());
            let fs = fs.unwrap_or_else(|e| panic!("{where_}: {e}"));
            judge(&fs, seed, durable).unwrap_or_else(|problem| panic!("{where_}: {problem}"));
            fs.close().unwrap();
        }
    }
}

/// A volume with one file.
pub(super) fn one_file() -> (Fs, Ino) {
    let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(LEN as u64));
    make_volume(&*dev, "");
    let fs = Fs::open(dev, ordered(&mut Rng::new(1))).unwrap();
    let ino = fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
    (fs, ino)
}

/// A transaction that began before a quiesce, and logs an object again when its epoch is cut, does not keep
/// it from ending.
#[test]
fn a_quiesce_ends_after_a_change_behind_its_epoch() {
    let (fs, ino) = one_file();
    fs.wait(fs.durable().unwrap()).unwrap();
    let journal = fs.journal.as_ref().unwrap();
    let (cuts, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let cut = || {
        fs.cut_epoch_if_ordered()?;
        if cuts.fetch_add(1, Ordering::AcqRel) > 0 {
            return Ok(());
        }
        let mut tx = Tx::begin_in_epoch(&fs)?;
        let slot = tx.lock_inode(ino)?;
        tx.core_mut(slot).ctime.sec += 1;
        tx.commit()
    };
    let quiesced = std::thread::scope(|scope| {
        // One that does not end pushes again and again.
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if fs.stats().push_ail > 1000 {
                    journal.fail(&fs, "it does not end".to_owned().into());
                }
                std::thread::yield_now();
            }
        });
        let quiesced = journal.quiesce(&fs, &cut);
        done.store(true, Ordering::Release);
        quiesced
    });
    quiesced.unwrap();
    assert_eq!(cuts.load(Ordering::Acquire), 2);
    assert_eq!(journal.load().1, 0);
    fs.close().unwrap();
}

/// A log without room for an epoch stops the journal, and the error says so.
#[test]
fn a_full_log_stops_the_volume_and_is_named() {
    let (fs, _) = one_file();
    let (send, receive) = std::sync::mpsc::channel();
    fs.when_durable(fs.ticket(), move |result| send.send(result).unwrap());
    let journal = fs.journal.as_ref().unwrap();
    // More than the log has.
    let error = journal.reserve_in_epoch(&*fs, journal.geometry().length).unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    assert!(fs.stopped_by().is_some_and(|why| why.contains("no room")));
    assert!(receive.try_recv().unwrap().is_err());
    assert!(matches!(fs.wait(fs.ticket()), Err(Error::Shutdown(_))));
}
