//! Archives of this crate, read by this crate and by other programs.

use std::fs;
use std::process::Command;

use uxfs_archive::{Entry, Kind, Meta, SparseMap, TarWriter, Time, open};

use crate::tree::{self, Lenient, Make, assert_same, run};

#[test]
fn our_reader_restores_everything() {
    taken_back(tree::make_full);
}

pub(crate) fn taken_back(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    make(&root);
    let (once, twice) = (dir.path().join("1.tar"), dir.path().join("2.tar"));
    tree::write(open(&root).unwrap().as_mut(), &once);
    assert_eq!(fs::metadata(&once).unwrap().len() % 10240, 0);
    let got = tree::read(&once);
    assert_same(&got, &tree::read(&root), Lenient::default());
    // A second round trip changes no byte.
    tree::write(open(&once).unwrap().as_mut(), &twice);
    assert!(tree::read(&twice) == got);
    assert!(fs::read(&once).unwrap() == fs::read(&twice).unwrap());
    // GNU tar's archive, read and written again.
    let gnu = dir.path().join("gnu.tar");
    let mut tar = Command::new("tar");
    tar.args(["--format=pax", "-S", "--acls", "--xattrs", "--xattrs-include=*", "-cf"]).arg(&gnu);
    run(tar.arg("-C").arg(&root).arg("."));
    tree::write(open(&gnu).unwrap().as_mut(), &twice);
    assert!(tree::read(&twice) == tree::read(&gnu));
}

#[test]
fn gnu_tar_and_bsdtar_extract_it() {
    extracted(tree::make_full);
}

pub(crate) fn extracted(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    make(&root);
    tree::write(open(&root).unwrap().as_mut(), &archive);
    let want = tree::read(&root);
    let all = ["-p", "--xattrs", "--acls", "--numeric-owner"];
    for (program, more) in [("tar", &["--xattrs-include=*"][..]), ("bsdtar", &[])] {
        let to = dir.path().join(program);
        fs::create_dir(&to).unwrap();
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8").args(all).args(more).arg("-xf").arg(&archive);
        run(command.arg("-C").arg(&to));
        let lenient = Lenient { sockets: true, ..Lenient::default() };
        let (mut got, mut want) = (tree::read(&to), want.clone());
        if program == "bsdtar" {
            // It does not set the root's time, and reads -1.75 s as -0.25 s.
            let kept = |item: &tree::Item| !matches!(&item.0.path[..], b"" | b"time-a");
            for items in [&mut got, &mut want] {
                items.retain(kept);
                // Only GNU tar reverses its quoting of `=` and `%`.
                let quoted = |name: &[u8]| name.contains(&b'=') || name.contains(&b'%');
                items.iter_mut().for_each(|i| i.0.meta.xattrs.retain(|(name, _)| !quoted(name)));
            }
        }
        assert_same(&got, &want, lenient);
    }
}

#[test]
fn python_lists_the_archive() {
    listed(tree::make_full);
}

pub(crate) fn listed(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    make(&root);
    tree::write(open(&root).unwrap().as_mut(), &archive);
    let script = r#"
import sys, tarfile, zlib, os
for i in tarfile.open(sys.argv[1], errors='surrogateescape'):
    crc = zlib.crc32(tarfile.open(sys.argv[1], errors='surrogateescape').extractfile(i).read()) if i.isreg() else 0
    sys.stdout.buffer.write(b'%s|%d|%d|%d\0' % (os.fsencode(i.name).rstrip(b'/'), i.size, i.mode, crc))
"#;
    let script = script.replace("os.fsencode(i.name)", "i.name.encode('utf-8', 'surrogateescape')");
    let output = run(Command::new("python3").arg("-c").arg(script).arg(&archive));
    let got: Vec<_> = output.split(|byte| *byte == 0).filter(|line| !line.is_empty()).collect();
    let crc = |data: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(data);
        crc.sum()
    };
    let lines = tree::read(&root).into_iter().map(|(entry, data)| {
        let (size, sum) = match entry.kind {
            Kind::File { size, .. } => (size, crc(&data)),
            _ => (0, 0),
        };
        let name = if entry.path.is_empty() { b".".to_vec() } else { entry.path };
        [&name[..], format!("|{size}|{}|{sum}", entry.meta.mode).as_bytes()].concat()
    });
    let want: Vec<_> = lines.collect();
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string());
    }
}

#[test]
fn extreme_numbers_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("t.tar");
    let entry = |path: &str, kind| Entry { path: path.into(), kind, meta: Meta::default() };
    let mut entries = vec![
        entry("char", Kind::Char { major: u32::MAX, minor: u32::MAX }),
        entry("hole", Kind::File { size: 1 << 62, map: SparseMap::default() }),
        entry("link", Kind::Symlink { target: b"\xff".repeat(3000) }),
        entry("hard", Kind::Hardlink { target: "é/".repeat(400).trim_end_matches('/').into() }),
        entry("p/".repeat(2000).trim_end_matches('/'), Kind::Dir),
        entry("time", Kind::Fifo),
        entry("acl", Kind::Dir),
    ];
    let edge = &mut entries[5].meta;
    (edge.uid, edge.gid) = (u32::MAX, u32::MAX);
    edge.mtime = Time { sec: i64::MIN, nsec: 999_999_999 };
    edge.atime = Some(Time { sec: i64::MAX, nsec: 1 });
    edge.uname = "ü".repeat(40).into();
    edge.crtime = Some(Time { sec: -1, nsec: 1 });
    // Not a well-formed ACL: preserved unchanged.
    entries[6].meta.xattrs = vec![(b"system.posix_acl_access".to_vec(), b"rubbish".to_vec())];
    let mut writer = TarWriter::new(Vec::new()).creation_times(true);
    for entry in &entries {
        writer.entry(entry, &mut std::io::empty()).unwrap();
    }
    fs::write(&archive, writer.finish().unwrap()).unwrap();
    let mut source = open(&archive).unwrap();
    for want in &entries {
        assert_eq!(source.next().unwrap().as_ref(), Some(want));
    }
    assert_eq!(source.next().unwrap(), None);
    assert_eq!(source.warnings(), Vec::<String>::new());
}

#[test]
fn entries_that_cannot_be_written_are_errors() {
    let mut writer = TarWriter::new(Vec::new());
    let mut entry = Entry {
        path: b"f".to_vec(),
        kind: Kind::File { size: 10, map: SparseMap::whole(10) },
        meta: Meta::default(),
    };
    let short = writer.entry(&entry, &mut &b"four"[..]).unwrap_err().to_string();
    assert!(short.contains("'f'") && short.contains("6 of 10 bytes"), "{short}");
    entry.path.clear();
    assert!(writer.entry(&entry, &mut &b"0123456789"[..]).is_err());
    entry.kind = Kind::Symlink { target: Vec::new() };
    entry.path = b"l".to_vec();
    assert!(writer.entry(&entry, &mut std::io::empty()).is_err());
}
