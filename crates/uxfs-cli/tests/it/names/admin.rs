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
