//! `uxfs resize` and `xfs_growfs` of the directory of a mount: the volume grows while it is used.

use crate::fixture::Fixture;
use crate::mounts::with_dir;

fn blocks(fixture: &Fixture) -> u64 {
    let said = fixture.uxfs(&["as", "xfs_growfs", "-n", "mnt"]).good();
    let rest = said.split("data     =").nth(1).and_then(|rest| rest.split("blocks=").nth(1));
    rest.and_then(|rest| rest.split(',').next()).and_then(|blocks| blocks.parse().ok()).unwrap_or(0)
}

fn grows(options: &str) {
    let fixture = with_dir();
    fixture.uxfs(&["mount", "-o", options, "a.img", "mnt"]).good();
    fixture.sh("mkdir mnt/d; head -c 3000000 /dev/urandom >mnt/d/file; cp mnt/d/file kept");
    let first = blocks(&fixture);
    let image = std::fs::metadata(fixture.path("a.img")).map_or(0, |meta| meta.len());
    assert_eq!(first * 4096, image);
    // Beside a writer, to a size that is given, then to the length that the file has.
    fixture.sh("(for n in $(seq 200); do cp kept mnt/d/copy$((n % 20)); done; touch written) \
         >/dev/null 2>/dev/null &");
    let said = fixture.uxfs(&["resize", "mnt", "700M"]).good();
    assert_eq!(said, format!("mnt: grown from {image} to {} bytes\n", 700 << 20));
    assert_eq!(blocks(&fixture), 700 << 8);
    let said = fixture.uxfs(&["as", "xfs_growfs", "-D", "200000", "mnt"]).good();
    let (table, done) = said.split_at(said.rfind("data blocks").unwrap_or(0));
    assert_eq!(done, format!("data blocks changed from {} to 200000\n", 700 << 8));
    assert!(table.starts_with("meta-data=mnt "), "{table}");
    fixture.sh("truncate -s 1g a.img");
    fixture.uxfs(&["as", "xfs_growfs", "mnt"]).good();
    assert_eq!(blocks(&fixture), 1 << 18);
    fixture.sh("while [ ! -e written ]; do sleep 0.01; done");
    for (args, why) in [
        (&["resize", "mnt", "300M"][..], "can only grow"),
        (&["resize", "--minimize", "mnt"], "can only grow"),
        (&["as", "xfs_growfs", "-D", "1000", "mnt"], "can only grow"),
        (&["as", "xfs_growfs", "-r", "mnt"], "realtime"),
        (&["as", "xfs_growfs", "-L", "100", "mnt"], "-L"),
    ] {
        let said = fixture.uxfs(args).bad(1);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    // More than the volume had before.
    fixture.sh("head -c 700000000 /dev/zero >mnt/big; cmp kept mnt/d/file; cmp kept mnt/d/copy1");
    fixture.unmount("mnt");
    fixture.check("a.img");
    fixture.uxfs(&["mount", "-o", "ro", "a.img", "mnt"]).good();
    fixture.sh("cmp kept mnt/d/file; truncate -s 2g a.img");
    let said = fixture.uxfs(&["resize", "mnt"]).bad(1);
    assert!(said.contains("read-only") || said.contains("read only"), "{said}");
    fixture.unmount("mnt");
}

#[test]
fn a_mounted_volume_grows() {
    grows("rw");
}

#[test]
fn a_mounted_volume_grows_over_dev_fuse() {
    grows("noio_uring");
}

#[test]
fn a_frozen_mount_does_not_grow() {
    let fixture = with_dir();
    fixture.uxfs(&["mount", "-o", "noio_uring", "a.img", "mnt"]).good();
    fixture.uxfs(&["freeze", "mnt"]).good();
    assert!(fixture.uxfs(&["resize", "mnt", "700M"]).bad(1).contains("frozen"));
    fixture.uxfs(&["thaw", "mnt"]).good();
    fixture.uxfs(&["resize", "mnt", "700M"]).good();
    fixture.unmount("mnt");
    fixture.check("a.img");
}
