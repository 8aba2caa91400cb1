//! `uxfs freeze` and `uxfs thaw`, and `xfs_freeze`.

use crate::fixture::Fixture;
use crate::mounts::with_dir;

/// Is the mount frozen, by its status?
fn status(fixture: &Fixture) -> String {
    let json = fixture.uxfs(&["status", "--json", "mnt"]).good();
    let status: serde_json::Value = serde_json::from_str(&json).expect("a document");
    status["frozen"].as_str().expect("yes or no").to_owned()
}

fn freezes(fixture: &Fixture, freeze: &[&str], thaw: &[&str]) {
    fixture.uxfs(&["mount", "-o", "noio_uring", "a.img", "mnt"]).good();
    fixture.sh("echo before >mnt/file");
    assert!(fixture.uxfs(thaw).bad(1).contains("not frozen"));
    assert_eq!(status(fixture), "no");
    fixture.uxfs(freeze).good();
    assert_eq!(status(fixture), "yes");
    assert!(fixture.uxfs(freeze).bad(1).contains("frozen already"));
    // More writers wait than the server has threads, and reads and the thaw are answered.
    fixture.sh("for n in $(seq 40); do (echo $n >mnt/n$n) 2>/dev/null >/dev/null & done; \
         cat mnt/file; cp a.img copy.img");
    fixture.check("copy.img");
    assert_eq!(fixture.uxfs(&["cat", "copy.img:/file"]).good(), "before\n");
    assert!(!fixture.uxfs(&["ls", "copy.img:/"]).good().contains("n1"));
    fixture.uxfs(thaw).good();
    assert_eq!(status(fixture), "no");
    // A writer that the thaw forgets fails the test instead of stopping it.
    fixture.sh("timeout 600 sh -c \
         'for n in $(seq 40); do while [ ! -s mnt/n$n ]; do sleep 0.01; done; done'");
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn a_frozen_mount_keeps_changes_for_the_thaw() {
    freezes(&with_dir(), &["freeze", "mnt"], &["thaw", "mnt"]);
}

#[test]
fn xfs_freeze_freezes_and_thaws() {
    freezes(&with_dir(), &["as", "xfs_freeze", "-f", "mnt"], &["as", "xfs_freeze", "-u", "mnt"]);
}

#[test]
fn what_is_no_mount_is_not_frozen() {
    let fixture = with_dir();
    fixture.uxfs(&["freeze", "mnt"]).bad(1);
    fixture.uxfs(&["thaw", "mnt"]).bad(1);
    fixture.uxfs(&["as", "xfs_freeze", "mnt"]).bad(2);
}
