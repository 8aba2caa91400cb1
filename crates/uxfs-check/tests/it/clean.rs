//! Sound volumes, of which nothing may be found.

use uxfs::NewInode;
use uxfs_oracle::{Kernel, vm};

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
fn volumes_given() {
    let Some(dir) = std::env::var_os("UXFS_IMAGES") else { return };
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        clean(&path, &path.display().to_string());
    }
}
