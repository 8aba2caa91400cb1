//! Reads archives that other programs wrote.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use uxfs_archive::{Kind, Time, open};

use crate::tree::{self, Lenient, Make, assert_same, run};

fn gnu_tar(root: &Path, to: &Path, arguments: &[&str]) {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--numeric-owner"]).args(arguments).arg("-cf").arg(to);
    run(command.arg("-C").arg(root).arg("."));
}

#[test]
fn gnu_tar_pax_archives_with_all_sparse_versions_are_read() {
    of_gnu_tar_pax(tree::make_full);
}

pub(crate) fn of_gnu_tar_pax(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    make(&root);
    let want = tree::read(&root);
    for version in ["0.0", "0.1", "1.0"] {
        let sparse = format!("--sparse-version={version}");
        let xattrs = ["--xattrs", "--xattrs-include=*", "--acls"];
        gnu_tar(&root, &archive, &[&["--format=pax", "-S", &sparse], &xattrs[..]].concat());
        let lenient = Lenient { no_sockets: true, ..Lenient::default() };
        assert_same(&tree::read(&archive), &want, lenient);
    }
    // `--acls` writes ACLs as text only.
    gnu_tar(&root, &archive, &["--format=pax", "--acls", "--xattrs"]);
    let got = tree::read(&archive);
    let acl = |items: &[tree::Item], name: &[u8]| {
        let item = items.iter().find(|item| item.0.path == name).unwrap();
        let mut xattrs = item.0.meta.xattrs.clone();
        xattrs.retain(|(name, _)| name.starts_with(b"system.posix_acl"));
        assert!(!xattrs.is_empty());
        xattrs
    };
    assert_eq!(acl(&got, b"acl"), acl(&want, b"acl"));
    assert_eq!(acl(&got, b"dir"), acl(&want, b"dir"));
}

#[test]
fn gnu_tar_archives_in_its_own_format_are_read() {
    of_gnu_tar(tree::make_full);
}

pub(crate) fn of_gnu_tar(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    make(&root);
    gnu_tar(&root, &archive, &["--format=gnu", "-S"]);
    let lenient =
        Lenient { nanoseconds: true, xattrs: true, no_sockets: true, ..Lenient::default() };
    assert_same(&tree::read(&archive), &tree::read(&root), lenient);
    // Volume labels, and the name lists of incremental archives.
    let snapshot = dir.path().join("snapshot");
    let label = ["--format=gnu", "-S", "-V", "a label", "-g", snapshot.to_str().unwrap()];
    gnu_tar(&root, &archive, &label);
    let mut source = open(&archive).unwrap();
    let got = tree::items(source.as_mut());
    let want = tree::read(&root);
    assert_eq!(got.len(), want.iter().filter(|i| i.0.kind != Kind::Socket).count());
    let warnings = source.warnings().join("\n");
    assert!(warnings.contains("volume label"), "{warnings}");
    assert!(warnings.contains("incremental"), "{warnings}");
}

#[test]
fn old_formats_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    tree::make_simple(&root);
    let want = tree::read(&root);
    let lenient = Lenient { nanoseconds: true, ..Lenient::default() };
    for format in ["ustar", "v7", "oldgnu"] {
        gnu_tar(&root, &archive, &[&format!("--format={format}")]);
        assert_same(&tree::read(&archive), &want, lenient);
    }
}

#[test]
fn bsdtar_pax_archives_are_read() {
    of_bsdtar(tree::make_full);
}

pub(crate) fn of_bsdtar(make: Make) {
    let dir = tempfile::tempdir().unwrap();
    let (root, archive) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    make(&root);
    let mut command = Command::new("bsdtar");
    command.env("LC_ALL", "C.UTF-8").args([
        "--format=pax",
        "--xattrs",
        "--acls",
        "--numeric-owner",
    ]);
    // bsdtar fails for a name that is not UTF-8, and writes -1.75 s as -2.25.
    fs::remove_file(root.join(OsStr::from_bytes(b"zz\xff\xfe"))).unwrap();
    fs::remove_file(root.join("time-a")).unwrap();
    fs::remove_file(root.join("socket")).unwrap();
    run(command.arg("-cf").arg(&archive).arg("-C").arg(&root).arg("."));
    let mut got = tree::read(&archive);
    let mut want = tree::read(&root);
    for items in [&mut got, &mut want] {
        items.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        // The order of the directory determines which name comes first.
        items
            .retain(|item| !matches!(&item.0.path[..], b"dir/link" | b"dir/file-513" | b"zz-hard"));
        items.retain(|item| !item.0.path.starts_with(b"long/"));
    }
    assert_same(&got, &want, Lenient::default());
}

const PYTHON: &str = r#"
import io, sys, tarfile
t = tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT, pax_headers={'uname': 'everyone', 'comment': 'c'})
def add(name, type, data=b'', **more):
    i = tarfile.TarInfo(name)
    i.type, i.size, i.mtime = type, len(data), -1.5
    for key, value in more.items(): setattr(i, key, value)
    t.addfile(i, io.BytesIO(data))
add('/abs/./x', tarfile.REGTYPE, b'absolute')
add('cont', tarfile.CONTTYPE, b'contiguous')
add('big-id', tarfile.REGTYPE, uid=4294967294, gid=3000000000)
add('char', tarfile.CHRTYPE, devmajor=4, devminor=65)
add('block', tarfile.BLKTYPE, devmajor=259, devminor=1048575)
add('fifo', tarfile.FIFOTYPE)
add('sock', tarfile.FIFOTYPE, pax_headers={'SCHILY.filetype': 'socket'})
add('strange', b'Q', b'taken as a file')
add('attr', tarfile.REGTYPE, pax_headers={'LIBARCHIVE.xattr.user.%61': 'AAEC', 'RHT.security.selinux': 'u:r:t',
    'LIBARCHIVE.creationtime': '12.5', 'ACME.x': '1', 'SCHILY.acl.access': 'user::rw-,user:someone:rwx:99,group::r--,mask::rwx,other::---'})
t.close()
"#;

#[test]
fn python_archives_with_unusual_entries_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("t.tar");
    run(Command::new("python3").arg("-c").arg(PYTHON).arg(&archive));
    let mut source = open(&archive).unwrap();
    let items = tree::items(source.as_mut());
    let get = |name: &str| items.iter().find(|item| item.0.path == name.as_bytes()).unwrap();
    assert_eq!(get("abs/x").1, b"absolute");
    assert_eq!(get("abs/x").0.meta.mtime, Time { sec: -2, nsec: 500_000_000 });
    assert_eq!(get("abs/x").0.meta.uname, b"everyone");
    assert_eq!(get("cont").1, b"contiguous");
    let ids = &get("big-id").0.meta;
    assert_eq!((ids.uid, ids.gid), (4_294_967_294, 3_000_000_000));
    assert_eq!(get("char").0.kind, Kind::Char { major: 4, minor: 65 });
    assert_eq!(get("block").0.kind, Kind::Block { major: 259, minor: 1_048_575 });
    assert_eq!(get("fifo").0.kind, Kind::Fifo);
    assert_eq!(get("sock").0.kind, Kind::Socket);
    assert_eq!(get("strange").1, b"taken as a file");
    let meta = &get("attr").0.meta;
    assert_eq!(meta.crtime, Some(Time { sec: 12, nsec: 500_000_000 }));
    let names: Vec<_> = meta.xattrs.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"security.selinux"[..], b"system.posix_acl_access", b"user.a"]);
    assert_eq!(meta.xattrs[1].1[8 + 4..8 + 12], [2, 0, 7, 0, 99, 0, 0, 0]);
    let warnings = source.warnings().join("\n");
    assert!(warnings.contains("ACME.x") && warnings.contains("type 'Q'"), "{warnings}");
}

#[test]
fn compressed_and_piped_archives_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (root, plain) = (dir.path().join("tree"), dir.path().join("t.tar"));
    fs::create_dir(&root).unwrap();
    tree::make_simple(&root);
    fs::write(root.join("big"), vec![b'b'; 5 << 20]).unwrap();
    gnu_tar(&root, &plain, &["--format=pax"]);
    let want = tree::read(&plain);
    // `items` compares what lies at the positions; a plain archive must have some.
    let mut source = open(&plain).unwrap();
    assert!(source.file().is_some());
    let mut positions = 0;
    while source.next().unwrap().is_some() {
        positions += usize::from(source.data_position().is_some());
    }
    assert!(positions > 0);
    for tool in ["gzip", "xz", "zstd"] {
        // Two concatenated members, split within the data.
        let script = format!(
            "head -c 100000 $0 | {tool} -c > $0.{tool}; tail -c +100001 $0 | {tool} -c >> $0.{tool}"
        );
        run(Command::new("sh").arg("-c").arg(script).arg(&plain));
        let path = dir.path().join(format!("t.tar.{tool}"));
        assert!(tree::read(&path) == want, "{tool}");
        let mut source = open(&path).unwrap();
        assert_eq!(source.progress().1, Some(fs::metadata(&path).unwrap().len()));
        assert!(source.data_position().is_none() && source.file().is_none());
        tree::items(source.as_mut());
        assert_eq!(source.progress().0, fs::metadata(&path).unwrap().len());
        assert_eq!(source.warnings(), Vec::<String>::new());
        for input in [&path, &plain] {
            let fifo = dir.path().join(format!("fifo-{tool}-{}", *input == plain));
            run(Command::new("mkfifo").arg(&fifo));
            let redirect =
                Command::new("sh").args(["-c", "cat $0 > $1"]).arg(input).arg(&fifo).spawn();
            assert!(tree::read(&fifo) == want, "{tool} piped");
            assert!(redirect.unwrap().wait().unwrap().success());
        }
    }
}
