//! Rare but legal values: a volume aged by a kernel, with extreme values added, is exported as an
//! archive and imported without differences.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use uxfs::import::{ImportOptions, run};
use uxfs::resize::{self, Method, ResizeOptions, Target};
use uxfs::{Fs, NewInode, OpenOptions, SetAttr, Times, XattrMode};
use uxfs_disk::OpenMode;
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::{Fields, Kernel, Rng, vm};

use crate::listing;
use crate::volume::{self, Volume};

fn attribute(fs: &Fs, ino: Ino, name: &[u8], value: &[u8]) {
    fs.set_xattr(ino, name, value, XattrMode::Any).unwrap();
}

/// Creates the extreme files below `/x`.
fn add_extremes(fs: &Fs) {
    let mut rng = Rng::new(3);
    let top = fs.create(fs.root(), b"x", &NewInode::dir(0o1777)).unwrap();
    let make = |name: &[u8], new: &NewInode| fs.create(top, name, new).unwrap();
    // Linux lists at most 64 KiB of attribute names.
    let many = make(b"many", &NewInode::file(0o644));
    let many_dir = make(b"many-dir", &NewInode::dir(0o755));
    for number in 0..5000 {
        let name = format!("user.{number:04}").into_bytes();
        attribute(fs, many, &name, &[7; 20]);
        attribute(fs, many_dir, &name, &number.to_string().into_bytes());
    }
    let large = make(b"large", &NewInode::file(0o600));
    for number in 0..60 {
        let name = format!("trusted.{number}{}", "n".repeat(240)).into_bytes();
        attribute(fs, large, &name, &rng.bytes(65536));
    }
    let target = vec![b't'; 1023];
    let link = fs.symlink(top, &[b'l'; 255], &target, &NewInode::file(0o777)).unwrap();
    attribute(fs, link, b"trusted.on-a-link", &rng.bytes(3000));
    // Below PATH_MAX, and below the lister's limit of open files.
    for (name, depth) in [(vec![b'd'; 250], 15), (b"e".to_vec(), 300)] {
        let mut dir = top;
        for _ in 0..depth {
            dir = fs.create(dir, &name, &NewInode::dir(0o700)).unwrap();
        }
        fs.create(dir, b"f", &NewInode::file(0o644)).unwrap();
    }
    let linked = make(b"linked", &NewInode::file(0o644));
    for number in 0..3000 {
        fs.link(linked, top, format!("hard{number}").as_bytes()).unwrap();
    }
    for (name, size) in [("huge", 1u64 << 55), ("odd-end", (1 << 40) + 4097)] {
        let file = make(name.as_bytes(), &NewInode::file(0o644));
        fs.write_at(file, 0, b"begin").unwrap();
        fs.write_at(file, size - 100, &[9; 100]).unwrap();
    }
    let odd = [(-(1 << 31), 0), (-1, 999_999_999), (0, 1), (16_299_260_424, 999_999_999)];
    for (number, (sec, nsec)) in odd.into_iter().enumerate() {
        let times = Some(Times::all(Timestamp { sec, nsec }));
        make(format!("t{number}").as_bytes(), &NewInode { times, ..NewInode::file(0o4755) });
    }
    for (name, kind, rdev) in [
        // Linux reads 9 bits of the major number.
        ("char", S_IFCHR, (511, 262_143)),
        ("block", S_IFBLK, (1, 0)),
        ("fifo", S_IFIFO, (0, 0)),
        ("socket", S_IFSOCK, (0, 0)),
    ] {
        let ino = make(name.as_bytes(), &NewInode { rdev, ..NewInode::new(kind | 0o7777) });
        attribute(fs, ino, b"trusted.node", &rng.bytes(2000));
    }
    let owned = NewInode { uid: u32::MAX - 1, gid: u32::MAX - 1, ..NewInode::file(0) };
    make(b"\xff\xfe\n\t\\ '\"", &owned);
}

fn read_only(path: &Path) -> Fs {
    let dev = volume::device(path, OpenMode::Read);
    Fs::open(std::sync::Arc::new(dev), OpenOptions::read_only()).unwrap()
}

#[test]
fn an_export_of_any_kernel_volume_imports() {
    let volume = Volume::real(1024, "-m rmapbt=1,reflink=1");
    vm::age(Kernel::Stable, &volume.path, 1, 300).unwrap_or_else(|f| panic!("{f}"));
    let fs = volume.open();
    add_extremes(&fs);
    fs.close().unwrap();
    volume.judge_aged("before the export");
    let from = listing::list(&volume.open_read_only());
    let dir = tempfile::tempdir().unwrap();
    let (tar, image) = (dir.path().join("t.tar"), dir.path().join("t.img"));
    let fs = read_only(&volume.path);
    uxfs::export::export(&fs, fs.root(), File::create(&tar).unwrap()).unwrap();
    drop(fs);
    let summary = run(&ImportOptions::new(&tar, &image), &mut |_| {}).unwrap();
    assert!(summary.created && summary.warnings.is_empty(), "{summary:?}");
    uxfs_oracle::both(&image).unwrap_or_else(|f| panic!("{f}"));
    let to = listing::list(&read_only(&image));
    from.assert_same(&to, Fields::TREE);
    // The kernel sees the same on both.
    let seen = listing::of_kernel(Kernel::Stable, &[&volume.path, &image]);
    seen[0].assert_same(&seen[1], Fields::TREE);
    to.assert_same(&seen[1], Fields::TREE);
    // The same after a rebuild to the minimum size.
    let done = resize::run(&ResizeOptions::new(&image, Target::Minimize)).unwrap();
    assert_eq!(done.method, Method::Rebuilt, "{done:?}");
    uxfs_oracle::both(&image).unwrap_or_else(|f| panic!("{f}"));
    listing::list(&read_only(&image)).assert_same(&to, Fields::TREE);
    // A second time there is nothing to gain, and resize reports so.
    let again = resize::run(&ResizeOptions::new(&image, Target::Minimize)).unwrap();
    if again.method == Method::Unchanged {
        assert!(again.reason.is_some_and(|why| why.contains("bytes")));
    }
}

/// Times that a volume cannot hold become the nearest that it can, at once; an inode from before an upgrade
/// to 64-bit times holds them from its next change on.
#[test]
fn times_beyond_2038_before_and_after_an_upgrade() {
    let volume = Volume::real(320, "-m bigtime=0");
    let late = Timestamp { sec: 1 << 33, nsec: 999_999_999 };
    let change = SetAttr { mtime: Some(late), ..SetAttr::default() };
    let fs = volume.open();
    let ino = fs.create(fs.root(), b"old", &NewInode::file(0o644)).unwrap();
    fs.set_attr(ino, &change).unwrap();
    let nearest = Timestamp { sec: i32::MAX.into(), ..late };
    assert_eq!(fs.stat(ino).unwrap().mtime, nearest);
    fs.close().unwrap();
    assert_eq!(read_only(&volume.path).stat(ino).unwrap().mtime, nearest);

    let mut upgrade = Command::new(uxfs_oracle::program("xfs_repair", "xfsprogs"));
    assert!(upgrade.args(["-c", "bigtime=1"]).arg(&volume.path).status().unwrap().success());
    let flag = || uxfs_oracle::db_value(&volume.path, &[&format!("inode {}", ino.0)], "v3.bigtime");
    assert_eq!(flag(), "0", "xfs_repair has upgraded the inode");
    let fs = volume.open();
    fs.set_attr(ino, &change).unwrap();
    assert_eq!(fs.stat(ino).unwrap().mtime, late);
    fs.close().unwrap();
    assert_eq!(flag(), "1");
    assert_eq!(read_only(&volume.path).stat(ino).unwrap().mtime, late);
    volume.judge("after the upgrade");
}
