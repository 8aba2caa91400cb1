//! Power cuts during imports into a volume with a journal: each file exists completely or not at all.

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

/// The content of a file: no byte is zero, and no two files have equal words.
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

fn volume() -> MemDev {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let layout = mkfs::Layout::new(&options, VOLUME).unwrap();
    let disk = MemDev::new(VOLUME);
    mkfs::write(&layout, &disk, &mkfs::WriteOptions::default()).unwrap();
    disk
}

/// Imports the files and returns the writes.
fn import(source: Box<dyn Source>) -> Recording {
    let disk = volume();
    let before = disk.clone();
    let dev = Arc::new(RecordDev::new(disk).in_pieces());
    let mut options = OpenOptions::default();
    options.journal.pipeline.size_max = 64 << 10;
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options).unwrap();
    uxfs::import::fill(&fs, source, &mut |_| ()).unwrap();
    fs.close().unwrap();
    Recording::new(before, dev.take(), 512)
}

/// Checks the files after a cut. Returns how many exist.
fn check(disk: MemDev) -> Result<usize, String> {
    let dev: Arc<dyn BlockDev> = Arc::new(RecordDev::forgetful(disk).in_pieces());
    let fs = Fs::open(dev, OpenOptions::read_only()).map_err(|e| e.to_string())?;
    let mut count = 0;
    for file in 0..FILES {
        let Ok(ino) = fs.lookup(fs.root(), format!("f{file}").as_bytes()) else { continue };
        let expected = content(file);
        let mut found = vec![0; expected.len() + 1];
        let len = fs.read_at(ino, 0, &mut found).map_err(|e| e.to_string())?;
        if found[..len] != expected {
            return Err(format!("f{file} differs from the imported file"));
        }
        count += 1;
    }
    Ok(count)
}

/// The problems after `count` cuts, and the number of files after each cut without a problem.
fn cuts(source: Box<dyn Source>, seed: u64, count: u64) -> (Vec<String>, Vec<usize>) {
    let recording = import(source);
    let (mut problems, mut counts) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut rng = rng(seed + number);
        let at = recording.choose(&mut rng);
        match check(recording.cut(at, &mut rng)) {
            Ok(files) => counts.push(files),
            Err(problem) => problems.push(format!("seed {}: {problem}", seed + number)),
        }
    }
    (problems, counts)
}

fn tree(dir: &Path) {
    for file in 0..FILES {
        std::fs::write(dir.join(format!("f{file}")), content(file)).unwrap();
    }
}

fn sources(dir: &Path, tar: &Path) -> [Box<dyn Source>; 2] {
    let args = [Path::new("-cf"), tar, Path::new("-C"), dir, Path::new(".")];
    assert!(std::process::Command::new("tar").args(args).status().unwrap().success());
    // One source whose data other threads read, and one that reads its data itself.
    [Box::new(DirSource::new(dir, DirOptions::default()).unwrap()), open(tar).unwrap()]
}

#[test]
fn imported_files_are_complete_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let (files, tar) = (dir.path().join("files"), dir.path().join("files.tar"));
    std::fs::create_dir(&files).unwrap();
    tree(&files);
    let (seed, count) = (setting("UXFS_SEED", 0), setting("UXFS_COUNT", 150));
    for source in sources(&files, &tar) {
        let (problems, counts) = cuts(source, seed, count);
        assert!(problems.is_empty(), "{} of {count}: {}", problems.len(), problems[0]);
        let some = counts.iter().filter(|files| (1..FILES).contains(*files)).count();
        assert!(some as u64 > count / 4, "only {some} cuts fell into the import");
    }
    // Without the flush between data and the log record that maps it, problems must be found.
    for source in sources(&files, &tar) {
        plant(Some(Fault::DataUnflushed));
        let (problems, _) = cuts(source, seed, count);
        plant(None);
        assert!(!problems.is_empty(), "a flush is omitted, and no problem is found");
    }
}
