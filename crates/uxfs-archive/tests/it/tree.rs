//! Makes test trees with every kind of file, and compares trees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use uxfs_archive::{DataReader, Entry, Kind, Source, TarWriter, open};

/// An entry with its data, holes filled with zeros.
pub(crate) type Item = (Entry, Vec<u8>);

pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let text = format!("{command:?}");
    let output = command.stderr(Stdio::piped()).output().unwrap_or_else(|e| panic!("{text}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {}\n{errors}", output.status);
    output.stdout
}

/// Makes a tree in an existing directory.
pub(crate) type Make = fn(&Path);

fn set_mtime(path: &Path, sec: i64, nsec: i64) {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{name} on {}: {e}", path.display()));
}

fn data(seed: u32, length: usize) -> Vec<u8> {
    uxfs_oracle::Rng::new(seed.into()).bytes(length)
}

fn sparse(path: &Path, size: u64, segments: &[(u64, usize)]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for (offset, length) in segments {
        file.write_all_at(&data(7, *length), *offset).unwrap();
    }
    file.sync_all().unwrap();
}

/// A tree that V7 tar can represent.
pub(crate) fn make_simple(root: &Path) {
    fs::create_dir(root.join("dir")).unwrap();
    for length in [0, 1, 511, 512, 513, 70_000] {
        let path = root.join(format!("dir/file-{length}"));
        fs::write(&path, data(3, length)).unwrap();
        set_mtime(&path, 1_000_000_000, 0);
    }
    fs::set_permissions(root.join("dir/file-1"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(root.join("dir/file-513"), root.join("dir/link")).unwrap();
    symlink("../somewhere", root.join("dir/symlink")).unwrap();
    set_mtime(&root.join("dir/symlink"), 1_000_000_000, 0);
    set_mtime(&root.join("dir"), 1_100_000_000, 0);
    set_mtime(root, 1_200_000_000, 0);
}

/// A tree with everything that an ordinary user can create.
pub(crate) fn make_full(root: &Path) {
    make_simple(root);
    let path = |name: &str| root.join(name);
    let mut long = path("long");
    for _ in 0..3 {
        long = long.join("n".repeat(120));
    }
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("f".repeat(255)), b"deep").unwrap();
    fs::hard_link(long.join("f".repeat(255)), path("zz-hard")).unwrap();
    fs::write(path("zz ä\n\\ x"), b"odd").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"zz\xff\xfe")), b"not UTF-8").unwrap();
    symlink("t".repeat(150), path("symlink-150")).unwrap();
    symlink("t/".repeat(500), path("symlink-1000")).unwrap();
    sparse(&path("sparse-a"), 3 << 20, &[(1 << 20, 70_000)]);
    sparse(&path("sparse-b"), 200_000, &[(0, 5000), (131_072, 68_928)]);
    sparse(&path("sparse-hole"), 1 << 20, &[]);
    let many: Vec<_> = (0..60).map(|n| (n * 65536, 4096)).collect();
    sparse(&path("sparse-many"), 60 * 65536, &many);
    rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    drop(UnixListener::bind(path("socket")).unwrap());
    for (name, sec, nsec) in [
        ("time-a", -2, 250_000_000),
        ("time-b", 1_700_000_000, 123_456_789),
        ("time-c", 1 << 33, 1),
    ] {
        fs::write(path(name), name).unwrap();
        set_mtime(&path(name), sec, nsec);
    }
    fs::write(path("xattrs"), b"x").unwrap();
    xattr(&path("xattrs"), "user.binary", b"\0\n=\xff\n12 a=b\n");
    xattr(&path("xattrs"), "user.a=b%", b"quoted");
    xattr(&path("xattrs"), "user.empty", b"");
    xattr(&path("xattrs"), "user.big", &data(1, 2000));
    xattr(&path("dir"), "user.on-a-directory", b"yes");
    fs::write(path("acl"), b"acl").unwrap();
    run(Command::new("setfacl").args(["-m", "u:1234:rwx,g:77:r-x,u:70000:---"]).arg(path("acl")));
    run(Command::new("setfacl").args(["-d", "-m", "u:1234:rwx,g:77:r-x"]).arg(path("dir")));
}

/// A tree that includes files that only root can create.
pub(crate) fn make_privileged(root: &Path) {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    make_full(root);
    let path = |name: &str| root.join(name);
    let mode = Mode::from_raw_mode(0o660);
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path("char"), FileType::CharacterDevice, mode, device).unwrap();
    let device = rustix::fs::makedev(259, 70_000);
    rustix::fs::mknodat(CWD, path("block"), FileType::BlockDevice, mode, device).unwrap();
    fs::write(path("owner"), b"o").unwrap();
    std::os::unix::fs::chown(path("owner"), Some(3_000_000_000), Some(2_097_152)).unwrap();
    fs::write(path("capable"), b"c").unwrap();
    run(Command::new("setcap").arg("cap_net_raw+ep").arg(path("capable")));
    xattr(&path("capable"), "trusted.secret", b"\0\x01");
    xattr(&path("symlink-150"), "trusted.on-a-link", b"1");
    xattr(&path("fifo"), "trusted.on-a-fifo", b"1");
}

/// Reads a whole source.
pub(crate) fn items(source: &mut dyn Source) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some(entry) = source.next().unwrap() {
        let mut all = Vec::new();
        if let Kind::File { size, map } = &entry.kind {
            let mut stored = Vec::new();
            // Alternate between the three ways to read the data.
            if items.len() % 2 == 0 {
                let mut buffer = vec![0; 5000];
                loop {
                    match source.read(&mut buffer).unwrap() {
                        0 => break,
                        count => stored.extend_from_slice(&buffer[..count]),
                    }
                }
            } else {
                loop {
                    let chunk = source.chunk().unwrap();
                    let count = chunk.len();
                    stored.extend_from_slice(chunk);
                    source.consume(count);
                    if count == 0 {
                        break;
                    }
                }
            }
            assert_eq!(stored.len() as u64, map.data_len());
            if let Some(position) = source.data_position() {
                let mut direct = vec![0; stored.len()];
                source.file().unwrap().read_exact_at(&mut direct, position).unwrap();
                assert!(direct == stored, "data_position of {:?}", entry.path.escape_ascii());
            }
            all.resize(usize::try_from(*size).unwrap(), 0);
            let mut rest = &stored[..];
            for (offset, length) in map.segments() {
                let (offset, length) = (*offset as usize, *length as usize);
                all[offset..offset + length].copy_from_slice(&rest[..length]);
                rest = &rest[length..];
            }
        }
        items.push((entry, all));
    }
    items
}

/// Reads a whole archive or directory.
pub(crate) fn read(path: &Path) -> Vec<Item> {
    items(open(path).unwrap().as_mut())
}

/// Writes a tree with this crate's writer.
pub(crate) fn write(source: &mut dyn Source, to: &Path) {
    let mut writer = TarWriter::new(File::create(to).unwrap());
    while let Some(entry) = source.next().unwrap() {
        writer.entry(&entry, &mut DataReader(source)).unwrap();
    }
    writer.finish().unwrap().flush().unwrap();
}

/// Differences that a comparison ignores.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lenient {
    /// Ignore nanoseconds, for formats with whole seconds.
    pub(crate) nanoseconds: bool,
    /// Ignore attributes, for formats without them.
    pub(crate) xattrs: bool,
    /// Ignore holes, for formats without holes or with coarser ones.
    pub(crate) holes: bool,
    /// Accept named pipes for sockets.
    pub(crate) sockets: bool,
    /// Accept missing sockets.
    pub(crate) no_sockets: bool,
}

fn normal(item: &Item, lenient: Lenient) -> Item {
    let (mut entry, data) = item.clone();
    let meta = &mut entry.meta;
    (meta.atime, meta.ctime, meta.crtime) = (None, None, None);
    meta.uname.clear();
    meta.gname.clear();
    if lenient.nanoseconds {
        meta.mtime.nsec = 0;
    }
    // The attributes of a hard link are its target's.
    if lenient.xattrs || matches!(entry.kind, Kind::Hardlink { .. }) {
        meta.xattrs.clear();
    }
    match &mut entry.kind {
        Kind::File { size, map } if lenient.holes => *map = uxfs_archive::SparseMap::whole(*size),
        Kind::Socket if lenient.sockets => entry.kind = Kind::Fifo,
        _ => {}
    }
    (entry, data)
}

/// Fails unless both trees are the same, except for the ignored differences.
pub(crate) fn assert_same(got: &[Item], want: &[Item], lenient: Lenient) {
    let normal_all = |items: &[Item]| -> Vec<Item> {
        let kept = items.iter().filter(|i| !lenient.no_sockets || i.0.kind != Kind::Socket);
        kept.map(|item| normal(item, lenient)).collect()
    };
    let (got, want) = (normal_all(got), normal_all(want));
    let names = |items: &[Item]| -> Vec<String> {
        items.iter().map(|i| i.0.path.escape_ascii().to_string()).collect()
    };
    assert_eq!(names(&got), names(&want));
    for (got, want) in got.iter().zip(&want) {
        let text = |entry: &Entry| format!("{entry:?}").chars().take(1500).collect::<String>();
        assert!(got.0 == want.0, "got {}\nwant {}", text(&got.0), text(&want.0));
        assert!(got.1 == want.1, "data of {}", got.0.path.escape_ascii());
    }
}
