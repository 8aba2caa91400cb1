//! `xfs_growfs`, of an image as that of xfsprogs of a mounted volume.

use uxfs_oracle::Xfsprogs::Current;

use super::{Both, SIZE};
use crate::fixture::Fixture;

#[test]
fn xfs_growfs_grows_an_image() {
    let both = Both::new();
    both.volume("a", &[]);
    let before = both.ours("xfs_info", &["a"]).good();
    assert_eq!(both.ours("xfs_growfs", &["-n", "a"]).good(), before);
    assert_eq!(both.ours("xfs_growfs", &["a"]).good(), before);
    let blocks = SIZE / 4096;
    both.0.sh("truncate -s 512m ours/a");
    let more = blocks + 1000;
    let said = both.ours("xfs_growfs", &["-D", &more.to_string(), "a"]).good();
    assert_eq!(said, format!("{before}data blocks changed from {blocks} to {more}\n"));
    both.0.check("ours/a");
    let said = both.ours("xfs_growfs", &["a", "-d"]).good();
    assert!(
        said.ends_with(&format!("data blocks changed from {more} to {}\n", (512 << 20) / 4096))
    );
    both.0.check("ours/a");
    for (args, code, why) in [
        (&["-D", "1000000", "a"][..], 1, "too large, maximum is 131072"),
        (&["-D", "100", "a"], 1, "uxfs resize shrinks"),
        (&["-D", "x", "a"], 2, "number of blocks"),
        (&["dir"], 1, "no volume is mounted here"),
        (&["missing"], 1, "no such file"),
        (&[], 2, "no device or image given"),
        (&["-L", "100", "a"], 1, "-L: uxfs does not do this"),
    ] {
        both.0.sh("mkdir -p ours/dir");
        let ran = both.ours("xfs_growfs", args);
        assert!(ran.code == code && ran.err.contains(why), "{args:?}: {ran:?}");
    }
    for args in [&["-z", "a"][..], &["a", "b"], &["-D"]] {
        let (ours, theirs) = (both.ours("xfs_growfs", args), both.theirs("xfs_growfs", args));
        assert_eq!(ours.code, theirs.code, "{args:?}: {ours:?} {theirs:?}");
    }
}

/// What xfs_growfs of xfsprogs prints of a mounted volume, this one prints of an image. The host's kernel
/// mounts the volume, so it takes root; mkfs.xfs made it.
#[test]
fn xfs_growfs_is_that_of_xfsprogs_on_a_mount() {
    assert!(rustix::process::geteuid().is_root(), "only root can mount a volume to grow it");
    let both = Both::new();
    both.volume("a", &[]);
    let at = both.0.path("theirs");
    let mount = MountedVolume::new(&both.0, "theirs/a", "theirs/mnt");
    let blocks = SIZE / 4096;
    let sizes = ["81920", "82920", "90000", "90000", "131072", "131073"];
    assert_eq!(blocks.to_string(), sizes[0]);
    both.0.sh("truncate -s 512m ours/a theirs/a; losetup -c $(findmnt -no SOURCE theirs/mnt)");
    let theirs = |args: &[&str]| {
        let program = Current.program("xfs_growfs").display().to_string();
        let mut ran = both.0.run(&[&["env", "-C", "theirs", &program], args, &["mnt"]].concat());
        // The device's name stands where ours has the image's.
        if let Some((head, rest)) = ran.out.split_once(" isize=") {
            assert!(head.starts_with("meta-data=/dev/loop"), "{at:?}: {head}");
            ran.out = format!("{:<32} isize={rest}", "meta-data=a");
        }
        ran
    };
    let compare = |args: &[&str]| {
        let (ours, theirs) = (both.ours("xfs_growfs", &[args, &["a"]].concat()), theirs(args));
        assert_eq!(
            (&ours.out, ours.code),
            (&theirs.out, theirs.code),
            "{args:?} {ours:?} {theirs:?}"
        );
    };
    compare(&["-n"]);
    compare(&["-nd", "-D", "90000"]);
    sizes.iter().for_each(|size| compare(&["-D", size]));
    compare(&["-d"]);
    compare(&[]);
    drop(mount);
    both.0.check("ours/a");
    both.alike("xfs_info", &["a"]);
}

/// A volume that the host's kernel has mounted until it is dropped.
struct MountedVolume<'a>(&'a Fixture, &'static str);

impl<'a> MountedVolume<'a> {
    fn new(fixture: &'a Fixture, image: &str, at: &'static str) -> Self {
        fixture.sh(&format!("mkdir {at}; mount -o loop {image} {at}"));
        Self(fixture, at)
    }
}

impl Drop for MountedVolume<'_> {
    fn drop(&mut self) {
        // A failing test is reported already; a mount that stays shows by itself.
        let _ = self.0.run(&["umount", "-d", self.1]);
    }
}
