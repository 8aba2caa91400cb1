//! Volumes and groups that are all but full: an operation that finds no space changes nothing, and one that
//! can have space elsewhere, or a moment later, succeeds.

use uxfs_format::AgNo;
use uxfs_testkit::Rng;

use super::{alloc_all_free, free_extents, volume, volume_with};
use crate::OpenOptions;
use crate::ops::NewInode;

/// A truncation that has to copy a shared block waits for blocks whose freeing is not durable yet.
#[test]
fn a_truncate_takes_blocks_that_were_just_freed() {
    let volume = volume_with(&["-m", "rmapbt=1"], OpenOptions::default());
    let fs = &volume.fs;
    let file = |name: &[u8]| fs.create(fs.root(), name, &NewInode::file(0o600)).unwrap();
    let (one, two) = (file(b"one"), file(b"two"));
    fs.write_at(one, 0, &[1; 1 << 20]).unwrap();
    fs.clone_file(one, two).unwrap();
    let gone = file(b"gone");
    fs.write_at(gone, 0, &[1; 1 << 20]).unwrap();
    fs.sync().unwrap();
    let mut rng = Rng::new(10);
    let groups = (0..fs.geo.ag_count).map(AgNo);
    let taken: Vec<_> = groups.map(|ag| (ag, alloc_all_free(fs, ag, 1 << 20, &mut rng))).collect();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.truncate(two, 100_000).unwrap();
    let mut all = vec![0; 200_000];
    assert_eq!(fs.read_at(two, 0, &mut all).unwrap(), 100_000);
    assert!(all[..100_000].iter().all(|byte| *byte == 1));
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}
