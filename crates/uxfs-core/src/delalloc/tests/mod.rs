//! Delayed allocation on real images: visible contents, placement, cost, and device failures.

mod cuts;
mod errors;
// What a full or vanished host says is a number of Unix.
#[cfg(unix)]
mod host;
mod limits;
mod model;
mod ordered;
mod ordered_space;
mod placement;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::Ino;
use uxfs_testkit::{Answer, FaultDev, Op, Rule};

use super::WritebackOptions;
use crate::ops::{NewInode, SetAttr};
use crate::{Fs, OpenOptions, SyncKind};

/// The calls that a full host refuses.
const ALLOCATING: &[Op] = &[Op::Write, Op::WriteVectored, Op::Allocate];

fn device(path: &std::path::Path) -> Arc<FaultDev<FileDev>> {
    Arc::new(FaultDev::new(FileDev::open(path, OpenMode::Write).unwrap()).traced())
}

/// From now on, writes into `range` fail with this errno.
fn fill(dev: &FaultDev<FileDev>, range: Range<u64>, errno: i32) {
    dev.clear();
    dev.add(Rule::on(ALLOCATING).within(range).fail(errno));
}

/// The writes since the last call: offset and length.
fn writes(dev: &FaultDev<FileDev>) -> Vec<(u64, u64)> {
    let all = dev.take_trace().into_iter().filter(|call| Op::WRITES.contains(&call.op));
    all.map(|call| (call.offset, call.len)).collect()
}

struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    dev: Arc<FaultDev<FileDev>>,
    fs: Fs,
}

fn options(writeback: WritebackOptions) -> OpenOptions {
    OpenOptions { seed: Some(1), writeback: Some(writeback), ..OpenOptions::default() }
}

fn open(path: &std::path::Path, writeback: WritebackOptions) -> (Arc<FaultDev<FileDev>>, Fs) {
    let dev = device(path);
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options(writeback)).unwrap();
    (dev, fs)
}

fn volume(mkfs: &str, writeback: WritebackOptions) -> Volume {
    volume_of(mkfs, 512, writeback)
}

/// Makes a volume on a device, with these options of mkfs.
fn make_volume(dev: &dyn BlockDev, mkfs: &str) {
    let mut options = uxfs_mkfs::Options::default();
    options.unsupported = true;
    let words: Vec<&str> = mkfs.split_whitespace().collect();
    for pair in words.chunks(2) {
        options.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
    }
    let layout = uxfs_mkfs::Layout::new(&options, dev.len()).unwrap();
    uxfs_mkfs::write(&layout, dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
}

/// Makes an image file with a volume of `mib` MiB, with these options of mkfs.
pub(crate) fn make_image(path: &std::path::Path, mkfs: &str, mib: u64) {
    make_volume(&FileDev::open(path, OpenMode::Create(mib << 20)).unwrap(), mkfs);
}

fn volume_of(mkfs: &str, mib: u64, writeback: WritebackOptions) -> Volume {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    make_image(&path, mkfs, mib);
    let (dev, fs) = open(&path, writeback);
    Volume { _dir: dir, path, dev, fs }
}

impl Volume {
    fn file(&self, name: &str) -> Ino {
        self.fs.create(self.fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap()
    }

    /// The writes of data since the last call: offset and length.
    fn data_writes(&self) -> Vec<(u64, u64)> {
        let log = self.fs.geo.fsb_daddr(self.fs.geo.log_start).bytes();
        let end = log + (u64::from(self.fs.geo.log_blocks) << self.fs.geo.block_log);
        writes(&self.dev).into_iter().filter(|(at, _)| *at < log || *at >= end).collect()
    }

    /// Continues after a power cut that kept all writes.
    fn cut(self) -> Self {
        let Self { _dir, path, dev, fs } = self;
        drop((dev, fs));
        let (dev, fs) = open(&path, WritebackOptions::default());
        Self { _dir, path, dev, fs }
    }

    /// Closes the volume and checks it with xfsprogs.
    fn judge(self) {
        let Self { _dir, path, dev, fs } = self;
        fs.close().unwrap();
        drop(dev);
        xfsprogs(&path).unwrap();
    }
}

/// xfsprogs' judgement.
#[cfg(unix)]
fn xfsprogs(path: &std::path::Path) -> Result<(), String> {
    uxfs_oracle::both(path).map_err(|finding| finding.to_string())
}

/// Other systems have no xfsprogs: there these tests check what uxfs itself reads.
#[cfg(not(unix))]
fn xfsprogs(_: &std::path::Path) -> Result<(), String> {
    Ok(())
}

fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut all = vec![0; fs.stat(ino).unwrap().size as usize];
    assert_eq!(fs.read_at(ino, 0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn unwritten_data_is_visible() {
    let v = volume("-m rmapbt=1", WritebackOptions::default());
    let (file, available) = (v.file("a"), v.fs.available_blocks());
    v.data_writes();
    v.fs.write_at(file, 5000, b"hello").unwrap();
    v.fs.write_at(file, 10_000, &[7; 9000]).unwrap();
    v.fs.write_at(file, 5002, b"LL").unwrap();
    assert_eq!(v.data_writes(), []);
    let mut expected = vec![0; 19_000];
    expected[5000..5005].copy_from_slice(b"heLLo");
    expected[10_000..].fill(7);
    assert_eq!(content(&v.fs, file), expected);
    let stat = v.fs.stat(file).unwrap();
    assert_eq!((stat.size, stat.blocks), (19_000, 4));
    assert!(v.fs.available_blocks() <= available - 4);
    // After a power cut now, neither the data nor anything else is in the file.
    v.fs.wait(v.fs.ticket()).unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, file), []);
    v.fs.write_at(file, 0, &expected).unwrap();
    v.fs.fsync(file).unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, file), expected);
    v.judge();
}

#[test]
fn small_files_are_allocated_contiguously() {
    let v = volume("", WritebackOptions::default());
    let dir = v.fs.create(v.fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    let mut files = Vec::new();
    for number in 0..1000 {
        let name = format!("file{number}");
        let file = v.fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
        let len = 1 + number * 7 % 8000;
        v.fs.write_at(file, 0, &vec![number as u8; len]).unwrap();
        files.push(file);
    }
    v.data_writes();
    v.fs.sync().unwrap();
    let writes = v.data_writes();
    let mut seeks = 0;
    let mut end = None;
    for (number, file) in files.iter().enumerate() {
        let extents = v.fs.extents(*file).unwrap();
        assert_eq!(extents.len(), 1);
        assert!(!extents[0].unwritten);
        seeks += u32::from(end.is_some_and(|end| end != extents[0].start));
        end = Some(extents[0].start.plus(extents[0].len));
        assert_eq!(content(&v.fs, *file), vec![number as u8; 1 + number * 7 % 8000]);
    }
    assert!(seeks <= 2, "{seeks} seeks");
    assert!(writes.len() <= 16, "{} writes", writes.len());
    v.judge();
}

#[test]
fn truncated_and_unlinked_data_is_never_written() {
    let v = volume("", WritebackOptions::default());
    let file = v.file("a");
    v.fs.sync().unwrap();
    let available = v.fs.available_blocks();
    v.data_writes();
    v.fs.write_at(file, 0, &[1; 100_000]).unwrap();
    v.fs.truncate(file, 5000).unwrap();
    assert_eq!(v.fs.stat(file).unwrap().size, 5000);
    v.fs.write_at(file, 200_000, &[1; 100_000]).unwrap();
    v.fs.truncate(file, 0).unwrap();
    assert_eq!(v.fs.available_blocks(), available);
    v.fs.write_at(file, 0, &[1; 100_000]).unwrap();
    v.fs.unlink(v.fs.root(), b"a").unwrap();
    // The rest after the first truncation was written, so that the new length covers it. Its end
    // was zeroed when the file grew and was truncated again.
    let bytes: u64 = v.data_writes().iter().map(|(_, len)| len).sum();
    assert!(bytes < 4 * 4096, "{bytes} bytes");
    v.fs.sync().unwrap();
    assert_eq!((v.fs.available_blocks(), v.fs.dirty_bytes()), (available, 0));
    v.judge();
}

#[test]
fn fdatasync_does_not_log_changes_of_times_only() {
    let v = volume("", WritebackOptions::default());
    let file = v.file("a");
    v.fs.write_at(file, 0, &[1; 100_000]).unwrap();
    v.fs.fsync(file).unwrap();
    writes(&v.dev);
    v.fs.write_at(file, 4096, &[2; 8192]).unwrap();
    v.fs.fdatasync(file).unwrap();
    let all = writes(&v.dev);
    assert_eq!(all.iter().map(|(_, len)| *len).collect::<Vec<_>>(), [8192]);
    let mtime = v.fs.stat(file).unwrap().mtime;
    v.fs.fsync(file).unwrap();
    assert!(!writes(&v.dev).is_empty(), "the times are logged by fsync");
    let v = v.cut();
    assert_eq!(v.fs.stat(file).unwrap().mtime, mtime);
    assert_eq!(content(&v.fs, file)[4000..4200], [[1; 96].as_slice(), &[2; 104]].concat());
    // Nor are times that are set, though each commit moves the change count.
    let old = uxfs_format::timestamp::Timestamp { sec: 5, nsec: 6 };
    let times = SetAttr { mtime: Some(old), ..SetAttr::default() };
    v.fs.fsync(file).unwrap();
    writes(&v.dev);
    v.fs.set_attr(file, &times).unwrap();
    v.fs.fdatasync(file).unwrap();
    assert_eq!(writes(&v.dev), []);
    v.fs.fsync(file).unwrap();
    let v = v.cut();
    assert_eq!(v.fs.stat(file).unwrap().mtime, old);
    let owner = SetAttr { uid: Some(7), ..SetAttr::default() };
    v.fs.set_attr(file, &owner).unwrap();
    v.fs.fdatasync(file).unwrap();
    assert!(!writes(&v.dev).is_empty(), "the owner is logged");
    // Metadata that is needed to find the data is logged.
    v.fs.write_at(file, 100_000, &[3; 10]).unwrap();
    v.fs.fdatasync(file).unwrap();
    let v = v.cut();
    assert_eq!(v.fs.stat(file).unwrap().size, 100_010);
    v.judge();
}

#[test]
fn synchronous_writes_are_durable() {
    let v = volume("", WritebackOptions::default());
    let (one, two) = (v.file("a"), v.file("b"));
    let tickets = [
        v.fs.write_sync(one, 0, &[1; 5000], SyncKind::All).unwrap(),
        v.fs.write_sync(two, 10_000, &[2; 5000], SyncKind::Data).unwrap(),
    ];
    assert!(tickets.iter().all(|ticket| !v.fs.is_durable(*ticket)));
    for ticket in tickets {
        v.fs.wait(ticket).unwrap();
    }
    let v = v.cut();
    assert_eq!(content(&v.fs, one), [1; 5000]);
    assert_eq!(content(&v.fs, two)[9000..], [[0; 1000].as_slice(), &[2; 5000]].concat());
    let three = v.file("c");
    v.fs.write_at(three, 0, b"three").unwrap();
    let ticket = v.fs.begin_sync().unwrap();
    v.fs.wait(ticket).unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, three), b"three");
    v.judge();
}

#[test]
fn a_file_can_change_during_writeback() {
    let Volume { _dir, path, dev, fs } = volume("", WritebackOptions::default());
    let fs = Arc::new(fs);
    let file = fs.create(fs.root(), b"a", &NewInode::file(0o644)).unwrap();
    fs.write_at(file, 0, &[1; 5000]).unwrap();
    let writer = Arc::clone(&fs);
    // Data alone is written in pieces.
    dev.add(Rule::on(&[Op::WriteVectored]).times(1).before(move |_| {
        // During writeback every operation on the file is allowed, except unmapping its blocks.
        writer.write_at(file, 4000, &[2; 3000]).unwrap();
        writer.write_at(file, 20_000, &[2; 10]).unwrap();
        let mut some = [0; 2];
        writer.read_at(file, 3999, &mut some).unwrap();
        assert_eq!((some, writer.stat(file).unwrap().size), ([1, 2], 20_010));
        let other = writer.create(writer.root(), b"b", &NewInode::file(0o644)).unwrap();
        writer.write_at(other, 0, &[3; 5000]).unwrap();
        writer.wait(writer.ticket()).unwrap();
        Answer::Pass
    }));
    fs.write_back_file(file).unwrap();
    dev.clear();
    fs.wait(fs.ticket()).unwrap();
    assert_eq!(fs.stat(file).unwrap().size, 20_010);
    let fs = Arc::into_inner(fs).unwrap();
    // Writeback wrote the data that it had picked, and the length covers no more.
    let v = Volume { _dir, path, dev, fs }.cut();
    assert_eq!(content(&v.fs, file), [1; 5000]);
    v.fs.write_at(file, 4000, &[2; 3000]).unwrap();
    v.fs.sync().unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, file), [[1; 4000].as_slice(), &[2; 3000]].concat());
    v.judge();
}

#[test]
fn writeback_copies_shared_blocks() {
    let v = volume("-m rmapbt=1", WritebackOptions::default());
    let (one, two) = (v.file("a"), v.file("b"));
    v.fs.write_at(one, 0, &[1; 100_000]).unwrap();
    v.fs.clone_file(one, two).unwrap();
    v.fs.write_at(two, 10_000, &[2; 30_000]).unwrap();
    v.fs.write_at(one, 90_000, &[3; 30_000]).unwrap();
    let mut expected = [vec![1; 100_000], vec![1; 120_000]];
    expected[0][10_000..40_000].fill(2);
    expected[1][90_000..].fill(3);
    assert_eq!(content(&v.fs, two), expected[0]);
    assert_eq!(content(&v.fs, one), expected[1]);
    v.fs.sync().unwrap();
    let v = v.cut();
    assert_eq!(content(&v.fs, two), expected[0]);
    assert_eq!(content(&v.fs, one), expected[1]);
    v.judge();
}
