//! Volumes of version 4: volumes of kernels are read, and writing is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use uxfs::{Error, Fs, OpenOptions};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::dir::FileType;
use uxfs_format::inode::S_IFMT;
use uxfs_oracle::Kernel;
use uxfs_oracle::vm::Vm;

use crate::kernel::{ALL, age};
use crate::listing;
use crate::volume::{Volume, device, setting};

/// The mkfs.xfs options of version 4, each value at least once.
const LINES: [&str; 6] = [
    "-m crc=0 -n ftype=0",
    "-m crc=0 -b size=512 -n ftype=1 -i attr=1,projid32bit=0 -l lazy-count=0,version=1",
    "-m crc=0 -b size=1k -n size=64k,ftype=0 -i size=512",
    "-m crc=0 -i size=2048 -s size=4k",
    "-m crc=0 -b size=512 -n ftype=0,size=8k -i maxpct=50",
    "-m crc=0 -n version=ci",
];

/// Kinds of block that differ from those of version 5.
fn kinds(volume: &Volume) -> BTreeSet<&'static str> {
    let dev = device(&volume.path, OpenMode::Read);
    let mut found = BTreeSet::new();
    let mut buf = vec![0; 1 << 20];
    for at in (0..dev.len()).step_by(buf.len()) {
        dev.read_at(at, &mut buf).unwrap();
        for sector in buf.chunks(512) {
            match (&sector[..4], &sector[8..10]) {
                (b"XD2B", _) => found.insert("directory block"),
                (b"XD2D", _) => found.insert("data block"),
                (b"XD2F", _) => found.insert("free block"),
                (b"BMAP", _) => found.insert("extent tree"),
                (_, [0xd2, 0xf1]) => found.insert("only leaf"),
                (_, [0xd2, 0xff]) => found.insert("leaf"),
                (_, [0xfe, 0xbe]) => found.insert("node"),
                (_, [0xfb, 0xee]) => found.insert("attribute leaf"),
                _ => false,
            };
        }
    }
    found
}

/// Every name is found, on a volume without case in other letters too, and its entry has the type of the
/// inode.
fn look_up_all(fs: &Fs, line: &str) {
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        let mut all = Vec::new();
        fs.read_dir(dir, 0, &mut |entry| {
            all.push((entry.name.to_vec(), entry.ino, entry.ftype));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        for (name, ino, ftype) in all {
            let shown = name.escape_ascii();
            assert_eq!(fs.lookup(dir, &name).unwrap(), ino, "{line}: {shown}");
            if fs.geo.naming.folds() {
                let upper = name.to_ascii_uppercase();
                assert_eq!(fs.lookup(dir, &upper).unwrap(), ino, "{line}: {shown} in capitals");
            }
            let mode = fs.stat(ino).unwrap().mode;
            assert_eq!(ftype, FileType::from_mode(mode & S_IFMT), "{line}: {shown}");
            if ftype == FileType::Directory && name != b"." && name != b".." {
                todo.push(ino);
            }
        }
    }
}

#[test]
fn volumes_of_kernels_are_read() {
    let mut seen = BTreeSet::new();
    for (number, line) in LINES.into_iter().enumerate() {
        let volume = Volume::real(300, line);
        let seed = setting("UXFS_SEED", 0) * 1000 + 400 + number as u64;
        let aged = age(Kernel::Stable, &volume, seed, 900);
        println!("{line}, seed {seed}: {} entries", aged.entries.len());
        let fs = volume.open_read_only();
        listing::list(&fs).assert_same(&aged, ALL);
        look_up_all(&fs, line);
        seen.extend(kinds(&volume));
    }
    assert!(seen.len() >= 6, "the kernel made only {seen:?}");
}

/// Directories in node form, which need more entries than random operations create.
#[test]
fn directories_of_many_entries_are_read() {
    let volume = Volume::real(300, "-m crc=0 -b size=512 -n ftype=0");
    let script = "set -e\nmount -t xfs /drive/0 /mnt\nmkdir /mnt/many\ni=0\n\
        while [ $i -lt 2400 ]; do : >/mnt/many/a-rather-long-name-of-a-file-$i; i=$((i+1)); done\n\
        rm /mnt/many/*7\numount /mnt\n";
    let vm = Vm::new(Kernel::Stable).drive(&volume.path, true).script(script);
    vm.run().unwrap_or_else(|f| panic!("{f}"));
    let seen = kinds(&volume);
    assert!(seen.contains("leaf") && seen.contains("free block"), "{seen:?}");
    let theirs = listing::of_kernel(Kernel::Stable, &[&volume.path]).remove(0);
    let fs = volume.open_read_only();
    listing::list(&fs).assert_same(&theirs, ALL);
    look_up_all(&fs, "node form");
}

/// Converts inodes of version 2 to version 1, as kernels of the 1990s wrote them: a short link count in
/// another field, and no project. Returns their number.
fn age_inodes(volume: &Volume, inode: usize) -> usize {
    let dev = device(&volume.path, OpenMode::Write);
    let mut aged = 0;
    let mut buf = vec![0; 1 << 20];
    for at in (0..dev.len()).step_by(buf.len()) {
        dev.read_at(at, &mut buf).unwrap();
        let before = aged;
        for raw in buf.chunks_mut(inode) {
            let regular = raw[2] & 0xf0 == 0x80;
            if !raw.starts_with(b"IN") || raw[4] != 2 || !regular || raw[16..18] != [0; 2] {
                continue;
            }
            raw[4] = 1;
            raw.copy_within(18..20, 6);
            raw[16..24].fill(0);
            aged += 1;
        }
        if aged > before {
            dev.write_at(at, &buf).unwrap();
        }
    }
    aged
}

#[test]
fn inodes_of_version_1_are_read() {
    let volume = Volume::real(300, "-m crc=0 -n ftype=0");
    let seed = setting("UXFS_SEED", 0) * 1000 + 450;
    age(Kernel::Stable, &volume, seed, 300);
    let aged = age_inodes(&volume, 256);
    assert!(aged > 30, "seed {seed}: {aged} inodes");
    let theirs = listing::of_kernel(Kernel::Stable, &[&volume.path]).remove(0);
    listing::list(&volume.open_read_only()).assert_same(&theirs, ALL);
}

#[test]
fn writing_is_refused() {
    let volume = Volume::real(300, LINES[0]);
    let dev = Arc::new(device(&volume.path, OpenMode::Write));
    let before = {
        let mut head = vec![0; 1 << 20];
        dev.read_at(0, &mut head).unwrap();
        head
    };
    let error = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::default());
    let error = error.err().unwrap();
    assert!(matches!(error, Error::Unsupported(_)) && error.to_string().contains("v4"), "{error}");
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::read_only()).unwrap();
    let made = fs.create(fs.root(), b"file", &uxfs::NewInode::file(0o644));
    assert!(matches!(made, Err(Error::ReadOnly)));
    fs.close().unwrap();
    let mut after = vec![0; 1 << 20];
    dev.read_at(0, &mut after).unwrap();
    assert!(before == after, "the volume was written to");
}
