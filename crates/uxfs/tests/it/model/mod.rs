//! Long random sequences of operations against a model in memory.
//!
//! After each operation its outcome equals the model's; at each reopening the whole volume equals the
//! model, and xfsprogs find no damage.

mod content;
mod flags;
mod ops;
mod space;
mod tree;

use uxfs::Fs;
use uxfs_oracle::{Fields, Kernel, Listing, Rng};

use crate::listing;
use crate::volume::{Volume, setting};
use tree::Tree;

/// A run of the model on one volume.
struct Run {
    rng: Rng,
    seed: u64,
    line: String,
    volume: Volume,
    tree: Tree,
    fs: Option<Fs>,
    /// Operations carried out, for messages.
    done: u64,
    /// Operations that failed with ENOSPC.
    full: u64,
    /// Was it nearly full from the start?
    crowded: bool,
}

/// How a volume is made: by the library or by mkfs.xfs, size in MiB, options.
type Make = (bool, u64, &'static str);

const REAL: bool = true;
const SMALL: bool = false;

const MATRIX: [Make; 17] = [
    (REAL, 300, ""),
    (SMALL, 32, "-d agcount=2"),
    (SMALL, 48, "-b size=1k -m rmapbt=1"),
    (SMALL, 64, "-b size=2k -m reflink=0"),
    (REAL, 320, "-b size=16k -m rmapbt=1"),
    (SMALL, 400, "-b size=64k -i sparse=0"),
    (SMALL, 256, "-d agcount=16 -m rmapbt=1"),
    (SMALL, 40, "-m finobt=0,inobtcount=0"),
    (REAL, 300, "-i sparse=0,nrext64=1"),
    (SMALL, 64, "-i size=1024 -n size=8k"),
    (REAL, 300, "-i size=2048,nrext64=1 -m rmapbt=1"),
    (SMALL, 128, "-n size=64k -m bigtime=0"),
    (SMALL, 64, "-b size=1k -n size=64k"),
    (REAL, 320, "-s size=4096 -m rmapbt=1,reflink=0"),
    (SMALL, 34, "-b size=1k -d agcount=2"),
    (SMALL, 64, "-b size=1k -m reflink=0,rmapbt=0,finobt=0,inobtcount=0"),
    (SMALL, 64, "-b size=2k -i size=1024,nrext64=1 -n size=4k -m rmapbt=1"),
];

impl Run {
    fn new(make: Make, seed: u64) -> Self {
        let (real, mib, line) = make;
        let volume = if real { Volume::real(mib, line) } else { Volume::small(mib, line) };
        let mut run = Self {
            rng: Rng::new(seed),
            seed,
            line: format!("{mib} MiB, {line}"),
            volume,
            tree: Tree::default(),
            fs: None,
            done: 0,
            full: 0,
            crowded: false,
        };
        run.open();
        let fs = run.fs.as_ref().unwrap();
        run.tree = Tree::new(fs);
        run
    }

    /// The run's position, for messages.
    fn at(&self) -> String {
        format!("seed {} ({}), operation {}", self.seed, self.line, self.done)
    }

    fn volume_is_small(&self) -> bool {
        std::fs::metadata(&self.volume.path).unwrap().len() < 100 << 20
    }

    fn open(&mut self) {
        self.tree.now += 1 + self.rng.below(1000) as i64;
        // Sometimes a small cache, so that blocks are read repeatedly.
        let cache = [64 << 20, 1 << 20, 64 << 10][self.rng.index(3)];
        self.fs = Some(self.volume.open_at(self.tree.now, cache));
    }

    fn close(&mut self) {
        if let Some(fs) = self.fs.take() {
            fs.close().unwrap_or_else(|e| panic!("{}: closing: {e}", self.at()));
        }
    }

    /// Compares the whole volume with the model, runs xfsprogs, and continues.
    fn check(&mut self) {
        let at = self.at();
        let fs = self.fs.as_ref().unwrap();
        self.tree.compare(fs, &at);
        self.close();
        self.volume.judge(&at);
        self.open();
        self.tree.compare(self.fs.as_ref().unwrap(), &format!("{at}, reopened"));
    }

    /// Leaves the volume so little space that it is sometimes full.
    fn fill_directory(&mut self) {
        self.crowded = true;
        let fs = self.fs.as_ref().unwrap();
        let room = fs.available_blocks() * u64::from(self.tree.block_size);
        let ballast = vec![0xba; room.saturating_sub(700 << 10) as usize];
        self.add_ballast(&ballast);
    }

    fn go(&mut self, ops: u64) {
        if self.seed.is_multiple_of(2) && self.volume_is_small() {
            self.fill_directory();
        }
        for _ in 0..ops {
            self.step();
            self.done += 1;
            match self.rng.below(400) {
                0 => self.check(),
                1..=4 => {
                    let synced = self.fs.as_ref().unwrap().sync();
                    synced.unwrap_or_else(|e| panic!("{}: sync: {e}", self.at()));
                }
                _ => {}
            }
        }
        self.check();
    }
}

fn run_all(from: usize, rounds: u64, ops: u64) -> Vec<Run> {
    let base = setting("UXFS_SEED", 0);
    let mut runs = Vec::new();
    for round in 0..rounds {
        for (at, make) in MATRIX.iter().enumerate().skip(from).step_by(2) {
            let seed = base.wrapping_mul(1 << 20) + round * 1000 + at as u64;
            let only = setting("UXFS_ONLY", u64::MAX);
            if only != u64::MAX && only != seed {
                continue;
            }
            let mut run = Run::new(*make, seed);
            run.go(ops);
            if round == 0 {
                run.close();
                runs.push(run);
            }
            if std::env::var_os("UXFS_ROUNDS").is_some() {
                println!(
                    "seed {seed} ({}): full {} times",
                    make.2,
                    runs.last().map_or(0, |r| r.full)
                );
            }
        }
    }
    runs
}

/// The kernel sees the same trees as the library.
fn agree(kernel: Kernel, runs: &[Run]) {
    // Not every kernel mounts larger blocks, and kernels warn about full groups.
    let small = |run: &&Run| run.tree.block_size <= 4096 && !run.crowded;
    let some: Vec<&Run> = runs.iter().filter(small).collect();
    let images: Vec<_> = some.iter().map(|run| run.volume.path.as_path()).collect();
    let theirs = listing::of_kernel(kernel, &images);
    for (run, theirs) in some.iter().zip(&theirs) {
        let ours: Listing = listing::list(&run.volume.open_read_only());
        println!("{}: {} entries", run.at(), ours.entries.len());
        ours.assert_same(theirs, Fields::ALL - Fields::SPACE);
    }
}

#[test]
fn random_operations_agree_with_a_model() {
    let runs = run_all(0, setting("UXFS_ROUNDS", 1), setting("UXFS_OPS", 1200));
    agree(Kernel::Stable, &runs);
}

#[test]
fn random_operations_agree_with_a_model_and_the_current_kernel() {
    let runs = run_all(1, setting("UXFS_ROUNDS", 1), setting("UXFS_OPS", 1200));
    agree(Kernel::Current, &runs);
}
