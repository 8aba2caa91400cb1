//! Directories of volumes whose names compare without case: what a kernel would not find is
//! reported.

use uxfs::{Fs, NewInode};
use uxfs_check::code;
use uxfs_format::Ino;
use uxfs_format::dir::FileType;
use uxfs_oracle::{Xfsprogs, both};

use crate::volume::{Volume, examine};

/// Links in a new directory to one file.
fn links(fs: &Fs, dir: &str, names: impl Iterator<Item = String>) -> Ino {
    let dir = fs.create(fs.root(), dir.as_bytes(), &NewInode::dir(0o755)).unwrap();
    let file = fs.create(dir, b"file", &NewInode::file(0o644)).unwrap();
    for name in names {
        fs.link(file, dir, name.as_bytes()).unwrap();
    }
    dir
}

fn numbered(stem: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{stem}-{number}"))
}

/// A directory in block, leaf or node form whose names are in lower case passes, and one with other
/// names does not: its hashes are those of the names as they are written.
#[test]
fn hashes_of_unlowered_names_are_reported() {
    for count in [30, 300, 3000] {
        for (stem, sound) in [("lower", true), ("Upper", false)] {
            let volume = Volume::small(96, "");
            let fs = volume.open();
            links(&fs, "dir", numbered(stem, count));
            fs.close().unwrap();
            volume.clean("before");
            volume.ignore_case();
            let at = format!("{count} names as {stem}");
            let report = examine(&volume.path).unwrap();
            assert_eq!(report.is_clean(), sound, "{at}: {report}");
            assert_eq!(both(&volume.path).is_ok(), sound, "{at}");
            // The index of block form is part of the data block.
            let code = if count < 100 { code::DIR_BLOCK } else { code::DIR_HASH };
            assert_eq!(report.has(code), !sound, "{at}: {report}");
        }
    }
}

/// A name in two spellings, in a directory of each form. The engine finds and removes the entry
/// that is spelled as it was asked.
#[test]
fn names_that_differ_by_case_are_one_name_twice() {
    for count in [2, 30, 300, 3000] {
        let at = format!("{count} names");
        let volume = Volume::small(96, "-n version=ci");
        let fs = volume.open();
        let dir = links(&fs, "dir", numbered("name", count));
        let twin = fs.create(fs.root(), b"twin", &NewInode::file(0o644)).unwrap();
        fs.link(twin, fs.root(), b"twin too").unwrap();
        // Only a repair enters a name without a lookup.
        fs.restore_entry(dir, b"NAME-1", twin, FileType::Regular).unwrap();
        let file = fs.lookup(dir, b"FILE").unwrap();
        let found = [&b"name-1"[..], b"NAME-1"].map(|name| fs.lookup(dir, name).unwrap());
        assert_eq!(found, [file, twin], "{at}");
        assert!([file, twin].contains(&fs.lookup(dir, b"Name-1").unwrap()), "{at}");
        fs.close().unwrap();
        let report = examine(&volume.path).unwrap();
        assert!(report.has(code::DIR_DOUBLE), "{at}: {report}");
        let fs = volume.open();
        fs.unlink(dir, b"NAME-1").unwrap();
        assert_eq!(fs.lookup(dir, b"NAME-1").unwrap(), file, "{at}");
        fs.close().unwrap();
        let report = examine(&volume.path).unwrap();
        assert!(!report.has(code::DIR_DOUBLE), "{at}: {report}");
    }
}

#[test]
fn volumes_of_all_kinds_are_clean() {
    for line in ["-n version=ci", "-n version=ci,parent=1 -b size=1024 -m rmapbt=1"] {
        let volume = Volume::small(96, line);
        let fs = volume.open();
        crate::volume::fill(&fs);
        links(&fs, "Many", numbered("Some-Name", 3000));
        fs.close().unwrap();
        volume.clean(line);
        Xfsprogs::Current.repair(&volume.path).unwrap_or_else(|f| panic!("{line}: {f}"));
    }
}
