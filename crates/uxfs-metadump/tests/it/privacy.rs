//! A dump with other names shows none of the volume's: not in entries, link targets and attributes, and
//! not in what is left of earlier times.

use uxfs::{NewInode, XattrMode};
use uxfs_metadump::{DumpOptions, Names, Version};

use crate::fixture::{NEW, beside, dumped, holds, restored};
use crate::volume::{FEATURES, Volume};

/// Names with a word in them, of every length that has room for it, in directories of every form; and
/// the same in targets, attributes and values. Many are removed again.
fn secretive(line: &str) -> Volume {
    let volume = Volume::small(64, line);
    let fs = volume.open();
    let root = fs.root();
    for (dir, count) in [("secret-few", 3), ("secret-some", 150), ("secret-many", 1500)] {
        let dir = fs.create(root, dir.as_bytes(), &NewInode::dir(0o755)).unwrap();
        for number in 0..count {
            let name = format!("a secret {number}");
            let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
            if number % 50 == 1 {
                for attr in 0..number.min(60) {
                    let key = format!("user.secret/{attr:099}");
                    let value = "secret ".repeat(attr * 20 + 1);
                    fs.set_xattr(file, key.as_bytes(), value.as_bytes(), XattrMode::Any).unwrap();
                }
            }
            if number % 100 == 2 {
                let target = "/a secret/".repeat(number % 90 + 1);
                let name = format!("link, secret {number}");
                fs.symlink(dir, name.as_bytes(), target.as_bytes(), &NewInode::new(0o777)).unwrap();
            }
        }
        for number in (0..count).step_by(3) {
            fs.unlink(dir, format!("a secret {number}").as_bytes()).unwrap();
        }
    }
    fs.close().unwrap();
    volume
}

#[test]
fn no_name_is_left_in_a_dump_with_other_names() {
    for line in FEATURES.iter().chain(&NEW) {
        let volume = secretive(line);
        assert!(holds(&volume.path, b"secret"));
        let to = beside(&volume, "restored");
        for version in [Version::One, Version::Two] {
            let names = Some(Names::new(b"key"));
            let mut options = DumpOptions { version, names, ..DumpOptions::default() };
            let (bytes, ..) = dumped(&volume.path, &options);
            restored(&bytes, &to);
            assert!(!holds(&to, b"secret"), "{line:?}: a name is in the dump");
            // The test sees names: they are there if they are kept.
            options.names = None;
            restored(&dumped(&volume.path, &options).0, &to);
            assert!(holds(&to, b"secret"), "{line:?}");
        }
    }
}

/// Without unused bytes there is nothing of removed files either.
#[test]
fn what_is_not_in_use_is_cleared() {
    let volume = secretive("");
    let to = beside(&volume, "restored");
    let mut options = DumpOptions::default();
    restored(&dumped(&volume.path, &options).0, &to);
    assert!(holds(&to, b"a secret 1\0") || holds(&to, b"a secret 1\x01"));
    assert!(!holds(&to, b"a secret 999"), "a removed name is in the dump");
    options.whole_blocks = true;
    restored(&dumped(&volume.path, &options).0, &to);
    assert!(holds(&to, b"a secret 999"));
}
