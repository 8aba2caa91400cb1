//! Volumes with every kind of structure.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::rich;
use tempfile::TempDir;
use uxfs::clock::Clock;
use uxfs::{Fs, NewInode, OpenOptions, XattrMode, mkfs};
use uxfs_check::{CheckError, CheckOptions, Report, check};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

pub(crate) const MIB: u64 = 1 << 20;

/// Feature sets, as mkfs options.
pub(crate) const FEATURES: &[&str] = &[
    "",
    "-b size=1024 -m rmapbt=1",
    "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0",
    "-m rmapbt=1 -i nrext64=1",
    "-b size=1024 -n size=8192 -i size=512",
    "-b size=2048 -i size=1024 -m rmapbt=1",
    "-s size=4096 -d su=64k,sw=2",
];

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

/// Opens an image.
pub(crate) fn device(path: &Path, mode: OpenMode) -> FileDev {
    FileDev::open(path, mode).unwrap()
}

/// Checks an image.
pub(crate) fn examine(path: &Path) -> Result<Report, CheckError> {
    let dev = device(path, OpenMode::Read);
    check(&dev, &CheckOptions::default(), &|_| {})
}

/// An image in its own temporary directory.
pub(crate) struct Volume {
    _dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Volume {
    /// A path without an image yet.
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.img");
        Self { _dir: dir, path }
    }

    /// A small volume, formatted by the library.
    pub(crate) fn small(mib: u64, line: &str) -> Self {
        let volume = Self::empty();
        let mut options = mkfs::Options::default();
        options.unsupported = true;
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let letter = pair[0].chars().nth(1).unwrap();
            options.apply(letter, pair[1]).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        let layout =
            mkfs::Layout::new(&options, mib * MIB).unwrap_or_else(|e| panic!("{line}: {e}"));
        let dev = device(&volume.path, OpenMode::Create(mib * MIB));
        mkfs::write(&layout, &dev, &mkfs::WriteOptions::default()).unwrap();
        volume
    }

    /// A copy of an existing image.
    pub(crate) fn copy(of: &Path) -> Self {
        let volume = Self::empty();
        std::fs::copy(of, &volume.path).unwrap();
        volume
    }

    /// The whole image, in memory.
    pub(crate) fn load(&self) -> MemDev {
        let file = device(&self.path, OpenMode::Read);
        let memory = MemDev::new(file.len());
        let mut buf = vec![0; 64 << 10];
        for at in (0..file.len()).step_by(buf.len()) {
            file.read_at(at, &mut buf).unwrap();
            if buf.iter().any(|b| *b != 0) {
                memory.write_at(at, &buf).unwrap();
            }
        }
        memory
    }

    /// Opens the image for changes.
    pub(crate) fn open(&self) -> Fs {
        let mut options = OpenOptions::default();
        options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 123_456_789 });
        options.seed = Some(7);
        let dev = device(&self.path, OpenMode::Write);
        Fs::open(Arc::new(dev), options).unwrap()
    }

    /// Lets names compare without case, in all superblocks; directories stay as they are.
    pub(crate) fn ignore_case(&self) {
        let number = |field: &str| uxfs_oracle::db_value(&self.path, &["sb 0"], field);
        let version = number("versionnum");
        let version = u16::from_str_radix(version.trim_start_matches("0x"), 16).unwrap();
        for ag in 0..number("agcount").parse().unwrap() {
            let ag: u32 = ag;
            let write = format!("write versionnum {:#x}", version | 0x4000);
            uxfs_oracle::db_write(&self.path, &[&format!("sb {ag}"), &write]);
        }
    }

    /// Fails if the check has findings.
    pub(crate) fn clean(&self, when: &str) {
        clean(&self.path, when);
    }
}

/// Fails if the check has findings about an image.
pub(crate) fn clean(path: &Path, when: &str) {
    let report = examine(path).unwrap_or_else(|e| panic!("{when}: {e}"));
    assert!(report.is_clean() && !report.incomplete, "{when}: {report}");
}

/// Fills a volume with every form of directory, attribute, link and extent list, and splits the
/// free space into many pieces.
pub(crate) fn fill(fs: &Fs) {
    let root = fs.root();
    let block = fs.geo.block_size as usize;
    for (name, count, len) in [("short", 3, 5), ("one", 20, 12), ("leaf", 150, 20)] {
        directory(fs, root, name, count, len);
    }
    // Its entry stays in the leaf, without an address.
    fs.unlink(fs.lookup(root, b"leaf").unwrap(), &name(100, 20)).unwrap();
    let many = directory(fs, root, "node", 1400, 40);
    for number in (0..1400).step_by(3).filter(|number| number % 40 != 7) {
        fs.unlink(many, &name(number, 40)).unwrap();
    }
    let dir = fs.create(root, b"files", &NewInode::dir(0o750)).unwrap();
    for (name, extents) in [("a", 1), ("b", 12), ("c", 60), ("d", 600)] {
        let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o640)).unwrap();
        for extent in 0..extents {
            fs.write_at(file, extent * 3 * block as u64, &vec![7; block]).unwrap();
        }
    }
    let first = fs.lookup(dir, b"a").unwrap();
    fs.link(first, root, b"hard").unwrap();
    for (name, len) in [("near", 20), ("far", 700)] {
        fs.symlink(dir, name.as_bytes(), &vec![b'x'; len], &NewInode::new(0o777)).unwrap();
    }
    for (name, kind) in [("c", S_IFCHR), ("b", S_IFBLK), ("p", S_IFIFO), ("s", S_IFSOCK)] {
        let mut new = NewInode::new(kind | 0o600);
        new.rdev = (5, 1);
        fs.create(root, format!("dev-{name}").as_bytes(), &new).unwrap();
    }
    attributes(fs, dir);
    let deep = fs.create(dir, b"deep", &NewInode::new(S_IFDIR | 0o755)).unwrap();
    directory(fs, deep, "deeper", 2, 3);
    rich::enrich(fs).unwrap();
    fs.sync().unwrap();
}

fn attributes(fs: &Fs, dir: Ino) {
    let value = |len: usize| vec![b'v'; len];
    for (name, count, len) in [("few", 2, 10), ("some", 20, 60), ("lots", 150, 90)] {
        let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o600)).unwrap();
        for number in 0..count {
            let key = format!("user.attribute-{number}");
            fs.set_xattr(file, key.as_bytes(), &value(len), XattrMode::Any).unwrap();
        }
    }
    let file = fs.create(dir, b"large", &NewInode::file(0o600)).unwrap();
    for (name, len) in [("user.big", 9000), ("trusted.bigger", 20_000), ("security.x", 5)] {
        fs.set_xattr(file, name.as_bytes(), &value(len), XattrMode::Any).unwrap();
    }
}

fn name(number: u64, len: usize) -> Vec<u8> {
    let mut name = format!("{number}-").into_bytes();
    name.resize(len.max(name.len()), b'n');
    name
}

fn directory(fs: &Fs, parent: Ino, called: &str, count: u64, len: usize) -> Ino {
    let dir = fs.create(parent, called.as_bytes(), &NewInode::dir(0o755)).unwrap();
    for number in 0..count {
        let name = name(number, len);
        if number % 40 == 7 {
            fs.create(dir, &name, &NewInode::dir(0o700)).unwrap();
        } else {
            fs.create(dir, &name, &NewInode::file(0o644)).unwrap();
        }
    }
    dir
}
