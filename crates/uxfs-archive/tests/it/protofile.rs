//! Protofiles with content from files of the host.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use uxfs_archive::{Entry, Kind, ProtoOptions, ProtoSource, Source, SparseMap, Time};

use crate::tree::{Item, items, run};

const NOW: Time = Time { sec: 1_700_000_000, nsec: 5 };

fn protofile(dir: &Path, tree: &str) -> std::path::PathBuf {
    let path = dir.join("proto");
    let tree = tree.replace("HERE", dir.to_str().unwrap());
    fs::write(&path, format!("boot\n1 2\nd--755 7 8\n{tree}$\n")).unwrap();
    path
}

fn open(dir: &Path, tree: &str) -> ProtoSource {
    ProtoSource::new(&protofile(dir, tree), ProtoOptions::at(NOW)).unwrap()
}

fn file(entry: &Entry) -> (u64, &SparseMap) {
    match &entry.kind {
        Kind::File { size, map } => (*size, map),
        other => panic!("{other:?}"),
    }
}

#[test]
fn content_and_attributes_come_from_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("content"), b"some text").unwrap();
    rustix::fs::setxattr(path("content"), "user.note", b"v", XattrFlags::empty()).unwrap();
    run(Command::new("setfacl").args(["-m", "u:1234:rw"]).arg(path("content")));
    symlink("content", path("link")).unwrap();
    let holes = fs::File::create(path("sparse")).unwrap();
    holes.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, b"x", 1 << 19).unwrap();
    drop(holes);
    let mut source = open(
        dir.path(),
        "a -u-640 1 2 HERE/content\nb ---600 0 0 HERE/link\nnull ---600 0 0 /dev/null\n\
         d d--700 0 0 sparse ---644 0 0 HERE/sparse $\nfifo p--600 0 0\nres r--600 0 0 2b\n\
         l l--777 0 0 ../x\nc c--600 0 0 5 1\n",
    );
    let found: Vec<Item> = items(&mut source);
    let warnings = source.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("ACLs"), "{warnings:?}");
    let paths: Vec<_> = found.iter().map(|item| item.0.path.escape_ascii().to_string()).collect();
    assert_eq!(paths, ["", "a", "b", "null", "d", "d/sparse", "fifo", "res", "l", "c"]);
    for (entry, _) in &found {
        assert_eq!((entry.meta.mtime, entry.meta.atime), (NOW, None));
    }
    let root = &found[0].0;
    assert_eq!(
        (&root.kind, root.meta.mode, root.meta.uid, root.meta.gid),
        (&Kind::Dir, 0o755, 7, 8)
    );
    for (entry, data) in &found[1..3] {
        assert_eq!(data, b"some text");
        assert_eq!(entry.meta.xattrs, [(b"user.note".to_vec(), b"v".to_vec())]);
    }
    assert_eq!((found[1].0.meta.mode, found[1].0.meta.uid, found[1].0.meta.gid), (0o4640, 1, 2));
    assert_eq!(file(&found[3].0).0, 0);
    let (size, map) = file(&found[5].0);
    assert!(size == 1 << 20 && map.data_len() < size, "{map:?}");
    assert_eq!(file(&found[7].0), (0, &SparseMap::default()));
    assert_eq!((found[7].0.meta.reserve, found[3].0.meta.reserve), (8192, 0));
    assert_eq!(found[8].0.kind, Kind::Symlink { target: b"../x".to_vec() });
    assert_eq!(found[9].0.kind, Kind::Char { major: 5, minor: 1 });
}

#[test]
fn content_that_is_no_file_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let name = dir.path().join("proto").display().to_string();
    for (content, said) in [
        ("HERE/absent", "HERE/absent': No such file"),
        ("HERE", "'HERE', which is to give the content, is no regular file"),
        ("HERE/fifo", "'HERE/fifo', which is to give the content, is no regular file"),
        ("/dev/zero", "'/dev/zero', which is to give the content, is no regular file"),
    ] {
        let tree = format!("first p--644 0 0\nsecond ---644 0 0\n{content}\n");
        let said = said.replace("HERE", dir.path().to_str().unwrap());
        let check = open(dir.path(), &tree).check().unwrap_err().to_string();
        let mut source = open(dir.path(), &tree);
        let read = std::iter::from_fn(|| Some(source.next())).find_map(Result::err);
        for error in [check, read.unwrap().to_string()] {
            assert!(error.starts_with(&format!("{name}, line 5: ")), "{error}");
            assert!(error.contains(&said), "{error}");
        }
    }
    // The check reads the whole file.
    fs::write(dir.path().join("x"), "").unwrap();
    open(dir.path(), "a ---644 0 0 HERE/x\n").check().unwrap();
    let error = open(dir.path(), "a ---644 0 0 HERE/x b\n").check().unwrap_err().to_string();
    assert!(error.contains("line 5: '$' is not a mode"), "{error}");
    assert!(ProtoSource::new(&dir.path().join("none"), ProtoOptions::at(NOW)).is_err());
}

#[test]
fn names_may_be_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff\x01");
    fs::write(dir.path().join(odd), b"!").unwrap();
    let path = protofile(dir.path(), "");
    let mut text = b"b 0 0 d--755 0 0 n\xfe\x02 ---644 0 0 ".to_vec();
    text.extend_from_slice(dir.path().join(odd).as_os_str().as_bytes());
    fs::write(&path, [text, b" $".to_vec()].concat()).unwrap();
    let found = items(&mut ProtoSource::new(&path, ProtoOptions::at(NOW)).unwrap());
    assert_eq!((&found[1].0.path[..], &found[1].1[..]), (&b"n\xfe\x02"[..], &b"!"[..]));
}
