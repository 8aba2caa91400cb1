//! Calls by path on a device that fails in part, and on a full one. What can be read is read.

use std::path::Path;
use std::sync::Arc;

use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::format::FsBlock;
use uxfs::{Atime, Volume, VolumeOptions, mkfs};
use uxfs_testkit::{EIO, FaultDev, Op, Rule};

use crate::volume::MIB;

const ENOSPC: i32 = 28;

fn make(image: &Path) -> Volume {
    let mut make = mkfs::Options::default();
    make.unsupported = true;
    Volume::create_with(image, 64 * MIB, &make, &VolumeOptions::new()).unwrap()
}

fn device(image: &Path) -> Arc<FaultDev<FileDev>> {
    Arc::new(FaultDev::new(FileDev::open(image, OpenMode::Write).unwrap()).unsynced())
}

fn open(dev: &Arc<FaultDev<FileDev>>, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::clone(dev) as Arc<dyn BlockDev>, options).unwrap()
}

/// A host whose disk is full refuses metadata until memory is full of it, and then the volume refuses every
/// change. An access time is a change that the reader did not ask for.
#[test]
fn a_full_host_does_not_keep_files_from_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    make(&image).close().unwrap();
    let dev = device(&image);
    let mut engine = uxfs::OpenOptions::default();
    engine.cache_bytes = 1 << 20;
    let volume = open(&dev, &VolumeOptions::new().engine(engine).atime(Atime::Strict));
    volume.write("file", "content").unwrap();
    volume.sync_all().unwrap();
    let log = volume
        .with_fs(|fs| Ok(fs.geo.fsb_daddr(FsBlock(fs.superblock().logstart.get())).bytes()))
        .unwrap();
    dev.add(Rule::on(Op::WRITES).within(0..log).fail(ENOSPC));
    let refused = (0..100_000).find_map(|number| {
        let name = format!("a name long enough to fill memory before long {number:05}");
        let made = volume.mknod(name, 0o644, (0, 0));
        if number % 100 == 0 {
            volume.sync_all().unwrap();
        }
        made.err()
    });
    assert_eq!(refused.map(|error| error.errno()), Some(ENOSPC));
    let file = volume.open_file("file").unwrap();
    let mut data = [0; 9];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), 7);
    assert_eq!(&data[..7], b"content");
    assert_eq!(volume.read("file").unwrap(), b"content");
    drop(file);
    dev.clear();
    volume.close().unwrap();
    drop(dev);
    uxfs_oracle::repair(&image).unwrap();
}

#[test]
fn an_error_in_a_directory_comes_after_the_entries_before_it_and_ends_it() {
    const FILES: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let volume = make(&image);
    volume.create_dir("d").unwrap();
    for number in 0..FILES {
        volume.mknod(format!("d/entry number {number:04}"), 0o644, (0, 0)).unwrap();
    }
    volume.close().unwrap();
    let mut in_the_middle = 0;
    for reads in 0..12 {
        let dev = device(&image);
        let volume = open(&dev, &VolumeOptions::new().read_only(true));
        let mut listing = volume.read_dir("d").unwrap();
        dev.add(Rule::on(&[Op::Read]).after(reads).fail(EIO));
        let outcomes: Vec<_> = listing.by_ref().collect();
        let good = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        if good == FILES {
            break;
        }
        in_the_middle += usize::from(good > 0);
        let failed = outcomes.iter().position(Result::is_err);
        assert_eq!(failed, Some(good), "{reads} reads: entries behind the error");
        assert_eq!(outcomes.len(), good + 1, "{reads} reads");
        assert!(listing.next().is_none());
        drop(listing);
        volume.close().unwrap();
    }
    assert!(in_the_middle > 0);
}
