//! Dumps of the real xfs_metadump: restored here as by the real xfs_mdrestore.

use std::path::Path;

use uxfs_format::metadump::{INDEX_LEN, Index};
use uxfs_metadump::DumpOptions;
use uxfs_oracle::Xfsprogs::{self, Current, Installed};

use crate::fixture::{NEW, beside, difference, dumped, filled, restored, run};
use crate::volume::{FEATURES, Volume};

/// Restores dumps of the real program with these options, here and by the real program.
fn same(volume: &Volume, release: Xfsprogs, options: &[&str], what: &str) {
    let (out, theirs, ours) =
        (beside(volume, "dump"), beside(volume, "theirs"), beside(volume, "ours"));
    let mut args: Vec<&Path> = options.iter().map(Path::new).collect();
    args.extend([volume.path.as_path(), &out]);
    run(release, "xfs_metadump", &args);
    run(release, "xfs_mdrestore", &[&out, &theirs]);
    restored(&std::fs::read(&out).unwrap(), &ours);
    if let Some(where_to) = difference(&ours, &theirs) {
        panic!("{what}, {options:?}, {release:?}: {where_to}");
    }
}

#[test]
fn dumps_of_xfs_metadump_are_restored_as_by_xfs_mdrestore() {
    let all: [&[&str]; 5] = [&[], &["-o"], &["-ao"], &["-v", "2"], &["-o", "-v", "2"]];
    for line in FEATURES {
        let volume = filled(line);
        for options in all {
            same(&volume, Current, options, line);
        }
        // Version 2 came later.
        for options in &all[..3] {
            same(&volume, Installed, options, line);
        }
    }
    for line in NEW {
        let volume = filled(line);
        for options in all {
            same(&volume, Current, options, line);
        }
    }
}

/// The addresses in a dump of version 1, in ascending order.
fn sectors(mut dump: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some((raw, rest)) = dump.split_first_chunk::<INDEX_LEN>() {
        let index = Index::parse(raw).unwrap();
        all.extend(index.addresses().iter().map(|daddr| daddr.0));
        dump = &rest[index.count * INDEX_LEN..];
    }
    all.sort_unstable();
    all
}

/// Both find the same metadata: every sector that is in one dump is in the other, and none twice.
#[test]
fn the_same_sectors_are_dumped() {
    for line in FEATURES.iter().chain(&NEW) {
        let volume = filled(line);
        let out = beside(&volume, "dump");
        run(Current, "xfs_metadump", &[Path::new("-ao"), &volume.path, &out]);
        let options = DumpOptions { whole_blocks: true, ..DumpOptions::default() };
        let ours = sectors(&dumped(&volume.path, &options).0);
        assert!(ours.is_sorted_by(|a, b| a < b), "{line}: a sector is in the dump twice");
        let theirs = sectors(&std::fs::read(&out).unwrap());
        assert!(ours == theirs, "{line}: {} and {} sectors", ours.len(), theirs.len());
    }
}

/// Version 4, which is not dumped here.
#[test]
fn dumps_of_version_4_are_restored() {
    let volume = Volume::empty();
    let options = "-m crc=0,finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0";
    let words: Vec<&str> = options.split_whitespace().collect();
    Installed.mkfs(&volume.path, 320 << 20, &words);
    for options in [&[][..], &["-o"]] {
        same(&volume, Installed, options, "version 4");
    }
}
