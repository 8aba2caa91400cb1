//! A host that is full, whose image is truncated, or that loses writes: the errors are reported,
//! reading goes on, and nothing acknowledged is lost.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::Ino;
use uxfs_testkit::{Op, Rule};

use super::{ALLOCATING, Volume, content, device, fill, open, options, volume, volume_of};
use crate::journal::LogWorkOptions;
use crate::ops::NewInode;
use crate::{Error, Fs, LogWorker, WritebackOptions};

const NOSPC: i32 = 28;
const FBIG: i32 = 27;
const FULL: [i32; 3] = [NOSPC, 122, 27];

/// First byte of the log, and the first byte after it.
fn log_of(fs: &Fs) -> (u64, u64) {
    let start = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
    (start, start + (u64::from(fs.geo.log_blocks) << fs.geo.block_log))
}

/// The range of data, without the first inodes and directories and the log.
fn data_of(fs: &Fs) -> core::ops::Range<u64> {
    (u64::from(fs.geo.ag_blocks / 16) << fs.geo.block_log)..log_of(fs).0
}

fn create(fs: &Fs, name: &str) -> crate::Result<Ino> {
    fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600))
}

/// Number of names in the root directory.
fn count(fs: &Fs) -> usize {
    let mut count = 0;
    let more = &mut |entry: crate::dir::DirEntry<'_>| {
        count += usize::from(!entry.name.starts_with(b"."));
        core::ops::ControlFlow::Continue(())
    };
    fs.read_dir(fs.root(), 0, more).unwrap();
    count
}

fn assert_running(fs: &Fs) {
    assert_eq!(fs.shutdown_cause(), None);
}

#[test]
fn data_refused_by_a_full_host_is_written_once_there_is_space() {
    for errno in FULL {
        let v = volume("", WritebackOptions::default());
        let (safe, waiting) = (v.file("safe"), v.file("waiting"));
        v.fs.write_at(safe, 0, &[1; 300_000]).unwrap();
        v.fs.sync().unwrap();
        fill(&v.dev, data_of(&v.fs), errno);
        v.fs.write_at(waiting, 0, &[2; 300_000]).unwrap();
        assert_eq!(v.fs.fsync(waiting).unwrap_err().errno(), errno);
        let cause = v.fs.retrying().unwrap();
        assert_eq!((cause.what.as_str(), cause.errno), ("writing data", Some(errno)));
        assert!(cause.daddr.is_some() && v.fs.unwritten().first == [waiting]);
        // Writers get the error; operations that write no data succeed.
        assert_eq!(v.fs.write_at(safe, 0, &[3; 10]).unwrap_err().errno(), errno);
        let new = v.file("new");
        v.fs.fsync(safe).unwrap();
        assert_eq!(content(&v.fs, safe), [1; 300_000]);
        assert_eq!(content(&v.fs, waiting), [2; 300_000]);
        assert_eq!(v.fs.sync().unwrap_err().errno(), errno);
        assert_running(&v.fs);
        v.dev.clear();
        v.fs.write_at(new, 0, b"room").unwrap();
        v.fs.sync().unwrap();
        assert_eq!(v.fs.retrying(), None);
        assert!(v.fs.unwritten().is_empty());
        let v = v.cut();
        assert_eq!(content(&v.fs, safe), [1; 300_000]);
        assert_eq!(content(&v.fs, waiting), [2; 300_000]);
        assert_eq!(content(&v.fs, new), b"room");
        v.judge();
    }
}

#[test]
fn close_on_a_full_host_reports_unwritten_data_and_loses_no_acknowledged_data() {
    for errno in FULL {
        let v = volume("", WritebackOptions::default());
        let (safe, lost) = (v.file("safe"), v.file("lost"));
        v.fs.write_at(safe, 0, &[1; 300_000]).unwrap();
        v.fs.fsync(safe).unwrap();
        v.fs.write_at(lost, 0, &[2; 8192]).unwrap();
        v.file("logged");
        v.fs.wait(v.fs.ticket()).unwrap();
        // The host has space for the log only.
        let (log, _) = log_of(&v.fs);
        fill(&v.dev, 0..log, errno);
        let Volume { _dir, path, dev, fs } = v;
        let error = fs.close().unwrap_err();
        assert_eq!(error.errno(), errno);
        let Error::Unwritten { unwritten, .. } = &error else { panic!("{error}") };
        assert_eq!((unwritten.files, unwritten.bytes), (1, 8192));
        assert_eq!(unwritten.first, [lost]);
        let message = error.to_string();
        assert!(
            message.contains("8192 bytes of 1 file")
                && message.contains("the next open applies them"),
            "{message}"
        );
        drop(dev);
        let (dev, fs) = open(&path, WritebackOptions::default());
        assert!(fs.recovery().is_some(), "the log was left dirty");
        assert_eq!(content(&fs, safe), [1; 300_000]);
        fs.lookup(fs.root(), b"logged").unwrap();
        Volume { _dir, path, dev, fs }.judge();
    }
}

/// For every errno and every way to end: the error is reported, and acknowledged data is there.
#[test]
fn no_errno_loses_acknowledged_data_on_any_exit() {
    type Exit = fn(Fs) -> crate::Result<()>;
    let exits: [(&str, bool, Exit); 5] = [
        ("close", true, Fs::close),
        ("drop", false, |fs| {
            drop(fs);
            Ok(())
        }),
        ("sync", true, |fs| fs.sync()),
        ("quiesce", true, |fs| fs.quiesce()),
        ("sync and close", true, |fs| fs.sync().and(fs.close())),
    ];
    for errno in [NOSPC, 122, 27, 5] {
        for (what, reports, exit) in exits {
            let at = format!("errno {errno}, {what}");
            let v = volume("", WritebackOptions::default());
            let safe = v.file("safe");
            v.fs.write_at(safe, 0, &[1; 100_000]).unwrap();
            v.fs.fsync(safe).unwrap();
            fill(&v.dev, data_of(&v.fs), errno);
            let waiting = v.file("waiting");
            v.fs.wait(v.fs.ticket()).unwrap();
            v.fs.write_at(waiting, 0, &[2; 100_000]).unwrap();
            let Volume { _dir, path, dev, fs } = v;
            let ended = exit(fs);
            assert_eq!(
                ended.map_err(|error| error.errno()).err(),
                reports.then_some(errno),
                "{at}"
            );
            drop(dev);
            let (dev, fs) = open(&path, WritebackOptions::default());
            assert_eq!(content(&fs, safe), [1; 100_000], "{at}");
            assert_eq!(fs.lookup(fs.root(), b"waiting").unwrap(), waiting, "{at}");
            // Of unacknowledged data only zeroes are visible.
            assert!(content(&fs, waiting).iter().all(|byte| *byte == 0), "{at}");
            fs.close().unwrap();
            drop(dev);
            uxfs_oracle::both(&path).unwrap_or_else(|finding| panic!("{at}: {finding}"));
        }
    }
}

#[test]
fn metadata_refused_by_a_full_host_stays_in_the_log() {
    let v = volume("", WritebackOptions::default());
    let (log, _) = log_of(&v.fs);
    fill(&v.dev, 0..log, NOSPC);
    for number in 0..50 {
        create(&v.fs, &format!("f{number}")).unwrap();
    }
    v.fs.sync().unwrap();
    assert_eq!(v.fs.quiesce().unwrap_err().errno(), NOSPC);
    assert_running(&v.fs);
    assert_eq!(v.fs.retrying().unwrap().what, "writing metadata in place");
    create(&v.fs, "more").unwrap();
    v.fs.sync().unwrap();
    v.dev.clear();
    v.fs.quiesce().unwrap();
    assert_eq!(v.fs.retrying(), None);
    let v = v.cut();
    assert!(v.fs.recovery().is_none());
    assert_eq!(count(&v.fs), 51);
    v.judge();
}

/// No operation waits forever for a log that cannot be emptied.
#[test]
fn changes_fail_before_they_begin_while_the_log_cannot_be_emptied() {
    for has_worker in [false, true] {
        let v = volume_of("-l size=6m", 300, WritebackOptions::default());
        let (log, _) = log_of(&v.fs);
        let Volume { _dir, path, dev, fs } = v;
        let fs = Arc::new(fs);
        let worker = has_worker.then(|| LogWorker::start(&fs, LogWorkOptions::default()).unwrap());
        fill(&dev, 0..log, NOSPC);
        let mut made = Vec::new();
        let refused = loop {
            let name = format!("a name long enough to fill the log before long {:05}", made.len());
            match create(&fs, &name) {
                Ok(ino) => made.push((name, ino)),
                Err(error) => break error,
            }
            fs.sync().unwrap();
            assert!(made.len() < 100_000, "the log does not fill");
        };
        assert_eq!(refused.errno(), NOSPC, "{refused}");
        assert_running(&fs);
        // A second attempt fails in the same way, and reading works.
        let (first, ino) = &made[0];
        assert_eq!(fs.unlink(fs.root(), first.as_bytes()).unwrap_err().errno(), NOSPC);
        assert_eq!(fs.lookup(fs.root(), first.as_bytes()).unwrap(), *ino);
        fs.sync().unwrap();
        let load = fs.log_load();
        assert!(load.live * 4 < load.bytes * 3, "{load:?}");
        dev.clear();
        create(&fs, "there is room").unwrap();
        fs.sync().unwrap();
        drop(worker);
        let fs = Arc::into_inner(fs).unwrap();
        let v = Volume { _dir, path, dev, fs }.cut();
        assert_eq!(count(&v.fs), made.len() + 1);
        v.judge();
    }
}

#[test]
fn log_worker_retries_after_no_space() {
    let Volume { _dir, path, dev, fs } = volume("", WritebackOptions::default());
    let fs = Arc::new(fs);
    let worker = LogWorker::start(&fs, LogWorkOptions::default()).unwrap();
    let file = create(&fs, "file").unwrap();
    fs.wait(fs.ticket()).unwrap();
    let (log, _) = log_of(&fs);
    fill(&dev, 0..log, NOSPC);
    fs.write_at(file, 0, &[7; 100_000]).unwrap();
    assert_eq!(fs.quiesce().unwrap_err().errno(), NOSPC);
    assert!(fs.retrying().is_some() && fs.dirty_bytes() > 0);
    dev.clear();
    // A limit, in case the log worker never retries.
    let begun = Instant::now();
    while fs.retrying().is_some() || fs.dirty_bytes() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(600), "the log worker does not retry");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_running(&fs);
    drop(worker);
    let v = Volume { _dir, path, dev, fs: Arc::into_inner(fs).unwrap() };
    v.fs.sync().unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, file), [7; 100_000]);
    v.judge();
}

#[test]
fn log_writes_are_retried_and_then_shut_the_volume_down_with_their_cause() {
    let v = volume("", WritebackOptions::default());
    let (log, end) = log_of(&v.fs);
    let safe = v.file("safe");
    v.dev.add(Rule::on(ALLOCATING).within(log..end).times(3).fail(NOSPC));
    v.fs.sync().unwrap();
    assert_eq!(v.fs.retrying(), None);
    v.dev.clear();
    let Volume { _dir, path, dev, fs } = v;
    fs.close().unwrap();
    let mut no_retry = options(WritebackOptions::default());
    no_retry.journal.host_full_timeout = Duration::ZERO;
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, no_retry).unwrap();
    create(&fs, "lost").unwrap();
    fill(&dev, log..end, NOSPC);
    assert!(fs.sync().is_err());
    let cause = fs.shutdown_cause().unwrap();
    assert_eq!((cause.what.as_str(), cause.errno), ("writing the log", Some(NOSPC)));
    assert!((log..end).contains(&cause.daddr.unwrap().bytes()), "{cause}");
    assert_eq!(fs.stat(safe).unwrap_err().errno(), 5);
    assert_eq!(fs.close().unwrap_err().errno(), 5);
    drop(dev);
    let (dev, fs) = open(&path, WritebackOptions::default());
    assert_eq!(fs.lookup(fs.root(), b"safe").unwrap(), safe);
    Volume { _dir, path, dev, fs }.judge();
}

/// After a failed flush it is unknown which writes are lost: the host may have dropped dirty pages.
#[test]
fn a_failed_flush_with_any_errno_shuts_the_volume_down() {
    for errno in [NOSPC, 122, 5] {
        let v = volume("", WritebackOptions::default());
        let file = v.file("file");
        v.fs.write_at(file, 0, &[1; 5000]).unwrap();
        v.fs.fsync(file).unwrap();
        v.fs.write_at(file, 0, &[2; 5000]).unwrap();
        v.file("another");
        v.dev.add(Rule::on(&[Op::Flush]).fail(errno));
        assert!(v.fs.fsync(file).is_err());
        let cause = v.fs.shutdown_cause().unwrap();
        assert_eq!((cause.what.as_str(), cause.errno), ("flushing the device", Some(errno)));
        v.dev.clear();
        assert_eq!(v.fs.fsync(file).unwrap_err().errno(), 5);
        let Volume { _dir, path, dev, fs } = v;
        assert_eq!(fs.close().unwrap_err().errno(), 5);
        drop(dev);
        let (dev, fs) = open(&path, WritebackOptions::default());
        let found = content(&fs, file);
        assert!(found == [1; 5000] || found == [2; 5000]);
        Volume { _dir, path, dev, fs }.judge();
    }
}

#[test]
fn a_truncated_image_shuts_the_volume_down_and_every_exit_reports_it() {
    type Step = fn(&Fs, Ino) -> crate::Result<()>;
    let steps: [(&str, Step); 6] = [
        ("read", |fs, file| fs.read_at(file, 0, &mut [0; 4096]).map(drop)),
        ("fsync without changes", |fs, file| fs.fsync(file)),
        ("sync", |fs, _| fs.sync()),
        ("quiesce", |fs, _| fs.quiesce()),
        ("new file and sync", |fs, _| create(fs, "new").and_then(|_| fs.sync())),
        ("write and fsync", |fs, file| {
            fs.write_at(file, 0, &[9; 9000]).and_then(|()| fs.fsync(file))
        }),
    ];
    for (what, step) in steps {
        let v = volume("", WritebackOptions::default());
        let file = v.file("file");
        v.fs.write_at(file, 0, &vec![1; 1 << 20]).unwrap();
        v.fs.sync().unwrap();
        let image = std::fs::OpenOptions::new().write(true).open(&v.path).unwrap();
        let at = v.fs.segments(file).unwrap()[0].device.unwrap();
        image.set_len(at).unwrap();
        let error = step(&v.fs, file).expect_err(what);
        assert_eq!(error.errno(), 5, "{what}: {error}");
        let cause =
            v.fs.shutdown_cause().unwrap_or_else(|| panic!("{what}: the volume is not shut down"));
        assert!(cause.message.contains("cut short"), "{what}: {cause}");
        assert_eq!(cause.errno, Some(5));
        // Extending the file to its old length does not restore the data.
        image.set_len(512 << 20).unwrap();
        assert_eq!(v.fs.stat(file).unwrap_err().errno(), 5, "{what}");
        assert_eq!(v.fs.sync().unwrap_err().errno(), 5, "{what}");
        assert!(v.fs.device_warning().unwrap().contains("cut short"));
        let error = v.fs.close().expect_err(what);
        assert!(error.errno() == 5 && error.to_string().contains("cut short"), "{what}: {error}");
    }
    // Close detects it without an earlier call.
    let v = volume("", WritebackOptions::default());
    std::fs::OpenOptions::new().write(true).open(&v.path).unwrap().set_len(1 << 20).unwrap();
    assert!(v.fs.close().unwrap_err().to_string().contains("cut short"));
}

#[test]
fn a_deleted_image_works_and_causes_a_warning() {
    let v = volume("", WritebackOptions::default());
    assert_eq!(v.fs.device_warning(), None);
    std::fs::remove_file(&v.path).unwrap();
    let file = v.file("file");
    v.fs.fsync(file).unwrap();
    assert!(v.fs.device_warning().unwrap().contains("deleted"));
    v.fs.close().unwrap();
}

/// A removed device returns ENXIO or ENODEV; users get EIO.
#[test]
fn a_removed_device_shuts_the_volume_down() {
    for errno in [6, 19] {
        let v = volume("", WritebackOptions::default());
        let file = v.file("file");
        v.fs.sync().unwrap();
        let fs = Arc::new(v.fs);
        let worker = LogWorker::start(&fs, LogWorkOptions::default()).unwrap();
        fill(&v.dev, 0..u64::MAX, errno);
        fs.write_at(file, 0, &[1; 5000]).unwrap();
        assert_eq!(fs.fsync(file).unwrap_err().errno(), 5);
        assert!(fs.shutdown_cause().is_some());
        // Waiters of the log worker get the error too.
        let (send, receive) = std::sync::mpsc::channel();
        fs.when_durable(fs.ticket(), move |result| send.send(result).unwrap());
        assert!(receive.recv().unwrap().is_err());
        drop(worker);
        let error = Arc::into_inner(fs).unwrap().close().unwrap_err();
        assert_eq!(error.errno(), 5);
        assert!(matches!(error, Error::Unwritten { .. }), "{error}");
    }
}

fn stored(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn mkfs_and_a_writable_open_allocate_the_log() {
    let Volume { _dir, path, dev, fs } = volume("", WritebackOptions::default());
    let (log, end) = log_of(&fs);
    let room = end - log;
    assert!(stored(&path) >= room);
    fs.close().unwrap();
    dev.below().discard(log + 8192, room - 8192);
    assert!(stored(&path) < room);
    drop(dev);
    // A read-only open allocates nothing.
    let dev = FileDev::open(&path, OpenMode::Read).unwrap();
    drop(Fs::open(Arc::new(dev), crate::OpenOptions::read_only()).unwrap());
    assert!(stored(&path) < room);
    // A host that can never have enough space: the image is not changed.
    let before = std::fs::read(&path).unwrap();
    let dev = device(&path);
    fill(&dev, log..end, FBIG);
    let words = options(WritebackOptions::default());
    let error = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, words.clone()).err().unwrap();
    assert_eq!(error.errno(), FBIG);
    assert!(error.to_string().contains("room for the log"), "{error}");
    drop(dev);
    assert!(before == std::fs::read(&path).unwrap());
    // A host without enough space now causes a warning.
    let dev = device(&path);
    fill(&dev, log..end, NOSPC);
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, words).unwrap();
    assert!(fs.device_warning().unwrap().contains("no room for the log"));
    drop((fs, dev));
    let (dev, fs) = open(&path, WritebackOptions::default());
    assert_eq!(fs.device_warning(), None);
    assert!(stored(&path) >= room);
    Volume { _dir, path, dev, fs }.judge();
}

/// A tmpfs of a given size, unmounted on drop.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(mib: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        let words = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let out = Command::new("mount").args(words).arg(dir.path()).output().unwrap();
        assert!(out.status.success(), "a test of a full host needs root: {out:?}");
        Self(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_tmpfs_host_recovers_when_space_is_freed() {
    let host = Tmpfs::new(120);
    let path = host.0.path().join("image");
    let ballast = host.0.path().join("ballast");
    let mut mkfs = uxfs_mkfs::Options::default();
    mkfs.unsupported = true;
    let layout = uxfs_mkfs::Layout::new(&mkfs, 512 << 20).unwrap();
    let dev = FileDev::open(&path, OpenMode::Create(512 << 20)).unwrap();
    uxfs_mkfs::write(&layout, &dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
    drop(dev);
    let (dev, fs) = open(&path, WritebackOptions::default());
    let safe = create(&fs, "safe").unwrap();
    fs.write_at(safe, 0, &vec![1; 8 << 20]).unwrap();
    fs.sync().unwrap();
    // Write until the host is full.
    let filled = std::fs::write(&ballast, vec![5; 120 << 20]);
    assert!(filled.is_err());
    let mut waiting = Vec::new();
    let refused = (0..64).find_map(|number| {
        let file = create(&fs, &format!("w{number}")).unwrap();
        let written = fs.write_at(file, 0, &vec![2; 4 << 20]);
        if written.is_ok() {
            waiting.push(file);
        }
        written.and_then(|()| fs.fsync(file)).err()
    });
    assert_eq!(refused.unwrap().errno(), NOSPC);
    // Metadata is acknowledged through the log, whose space is allocated.
    for number in 0..200 {
        create(&fs, &format!("m{number}")).unwrap();
    }
    fs.wait(fs.ticket()).unwrap();
    assert!(fs.quiesce().is_err());
    assert_running(&fs);
    assert_eq!(content(&fs, safe), vec![1; 8 << 20]);
    std::fs::remove_file(&ballast).unwrap();
    fs.sync().unwrap();
    fs.close().unwrap();
    drop(dev);
    let (dev, fs) = open(&path, WritebackOptions::default());
    assert_eq!(content(&fs, safe), vec![1; 8 << 20]);
    for file in waiting {
        assert_eq!(content(&fs, file), vec![2; 4 << 20]);
    }
    fs.lookup(fs.root(), b"m199").unwrap();
    fs.close().unwrap();
    drop(dev);
    uxfs_oracle::both(&path).unwrap_or_else(|finding| panic!("{finding}"));
}
