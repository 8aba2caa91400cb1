//! Copies of volumes, beside those of the real xfs_copy.

use std::path::Path;
use std::sync::Arc;

use uxfs::{Fs, NewInode, OpenOptions};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_format::Uuid;
use uxfs_metadump::{Copier, CopyError, Target, Version};
use uxfs_oracle::Xfsprogs::Current;
use uxfs_oracle::{Fields, Kernel, vm};

use crate::fixture::{NEW, beside, difference, dumped, filled, restored, run, shape, ways};
use crate::volume::{FEATURES, Volume, clean, device};

const OTHER: Uuid = Uuid([7; 16]);

/// Copies a volume to a new file.
fn copied(volume: &Volume, to: &Path, uuid: Option<Uuid>) -> Result<(), CopyError> {
    let dev = device(&volume.path, OpenMode::Read);
    let copier = Copier::new(&dev, uuid.is_none())?;
    let target = FileDev::open(to, OpenMode::Create(copier.volume_len())).unwrap();
    let uuid = uuid.unwrap_or(copier.uuid());
    let targets = [Target { dev: &target, blank: true, uuid }];
    copier.run(&targets, &mut |_, _| {})?.targets.into_iter().collect()
}

/// The tar archive of a volume: every file with its content.
fn tar(image: &Path) -> Vec<u8> {
    let dev = Arc::new(FileDev::open(image, OpenMode::Read).unwrap());
    let fs = Fs::open(dev, OpenOptions::read_only()).unwrap();
    uxfs::export::export(&fs, fs.root(), Vec::new()).unwrap().0
}

/// The fields of all superblocks, but for the UUID that a copy gets.
fn superblocks(image: &Path, count: u32) -> Vec<String> {
    let of = |ag: u32| {
        let text = Current.db(image, &[&format!("sb {ag}"), "print"]);
        let differs = |line: &&str| !line.starts_with("uuid = ") && !line.starts_with("crc = ");
        text.lines().filter(differs).collect::<Vec<_>>().join("\n")
    };
    (0..count).map(of).collect()
}

#[test]
fn copies_are_those_of_xfs_copy() {
    for line in FEATURES.iter().chain(&NEW) {
        let volume = filled(line);
        let (ours, theirs) = (beside(&volume, "ours"), beside(&volume, "theirs"));
        let (before, content) = (shape(&volume.path), tar(&volume.path));
        // The same UUID: the same bytes as the real one copies.
        copied(&volume, &ours, None).unwrap();
        run(Current, "xfs_copy", &[Path::new("-d"), &volume.path, &theirs]);
        if let Some(where_to) = difference(&ours, &theirs) {
            panic!("{line}: {where_to}");
        }
        // Another UUID, in all superblocks as the real one sets it.
        for path in [&ours, &theirs] {
            std::fs::remove_file(path).unwrap();
        }
        copied(&volume, &ours, Some(OTHER)).unwrap();
        run(Current, "xfs_copy", &[&volume.path, &theirs]);
        assert_eq!(superblocks(&ours, 2), superblocks(&theirs, 2), "{line}");
        let uuid = Current.db(&ours, &["sb 0", "print uuid"]);
        assert_eq!(uuid.trim(), format!("uuid = {OTHER}"));
        uxfs_oracle::both(&ours).unwrap_or_else(|finding| panic!("{line}: {finding}"));
        clean(&ours, line);
        assert!(shape(&ours) == before && tar(&ours) == content, "{line}: it has other files");
        // It can be changed, and copied again with the UUID that it had at first.
        let fs = Fs::open(Arc::new(device(&ours, OpenMode::Write)), OpenOptions::default());
        let fs = fs.unwrap();
        fs.create(fs.root(), b"after", &NewInode::file(0o644)).unwrap();
        fs.close().unwrap();
        uxfs_oracle::both(&ours).unwrap_or_else(|finding| panic!("{line}: {finding}"));
    }
}

/// Kernels mount copies and restored dumps, and list the same files in a copy as in the volume.
#[test]
fn kernels_mount_copies_and_restored_dumps() {
    let line = FEATURES[1];
    let volume = filled(line);
    let (copy, whole) = (beside(&volume, "copy"), beside(&volume, "restored"));
    copied(&volume, &copy, Some(OTHER)).unwrap();
    for (_, options) in ways(Version::One) {
        restored(&dumped(&volume.path, &options).0, &whole);
        for kernel in Kernel::ALL {
            let listings = vm::list(kernel, &[&volume.path, &copy, &whole])
                .unwrap_or_else(|finding| panic!("{finding}"));
            listings[1].assert_same(&listings[0], Fields::TREE | Fields::HOLES);
            assert_eq!(listings[2].entries.len(), listings[0].entries.len());
        }
    }
}

/// Only what is in use is copied: a copy to a new file is as sparse as the volume, or sparser.
#[test]
fn what_is_free_is_left_out() {
    let volume = filled("");
    let dev = device(&volume.path, OpenMode::Read);
    let copier = Copier::new(&dev, true).unwrap();
    let to = MemDev::new(copier.volume_len());
    let targets = [Target { dev: &to, blank: true, uuid: copier.uuid() }];
    let summary = copier.run(&targets, &mut |_, _| {}).unwrap();
    drop(dev);
    let fs = volume.open();
    let (blocks, free) = (fs.statfs().blocks, fs.statfs().free_blocks);
    assert!(summary.bytes < (blocks - free / 2) * 4096, "{summary:?}, {blocks} {free}");
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let volume = filled("");
    let to = beside(&volume, "copy");
    let fs = volume.open();
    fs.create(fs.root(), b"in the log", &NewInode::file(0o644)).unwrap();
    fs.sync().unwrap();
    drop(fs);
    assert!(matches!(copied(&volume, &to, Some(OTHER)), Err(CopyError::DirtyLog)));
    // A dirty log is copied with the rest if the UUID stays.
    copied(&volume, &to, None).unwrap();
    assert!(shape(&to) == shape(&volume.path));
    volume.open().close().unwrap();
    for (damage, why) in [
        (&["agf 1", "write -c bnoroot 0"][..], "AGF"),
        (&["agf 1", "addr bnoroot", "write -c recs[1].startblock 1000000"], "bnobt block"),
        (&["agf 1", "addr bnoroot", "write -d recs[1].blockcount 1000000"], "bnobt block"),
        (&["sb 0", "write -d inprogress 1"], "unfinished"),
    ] {
        let image = Volume::copy(&volume.path);
        Current.db_write(&image.path, damage);
        std::fs::remove_file(&to).unwrap();
        let error = copied(&image, &to, Some(OTHER)).unwrap_err().to_string();
        assert!(error.contains(why), "{damage:?}: {error}");
        if to.exists() {
            // Nothing that could be mounted is left.
            assert!(shape_fails(&to), "{damage:?}");
        } else {
            std::fs::write(&to, "").unwrap();
        }
    }
}

fn shape_fails(image: &Path) -> bool {
    let dev = FileDev::open(image, OpenMode::Read).unwrap();
    Fs::open(Arc::new(dev), OpenOptions::read_only()).is_err()
}

/// A target that fails does not end the others.
#[test]
fn targets_fail_alone() {
    let volume = filled("");
    let dev = device(&volume.path, OpenMode::Read);
    let copier = Copier::new(&dev, false).unwrap();
    let (one, small, two) = (
        MemDev::new(copier.volume_len()),
        MemDev::new(copier.volume_len() - 512),
        MemDev::new(copier.volume_len()),
    );
    let targets = [&one, &small, &two].map(|dev| Target { dev, blank: true, uuid: OTHER });
    let summary = copier.run(&targets, &mut |_, _| {}).unwrap();
    let fine: Vec<bool> = summary.targets.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, true]);
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..copier.volume_len()).step_by(a.len()) {
        one.read_at(at, &mut a).unwrap();
        two.read_at(at, &mut b).unwrap();
        assert!(a == b, "the copies differ at {at}");
    }
}
