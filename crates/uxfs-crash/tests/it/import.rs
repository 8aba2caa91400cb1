//! Imports into a volume with a journal, cut off anywhere: each file is there whole, or not at all.

use std::path::Path;
use std::sync::Arc;

use uxfs::archive::{DirOptions, DirSource, Source, open};
use uxfs::{Fs, OpenOptions, mkfs};
use uxfs_crash::{RecordDev, Recording, rng};
use uxfs_disk::BlockDev;
use uxfs_disk::MemDev;
use uxfs_disk::fault::{Fault, plant};

use crate::setting;

const VOLUME: u64 = 48 << 20;
const FILES: usize = 400;

/// What a file holds: nothing of it is zero, and no two files agree anywhere.
fn content(file: usize) -> Vec<u8> {
    let mut rng = rng(file as u64);
    let len = match file % 5 {
        0 => rng.below(100),
        1 => 4096,
        2 => rng.below(150_000),
        _ => rng.below(12_000),
    };
    let word = format!("{file:07}.");
    word.bytes().cycle().take(len as usize).collect()
}

fn made() -> MemDev {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let layout = mkfs::Layout::new(&options, VOLUME).unwrap();
    let disk = MemDev::new(VOLUME);
    mkfs::write(&layout, &disk, &mkfs::WriteOptions::default()).unwrap();
    disk
}

/// Imports the files, and gives what went to the disk.
fn import(source: Box<dyn Source>) -> Recording {
    let disk = made();
    let before = disk.clone();
    let dev = Arc::new(RecordDev::new(disk).in_pieces());
    let mut options = OpenOptions::default();
    options.journal.get_or_insert_default().pipeline.size_max = 64 << 10;
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options).unwrap();
    uxfs::import::fill(&fs, source, &mut |_| ()).unwrap();
    fs.close().unwrap();
    Recording::new(before, dev.take(), 512)
}

/// What is wrong after a cut, if anything.
fn judge(disk: MemDev) -> Result<usize, String> {
    let dev: Arc<dyn BlockDev> = Arc::new(RecordDev::forgetful(disk).in_pieces());
    let fs = Fs::open(dev, OpenOptions::read_only()).map_err(|e| e.to_string())?;
    let mut there = 0;
    for file in 0..FILES {
        let Ok(ino) = fs.lookup(fs.root(), format!("f{file}").as_bytes()) else { continue };
        let want = content(file);
        let mut got = vec![0; want.len() + 1];
        let len = fs.read_at(ino, 0, &mut got).map_err(|e| e.to_string())?;
        if got[..len] != want {
            return Err(format!("f{file} is not what was imported"));
        }
        there += 1;
    }
    Ok(there)
}

/// How many of the cuts leave something wrong, and the numbers of files that are there.
fn cuts(source: Box<dyn Source>, seed: u64, count: u64) -> (Vec<String>, Vec<usize>) {
    let recording = import(source);
    let (mut wrong, mut there) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut rng = rng(seed + number);
        let at = recording.choose(&mut rng);
        match judge(recording.cut(at, &mut rng)) {
            Ok(files) => there.push(files),
            Err(problem) => wrong.push(format!("seed {}: {problem}", seed + number)),
        }
    }
    (wrong, there)
}

fn tree(dir: &Path) {
    for file in 0..FILES {
        std::fs::write(dir.join(format!("f{file}")), content(file)).unwrap();
    }
}

fn sources(dir: &Path, tar: &Path) -> [Box<dyn Source>; 2] {
    let args = [Path::new("-cf"), tar, Path::new("-C"), dir, Path::new(".")];
    assert!(std::process::Command::new("tar").args(args).status().unwrap().success());
    // Read by the threads that pass data on, and by those that bring it.
    [Box::new(DirSource::new(dir, DirOptions::default()).unwrap()), open(tar).unwrap()]
}

#[test]
fn files_are_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let (files, tar) = (dir.path().join("files"), dir.path().join("files.tar"));
    std::fs::create_dir(&files).unwrap();
    tree(&files);
    let (seed, count) = (setting("UXFS_SEED", 0), setting("UXFS_COUNT", 150));
    for source in sources(&files, &tar) {
        let (wrong, there) = cuts(source, seed, count);
        assert!(wrong.is_empty(), "{} of {count}: {}", wrong.len(), wrong[0]);
        let some = there.iter().filter(|files| (1..FILES).contains(*files)).count();
        assert!(some as u64 > count / 4, "only {some} cuts fell into the import");
    }
    // The same, with data that is not flushed before what shows it is logged.
    for source in sources(&files, &tar) {
        plant(Some(Fault::DataUnflushed));
        let (wrong, _) = cuts(source, seed, count);
        plant(None);
        assert!(!wrong.is_empty(), "a flush is left out, and nothing is found");
    }
}
