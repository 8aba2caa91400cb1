//! The same random operations on the mount and on the kernel's XFS, compared after each batch. A failure
//! prints how to repeat it; `UXFS_SEED` sets the seed and `UXFS_BATCHES` the number of batches.

use std::path::Path;

use uxfs_oracle::ager::Ager;
use uxfs_oracle::{Fields, lister};

use crate::rig::{Image, Ours, Theirs, Volume, transport};

const SIZE: u64 = 512 << 20;
const OPS: u32 = 150;

/// Operations that FUSE does not forward.
const LEFT_OUT: [&str; 3] = ["clone", "collapse", "insert"];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The mount and a kernel mount of two volumes made with the same options.
struct Pair {
    ours: Option<Box<Ours>>,
    theirs: Box<Theirs>,
    /// The next mount's number, which chooses the way in which requests come.
    mounts: u64,
    /// How to repeat a failure.
    name: String,
}

impl Pair {
    fn new(seed: u64, mkfs: &[&str]) -> Self {
        Self {
            ours: Some(Box::new(Ours::of(Image::new(SIZE, mkfs), transport(seed)))),
            theirs: Box::new(Theirs::of(Image::new(SIZE, mkfs), "")),
            mounts: seed + 1,
            name: format!("UXFS_SEED={seed}, mkfs.xfs {}", mkfs.join(" ")),
        }
    }

    fn dirs(&self) -> [std::path::PathBuf; 2] {
        [self.ours.as_ref().unwrap().dir(), self.theirs.dir()]
    }

    fn compare(&self, when: &str) {
        let [ours, theirs] = self.dirs().map(|dir| lister::list(&dir).unwrap());
        // Times differ.
        let differences = theirs.differences(&ours, Fields::TREE - Fields::MTIME);
        assert!(differences.is_empty(), "{}, {when}:\n{}", self.name, differences.join("\n"));
    }

    /// Mounts both again, so that everything is read from the disk.
    fn mount_again(&mut self) {
        let image = self.ours.take().unwrap().unmount();
        image.judge();
        self.ours = Some(Box::new(Ours::of(image, transport(self.mounts))));
        self.mounts += 1;
    }

    fn end(mut self) {
        self.mount_again();
        self.compare("mounted again");
        self.ours.take().unwrap().end();
        self.theirs.end();
    }
}

/// Ages a directory, and returns what was done.
fn age(dir: &Path, seed: u64, name: &str) -> String {
    let mut ager = Ager::new(dir, seed).unwrap().without(&LEFT_OUT);
    ager.run(OPS).unwrap_or_else(|e| panic!("{name}: {dir:?}: {e}"));
    ager.report()
}

fn compare(seed: u64, mkfs: &[&str]) {
    let mut pair = Pair::new(seed, mkfs);
    for batch in 0..setting("UXFS_BATCHES", 4) {
        let done = pair.dirs().map(|dir| age(&dir, seed + batch, &pair.name));
        pair.compare(&format!("batch {batch}\nmount:  {}\nkernel: {}", done[0], done[1]));
        if batch % 3 == 1 {
            pair.mount_again();
        }
    }
    pair.end();
}

#[test]
fn mount_and_kernel_agree() {
    compare(setting("UXFS_SEED", 1), &[]);
}

#[test]
fn with_small_blocks() {
    compare(setting("UXFS_SEED", 20_261_121), &["-b", "size=1k", "-n", "size=4k"]);
}

#[test]
fn with_few_features() {
    compare(setting("UXFS_SEED", 77), &["-m", "reflink=0,rmapbt=0,finobt=0", "-i", "size=1024"]);
}

/// Four threads, each in its own directory, so that the result does not depend on their order.
#[test]
fn four_mounts_at_once_agree() {
    let seed = setting("UXFS_SEED", 4);
    let mut pair = Pair::new(seed, &[]);
    for batch in 0..setting("UXFS_BATCHES", 2) {
        for dir in pair.dirs() {
            std::thread::scope(|scope| {
                for each in 0..4 {
                    let (dir, name) = (dir.join(format!("part{each}")), &pair.name);
                    scope.spawn(move || {
                        std::fs::create_dir_all(&dir).unwrap();
                        age(&dir, seed + 100 * each + batch, name);
                    });
                }
            });
        }
        pair.compare(&format!("batch {batch}"));
    }
    pair.mount_again();
    pair.end();
}
