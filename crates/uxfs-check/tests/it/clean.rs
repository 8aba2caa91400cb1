//! Sound volumes, of which nothing may be found.

use uxfs::NewInode;
use uxfs_oracle::{Kernel, Xfsprogs, vm};

use crate::volume::{FEATURES, MIB, Volume, clean, fill, setting};

/// Fresh volumes, over what mkfs can be told.
#[test]
fn fresh_volumes() {
    let lines = [
        "-b size=4096",
        "-b size=1024",
        "-b size=2048",
        "-i size=2048",
        "-i size=1024 -m rmapbt=1",
        "-s size=4096",
        "-n size=65536",
        "-d agcount=1",
        "-d agcount=7",
        "-d su=64k,sw=4",
        "-l size=8m",
        "-m finobt=0",
        "-m reflink=0,rmapbt=1",
        "-m inobtcount=0,bigtime=0",
        "-i sparse=0",
        "-i nrext64=1",
        "-l sunit=64",
    ];
    for line in lines {
        Volume::small(128, line).clean(line);
    }
}

/// The same by the real mkfs.xfs.
#[test]
fn fresh_volumes_of_the_real_mkfs() {
    let volume = Volume::empty();
    for line in
        ["", "-m rmapbt=1", "-b size=1k", "-s size=4k -d agcount=5", "-i size=2048,maxpct=5"]
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        uxfs_oracle::mkfs(&volume.path, 512 * MIB, &words);
        volume.clean(line);
    }
}

/// The same by the newer mkfs.xfs, which gives the trees of groups whose free extents fit one block
/// no room to grow: with a stripe, the root directory then lies elsewhere.
#[test]
fn fresh_volumes_of_the_newer_mkfs() {
    let volume = Volume::empty();
    let striped = "-d su=64k,sw=4 -i sparse=0,size=1024";
    for line in ["", &format!("-b size=64k {striped}"), &format!("-b size=32k {striped}")] {
        let words: Vec<&str> = line.split_whitespace().collect();
        Xfsprogs::Current.mkfs(&volume.path, 768 * MIB, &words);
        volume.clean(line);
    }
}

/// As xfs_admin -U leaves volumes: with a log that begins with a record and then nothing.
#[test]
fn volumes_that_got_another_uuid() {
    for (release, line) in Xfsprogs::ALL.into_iter().zip(["-m rmapbt=1", "-d su=64k,sw=2"]) {
        let volume = Volume::empty();
        let words: Vec<&str> = line.split_whitespace().collect();
        release.mkfs(&volume.path, 768 * MIB, &words);
        release.db_write(&volume.path, &["uuid generate"]);
        volume.clean(line);
        let fs = volume.open();
        fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
        fs.close().unwrap();
        volume.clean(line);
        uxfs_oracle::both(&volume.path).unwrap_or_else(|f| panic!("{line}: {f}"));
    }
}

/// Volumes with something of everything, before and after much of it goes.
#[test]
fn volumes_that_were_edited() {
    for line in FEATURES {
        let volume = Volume::small(96, line);
        let fs = volume.open();
        fill(&fs);
        fs.close().unwrap();
        volume.clean(line);
        let fs = volume.open();
        let root = fs.root();
        let node = fs.lookup(root, b"node").unwrap();
        for number in (1..1400u64).filter(|n| n % 3 != 0 && n % 40 != 7) {
            let mut name = format!("{number}-").into_bytes();
            name.resize(40, b'n');
            fs.unlink(node, &name).unwrap();
        }
        fs.unlink(root, b"hard").unwrap();
        fs.create(root, b"after", &NewInode::dir(0o755)).unwrap();
        fs.close().unwrap();
        volume.clean(&format!("{line}, emptied"));
    }
}

/// Volumes that kernels filled and aged, one by each; `UXFS_AGED` makes them older, and more.
#[test]
fn volumes_that_kernels_aged() {
    let ops = u32::try_from(setting("UXFS_AGED", 0)).unwrap();
    let seed = setting("UXFS_SEED", 1);
    let lines = if ops == 0 { &FEATURES[1..2] } else { FEATURES };
    for line in lines {
        for kernel in Kernel::ALL {
            let volume = Volume::small(96, line);
            vm::age(kernel, &volume.path, seed, ops.max(300)).unwrap_or_else(|f| panic!("{f}"));
            volume.clean(&format!("{line}, aged by {kernel:?} with seed {seed}"));
        }
    }
}

/// Images from elsewhere.
#[test]
#[ignore = "needs sound images: UXFS_IMAGES=DIR"]
fn volumes_given() {
    let dir = std::env::var_os("UXFS_IMAGES").unwrap_or_else(|| panic!("UXFS_IMAGES is not set"));
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        clean(&path, &path.display().to_string());
    }
}
