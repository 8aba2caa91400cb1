//! Real time, without root: what uxfs does on a file is judged, and nothing is left behind.

use super::Peer;
use crate::experiments;
use crate::plan::{How, Quiet};

#[test]
fn uxfs_on_a_file_keeps_its_word_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut how = How::new(3);
    how.on = vec![Peer::Dir(dir.path().into())];
    // Nothing of the directory's own file system: a sync of it would be one of the whole machine.
    how.only = "8 threads, 4 KiB, fsync each / uxfs".into();
    how.cuts = 6;
    let found = experiments::run("fs-mark", &how, &Quiet).unwrap();
    assert_eq!((found.name.as_str(), found.rows.len()), ("fs-mark-real", 1), "{found}");
    let durability = found.rows[0].durability.as_ref().unwrap();
    assert!(!durability.failed && durability.flushes > 0, "{durability:?}");
    assert_eq!((durability.cuts, durability.lost, durability.unsound), (6, 0, 0), "{durability:?}");
    assert_eq!(found.rows[0].worth, "stable storage", "{durability:?}");
    assert!(found.about.contains("not repeatable"), "{}", found.about);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn peers_are_known_by_their_words() {
    for word in ["kernel:xfs", "kernel:ext4", "kernel:btrfs", "dir:/srv/data"] {
        assert_eq!(word.parse::<Peer>().unwrap().to_string(), word);
    }
    for word in ["", "xfs", "kernel:", "kernel:zfs", "dir:", "disk:/dev/sda"] {
        let error = word.parse::<Peer>().unwrap_err().to_string();
        assert!(error.contains("kernel:xfs") && error.contains("dir:PATH"), "{error}");
    }
}

#[test]
fn what_has_no_real_time_says_so() {
    let mut how = How::new(1);
    how.on = vec![Peer::Dir("/nowhere/at/all".into())];
    let error = experiments::run("mail", &how, &Quiet).unwrap_err().to_string();
    assert!(error.contains("tar-star"), "{error}");
    let error = experiments::run("fs-mark", &how, &Quiet).unwrap_err().to_string();
    assert!(error.contains("not a directory"), "{error}");
}
