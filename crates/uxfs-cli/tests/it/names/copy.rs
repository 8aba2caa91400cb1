//! `xfs_copy`, beside that of xfsprogs. What is in the copies is tested in `uxfs-metadump`.

use uxfs_oracle::Xfsprogs::Current;

use super::Both;

#[test]
fn xfs_copy_is_that_of_xfsprogs() {
    let both = super::zoo();
    both.0.sh("echo text >theirs/there; : >theirs/empty-target");
    for name in ["there", "empty-target"] {
        both.share(name);
    }
    both.all_alike(
        "xfs_copy",
        &[
            &["clean", "c1"][..],
            &["clean", "c2", "c3", "there"],
            &["-d", "small", "c4"],
            &["-bd", "-L", "log", "old", "c5", "empty-target"],
            &["-d", "clean", "c1"],
            &["dirty", "c6"],
            &["missing", "c7"],
            &["noise", "c7"],
            &["zeroes", "c7"],
            &["empty", "c7"],
            &["dir", "c7"],
            &["superblock", "c7"],
            &["clean", "dir"],
            &["clean", "missing/c8"],
            &["clean"],
            &[],
            &["-z", "clean", "c9"],
            &["-L"],
            &["-L", "missing/log", "clean", "c9"],
        ],
    );
    for name in ["c1", "c4", "c5", "empty-target", "log"] {
        assert!(both.same_bytes(name), "{name}");
    }
    for name in ["c2", "c3", "there"] {
        both.0.check(&format!("ours/{name}"));
        both.alike("xfs_admin", &["-l", name]);
    }
    let uuids: Vec<String> =
        ["clean", "c1", "c2", "c3"].map(|name| both.ours("xfs_admin", &["-u", name]).good()).into();
    assert_eq!(uuids[0], uuids[1]);
    assert!(uuids[1] != uuids[2] && uuids[2] != uuids[3], "{uuids:?}");
    assert!(both.ours("xfs_copy", &["dirty", "c6"]).bad(1).contains("the log is dirty"));
    assert!(!both.0.path("ours/c6").exists());
    // The real one writes over the source, or two copies over each other.
    for args in [&["clean", "clean"][..], &["clean", "ours-link"], &["clean", "c10", "c10"]] {
        both.0.sh("ln -sf clean ours/ours-link");
        both.ours("xfs_copy", args).bad(1);
    }
    assert!(both.same_bytes("clean") && !both.0.path("ours/c10").exists());
    // What both tools made is a volume for the other.
    let repair = Current.program("xfs_repair").display().to_string();
    both.0.sh(&format!("{repair} -n ours/c2 >/dev/null 2>&1"));
}

/// A device that is too short fails, and the other target is made.
#[test]
fn devices_are_written_if_they_have_room() {
    assert!(rustix::process::geteuid().is_root(), "only root can make a loop device");
    let both = Both::new();
    both.volume("a", &[]);
    both.0.sh("truncate -s 300m ours/short");
    let device = both.0.sh("losetup -f --show ours/short").trim().to_owned();
    let ran = both.ours("xfs_copy", &["a", &device, "fine"]);
    both.0.sh(&format!("losetup -d {device}"));
    assert!(ran.code == 1 && ran.err.contains("the target has 314572800"), "{ran:?}");
    both.0.check("ours/fine");
    both.ours("xfs_metadump", &["-o", "a", "dump"]).good();
    both.0.sh("truncate -s 320m ours/room");
    let device = both.0.sh("losetup -f --show ours/room").trim().to_owned();
    let copied = both.ours("xfs_copy", &["a", &device]);
    let checked = both.0.run(&["xfs_repair", "-n", &device]);
    let restored = both.ours("xfs_mdrestore", &["dump", &device]);
    both.0.sh(&format!("losetup -d {device}"));
    assert_eq!((copied.code, restored.code), (0, 0), "{copied:?} {restored:?} {checked:?}");
    both.0.check("ours/room");
}
