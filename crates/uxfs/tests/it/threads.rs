//! Many threads on one volume: shared and private directories, all operations.
//!
//! A watchdog ends the process if no thread makes progress for minutes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs::journal::{JournalOptions, RollPolicy};
use uxfs::{Error, Fs, NewInode, OpenOptions, RenameFlags, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT};
use uxfs_oracle::{Fields, Kernel, Rng};

use crate::listing;
use crate::volume::{Volume, setting};
use crate::watchdog::Watchdog;

const THREADS: u64 = 8;

/// Errors that races may cause.
fn fair(at: &str, result: Result<(), Error>) {
    let fine = matches!(
        result,
        Ok(())
            | Err(Error::NotFound
                | Error::Exists
                | Error::NotDir
                | Error::IsDir
                | Error::NotEmpty
                | Error::Invalid(_)
                | Error::NoAttr
                | Error::NotPermitted
                | Error::NoSpace)
    );
    if let (false, Err(e)) = (fine, result) {
        panic!("{at}: {e}");
    }
}

/// One thread's work: a private directory with known content, and the shared directories.
struct Worker<'a> {
    fs: &'a Fs,
    rng: Rng,
    shared: &'a [Ino],
    kept: &'a [Ino],
    own: Ino,
    files: BTreeMap<Vec<u8>, (Ino, Vec<u8>)>,
    number: u64,
}

impl Worker<'_> {
    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.rng.below(60)).into_bytes()
    }

    fn some_dir(&mut self) -> Ino {
        self.shared[self.rng.index(self.shared.len())]
    }

    /// An operation in a shared directory.
    fn shared_step(&mut self, at: &str) {
        let (dir, name) = (self.some_dir(), self.name());
        let (to, new_name) = (self.some_dir(), self.name());
        let fs = self.fs;
        let result = match self.rng.below(14) {
            0..=2 => fs.create(dir, &name, &NewInode::file(0o644)).map(drop),
            3 => fs.create(dir, &name, &NewInode::dir(0o755)).map(drop),
            4 => fs.symlink(dir, &name, &[b'x'; 700], &NewInode::new(0)).map(drop),
            5..=7 => fs.unlink(dir, &name),
            8 => fs.rmdir(dir, &name),
            9 => {
                let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange];
                fs.rename(dir, &name, to, &new_name, flags[self.rng.index(3)])
            }
            10 => fs.lookup(dir, &name).and_then(|ino| fs.link(ino, to, &new_name)),
            11 => fs.read_dir(dir, 0, &mut |_| ControlFlow::Continue(())),
            12 => fs.lookup(dir, &name).and_then(|ino| {
                let value = vec![self.number as u8; self.rng.index(5000)];
                fs.set_xattr(ino, b"trusted.k", &value, XattrMode::Any)
            }),
            // The inode number of a removed file may be reused, so these files stay.
            _ => {
                let ino = self.kept[self.rng.index(self.kept.len())];
                let data = self.rng.bytes(20_000);
                fs.write_at(ino, self.rng.below(100_000), &data)
                    .and_then(|()| fs.truncate(ino, self.rng.below(50_000)))
            }
        };
        fair(at, result);
    }

    /// An operation in the private directory, with a known outcome.
    fn own_step(&mut self, at: &str) {
        let name = self.name();
        let fail = |e: Error| -> Ino { panic!("{at}, own: {e}") };
        let data = {
            let len = self.rng.index(30_000);
            self.rng.bytes(len)
        };
        match (self.files.get(&name), self.rng.below(3)) {
            (None, _) => {
                let ino = self.fs.create(self.own, &name, &NewInode::file(0o600));
                let ino = ino.unwrap_or_else(fail);
                self.fs.write_at(ino, 0, &data).unwrap_or_else(|e| panic!("{at}, own: {e}"));
                self.files.insert(name, (ino, data));
            }
            (Some(_), 0) => {
                self.fs.unlink(self.own, &name).unwrap_or_else(|e| panic!("{at}, own: {e}"));
                self.files.remove(&name);
            }
            (Some((ino, old)), _) => {
                let mut found = vec![0; old.len()];
                self.fs.read_at(*ino, 0, &mut found).unwrap_or_else(|e| panic!("{at}, own: {e}"));
                assert!(found == *old, "{at}: content of an own file");
            }
        }
    }
}

fn storm(line: &str, cache: usize, seed: u64, steps: u64, journal: JournalOptions) {
    let volume = Volume::small(160, line);
    let mut options = OpenOptions::default();
    (options.cache_bytes, options.journal) = (cache, journal);
    let fs = volume.open_with(options);
    let shared: Vec<Ino> = (0..4)
        .map(|n| fs.create(fs.root(), format!("s{n}").as_bytes(), &NewInode::dir(0o777)).unwrap())
        .collect();
    let kept: Vec<Ino> = (0..6)
        .map(|n| {
            let name = format!("kept {n}");
            fs.create(shared[n % 4], name.as_bytes(), &NewInode::file(0o666)).unwrap()
        })
        .collect();
    let dog = Watchdog::new(format!("seed {seed} ({line})"));
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (fs, shared, kept, dog) = (&fs, &shared, &kept, &dog);
            scope.spawn(move || {
                let name = format!("own{number}");
                let own = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o700)).unwrap();
                let rng = Rng::new(seed * 100 + number);
                let mut worker =
                    Worker { fs, rng, shared, kept, own, files: BTreeMap::new(), number };
                for step in 0..steps {
                    let at = format!("seed {seed} ({line}), thread {number}, step {step}");
                    match worker.rng.below(40) {
                        0..=27 => worker.shared_step(&at),
                        28..=38 => worker.own_step(&at),
                        _ => fs.sync().unwrap_or_else(|e| panic!("{at}: sync: {e}")),
                    }
                    dog.step(step);
                }
                let mut found = listing::names(fs, own).unwrap();
                found.sort();
                let known = worker.files.iter().map(|(name, (ino, _))| (name.clone(), *ino));
                assert!(found.into_iter().eq(known), "seed {seed}: names of thread {number}");
            });
        }
    });
    drop(dog);
    assert_eq!(fs.stats().logspace_overruns, 0, "seed {seed} ({line})");
    fs.close().unwrap_or_else(|e| panic!("seed {seed}: closing: {e}"));
    volume.judge(&format!("seed {seed} ({line})"));
    let fs = volume.open();
    let listing = listing::list(&fs);
    assert!(listing.entries.len() > 8, "seed {seed}");
    assert_eq!(fs.stat(fs.root()).unwrap().mode & S_IFMT, S_IFDIR);
    fs.close().unwrap();
    if seed.is_multiple_of(64) {
        let theirs = listing::of_kernel(Kernel::Stable, &[&volume.path]);
        listing.assert_same(&theirs[0], Fields::ALL - Fields::SPACE);
    }
}

#[test]
fn threads_work_concurrently() {
    let base = setting("UXFS_SEED", 0) << 16;
    let lines = [
        "",
        "-d agcount=8 -m rmapbt=1",
        "-b size=1k -d agcount=2",
        "-i sparse=0 -m finobt=0,inobtcount=0",
    ];
    for round in 0..setting("UXFS_ROUNDS", 1) {
        for (at, line) in lines.iter().enumerate() {
            let cache = if at % 2 == 0 { 64 << 20 } else { 1 << 16 };
            storm(line, cache, base + 64 * round + at as u64, 1500, JournalOptions::default());
        }
    }
}

/// A volume of this size has the smallest log that the kernel accepts. A transaction that waits for log
/// space holds nothing that others wait for.
#[test]
fn threads_complete_with_the_smallest_log() {
    let base = setting("UXFS_SEED", 0) << 16;
    let lines = [
        "-m rmapbt=1",
        "-b size=1k -d agcount=2 -m reflink=0",
        "-n size=64k -m rmapbt=1 -i size=2048",
        "-b size=8k -m rmapbt=1",
    ];
    for round in 0..setting("UXFS_ROUNDS", 1) {
        for (at, line) in lines.iter().enumerate() {
            let roll_policy = [RollPolicy::Always, RollPolicy::WhenFull, RollPolicy::AlwaysDurable]
                [(at + round as usize) % 3];
            let journal = JournalOptions { roll_policy, ..JournalOptions::default() };
            storm(line, 64 << 20, base + 64 * round + 16 + at as u64, 500, journal);
        }
    }
}

/// Unlinked inodes share lists: many files are freed concurrently while other threads read them.
#[test]
fn threads_free_files_concurrently() {
    let seed = setting("UXFS_SEED", 0);
    for round in 0..setting("UXFS_ROUNDS", 1) {
        let volume = Volume::small(160, "-d agcount=2");
        let fs = volume.open();
        let before = fs.free_blocks();
        let rng = Rng::new(seed * 1000 + round);
        let files: Vec<(Vec<u8>, Ino)> = (0..1200)
            .map(|n| {
                let name = format!("f{n}").into_bytes();
                (name.clone(), fs.create(fs.root(), &name, &NewInode::file(0o600)).unwrap())
            })
            .collect();
        for (at, (_, ino)) in files.iter().enumerate() {
            for piece in 0..(at as u64 % 5) * 10 {
                fs.write_at(*ino, piece * 8192, b"x").unwrap();
            }
        }
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (fs, files, next, mut rng) = (&fs, &files, &next, rng.clone());
                scope.spawn(move || {
                    while let Some((name, _)) =
                        files.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                    {
                        let gone = fs.unlink(fs.root(), name);
                        gone.unwrap_or_else(|e| panic!("round {round}, thread {number}: {e}"));
                        // It still exists, or its inode chunk is freed.
                        let other = files[rng.index(files.len())].1;
                        fair("a look", fs.stat(other).map(drop));
                    }
                });
            }
        });
        assert!(listing::names(&fs, fs.root()).unwrap().is_empty());
        fs.close().unwrap();
        volume.judge(&format!("round {round}"));
        let lost = before.saturating_sub(volume.open().free_blocks());
        assert!(lost < 80, "round {round}: {lost} blocks lost");
    }
}
