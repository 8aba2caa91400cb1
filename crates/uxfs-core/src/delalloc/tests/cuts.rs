//! Power cuts: any subset of the writes since the last flush may have reached the disk, each in
//! full or in part. Afterwards, synced data is readable, and every byte of a file is one that the file
//! has had since its last sync, never the old contents of its blocks.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_journal::Time;
use uxfs_testkit::{Answer, FaultDev, Op, RecordDev, Recording, Rng, Rule};

use super::options;
use crate::ops::NewInode;
use crate::{Error, Fallocate, Fs, WritebackOptions};

const LEN: usize = 48 << 20;
const FILES: usize = 8;

/// Marks of the test between the events of the device.
enum Mark {
    /// A file has a new version.
    Begun(usize, usize),
    /// Everything up to this version of a file is durable.
    Durable(usize, usize),
}

/// The versions of a file's contents; `None` while it has no name.
type Versions = Vec<Option<Vec<u8>>>;

struct Run {
    recording: Recording<Mark>,
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
    let before = MemDev::from_bytes(&vec![0xee; LEN]);
    let layout = uxfs_mkfs::Layout::new(&mkfs, LEN as u64).unwrap();
    uxfs_mkfs::write(&layout, &before, &uxfs_mkfs::WriteOptions::default()).unwrap();
    let disk = Arc::new(RecordDev::new(before.clone()));
    let dev = Arc::new(FaultDev::new(Arc::clone(&disk)));
    let fs =
        Arc::new(Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options(limits(rng))).unwrap());
    // Before the next data write, make the open checkpoint durable: no committed change may show
    // data that is not written yet. Only data is written in pieces, and no lock is held that this
    // could wait for.
    let weak = Arc::downgrade(&fs);
    let early = Rule::on(&[Op::WriteVectored]).times(1).before(move |_| {
        let fs = weak.upgrade().unwrap();
        fs.wait(fs.ticket()).unwrap();
        Answer::Pass
    });
    let mut files: Vec<Versions> = (0..FILES).map(|_| vec![None]).collect();
    let mut now = 0;
    for _ in 0..150 {
        let at = rng.index(FILES);
        let old = files[at].last().unwrap().clone();
        disk.mark(Mark::Begun(at, files[at].len()));
        if let Some(new) = change(&fs, rng, at, old.as_ref()) {
            files[at].push(new);
        }
        if rng.once_in(2) {
            dev.add(early.clone());
        }
        let durable = |file: usize| Mark::Durable(file, files[file].len() - 1);
        match rng.below(16) {
            0 => {
                fs.sync().unwrap();
                (0..FILES).map(durable).for_each(|mark| disk.mark(mark));
            }
            1 | 2 if files[at].last().unwrap().is_some() => {
                let ino = fs.lookup(fs.root(), &name(at)).unwrap();
                match rng.once_in(2) {
                    true => fs.fsync(ino).unwrap(),
                    false => fs.fdatasync(ino).unwrap(),
                }
                disk.mark(durable(at));
            }
            3 => fs.wait(fs.ticket()).unwrap(),
            4 => {
                now += rng.below(30);
                fs.writeback_tick(Time(now * 1_000_000_000)).unwrap();
            }
            5 => fs.write_back_all().unwrap(),
            _ => {}
        }
        dev.clear();
    }
    drop(fs);
    Run { recording: Recording::new(before, disk.take(), 512), files }
}

/// The versions of a file that are allowed after a cut before event `at`.
fn allowed(run: &Run, at: usize, file: usize) -> &[Option<Vec<u8>>] {
    let marks = || run.recording.marks_before(at);
    let durable = marks().find_map(|mark| match mark {
        Mark::Durable(of, version) if *of == file => Some(*version),
        _ => None,
    });
    let begun = marks().find_map(|mark| match mark {
        Mark::Begun(of, version) if *of == file => Some(*version),
        _ => None,
    });
    let (durable, begun) = (durable.unwrap_or(0), begun.unwrap_or(0));
    &run.files[file][durable..=begun.max(durable).min(run.files[file].len() - 1)]
}

/// Returns what is wrong with a file.
fn judge(fs: &Fs, file: usize, versions: &[Option<Vec<u8>>]) -> Result<(), String> {
    let ino = match fs.lookup(fs.root(), &name(file)) {
        Ok(ino) => ino,
        Err(Error::NotFound) if versions.iter().any(Option::is_none) => return Ok(()),
        Err(error) => return Err(format!("{error}")),
    };
    let possible: Vec<&Vec<u8>> = versions.iter().flatten().collect();
    let mut found = vec![0; fs.stat(ino).unwrap().size as usize];
    fs.read_at(ino, 0, &mut found).unwrap();
    let (least, most) =
        (possible.iter().map(|v| v.len()).min(), possible.iter().map(|v| v.len()).max());
    // A file created since then may exist without its contents.
    let least = if versions.iter().any(Option::is_none) { Some(0) } else { least };
    if least.is_none_or(|least| found.len() < least) || most.is_none_or(|most| found.len() > most) {
        return Err(format!("{} bytes, not {least:?} to {most:?}", found.len()));
    }
    for (at, byte) in found.iter().enumerate() {
        if !possible.iter().any(|version| version.get(at).copied().unwrap_or(0) == *byte) {
            return Err(format!("byte {at} is {byte:#04x}"));
        }
    }
    Ok(())
}

#[test]
fn power_cuts_expose_no_stale_data_and_lose_no_synced_data() {
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
            let at = rng.index(run.recording.len() + 1);
            let where_ = format!("seed {seed}, state {state}, before event {at}");
            let disk = Arc::new(run.recording.cut(at, &mut rng));
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
                let mut bytes = vec![0; LEN];
                disk.read_at(0, &mut bytes).unwrap();
                std::fs::write(&path, bytes).unwrap();
                super::xfsprogs(&path).unwrap_or_else(|f| panic!("{where_}: {f}"));
            }
        }
    }
    println!("{states} states");
}
