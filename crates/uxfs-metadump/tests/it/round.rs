//! Volumes with every kind of structure and set of features: dumped, restored by the real tools and by
//! this crate, and judged.

use std::path::Path;

use uxfs_metadump::{Restore, Version};
use uxfs_oracle::Finding;
use uxfs_oracle::Xfsprogs::{Current, Installed};
use uxfs_testkit::{RecordDev, Recording};

use crate::fixture::{NEW, beside, difference, dumped, filled, restored, run, shape, ways};
use crate::volume::{FEATURES, Volume, clean};

/// Judges an image.
pub(crate) type Judge = fn(&Path) -> Result<(), Finding>;

/// Dumps the volume in every way, restores each dump with the real tools and ours, and judges.
pub(crate) fn round(volume: &Volume, what: &str, judge: Judge) {
    let before = shape(&volume.path);
    let (out, theirs, ours) =
        (beside(volume, "dump"), beside(volume, "theirs"), beside(volume, "ours"));
    for version in [Version::One, Version::Two] {
        for (way, options) in ways(version) {
            let what = format!("{what}, {way}, {version:?}");
            let (bytes, summary, warnings) = dumped(&volume.path, &options);
            assert!(warnings.is_empty() && summary.withheld == 0, "{what}: {warnings:?}");
            let again = dumped(&volume.path, &options).0;
            assert!(bytes == again, "{what}: the second dump differs from the first");
            std::fs::write(&out, &bytes).unwrap();
            restored(&bytes, &ours);
            // The older release does not know version 2.
            let both = [Installed, Current];
            for release in if version == Version::One { &both[..] } else { &both[1..] } {
                run(*release, "xfs_mdrestore", &[&out, &theirs]);
                if let Some(where_to) = difference(&ours, &theirs) {
                    panic!("{what}, {release:?}: {where_to}");
                }
            }
            judge(&ours).unwrap_or_else(|finding| panic!("{what}: {finding}"));
            clean(&ours, &what);
            assert!(shape(&ours) == before, "{what}: the tree has another shape");
        }
    }
}

#[test]
fn volumes_of_all_features_are_dumped_and_restored() {
    for line in FEATURES {
        round(&filled(line), line, uxfs_oracle::both);
    }
}

#[test]
fn volumes_of_new_features_are_dumped_and_restored() {
    for line in NEW {
        round(&filled(line), line, uxfs_oracle::both);
    }
}

/// Fresh volumes: of the real mkfs.xfs, with a log stripe unit, blocks larger than an inode chunk.
#[test]
fn fresh_volumes_are_dumped_and_restored() {
    let volume = Volume::empty();
    for line in ["", "-b size=64k -i size=512", "-l sunit=64,size=64m", "-s size=4k -d agcount=5"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        Current.mkfs(&volume.path, 400 << 20, &words);
        round(&volume, line, uxfs_oracle::both);
    }
}

/// A power cut while a dump is restored over another volume: what is half written is marked.
#[test]
fn a_restored_volume_is_marked_until_it_is_whole() {
    let other = filled("").load();
    let dump = dumped(&filled("-m rmapbt=1").path, &ways(Version::Two)[1].1).0;
    let recorder: RecordDev<_> = RecordDev::new(other.clone());
    Restore::begin(&dump[..]).unwrap().run(&recorder, false, &mut |_| {}).unwrap();
    let run = Recording::new(other, recorder.take(), 512);
    let wrong = (0..run.len()).find(|at| {
        // No write but the first is at risk together with another one's mark.
        let risk = run.at_risk(*at);
        risk.len() > 1 && risk.contains(&0)
    });
    assert_eq!(wrong, None, "of {}", run.len());
    assert!(run.len() > 10);
}
