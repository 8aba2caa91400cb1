//! Directories as sources.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use uxfs_archive::{DirOptions, DirSource, Kind, Source, open};

use crate::tree;

#[test]
fn the_walk_is_sorted_and_follows_no_symbolic_link() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["b/x", "b.c", "a", "Z"] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), name).unwrap();
    }
    symlink("/", root.join("away")).unwrap();
    let paths: Vec<_> = tree::read(root).into_iter().map(|i| i.0.path).collect();
    assert_eq!(paths, [&b""[..], b"Z", b"a", b"away", b"b", b"b/x", b"b.c"]);
    // The root itself may be a symbolic link.
    symlink(root, root.join("self")).unwrap();
    assert_eq!(tree::read(&root.join("self")).len(), 8);
}

#[test]
fn deep_trees_need_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let depth = 700;
    let mut fd = rustix::fs::open(
        dir.path(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..depth {
        // Deeper than the maximum path length.
        let name = "a-directory";
        rustix::fs::mkdirat(&fd, name, 0o755.into()).unwrap();
        rustix::fs::mkdirat(&fd, "z", 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        fd = rustix::fs::openat(&fd, name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    assert_eq!(tree::read(dir.path()).len(), 1 + 2 * depth);
}

#[test]
fn a_file_that_shrinks_is_padded_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let mut source = open(dir.path()).unwrap();
    source.next().unwrap();
    let entry = source.next().unwrap().unwrap();
    assert!(matches!(entry.kind, Kind::File { size: 10_000, .. }));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let mut all = Vec::new();
    let mut buffer = [9; 4000];
    loop {
        match source.read(&mut buffer).unwrap() {
            0 => break,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
    assert_eq!(all.len(), 10_000);
    assert!(all[..100].iter().all(|b| *b == 1) && all[100..].iter().all(|b| *b == 0));
    assert!(source.warnings()[0].contains("became shorter"));
}

#[test]
fn errors_name_the_path() {
    let missing = open(Path::new("/no/such/tree")).err().unwrap().to_string();
    assert!(missing.contains("/no/such/tree"), "{missing}");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), b"x").unwrap();
    let file = DirSource::new(&dir.path().join("f"), DirOptions::default()).err().unwrap();
    assert!(file.to_string().contains("/f"), "{file}");
    // The directory is replaced during the walk.
    let mut options = DirOptions::default();
    options.one_file_system = true;
    let mut source = DirSource::new(dir.path(), options).unwrap();
    source.next().unwrap();
    fs::remove_file(dir.path().join("f")).unwrap();
    assert_eq!(source.next().unwrap(), None);
    assert!(source.warnings()[0].contains("vanished"));
}
