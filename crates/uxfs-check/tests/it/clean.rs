//! Undamaged volumes, which must have no findings.

use uxfs::NewInode;
use uxfs_oracle::{Kernel, Xfsprogs, vm};

use crate::volume::{FEATURES, MIB, Volume, clean, fill, setting};

/// Fresh volumes with various mkfs options.
#[test]
fn fresh_volumes_are_clean() {
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

/// Fresh volumes of the real mkfs.xfs.
#[test]
fn fresh_volumes_of_the_real_mkfs_are_clean() {
    let volume = Volume::empty();
    for line in
        ["", "-m rmapbt=1", "-b size=1k", "-s size=4k -d agcount=5", "-i size=2048,maxpct=5"]
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        uxfs_oracle::mkfs(&volume.path, 512 * MIB, &words);
        volume.clean(line);
    }
}

/// Fresh volumes of the newer mkfs.xfs. If one block holds a group's free extents, it puts no
/// blocks in the free list for the trees' growth; with a stripe, the root directory then lies
/// elsewhere.
#[test]
fn fresh_volumes_of_the_newer_mkfs_are_clean() {
    let volume = Volume::empty();
    let striped = "-d su=64k,sw=4 -i sparse=0,size=1024";
    for line in ["", &format!("-b size=64k {striped}"), &format!("-b size=32k {striped}")] {
        let words: Vec<&str> = line.split_whitespace().collect();
        Xfsprogs::Current.mkfs(&volume.path, 768 * MIB, &words);
        volume.clean(line);
    }
}

/// Volumes after xfs_admin -U: the log holds one record at its start and nothing else.
#[test]
fn volumes_with_a_new_uuid_are_clean() {
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

/// Volumes with every kind of structure, before and after most of it is removed.
#[test]
fn edited_volumes_are_clean() {
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

/// Volumes that each kernel filled and aged; `UXFS_AGED` ages more volumes, and for longer.
#[test]
fn volumes_aged_by_kernels_are_clean() {
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

/// Images given by the environment.
#[test]
#[ignore = "needs undamaged images: UXFS_IMAGES=DIR"]
fn given_volumes_are_clean() {
    let dir = std::env::var_os("UXFS_IMAGES").unwrap_or_else(|| panic!("UXFS_IMAGES is not set"));
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        clean(&path, &path.display().to_string());
    }
}
