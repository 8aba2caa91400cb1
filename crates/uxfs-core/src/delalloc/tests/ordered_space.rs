//! Ordered mode on volumes that are nearly full: a write may be refused, and an epoch never is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::Ino;
use uxfs_testkit::{Answer, FaultDev, Op, Rng, Rule};

use super::make_volume;
use super::ordered::{LEN, one_file, ordered};
use crate::ops::NewInode;
use crate::{Error, Fallocate, Fs, OpenOptions, Result};

/// Makes and opens a volume.
fn open<D: BlockDev + 'static>(dev: &Arc<D>, mkfs: &str, options: OpenOptions) -> Fs {
    make_volume(&**dev, mkfs);
    Fs::open(Arc::clone(dev) as Arc<dyn BlockDev>, options).unwrap()
}

/// A volume with no space left takes overwrites of what it has, again and again.
#[test]
fn a_full_volume_can_be_overwritten() {
    let dev = Arc::new(MemDev::new(LEN as u64));
    let fs = open(&dev, "-l size=16m", ordered(&mut Rng::new(1)));
    let ino = fs.create(fs.root(), b"all", &NewInode::file(0o644)).unwrap();
    let full = (0..).find(|n| fs.write_at(ino, n << 18, &[7; 256 << 10]).is_err()).unwrap();
    assert!(matches!(fs.write_at(ino, full << 18, &[7; 256 << 10]), Err(Error::NoSpace)));
    let size = full << 18;
    for round in 0..3_u8 {
        for at in (0..size).step_by(64 << 10) {
            fs.write_at(ino, at, &[round; 64 << 10]).unwrap();
        }
    }
    let mut content = vec![0; size as usize];
    fs.read_at(ino, 0, &mut content).unwrap();
    assert!(content.iter().all(|byte| *byte == 2));
    fs.close().unwrap();
    let fs = Fs::open(dev, OpenOptions::default()).unwrap();
    fs.read_at(ino, 0, &mut content).unwrap();
    assert!(content.iter().all(|byte| *byte == 2));
}

/// A volume on this device, with a file that has most of its blocks.
fn nearly_full<D: BlockDev + 'static>(dev: &Arc<D>) -> (Fs, Ino) {
    let fs = open(dev, "-l size=16m", ordered(&mut Rng::new(1)));
    let ino = fs.create(fs.root(), b"first", &NewInode::file(0o644)).unwrap();
    fill(&fs, ino).unwrap();
    fs.wait(fs.durable().unwrap()).unwrap();
    (fs, ino)
}

/// Writes a file that needs more than the blocks that a nearly full volume has left.
fn fill(fs: &Fs, ino: Ino) -> Result<()> {
    (0..50).try_for_each(|n| fs.write_at(ino, n << 20, &[n as u8; 1 << 20]).map(drop))
}

/// What was just freed can be written at once, although no epoch has shown it yet.
#[test]
fn space_is_there_as_soon_as_a_file_is_removed() {
    let (fs, _) = nearly_full(&Arc::new(MemDev::new(LEN as u64)));
    for round in 0..3 {
        fs.unlink(fs.root(), b"first").unwrap();
        let ino = fs.create(fs.root(), b"first", &NewInode::file(0o644)).unwrap();
        fill(&fs, ino).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    fs.close().unwrap();
}

/// Blocks that are freed during an AIL push stay busy until it ends, also when their freeing is durable. Writers
/// wait for it; no epoch is without space.
#[test]
fn an_ail_push_that_lasts_keeps_no_epoch_from_space() {
    let dev = Arc::new(FaultDev::new(MemDev::new(LEN as u64)));
    let (fs, _) = nearly_full(&dev);
    let (pushing, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, end) = (Arc::clone(&pushing), Arc::clone(&ended));
    dev.add(Rule::on(Op::WRITES).before(move |_| {
        if std::thread::current().name() == Some("push") {
            begun.store(true, Ordering::Release);
            while !end.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        Answer::Pass
    }));
    let (fs, journal) = (&fs, fs.journal.as_ref().unwrap());
    std::thread::scope(|scope| {
        let push = || journal.push_whole_ail(&**fs).unwrap();
        std::thread::Builder::new().name("push".into()).spawn_scoped(scope, push).unwrap();
        while !pushing.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        fs.unlink(fs.root(), b"first").unwrap();
        fs.wait(fs.durable().unwrap()).unwrap();
        let ino = fs.create(fs.root(), b"second", &NewInode::file(0o644)).unwrap();
        let writer = scope.spawn(move || fill(fs, ino));
        // Until the writer has all that it can have, but for less than one write.
        let least = (fs.geo.dblocks / 20) as i64 + (3 << 20 >> fs.geo.block_log);
        while fs.available() - fs.unsettled.blocks() > least && !writer.is_finished() {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::Release);
        writer.join().unwrap().unwrap();
    });
    fs.wait(fs.durable().unwrap()).unwrap();
}

/// A transaction that holds a group and needs a lower one gets it, although another thread has that whenever it tries.
#[test]
fn a_group_that_others_always_hold_is_got() {
    let (fs, _) = one_file();
    let (low, high) = (uxfs_format::AgNo(0), uxfs_format::AgNo(1));
    let (wanted, held, done) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let wait_for = |what: &AtomicBool, value| {
        while what.load(Ordering::Acquire) != value && !done.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    let needs_both = || {
        let mut tx = fs.begin_tx(0)?;
        tx.lock_ag(high)?;
        if !tx.holds_ag(low) {
            wanted.store(true, Ordering::Release);
            wait_for(&held, true);
        }
        let got = tx.lock_ag(low)?;
        wanted.store(false, Ordering::Release);
        if got { Ok(()) } else { Err(Error::NoSpace) }
    };
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                wait_for(&wanted, true);
                let locked = fs.ag(low).unwrap().lock();
                held.store(true, Ordering::Release);
                wait_for(&wanted, false);
                held.store(false, Ordering::Release);
                drop(locked);
            }
        });
        let got = [fs.retry_groups(needs_both), fs.retry_enospc(needs_both)];
        done.store(true, Ordering::Release);
        got
    });
    assert!(got.iter().all(Result::is_ok), "{got:?}");
    fs.close().unwrap();
}

/// The volumes of the test below.
const VOLUMES: [&str; 4] = [
    "-l size=16m",
    "-l size=16m -m rmapbt=1",
    "-l size=16m -m reflink=0,rmapbt=0 -b size=1k",
    "-l size=13m -d agcount=6 -m rmapbt=1",
];
/// Steps of a thread.
const STEPS: usize = 120;

/// Writes, overwrites, cuts and removes files of its own, on a volume that is full most of the time. Returns how
/// many calls found no space.
fn use_space(fs: &Fs, dir: Ino, seed: u64) -> Result<u64> {
    let mut refused = 0;
    let mut rng = Rng::spread(seed ^ dir.0 << 32);
    let mut files: Vec<(Vec<u8>, Ino)> = Vec::new();
    for number in 0..STEPS {
        let done = match (rng.below(16), rng.pick(&files).cloned()) {
            (0..5, _) | (_, None) => {
                let name = format!("{number}").into_bytes();
                fs.create(dir, &name, &NewInode::file(0o644)).and_then(|ino| {
                    files.push((name, ino));
                    (0..1 + rng.below(8)).try_for_each(|at| {
                        fs.write_at(ino, at << 18, &[number as u8; 256 << 10]).map(drop)
                    })
                })
            }
            (5..10, Some((_, ino))) => {
                let len = 1 + rng.index(200_000);
                fs.write_at(ino, rng.below(2 << 20), &vec![number as u8; len]).map(drop)
            }
            (10, Some((_, ino))) => {
                let (from, len) = (rng.below(1 << 20), 1 + rng.below(1 << 20));
                fs.fallocate(ino, Fallocate::PunchHole, from, len)
            }
            (11, Some((_, ino))) => fs.truncate(ino, rng.below(2 << 20)),
            (12, _) => fs.durable().and_then(|ticket| fs.wait(ticket)),
            (13, _) => fs.defrag_pass(1 << 20).map(drop),
            (_, Some((name, _))) => {
                let removed = fs.unlink(dir, &name);
                if removed.is_ok() {
                    files.retain(|(other, _)| *other != name);
                }
                removed
            }
        };
        match done {
            Ok(()) => {}
            Err(Error::NoSpace) => refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// `UXFS_SEED` is the first seed, `UXFS_COUNT` how many there are. What the threads do follows from the seed, and not in
/// which order: a seed that failed may have to be tried some times.
#[test]
fn a_full_volume_refuses_writes_and_no_epoch() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first: u64 = number("UXFS_SEED", 1);
    let mut refused = 0;
    for seed in first..first + number("UXFS_COUNT", 4) {
        let volume = VOLUMES[seed as usize % VOLUMES.len()];
        let dev = Arc::new(MemDev::new(LEN as u64));
        let options = OpenOptions { defrag: true, ..ordered(&mut Rng::spread(seed)) };
        let fs = open(&dev, volume, options);
        let dirs = [b"a", b"b", b"c"].map(|name| fs.create(fs.root(), name, &NewInode::dir(0o755)));
        let ino = fs.create(fs.root(), b"all", &NewInode::file(0o644)).unwrap();
        let full = (0..).find(|n| fs.write_at(ino, n << 18, &[7; 256 << 10]).is_err());
        fs.truncate(ino, (full.unwrap() << 18) / 8 * 7).unwrap();
        let outcomes = std::thread::scope(|scope| {
            let fs = &fs;
            let threads = dirs.map(|dir| scope.spawn(move || use_space(fs, dir?, seed)));
            threads.map(|thread| thread.join().unwrap())
        });
        for outcome in outcomes {
            refused += outcome.unwrap_or_else(|error| {
                panic!("UXFS_SEED={seed} UXFS_COUNT=1 ({volume}): {error}")
            });
        }
        fs.write_at(ino, 0, &[1; 4096]).expect("a full volume takes overwrites");
        let closed = fs.close();
        closed.unwrap_or_else(|error| panic!("UXFS_SEED={seed} UXFS_COUNT=1 ({volume}): {error}"));
    }
    assert!(refused > 0, "the volumes were never full");
}
