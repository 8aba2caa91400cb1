//! Dirty logs: the check judges the volume as its next mount will find it, and still finds other
//! damage.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use uxfs::journal::JournalOptions;
use uxfs::{Error, Fs, NewInode, OpenOptions, XattrMode};
use uxfs_check::{CheckOptions, LogState, Replay, Report, Severity, Verdict, check, code};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_format::{Geometry, Ino, crc};
use uxfs_journal::recovery::Log;

use crate::volume::{Volume, device, examine};

/// A volume with files created before and after its log became dirty.
fn dirty(line: &str) -> Volume {
    let volume = Volume::small(320, line);
    let fs = volume.open();
    let dir = fs.create(fs.root(), b"before", &NewInode::dir(0o755)).unwrap();
    for number in 0..50 {
        let file = fs.create(dir, format!("old{number}").as_bytes(), &NewInode::file(0o644));
        fs.write_at(file.unwrap(), 0, &[1; 5000]).unwrap();
    }
    fs.close().unwrap();
    let dev: Arc<dyn BlockDev> = Arc::new(device(&volume.path, OpenMode::Write));
    let mut options = OpenOptions::default();
    options.journal = JournalOptions::default();
    let fs = Fs::open(dev, options).unwrap();
    let dir = fs.create(fs.root(), b"after", &NewInode::dir(0o755)).unwrap();
    for number in 0..300 {
        let file = fs.create(dir, format!("new{number}").as_bytes(), &NewInode::file(0o644));
        let file = file.unwrap();
        fs.write_at(file, 0, &[2; 3000]).unwrap();
        fs.set_xattr(file, b"user.a", &vec![3; number * 10], XattrMode::Any).unwrap();
    }
    for number in 0..100 {
        fs.unlink(dir, format!("new{number}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    // Simulates a power failure.
    drop(fs);
    replay_half(&volume);
    volume
}

/// Writes half of the log's changes in place, like a power failure during writeback.
fn replay_half(volume: &Volume) {
    const PAGE: usize = 4096;
    let dev: Arc<dyn BlockDev> = Arc::new(device(&volume.path, OpenMode::Read));
    let view = uxfs::replay_in_memory(&dev).unwrap().unwrap();
    assert_eq!((view.recovery.intents, view.recovery.unlinked), (0, 0));
    let file = std::fs::OpenOptions::new().write(true).open(&volume.path).unwrap();
    let (mut old, mut new, mut changed) = ([0; PAGE], [0; PAGE], 0);
    for at in (0..dev.len()).step_by(PAGE) {
        dev.read_at(at, &mut old).unwrap();
        view.device.read_at(at, &mut new).unwrap();
        changed += usize::from(old != new);
        if old != new && changed % 2 == 0 {
            file.write_all_at(&new, at).unwrap();
        }
    }
    assert!(changed > 10, "{changed} pages");
}

/// Runs the check as the `uxfs check` command does.
fn replayed(path: &Path) -> Report {
    let dev: Arc<dyn BlockDev> = Arc::new(device(path, OpenMode::Read));
    let mut options = CheckOptions::default();
    let dev = match uxfs::replay_in_memory(&dev) {
        Ok(Some(view)) => {
            let unfinished = view.unfinished.map(|error| error.to_string());
            options.replay = Replay::Done { head: view.head, unfinished };
            view.device
        }
        Ok(None) => dev,
        Err(Error::DirtyLog(problem)) => {
            options.replay = Replay::Failed(problem);
            dev
        }
        Err(other) => panic!("{other}"),
    };
    check(&*dev, &options, &|_| {}).unwrap()
}

#[test]
fn a_dirty_log_that_can_be_replayed_is_no_damage() {
    for line in ["", "-m rmapbt=1 -b size=1024", "-m rmapbt=1 -n parent=1"] {
        let volume = dirty(line);
        let before = std::fs::read(&volume.path).unwrap();
        let raw = examine(&volume.path).unwrap();
        assert_eq!((raw.log, raw.verdict()), (LogState::Dirty, Verdict::Damaged), "{line}: {raw}");
        assert_eq!(raw.exit_code(), 4);
        let report = replayed(&volume.path);
        assert_eq!(report.verdict(), Verdict::LogNotReplayed, "{line}: {report}");
        assert_eq!((report.log, report.exit_code()), (LogState::Replayed, 2), "{line}");
        assert!(report.is_clean() && !report.incomplete, "{line}: {report}");
        assert!(report.has(code::LOG_REPLAYED));
        assert!(report.to_string().contains("sound, log not replayed: "), "{report}");
        assert_eq!(report.to_json()["verdict"], "log-not-replayed");
        assert_eq!(report.to_json()["log"], "replayed-in-memory");
        assert!(before == std::fs::read(&volume.path).unwrap(), "{line}: the image was written to");
        // The next open for writing replays the log and agrees.
        volume.open().close().unwrap();
        let after = replayed(&volume.path);
        assert_eq!((after.log, after.exit_code()), (LogState::Clean, 0), "{line}: {after}");
        assert_eq!(after.totals.inodes, report.totals.inodes, "{line}");
        uxfs_oracle::db_check(&volume.path).unwrap_or_else(|f| panic!("{line}: {f}"));
    }
}

/// Byte offset of the inode in the image.
fn inode_offset(fs: &Fs, ino: Ino) -> u64 {
    let geo = &fs.geo;
    let agino = geo.ino_agino(ino);
    let block = geo.ag_daddr(geo.ino_ag(ino), geo.agino_block(agino)).bytes();
    let inside = u64::from(agino.0) % (u64::from(geo.block_size) / u64::from(geo.inode_size));
    block + inside * u64::from(geo.inode_size)
}

#[test]
fn damage_is_found_on_a_volume_with_a_dirty_log() {
    let volume = dirty("-m rmapbt=1");
    let fs = {
        let dev: Arc<dyn BlockDev> = Arc::new(device(&volume.path, OpenMode::Read));
        Fs::open(dev, OpenOptions::read_only()).unwrap()
    };
    let dir = fs.lookup(fs.root(), b"before").unwrap();
    let (at, len) =
        (inode_offset(&fs, fs.lookup(dir, b"old7").unwrap()), fs.geo.inode_size as usize);
    drop(fs);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&volume.path).unwrap();
    let mut inode = vec![0; len];
    file.read_exact_at(&mut inode, at).unwrap();
    assert_eq!(inode[..2], *b"IN");
    // Changes the link count.
    inode[16..20].copy_from_slice(&7u32.to_be_bytes());
    crc::stamp(&mut inode, 100);
    file.write_all_at(&inode, at).unwrap();
    let report = replayed(&volume.path);
    assert_eq!((report.log, report.exit_code()), (LogState::Replayed, 4), "{report}");
    assert!(report.has(code::INODE_NLINK), "{report}");
    assert_eq!(report.count(Severity::Error), 1, "nothing else is damaged: {report}");
    assert!(report.to_string().contains("old7"), "{report}");
}

#[test]
fn a_log_that_cannot_be_replayed_is_reported_as_damage() {
    let volume = dirty("");
    let dev = device(&volume.path, OpenMode::Read);
    let mut sector = vec![0; 512];
    dev.read_at(0, &mut sector).unwrap();
    let sb = Superblock::verify(&sector).unwrap();
    let geo = Geometry::new(sb);
    let bounds = Log::new(sb).unwrap().find(&dev).unwrap();
    drop(dev);
    let distance = bounds.head.block() - bounds.tail.block();
    assert!(distance > 100, "{bounds:?}: one record before the last ones is needed");
    let tail = geo.fsb_daddr(geo.log_start).bytes() + 512 * u64::from(bounds.tail.block());
    let file = std::fs::OpenOptions::new().write(true).open(&volume.path).unwrap();
    // Damages the data of the first record.
    file.write_all_at(&[0xa5; 64], tail + 700).unwrap();
    let report = replayed(&volume.path);
    assert_eq!((report.log, report.verdict()), (LogState::Damaged, Verdict::Damaged), "{report}");
    assert!(report.to_string().contains("cannot be replayed"), "{report}");
}
