//! Tests of experiments in real time without root: uxfs on a file is checked, and no file is left
//! behind.

use super::Peer;
use crate::experiments;
use crate::plan::{How, NoProgress};

#[test]
fn uxfs_on_a_file_is_stable_and_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut how = How::new(3);
    how.on = vec![Peer::Dir(dir.path().into())];
    // Leave out the row of the directory itself: it would sync the host's file system.
    how.only = "8 threads, 4 KiB, fsync each / uxfs".into();
    how.cuts = 6;
    let found = experiments::run("fs-mark", &how, &NoProgress).unwrap();
    assert_eq!((found.name.as_str(), found.rows.len()), ("fs-mark-real", 1), "{found}");
    let durability = found.rows[0].durability.as_ref().unwrap();
    assert!(!durability.failed && durability.flushes > 0, "{durability:?}");
    assert_eq!((durability.cuts, durability.lost, durability.unsound), (6, 0, 0), "{durability:?}");
    assert_eq!(found.rows[0].worth, "stable storage", "{durability:?}");
    assert!(found.about.contains("not repeatable"), "{}", found.about);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn peers_are_parsed_and_errors_list_the_forms() {
    for word in ["kernel:xfs", "kernel:ext4", "kernel:btrfs", "dir:/srv/data"] {
        assert_eq!(word.parse::<Peer>().unwrap().to_string(), word);
    }
    for word in ["", "xfs", "kernel:", "kernel:zfs", "dir:", "disk:/dev/sda"] {
        let error = word.parse::<Peer>().unwrap_err().to_string();
        assert!(error.contains("kernel:xfs") && error.contains("dir:PATH"), "{error}");
    }
}

#[test]
fn experiments_without_real_time_are_refused() {
    let mut how = How::new(1);
    how.on = vec![Peer::Dir("/nowhere/at/all".into())];
    let error = experiments::run("mail", &how, &NoProgress).unwrap_err().to_string();
    assert!(error.contains("tar-star") && error.contains("compile"), "{error}");
    let error = experiments::run("fs-mark", &how, &NoProgress).unwrap_err().to_string();
    assert!(error.contains("not a directory"), "{error}");
}

/// Every workload runs on a directory through system calls. The directory is on tmpfs, so that its sync
/// does not concern other file systems.
#[test]
fn every_workload_runs_in_a_directory() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut how = How::new(3);
    how.on = vec![Peer::Dir(dir.path().into())];
    how.cuts = 2;
    let trace = dir.path().join("trace.gz");
    let text = "uxfs-trace 1\n# a test\np 0 a\np 1 b\np 1 c\nd 1\nf 2 5000\nO 2\nR 2 0 5000\nC 3\n\
                W 3 0 70000\nS 3\nK 3\nN 3 2\nA 2\nG 2\nM 3\nE 1\nL 2 3\nU 2\nw 5\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    std::fs::write(&trace, packed.finish().unwrap()).unwrap();
    how.trace = Some(trace);
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    (0..30).for_each(|n| std::fs::write(tree.join(format!("sub/{n}")), vec![7; n * 900]).unwrap());
    how.tar = Some(tree);
    for (name, only, rows) in [
        ("fs-mark", "8 threads, 4 KiB, fsync each", 2),
        ("tar-star", "", 7),
        ("barriers", " barrier", 2),
        ("git", "", 2),
        ("compile", "", 2),
    ] {
        how.only = only.trim().into();
        let found = experiments::run(name, &how, &NoProgress).unwrap();
        let is_dir = |row: &&crate::outcome::Row| row.name.starts_with("dir:");
        assert_eq!(found.rows.len(), rows + usize::from(name == "barriers"), "{found}");
        assert!(found.rows.iter().any(|row| is_dir(&row)), "{found}");
        for row in found.rows.iter() {
            assert!(!row.failed && row.cells[0].ours.is_some(), "{found}");
            let calls = is_dir(&row) && row.checked == "not checked";
            assert!(calls || row.durability.is_some(), "{found}");
        }
    }
    // Only the trace and the tree are left.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}
