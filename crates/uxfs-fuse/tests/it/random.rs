//! The same random operations on the mount and on the kernel's XFS, compared after each batch.

use uxfs_oracle::ager::Ager;
use uxfs_oracle::{Fields, lister};

use crate::rig::{Ours, Theirs, Volume};

const SIZE: u64 = 512 << 20;
const BATCHES: u32 = 4;
const OPS: u32 = 150;

/// What FUSE does not pass on.
const LEFT_OUT: [&str; 3] = ["clone", "collapse", "insert"];

fn in_step(seed: u64) {
    let volumes: [Box<dyn Volume>; 2] =
        [Box::new(Ours::new(SIZE, "")), Box::new(Theirs::new(SIZE))];
    for batch in 0..BATCHES {
        let [ours, theirs] = [0, 1].map(|n: usize| {
            let dir = volumes[n].dir();
            let mut ager = Ager::new(&dir, seed + u64::from(batch)).unwrap().without(&LEFT_OUT);
            ager.run(OPS).unwrap_or_else(|e| panic!("seed {seed}, batch {batch}, side {n}: {e}"));
            (lister::list(&dir).unwrap(), ager.report())
        });
        let fields = Fields::TREE - Fields::MTIME;
        let differences = theirs.0.differences(&ours.0, fields);
        assert!(
            differences.is_empty(),
            "seed {seed}, batch {batch}:\n{}\nmount:  {}\nkernel: {}",
            differences.join("\n"),
            ours.1,
            theirs.1
        );
    }
    for volume in volumes {
        volume.end();
    }
}

#[test]
fn mount_and_kernel_stay_in_step() {
    for seed in [1, 20_261_121] {
        in_step(seed);
    }
}
