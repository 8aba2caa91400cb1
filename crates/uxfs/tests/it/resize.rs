//! Volumes grown and shrunk, in place and by a rebuild, judged by xfsprogs and kernels, and
//! interrupted at every write.

use std::process::Command;
use std::sync::Arc;

use uxfs::resize::{self, Method, ResizeOptions, ResizeSummary, Target};
use uxfs::{Error, Fs, Fsx, NewInode, OpenOptions, Xflags};
use uxfs_disk::BlockDev;
use uxfs_format::inode::{S_IFDIR, S_IFMT, S_IFREG};
use uxfs_oracle::{Fields, Kernel, Listing, Rng, vm};
use uxfs_testkit::Op;

use crate::damage::device;
use crate::damage::rich;
use crate::volume::{MIB, Volume, setting};
use crate::{edit, listing};

/// Everything but free space.
const ALL: Fields = Fields::ALL.difference(Fields::SPACE);
/// The fields that a rebuild keeps: inode numbers change, and with them the sizes of directories and
/// the extent trees.
const KEPT: Fields =
    ALL.difference(Fields::INO).difference(Fields::DIRS).difference(Fields::BLOCKS);

const LINES: [&str; 4] = [
    "-m rmapbt=1",
    "-b size=1k -m reflink=1,rmapbt=1 -i nrext64=1",
    "-m reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0",
    "-d su=64k,sw=3 -s size=4k -i size=1024",
];

fn resize(volume: &Volume, target: Target, at: &str) -> ResizeSummary {
    let options = ResizeOptions::new(&volume.path, target);
    let done = resize::run(&options).unwrap_or_else(|e| panic!("{at}: {e}"));
    volume.judge(&format!("{at}: {done:?}"));
    done
}

fn aged(line: &str, mib: u64, seed: u64, ops: u32) -> (Volume, Listing) {
    let volume = Volume::real(mib, line);
    let aged = vm::age(Kernel::Current, &volume.path, seed, ops);
    aged.unwrap_or_else(|f| panic!("{line}, seed {seed}: {f}"));
    let before = listing::list(&volume.open_read_only());
    (volume, before)
}

fn uuid(volume: &Volume) -> [u8; 16] {
    volume.open_read_only().superblock().uuid
}

#[test]
fn a_volume_grows_and_shrinks_without_loss() {
    let seed = setting("UXFS_SEED", 0) * 1000 + 31;
    for line in LINES.into_iter().take(setting("UXFS_ROUNDS", 2) as usize) {
        let (volume, before) = aged(line, 600, seed, 400);
        let (first, id) = (600 * MIB, uuid(&volume));
        // First into the last group only, then by many groups, then by odd sizes.
        for bytes in [601 * MIB, 777 * MIB + 12_345, 1500 * MIB] {
            let at = format!("{line}, seed {seed}, {bytes}");
            let done = resize(&volume, Target::Bytes(bytes), &at);
            assert!(matches!(done.method, Method::Grown | Method::Unchanged), "{at}: {done:?}");
            listing::list(&volume.open_read_only())
                .assert_same(&before, Fields::ALL - Fields::SPACE);
        }
        let done = resize(&volume, Target::Bytes(first), line);
        assert_eq!(done.method, Method::Truncated, "{line}");
        assert_eq!(std::fs::metadata(&volume.path).unwrap().len(), done.after);
        listing::list(&volume.open_read_only()).assert_same(&before, ALL);

        std::fs::File::options()
            .write(true)
            .open(&volume.path)
            .unwrap()
            .set_len(2 * first)
            .unwrap();
        let at = format!("{line}, seed {seed}");
        assert_eq!(resize(&volume, Target::Fill, &at).method, Method::Grown);
        assert_eq!(resize(&volume, Target::Fill, &at).method, Method::Unchanged);
        let fs = volume.open();
        edit::edit(&fs, &mut Rng::new(seed), 300, &at);
        fs.close().unwrap();
        volume.judge(&at);
        let ours = listing::list(&volume.open_read_only());
        ours.assert_same(&listing::of_kernel(Kernel::Stable, &[&volume.path])[0], ALL);
        vm::age(Kernel::Current, &volume.path, seed + 1, 300)
            .unwrap_or_else(|f| panic!("{at}: {f}"));
        volume.judge(&at);
        assert_eq!(uuid(&volume), id);
    }
}

#[test]
fn a_rebuild_preserves_all_files() {
    let seed = setting("UXFS_SEED", 0) * 1000 + 47;
    for line in LINES.into_iter().take(setting("UXFS_ROUNDS", 2) as usize) {
        let (volume, before) = aged(line, 1200, seed, 700);
        let id = uuid(&volume);
        let at = format!("{line}, seed {seed}");
        let shorter = resize(&volume, Target::Bytes(900 * MIB), &at);
        assert_eq!(shorter.method, Method::Rebuilt, "{at}");
        listing::list(&volume.open_read_only()).assert_same(&before, KEPT);
        let least = resize(&volume, Target::Minimize, &at);
        assert_eq!(least.method, Method::Rebuilt, "{at}: {least:?}");
        println!("{at}: {} MiB at the least", least.after / MIB);
        assert_eq!(std::fs::metadata(&volume.path).unwrap().len(), least.after);
        for kernel in Kernel::ALL {
            let seen = listing::of_kernel(kernel, &[&volume.path]);
            seen[0].assert_same(&before, KEPT - Fields::HOLES);
        }
        listing::list(&volume.open_read_only()).assert_same(&before, KEPT);
        // A volume of minimum size grows again and takes files.
        assert_eq!(resize(&volume, Target::Bytes(700 * MIB), &at).method, Method::Grown);
        let fs = volume.open();
        edit::edit(&fs, &mut Rng::new(seed), 200, &at);
        fs.close().unwrap();
        volume.judge(&at);
        assert_eq!(uuid(&volume), id);
        let left: Vec<_> = std::fs::read_dir(volume.path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{at}: {left:?}");
    }
}

#[test]
fn a_rebuild_recreates_parent_pointers() {
    let line = "-n parent=1 -i exchange=1,nrext64=1 -m rmapbt=1";
    let volume = Volume::small(200, line);
    let fs = volume.open();
    edit::edit(&fs, &mut Rng::new(3), 600, line);
    // The kernel does not show all attributes of links and devices.
    let plain = |mode| matches!(mode & S_IFMT, S_IFREG | S_IFDIR);
    for found in edit::walk(&fs).unwrap().iter().filter(|found| !plain(found.mode)) {
        for name in fs.list_xattrs(found.ino).unwrap() {
            fs.remove_xattr(found.ino, &name).unwrap();
        }
    }
    fs.close().unwrap();
    let before = listing::list(&volume.open_read_only());
    let options = ResizeOptions::new(&volume.path, Target::Minimize);
    assert_eq!(resize::run(&options).unwrap().method, Method::Rebuilt);
    let fs = volume.open_read_only();
    listing::list(&fs).assert_same(&before, KEPT);
    drop(fs);
    let seen = listing::of_kernel(Kernel::Current, &[&volume.path]);
    seen[0].assert_same(&before, KEPT - Fields::HOLES);
}

/// A rebuild recreates immutable and append-only files and directories.
#[test]
fn a_rebuild_copies_files_with_flags() {
    let volume = Volume::real(600, "-m rmapbt=1");
    let fs = volume.open();
    let root = fs.root();
    let set = |ino, xflags, projid| {
        fs.set_fsx(ino, &Fsx { xflags, projid, ..Fsx::default() }).unwrap();
    };
    let dir = fs.create(root, b"d", &NewInode::dir(0o755)).unwrap();
    let file = fs.create(dir, b"f", &NewInode::file(0o644)).unwrap();
    fs.link(file, root, b"second").unwrap();
    fs.symlink(dir, b"l", b"x", &NewInode::new(0o777)).unwrap();
    set(file, Xflags::IMMUTABLE, 5);
    set(dir, Xflags::APPEND | Xflags::IMMUTABLE | Xflags::PROJINHERIT, 7);
    set(root, Xflags::PROJINHERIT | Xflags::NOSYMLINKS | Xflags::IMMUTABLE, 9);
    fs.close().unwrap();
    let options = ResizeOptions::new(&volume.path, Target::Minimize);
    assert_eq!(resize::run(&options).unwrap().method, Method::Rebuilt);
    volume.judge("made again");
    let fs = volume.open_read_only();
    for (path, flags, projid) in [
        (&b"/"[..], Xflags::PROJINHERIT | Xflags::NOSYMLINKS | Xflags::IMMUTABLE, 9),
        (b"/d", Xflags::APPEND | Xflags::IMMUTABLE | Xflags::PROJINHERIT, 7),
        (b"/d/f", Xflags::IMMUTABLE, 5),
        (b"/second", Xflags::IMMUTABLE, 5),
    ] {
        let fsx = fs.get_fsx(fs.resolve(path, false).unwrap()).unwrap();
        assert_eq!((fsx.xflags - Xflags::HASATTR, fsx.projid), (flags, projid));
    }
}

#[test]
fn an_impossible_resize_is_refused_and_changes_nothing() {
    let volume = Volume::small(120, "-m rmapbt=1");
    let fs = volume.open();
    let ino = fs.create(fs.root(), b"big", &NewInode::file(0o644)).unwrap();
    fs.write_at(ino, 0, &vec![7; 60 << 20]).unwrap();
    fs.close().unwrap();
    let image = std::fs::read(&volume.path).unwrap();
    let run = |target| resize::run(&ResizeOptions::new(&volume.path, target));
    for bytes in [0, 1 << 20, 31 * MIB, 60 * MIB] {
        let error = run(Target::Bytes(bytes)).unwrap_err().to_string();
        assert!(error.contains(&bytes.to_string()), "{error}");
    }
    let link = volume.path.with_file_name("other name");
    std::fs::hard_link(&volume.path, &link).unwrap();
    assert!(run(Target::Minimize).unwrap_err().to_string().contains("several hard links"));
    std::fs::remove_file(&link).unwrap();
    assert!(std::fs::read(&volume.path).unwrap() == image, "the image was changed");
    // A symbolic link stays a link; its target is replaced.
    std::os::unix::fs::symlink(&volume.path, &link).unwrap();
    let options = ResizeOptions::new(&link, Target::Minimize);
    let done = resize::run(&options).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&volume.path).unwrap().len(), done.after);
    assert!(done.after < 75 * MIB, "{done:?}");
    volume.judge("minimized");
}

/// Grows or shrinks the volume on `dev`, as `resize` does on a file.
fn in_place(dev: &Arc<dyn BlockDev>, dblocks: u64) -> uxfs::Result<()> {
    let fs = Fs::open(Arc::clone(dev), OpenOptions::default())?;
    let mut sb = fs.superblock();
    if dblocks < sb.dblocks.get() {
        return fs.shrink(dblocks).map(|done| assert!(done, "something in the tail"));
    }
    let groups = dblocks.div_ceil(fs.geo.ag_blocks.into()) as u32;
    let fresh = sb.agcount.get()..groups;
    sb.dblocks.set(dblocks);
    sb.agcount.set(groups);
    // The caller knows whether a device call failed, and so whether the error is expected.
    let free = uxfs_mkfs::write_groups(&sb, fresh, &**dev).map_err(|_| Error::NoSpace)?;
    fs.grow(dblocks, free)
}

/// After an interruption at any write or flush, the volume is consistent, or it is marked and
/// xfs_repair repairs it.
#[test]
fn resize_interrupted_at_any_write() {
    const BLOCKS: u64 = (40 << 20) / 4096;
    let small = rich("-d agcount=2 -m rmapbt=1", 40);
    let mut longer = small.to_vec();
    longer.resize(75 << 20, 0);
    let (small_blocks, large_blocks) = (BLOCKS, (75 << 20) / 4096);
    let longer = device::base(&longer);
    let large: Arc<dyn BlockDev> = device::copy(&longer);
    in_place(&large, large_blocks).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.img");
    for (what, image, dblocks) in [("grow", longer, large_blocks), ("shrink", large, small_blocks)]
    {
        for call in [Op::Write, Op::Flush] {
            let (mut marked, mut whole) = (0, 0);
            for number in 0.. {
                let at = format!("{what}, {call:?} {number} fails");
                let state = device::copy(&image);
                let dev = device::failing(&state, call, number);
                let failing = Arc::clone(&dev) as Arc<dyn BlockDev>;
                let done = in_place(&failing, dblocks);
                assert_eq!(done.is_err(), dev.failed(), "{at}: {done:?}");
                std::fs::write(&path, device::bytes(&*state)).unwrap();
                match Fs::open(state, OpenOptions::default()) {
                    Ok(_) => whole += 1,
                    Err(Error::Unsupported(why)) => {
                        assert!(why.contains("repair"), "{at}: {why}");
                        let repair = uxfs_oracle::program("xfs_repair", "xfsprogs");
                        let out = Command::new(repair).arg(&path).output().unwrap();
                        assert!(out.status.success(), "{at}: {out:?}");
                        marked += 1;
                    }
                    Err(error) => panic!("{at}: {error}"),
                }
                uxfs_oracle::both(&path).unwrap_or_else(|f| panic!("{at}: {f}"));
                if !dev.failed() {
                    break;
                }
            }
            println!("{what}, {call:?}: left whole {whole}, marked {marked}");
            assert!(whole > 1 && marked > 0, "{what}, {call:?}: whole {whole}, marked {marked}");
        }
    }
}
