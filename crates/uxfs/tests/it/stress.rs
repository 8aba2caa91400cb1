//! Many threads on one volume with a small log, so that the tail is pushed continuously: random
//! operations, syncs, tickets and callbacks, also on a nearly full volume.
//!
//! All writes are checked by the trace rules. Each thread has a seed of its own; `UXFS_SEED` changes
//! them, `UXFS_COUNT` is the number of steps of each thread.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs::journal::{JournalOptions, Ticket};
use uxfs::{Error, Fallocate, Fs, NewInode, OpenOptions, RenameFlags, SetAttr, XattrMode};
use uxfs_crash::RuledDev;
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::Ino;
use uxfs_oracle::Rng;

use crate::volume::{self, Volume, setting};

const THREADS: u64 = 8;

/// Errors that races or a full volume may cause.
fn fair<T>(at: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(
            Error::NotFound
            | Error::Exists
            | Error::NotDir
            | Error::IsDir
            | Error::NotEmpty
            | Error::Invalid(_)
            | Error::NoAttr
            | Error::NotPermitted
            | Error::TooManyLinks
            | Error::NoSpace,
        ) => None,
        Err(other) => panic!("{at}: {other}"),
    }
}

/// Callbacks requested, and called.
#[derive(Default)]
struct Calls {
    asked: AtomicU64,
    told: AtomicU64,
    failed: AtomicU64,
}

struct Worker<'a> {
    fs: &'a Fs,
    rng: Rng,
    shared: &'a [Ino],
    kept: &'a [Ino],
    own: Ino,
    /// Files of its own, and their content.
    files: BTreeMap<Vec<u8>, (Ino, Vec<u8>)>,
    tickets: Vec<Ticket>,
    calls: &'a Arc<Calls>,
}

impl Worker<'_> {
    fn name(&mut self) -> Vec<u8> {
        let long = self.rng.once_in(5);
        let number = self.rng.below(80);
        if long { format!("{number:0180}").into_bytes() } else { format!("n{number}").into_bytes() }
    }

    fn dir(&mut self) -> Ino {
        self.shared[self.rng.index(self.shared.len())]
    }

    fn step(&mut self, at: &str) {
        let (fs, dir, name) = (self.fs, self.dir(), self.name());
        let (to, new_name) = (self.dir(), self.name());
        let kept = self.kept[self.rng.index(self.kept.len())];
        match self.rng.below(24) {
            0..4 => drop(fair(at, fs.create(dir, &name, &NewInode::file(0o644)))),
            4 => drop(fair(at, fs.create(dir, &name, &NewInode::dir(0o755)))),
            5 => drop(fair(at, fs.symlink(dir, &name, &[b'x'; 900], &NewInode::new(0)))),
            6..9 => drop(fair(at, fs.unlink(dir, &name))),
            9 => drop(fair(at, fs.rmdir(dir, &name))),
            10 => {
                let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange];
                let flags = flags[self.rng.index(3)];
                _ = fair(at, fs.rename(dir, &name, to, &new_name, flags));
            }
            11 => {
                let linked = fs.lookup(dir, &name).and_then(|ino| fs.link(ino, to, &new_name));
                _ = fair(at, linked);
            }
            12 => drop(fair(at, fs.read_dir(dir, 0, &mut |_| ControlFlow::Continue(())))),
            13 | 14 => {
                let value = vec![7; self.rng.index(9000)];
                let key = format!("user.{}", self.rng.below(4)).into_bytes();
                let set = fs.lookup(dir, &name);
                let set = set.and_then(|ino| fs.set_xattr(ino, &key, &value, XattrMode::Any));
                _ = fair(at, set);
            }
            15 => {
                let change = SetAttr { uid: Some(9), ..SetAttr::default() };
                _ = fair(at, fs.set_attr(kept, &change));
            }
            16 | 17 => {
                let len = self.rng.index(40_000);
                let data = self.rng.bytes(len);
                _ = fair(at, fs.write_at(kept, self.rng.below(300_000), &data));
            }
            18 => drop(fair(at, fs.truncate(kept, self.rng.below(200_000)))),
            19 => {
                let (from, len) = (self.rng.below(200_000), 1 + self.rng.below(100_000));
                _ = fair(at, fs.fallocate(kept, Fallocate::PunchHole, from, len));
            }
            20..22 => self.own_file(at),
            _ => self.durability(at, kept),
        }
    }

    /// A file of its own, whose content it knows.
    fn own_file(&mut self, at: &str) {
        let (fs, name) = (self.fs, self.name());
        if let Some((ino, data)) = self.files.get(&name) {
            let mut found = vec![0; data.len()];
            fair(at, fs.read_at(*ino, 0, &mut found));
            assert!(found == *data, "{at}: content of an own file");
            if self.rng.once_in(2) && fair(at, fs.unlink(self.own, &name)).is_some() {
                self.files.remove(&name);
            }
            return;
        }
        let len = 1 + self.rng.index(30_000);
        let data = self.rng.bytes(len);
        let Some(ino) = fair(at, fs.create(self.own, &name, &NewInode::file(0o600))) else {
            return;
        };
        match fair(at, fs.write_at(ino, 0, &data)) {
            Some(_) => drop(self.files.insert(name, (ino, data))),
            // The volume is full; the data written before is not checked.
            None => drop(fair(at, fs.unlink(self.own, &name))),
        }
    }

    /// Syncs, tickets and callbacks.
    fn durability(&mut self, at: &str, file: Ino) {
        let fs = self.fs;
        match self.rng.below(8) {
            0 => drop(fair(at, fs.sync())),
            1 | 2 => drop(fair(at, fs.fsync(file))),
            3 => self.tickets.push(fs.ticket()),
            4 => {
                if let Some(ticket) = self.tickets.pop() {
                    fair(at, fs.wait(ticket));
                    assert!(fs.is_durable(ticket), "{at}: waited for, and not durable");
                }
            }
            5 => self.tickets.retain(|ticket| !fs.is_durable(*ticket)),
            _ => {
                let calls = Arc::clone(self.calls);
                calls.asked.fetch_add(1, Ordering::Relaxed);
                fs.when_durable(fs.ticket(), move |result| {
                    calls.told.fetch_add(1, Ordering::Relaxed);
                    calls.failed.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
                });
            }
        }
    }
}

/// One run: `fill` bytes of each MiB of the volume are allocated first.
fn storm(mib: u64, line: &str, fill: u64, seed: u64, steps: u64) {
    let volume = Volume::small(mib, line);
    let mut options = OpenOptions::default();
    options.seed = Some(seed);
    options.cache_bytes = if seed.is_multiple_of(2) { 1 << 20 } else { 64 << 20 };
    let mut journal = JournalOptions::default();
    journal.pipeline.size_max = 128 << 10;
    options.journal = journal;
    let device: Arc<dyn BlockDev> = Arc::new(volume::device(&volume.path, OpenMode::Write));
    let ruled = Arc::new(RuledDev::new(device));
    let fs = Fs::open(Arc::<RuledDev>::clone(&ruled) as Arc<dyn BlockDev>, options).unwrap();
    let make = |name: String, new: &NewInode| fs.create(fs.root(), name.as_bytes(), new).unwrap();
    let shared: Vec<Ino> = (0..4).map(|n| make(format!("s{n}"), &NewInode::dir(0o777))).collect();
    let kept: Vec<Ino> = (0..6).map(|n| make(format!("kept{n}"), &NewInode::file(0o666))).collect();
    let own: Vec<Ino> =
        (0..THREADS).map(|n| make(format!("own{n}"), &NewInode::dir(0o700))).collect();
    let ballast = make("ballast".into(), &NewInode::file(0o600));
    fair("ballast", fs.fallocate(ballast, Fallocate::Allocate { keep_size: false }, 0, mib * fill));
    let calls = Arc::new(Calls::default());
    std::thread::scope(|scope| {
        for (number, own) in (0..).zip(own) {
            let (fs, shared, kept, calls) = (&fs, &shared, &kept, &calls);
            scope.spawn(move || {
                let rng = Rng::new(seed * 100 + number);
                let (files, tickets) = (BTreeMap::new(), Vec::new());
                let mut worker = Worker { fs, rng, shared, kept, own, files, tickets, calls };
                for step in 0..steps {
                    worker.step(&format!("seed {seed} ({line}), thread {number}, step {step}"));
                }
                for ticket in worker.tickets {
                    fs.wait(ticket).unwrap_or_else(|e| panic!("seed {seed}: a ticket: {e}"));
                }
            });
        }
    });
    fs.sync().unwrap_or_else(|e| panic!("seed {seed} ({line}): {e}"));
    fs.close().unwrap_or_else(|e| panic!("seed {seed} ({line}): closing: {e}"));
    ruled.verdict().unwrap_or_else(|broken| panic!("seed {seed} ({line}): {broken}"));
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    assert_eq!(count(&calls.told), count(&calls.asked), "seed {seed}: calls that were made");
    assert_eq!(count(&calls.failed), 0, "seed {seed}: calls with a failure");
    println!(
        "seed {seed} ({line}): {} checkpoints, {} calls",
        ruled.checkpoints(),
        count(&calls.told)
    );
    drop(ruled);
    let report = {
        let dev = volume::device(&volume.path, OpenMode::Read);
        uxfs_check::check(&dev, &uxfs_check::CheckOptions::default(), &|_| {}).unwrap()
    };
    let worst = report.findings.iter().find(|f| f.severity > uxfs_check::Severity::Note);
    assert!(worst.is_none(), "seed {seed} ({line}): {worst:?}");
    volume.judge(&format!("seed {seed} ({line})"));
}

#[test]
fn threads_and_a_small_log() {
    let seed = setting("UXFS_SEED", 0) * 10;
    let steps = setting("UXFS_COUNT", 500);
    storm(160, "-l size=13m -m rmapbt=1", 0, seed, steps);
    storm(160, "-l size=6m -m reflink=0 -d agcount=2", 0, seed + 1, steps);
    storm(96, "-l size=6m -b size=1k -d agcount=5", 0, seed + 2, steps);
}

#[test]
fn threads_on_a_volume_that_is_nearly_full() {
    let seed = setting("UXFS_SEED", 0) * 10 + 5;
    let steps = setting("UXFS_COUNT", 500);
    storm(64, "-l size=13m -m rmapbt=1,reflink=0", 780 << 10, seed, steps);
    storm(64, "-l size=6m -b size=1k", 800 << 10, seed + 1, steps);
}
