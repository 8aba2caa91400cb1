//! Power cuts: any subset of the writes since the last flush may have reached the disk, each in
//! full or in part. Afterwards, synced data is there, and every byte of a file is one that the file
//! held since then, never the old contents of its blocks.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uxfs_disk::BlockDev;
use uxfs_journal::Time;
use uxfs_oracle::Rng;

use super::options;
use crate::ops::NewInode;
use crate::{Error, Fallocate, Fs, WritebackOptions};

const LEN: usize = 48 << 20;
const FILES: usize = 8;

enum Event {
    Write(u64, Box<[u8]>),
    Flush,
    /// A file has a new version.
    Begun(usize, usize),
    /// Everything up to this version of a file is durable.
    Durable(usize, usize),
}

/// A disk in memory that records writes and flushes.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    events: Mutex<Vec<Event>>,
    /// Before the next data write, make the open checkpoint durable: no committed change may show
    /// data that is not written yet.
    early: AtomicBool,
    fs: Mutex<Weak<Fs>>,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(bytes),
            events: Mutex::default(),
            early: AtomicBool::new(false),
            fs: Mutex::default(),
        })
    }
}

impl BlockDev for Disk {
    uxfs_disk::emulate!(write_bulk_at, write_fua_at, zero);
    uxfs_disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        LEN as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.bytes.lock()[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        self.events.lock().push(Event::Write(offset, data.into()));
        Ok(())
    }
    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        // Only data is written in pieces, and no lock is held that this could wait for.
        if self.early.swap(false, Ordering::Relaxed) {
            let fs = self.fs.lock().upgrade().unwrap();
            fs.wait(fs.ticket()).unwrap();
        }
        let data: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.write_at(offset, &data)
    }
    fn flush(&self) -> io::Result<()> {
        self.events.lock().push(Event::Flush);
        Ok(())
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// The versions of a file's contents; `None` while it has no name.
type Versions = Vec<Option<Vec<u8>>>;

struct Run {
    before: Vec<u8>,
    events: Vec<Event>,
    files: Vec<Versions>,
}

fn limits(rng: &mut Rng) -> WritebackOptions {
    let dirty_bytes = [64 << 10, 256 << 10, 4 << 20][rng.index(3)];
    WritebackOptions {
        dirty_bytes,
        dirty_background_bytes: dirty_bytes / 4,
        ..WritebackOptions::default()
    }
}

fn name(file: usize) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

/// Changes one file, and returns its new contents if it changed.
fn change(fs: &Fs, rng: &mut Rng, at: usize, old: Option<&Vec<u8>>) -> Option<Option<Vec<u8>>> {
    let root = fs.root();
    let Some(old) = old else {
        fs.create(root, &name(at), &NewInode::file(0o644)).unwrap();
        return Some(Some(Vec::new()));
    };
    let ino = fs.lookup(root, &name(at)).unwrap();
    let from = match rng.below(3) {
        0 => old.len(),
        1 => rng.index(old.len() + 1),
        _ => rng.index(100_000),
    };
    let from = if rng.once_in(2) { from - from % 1024 } else { from };
    let most = if rng.once_in(5) { 60_000 } else { 5000 };
    let len = 1 + rng.index(most);
    let mut new = old.clone();
    match rng.below(20) {
        0 => {
            fs.unlink(root, &name(at)).unwrap();
            return Some(None);
        }
        1 | 2 => {
            let size = rng.index(old.len() + 1);
            fs.truncate(ino, size as u64).unwrap();
            new.truncate(size);
        }
        3 => {
            fs.fallocate(ino, Fallocate::PunchHole, from as u64, len as u64).unwrap();
            let end = (from + len).min(new.len());
            new[from.min(end)..end].fill(0);
        }
        4 => {
            let mode = Fallocate::Allocate { keep_size: rng.once_in(2) };
            fs.fallocate(ino, mode, from as u64, len as u64).unwrap();
            if mode == (Fallocate::Allocate { keep_size: false }) {
                new.resize(new.len().max(from + len), 0);
            }
        }
        _ => {
            // Use only bytes other than zero, so that a zero means a hole.
            let bytes: Vec<u8> = rng.bytes(len).into_iter().map(|b| b | 1).collect();
            new.resize(new.len().max(from + len), 0);
            new[from..from + len].copy_from_slice(&bytes);
            match fs.write_at(ino, from as u64, &bytes) {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    // The previous contents may still be there.
                    fs.truncate(ino, 0).unwrap();
                    return Some(Some(Vec::new()));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    Some(Some(new))
}

fn run(line: &str, rng: &mut Rng) -> Run {
    let mut mkfs = uxfs_mkfs::Options::default();
    mkfs.unsupported = true;
    for pair in line.split_whitespace().collect::<Vec<_>>().chunks(2) {
        mkfs.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
    }
    // Make stale bytes detectable.
    let disk = Disk::new(vec![0xee; LEN]);
    let layout = uxfs_mkfs::Layout::new(&mkfs, LEN as u64).unwrap();
    uxfs_mkfs::write(&layout, &*disk, &uxfs_mkfs::WriteOptions::default()).unwrap();
    let before = disk.bytes.lock().clone();
    disk.events.lock().clear();
    let fs = Fs::open(Arc::clone(&disk) as Arc<dyn BlockDev>, options(limits(rng))).unwrap();
    let fs = Arc::new(fs);
    *disk.fs.lock() = Arc::downgrade(&fs);
    let mut files: Vec<Versions> = (0..FILES).map(|_| vec![None]).collect();
    let mut now = 0;
    for _ in 0..150 {
        let at = rng.index(FILES);
        let old = files[at].last().unwrap().clone();
        let event = Event::Begun(at, files[at].len());
        disk.events.lock().push(event);
        if let Some(new) = change(&fs, rng, at, old.as_ref()) {
            files[at].push(new);
        }
        disk.early.store(rng.once_in(2), Ordering::Relaxed);
        let durable = |file: usize| Event::Durable(file, files[file].len() - 1);
        match rng.below(16) {
            0 => {
                fs.sync().unwrap();
                disk.events.lock().extend((0..FILES).map(durable));
            }
            1 | 2 if files[at].last().unwrap().is_some() => {
                let ino = fs.lookup(fs.root(), &name(at)).unwrap();
                match rng.once_in(2) {
                    true => fs.fsync(ino).unwrap(),
                    false => fs.fdatasync(ino).unwrap(),
                }
                disk.events.lock().push(durable(at));
            }
            3 => fs.wait(fs.ticket()).unwrap(),
            4 => {
                now += rng.below(30);
                fs.writeback_tick(Time(now * 1_000_000_000)).unwrap();
            }
            5 => fs.write_back_all().unwrap(),
            _ => {}
        }
        disk.early.store(false, Ordering::Relaxed);
    }
    drop(fs);
    let events = core::mem::take(&mut *disk.events.lock());
    Run { before, events, files }
}

/// The disk after a power cut before event `at`.
fn cut(run: &Run, at: usize, rng: &mut Rng) -> Vec<u8> {
    let mut disk = run.before.clone();
    let events = &run.events[..at];
    let flushed = events.iter().rposition(|e| matches!(e, Event::Flush)).unwrap_or(0);
    let mut pending = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let Event::Write(offset, data) = event else { continue };
        if index < flushed {
            disk[*offset as usize..][..data.len()].copy_from_slice(data);
        } else {
            pending.push((*offset as usize, data));
        }
    }
    let mode = rng.below(4);
    let missing = rng.index(pending.len().max(1));
    for (index, (offset, data)) in pending.into_iter().enumerate() {
        let keep = match mode {
            0 => index < missing,
            1 => index != missing,
            2 => index == missing,
            _ => rng.once_in(2),
        };
        let torn = rng.once_in(4);
        for (sector, bytes) in data.chunks(512).enumerate().filter(|_| keep) {
            if !torn || rng.once_in(2) {
                disk[offset + sector * 512..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    disk
}

/// The versions of a file that are allowed after a cut before event `at`.
fn allowed(run: &Run, at: usize, file: usize) -> &[Option<Vec<u8>>] {
    let (mut durable, mut begun) = (0, 0);
    for event in &run.events[..at] {
        match event {
            Event::Begun(of, version) if *of == file => begun = *version,
            Event::Durable(of, version) if *of == file => durable = *version,
            _ => {}
        }
    }
    &run.files[file][durable..=begun.max(durable).min(run.files[file].len() - 1)]
}

/// Returns what is wrong with a file.
fn judge(fs: &Fs, file: usize, versions: &[Option<Vec<u8>>]) -> Result<(), String> {
    let ino = match fs.lookup(fs.root(), &name(file)) {
        Ok(ino) => ino,
        Err(Error::NotFound) if versions.iter().any(Option::is_none) => return Ok(()),
        Err(error) => return Err(format!("{error}")),
    };
    let held: Vec<&Vec<u8>> = versions.iter().flatten().collect();
    let mut found = vec![0; fs.stat(ino).unwrap().size as usize];
    fs.read_at(ino, 0, &mut found).unwrap();
    let (least, most) = (held.iter().map(|v| v.len()).min(), held.iter().map(|v| v.len()).max());
    // A file created since then may exist without its contents.
    let least = if versions.iter().any(Option::is_none) { Some(0) } else { least };
    if least.is_none_or(|least| found.len() < least) || most.is_none_or(|most| found.len() > most) {
        return Err(format!("{} bytes, not {least:?} to {most:?}", found.len()));
    }
    for (at, byte) in found.iter().enumerate() {
        if !held.iter().any(|version| version.get(at).copied().unwrap_or(0) == *byte) {
            return Err(format!("byte {at} is {byte:#04x}"));
        }
    }
    Ok(())
}

#[test]
fn nothing_stale_is_seen_and_nothing_synced_is_lost() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let lines = [
        "-b size=1k -l size=6m",
        "-m rmapbt=1 -l size=16m",
        "-b size=1k -l size=6m -m reflink=0,finobt=0,inobtcount=0",
    ];
    let first = setting("UXFS_SEED", 0);
    let mut states = 0;
    for seed in first..first + setting("UXFS_ROUNDS", 6) {
        let line = lines[seed as usize % lines.len()];
        let mut rng = Rng::new(seed);
        let run = run(line, &mut rng);
        for state in 0..60 {
            let at = rng.index(run.events.len() + 1);
            let where_ = format!("seed {seed}, state {state}, before event {at}");
            let disk = Disk::new(cut(&run, at, &mut rng));
            let fs = Fs::open(Arc::clone(&disk) as Arc<dyn BlockDev>, options(limits(&mut rng)));
            let fs = fs.unwrap_or_else(|e| panic!("{where_}: {e}"));
            for file in 0..FILES {
                let judged = judge(&fs, file, allowed(&run, at, file));
                judged.unwrap_or_else(|problem| panic!("{where_}: file{file}: {problem}"));
            }
            fs.close().unwrap();
            states += 1;
            if state % 30 == 0 {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("image");
                std::fs::write(&path, &*disk.bytes.lock()).unwrap();
                uxfs_oracle::repair(&path).unwrap_or_else(|f| panic!("{where_}: {f}"));
            }
        }
    }
    println!("{states} states");
}
