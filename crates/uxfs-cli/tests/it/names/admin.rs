//! `xfs_admin`: what it shows, and the bytes that it sets.

use std::fs;

use uxfs_oracle::Xfsprogs::Current;

use super::{Both, SHOWN, zoo};
use crate::fsck::dirty;

#[test]
fn xfs_admin_shows_what_that_of_xfsprogs_shows() {
    let both = zoo();
    for option in ["-l", "-lu"] {
        let cases = SHOWN.map(|file| [option, file]);
        both.all_alike("xfs_admin", &cases.each_ref().map(|args| &args[..]));
        assert!(both.ours("xfs_admin", &[option, "superblock"]).bad(1).contains("checksum"));
    }
    for args in
        [&[][..], &["clean"], &["-l"], &["-z", "clean"], &["-u", "-f", "-l", "clean"], &["-L"]]
    {
        both.alike("xfs_admin", args);
    }
}

#[test]
fn xfs_admin_sets_the_bytes_that_that_of_xfsprogs_sets() {
    let both = zoo();
    for file in ["clean", "old", "small"] {
        for label in ["new", "a-longer-label", "exactly12byt", "--"] {
            both.alike("xfs_admin", &["-L", label, file]);
            assert!(both.same_bytes(file), "{file}, label {label}");
            both.alike("xfs_admin", &["-l", file]);
        }
        // xfsprogs would set nothing.
        let said = both.ours("xfs_admin", &["-L", "x y", "-l", file]).good();
        assert_eq!(said, "writing all SBs\nnew label = \"x y\"\nlabel = \"x y\"\n");
        both.0.check(&format!("ours/{file}"));
    }
}

/// The superblocks of a volume, as xfs_db shows them, but for the checksums.
fn superblocks(both: &Both, dir: &str, file: &str) -> Vec<String> {
    let image = both.0.path(dir).join(file);
    let of = |ag: u32| Current.db(&image, &[&format!("sb {ag}"), "print"]);
    (0..4).map(of).collect()
}

#[test]
fn xfs_admin_sets_uuids_that_xfsprogs_accepts() {
    const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";
    let both = zoo();
    for file in ["clean", "old"] {
        let made = superblocks(&both, "theirs", file);
        for uuid in [UUID, "c1b9d5a2-f162-11cf-9ece-0020afc76f16", "nil", "restore"] {
            both.alike("xfs_admin", &["-U", uuid, file]);
            both.alike("xfs_admin", &["-u", file]);
            assert_eq!(
                superblocks(&both, "ours", file),
                superblocks(&both, "theirs", file),
                "{uuid}"
            );
            both.0.check(&format!("ours/{file}"));
            // It is still a volume that can be written to, and whose log recovers.
            if uuid == UUID {
                dirty(&both.0.path("ours").join(file), 20);
                assert_eq!(both.0.uxfs(&["fsck", "-a", &format!("ours/{file}")]).code, 1);
                both.0.check(&format!("ours/{file}"));
                both.0.sh(&format!("cp --sparse=always ours/{file} theirs/{file}"));
            }
        }
        assert_ne!(superblocks(&both, "ours", file), made, "the files that were made are counted");
        let new = both.ours("xfs_admin", &["-U", "generate", file]).good();
        let uuid = new.trim().rsplit(' ').next().unwrap().to_owned();
        assert_eq!(both.ours("xfs_admin", &["-u", file]).good(), format!("UUID = {uuid}\n"));
        both.0.check(&format!("ours/{file}"));
    }
    both.alike("xfs_admin", &["-U"]);
    // xfsprogs ends with success.
    assert!(both.ours("xfs_admin", &["-U", "nonsense", "clean"]).bad(1).contains("nonsense"));
}

/// Label and UUID are not changed where the log's replay would undo it, and damaged volumes stay as they
/// are.
#[test]
fn xfs_admin_refuses_dirty_logs_and_damage() {
    let both = zoo();
    for (file, why) in [
        ("dirty", "the log is dirty"),
        ("superblock", "superblock"),
        ("noise", "not an XFS"),
        ("missing", "no such file"),
    ] {
        for option in ["-L", "-U"] {
            let before = fs::read(both.0.path("ours").join(file)).unwrap_or_default();
            let value = "01234567-89ab-4def-8123-456789abcdef";
            let said = both.ours("xfs_admin", &[option, value, file]).bad(1);
            assert!(said.to_lowercase().contains(&why.to_lowercase()), "{file}: {said}");
            assert!(
                before == fs::read(both.0.path("ours").join(file)).unwrap_or_default(),
                "{file}"
            );
        }
    }
}

/// The feature words of all superblocks.
fn features(both: &Both, dir: &str, file: &str) -> String {
    let image = both.0.path(dir).join(file);
    let of = |ag: u32| {
        let print = ["features_ro_compat", "features_incompat"].map(|f| format!("print {f}"));
        Current.db(&image, &[&format!("sb {ag}"), &print[0], &print[1]])
    };
    (0..4).map(of).collect()
}

#[test]
fn xfs_admin_adds_the_features_that_that_of_xfsprogs_adds() {
    let both = Both::new();
    let old = [
        "-m",
        "bigtime=0,inobtcount=0",
        "-i",
        "nrext64=0,exchange=0",
        "-n",
        "parent=0",
        "-b",
        "size=1k",
    ];
    both.volume("old", &old);
    both.volume(
        "none",
        &[
            "-m",
            "bigtime=0,finobt=0,reflink=0,rmapbt=0",
            "-i",
            "exchange=0,nrext64=0",
            "-n",
            "parent=0",
        ],
    );
    // Inode trees of several blocks.
    both.0.sh("mkdir tree && cd tree && seq 20000 | xargs touch");
    both.0.uxfs(&["import", "tree", "ours/old"]).good();
    both.0.sh("cp --sparse=always ours/old theirs/old");
    for file in ["old", "none"] {
        for wanted in ["bigtime=1", "inobtcount=1", "nrext64=1", "exchange=1"] {
            let args = ["-O", wanted, file];
            let (ours, theirs) = (both.ours("xfs_admin", &args), both.theirs("xfs_admin", &args));
            let (_, said) = theirs.out.split_once('\n').unwrap();
            // xfsprogs reports success without adding what needs another feature.
            if file == "none" && ["inobtcount=1", "exchange=1"].contains(&wanted) {
                assert!(ours.bad(1).contains("cannot be added to a volume without"), "{said}");
            } else {
                assert_eq!((ours.code, &*ours.out), (0, said), "{wanted}: {}", ours.err);
            }
            assert_eq!(features(&both, "ours", file), features(&both, "theirs", file), "{wanted}");
            both.0.check(&format!("ours/{file}"));
        }
    }
    // xfs_repair stops at a feature that is there already.
    let said = both.ours("xfs_admin", &["-O", "nrext64=1,bigtime=1", "old"]).good();
    assert_eq!(said.lines().filter(|line| line.contains("already")).count(), 2, "{said}");
    let blocks = Current.db(&both.0.path("ours/old"), &["agi 0", "print ino_blocks fino_blocks"]);
    let counts: Vec<u32> =
        blocks.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(counts[0] > 2 && counts[1] > 0, "{blocks}");
    // It is still a volume that can be written to, and whose log recovers.
    dirty(&both.0.path("ours/old"), 20);
    assert_eq!(both.0.uxfs(&["fsck", "-a", "ours/old"]).code, 1);
    both.0.check("ours/old");
}

#[test]
fn xfs_admin_adds_no_feature_to_damaged_or_dirty_volumes() {
    let both = zoo();
    for (file, value, why) in [
        ("dirty", "bigtime=1", "dirty"),
        ("counter", "bigtime=1", "damaged"),
        ("agi", "inobtcount=1", "damaged"),
        ("old", "bigtime=0", "only supports upgrades"),
        ("old", "bigtime", "requires a parameter"),
        ("old", "bigtime=1,rmapbt=1", "no feature that can be added"),
        ("old", "bigtime=1,,", "no feature that can be added"),
        ("noise", "bigtime=1", "not an XFS"),
    ] {
        let before = fs::read(both.0.path("ours").join(file)).unwrap();
        let said = both.ours("xfs_admin", &["-O", value, file]).bad(1);
        assert!(said.contains(why), "{file} {value}: {said}");
        assert!(before == fs::read(both.0.path("ours").join(file)).unwrap(), "{file} {value}");
    }
    both.alike("xfs_admin", &["-O", "", "clean"]);
}
