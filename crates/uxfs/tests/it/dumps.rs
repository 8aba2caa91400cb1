//! Dumps of xfsdump become volumes: what the kernel showed of the dumped one, and what xfs_repair says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use uxfs::archive::{ArchiveError, Entry, Fsx, Kind, Meta, Source};
use uxfs::import::{ImportOptions, fill, run};
use uxfs::{Fs, NewInode, OpenOptions, Xflags};
use uxfs_disk::OpenMode;
use uxfs_oracle::program;

use crate::volume::{self, Volume};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../uxfs-archive/tests/dumps").join(name)
}

/// A file of the volume as a line of `tree.txt`.
fn line(fs: &Fs, path: &str) -> String {
    let ino = fs.resolve(path.trim_start_matches('/').as_bytes(), false).unwrap();
    let stat = fs.stat(ino).unwrap();
    let content = match stat.mode & 0o170_000 {
        0o100_000 => {
            let mut data = vec![0; stat.size as usize];
            let mut done = 0;
            while done < data.len() {
                done += fs.read_at(ino, done as u64, &mut data[done..]).unwrap();
            }
            let bytes = data.iter().enumerate();
            let sum: u64 = bytes.map(|(at, byte)| u64::from(*byte) * (at as u64 % 65521 + 1)).sum();
            format!("{}:{}", stat.size, sum as u32)
        }
        0o120_000 => String::from_utf8(fs.readlink(ino).unwrap()).unwrap(),
        0o020_000 | 0o060_000 => format!("{}:{}", stat.rdev.0, stat.rdev.1),
        _ => "-".into(),
    };
    let links = match stat.mode & 0o170_000 {
        0o040_000 => "-".into(),
        _ => stat.nlink.to_string(),
    };
    let mut xattrs = Vec::new();
    for name in fs.list_xattrs(ino).unwrap() {
        let value = fs.get_xattr(ino, &name).unwrap();
        let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        xattrs.push(format!("{}={value}", String::from_utf8(name).unwrap()));
    }
    xattrs.sort();
    let xattrs = if xattrs.is_empty() { "-".into() } else { xattrs.join(",") };
    let time = i128::from(stat.mtime.sec) * 1_000_000_000 + i128::from(stat.mtime.nsec);
    let (mode, uid, gid) = (stat.mode, stat.uid, stat.gid);
    format!("{path} {mode:o} {links} {uid} {gid} {time} {content} {xattrs}")
}

#[test]
fn a_dump_becomes_a_sound_volume() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain.xfsdump");
    let zstd = Command::new(program("zstd", "zstd")).arg("-dc").arg(fixture("three.zst")).output();
    fs::write(&plain, zstd.unwrap().stdout).unwrap();
    for (number, source) in
        [plain, fixture("three.zst"), fixture("two.zst")].into_iter().enumerate()
    {
        let image = dir.path().join(format!("{number}.img"));
        let summary = run(&ImportOptions::new(&source, &image), &mut |_| {}).unwrap();
        assert!(summary.created && summary.warnings.is_empty(), "{summary:?}");
        uxfs_oracle::both(&image).unwrap_or_else(|finding| panic!("{finding}"));
        let fs =
            Fs::open(Arc::new(volume::device(&image, OpenMode::Read)), OpenOptions::read_only())
                .unwrap();
        for wanted in fs::read_to_string(fixture("tree.txt")).unwrap().lines() {
            assert_eq!(line(&fs, wanted.split(' ').next().unwrap()), wanted);
        }
        for (path, flags, extsize, project) in [
            ("dir/numbers", 0, 0, 42),
            ("empty", 0x1000, 65536, 70000),
            ("hint", 0x800, 32768, 0),
            ("noatime", 0x40, 0, 0),
            ("still", 0x8, 0, 0),
            ("hello", 0, 0, 0),
        ] {
            let fsx = fs.get_fsx(fs.resolve(path.as_bytes(), false).unwrap()).unwrap();
            let of = (fsx.xflags.bits() & 0x7fff_ffff, fsx.extsize, fsx.projid);
            assert_eq!(of, (flags, extsize, project), "{path}");
        }
        // Holes stay holes.
        for (path, blocks) in [("sparse", 1), ("hole", 0)] {
            let stat = fs.stat(fs.resolve(path.as_bytes(), false).unwrap()).unwrap();
            assert_eq!(stat.blocks, blocks, "{path}");
        }
    }
}

/// Entries of fifos, as a dump with two files of one name would have them.
struct Fifos(std::vec::IntoIter<(&'static str, Fsx)>);

impl Source for Fifos {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        Ok(self.0.next().map(|(path, fsx)| {
            let meta = Meta { fsx, ..Meta::default() };
            Entry { path: path.into(), kind: Kind::Fifo, meta }
        }))
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, ArchiveError> {
        Ok(0)
    }

    fn chunk(&mut self) -> Result<&[u8], ArchiveError> {
        Ok(&[])
    }

    fn consume(&mut self, _: usize) {}

    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }

    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Flags that a file would get in the end are not given to the next file with its inode number.
#[test]
fn the_flags_of_a_replaced_file_are_forgotten() {
    let volume = Volume::small(300, "");
    let fs = volume.open();
    let fixed = Fsx { flags: Xflags::IMMUTABLE.bits(), ..Fsx::default() };
    let entries = vec![
        ("kept", fixed),
        ("replaced", fixed),
        ("replaced", Fsx::default()),
        ("replaced", Fsx::default()),
    ];
    fill(&fs, Box::new(Fifos(entries.into_iter())), &mut |_| {}).unwrap();
    let flags = |path: &str| {
        let ino = fs.resolve(path.as_bytes(), false).unwrap();
        fs.get_fsx(ino).unwrap().xflags
    };
    assert!(flags("kept").contains(Xflags::IMMUTABLE));
    assert!(!flags("replaced").contains(Xflags::IMMUTABLE));
    // No number was left for a later file either.
    for name in 0..200_u32 {
        fs.create(fs.root(), format!("{name}").as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    fs.close().unwrap();
    volume.judge("after the import");
}
