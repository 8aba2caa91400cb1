//! Mounts of volumes whose names compare without case: the kernel's cache of names is never stale.

use std::fs;
use std::io::ErrorKind;

use crate::rig::{Image, Ours, Volume, transports};

#[test]
fn names_are_the_same_in_any_case() {
    for transport in transports() {
        let volume = Ours::of(Image::new(320 << 20, &["-n", "version=ci"]), transport);
        let dir = volume.dir();
        let missing = |name: &str| {
            let found = fs::metadata(dir.join(name));
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let content = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        // What did not exist in one spelling exists, when it is made in another.
        assert!(missing("Readme") && missing("README"));
        fs::write(dir.join("Readme"), "one").unwrap();
        assert_eq!((content("Readme"), content("README"), content("readme")), same("one"));
        let made = fs::create_dir(dir.join("readME"));
        assert_eq!(made.unwrap_err().kind(), ErrorKind::AlreadyExists);
        // A change under one spelling is seen under the others, which the kernel has looked up.
        fs::write(dir.join("READme"), "two").unwrap();
        assert_eq!((content("Readme"), content("README"), content("readme")), same("two"));
        fs::remove_file(dir.join("readme")).unwrap();
        assert!(missing("Readme") && missing("README") && missing("readme") && missing("READme"));
        fs::write(dir.join("README"), "three").unwrap();
        assert_eq!((content("Readme"), content("README"), content("readme")), same("three"));
        fs::rename(dir.join("readme"), dir.join("Other")).unwrap();
        assert!(missing("Readme") && missing("README"));
        assert_eq!((content("Other"), content("OTHER"), content("other")), same("three"));
        // As on the kernel's XFS, the spelling of an entry stays.
        fs::rename(dir.join("other"), dir.join("OTHER")).unwrap();
        let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["Other"]);
        // Directories, which the kernel knows under one name at a time.
        fs::create_dir_all(dir.join("Dir/Below")).unwrap();
        fs::write(dir.join("dIR/bELOW/File"), "four").unwrap();
        assert_eq!(
            (content("Dir/Below/File"), content("DIR/BELOW/FILE")),
            ("four".into(), "four".into())
        );
        fs::rename(dir.join("DIR/below"), dir.join("moved")).unwrap();
        assert!(missing("Dir/Below") && missing("dir/BELOW"));
        assert_eq!(content("MOVED/file"), "four");
        fs::remove_dir(dir.join("dir")).unwrap();
        assert!(missing("Dir"));
        volume.unmount().judge();
    }
}

/// The same content for three spellings.
fn same(content: &str) -> (String, String, String) {
    (content.to_owned(), content.to_owned(), content.to_owned())
}
