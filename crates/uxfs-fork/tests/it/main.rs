//! Forks against a model in memory, through power cuts and damage.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_fork::{BLOCK, ForkDev, commit, create, rebase};
use uxfs_testkit::Rng;

/// Not a multiple of a block.
const LEN: usize = 3 * 1024 * 1024 + 512;

struct Family {
    dir: TempDir,
    base: Vec<u8>,
}

fn open_read(path: &Path) -> io::Result<Arc<dyn BlockDev>> {
    Ok(Arc::new(FileDev::open(path, OpenMode::Read)?))
}

fn open_write(path: &Path) -> io::Result<Arc<dyn BlockDev>> {
    Ok(Arc::new(FileDev::open(path, OpenMode::Write)?))
}

impl Family {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base: Vec<u8> = (0..LEN).map(|at| (at / 1000 % 251) as u8).collect();
        std::fs::write(dir.path().join("base"), &base).unwrap();
        Self { dir, base }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn child(&self, name: &str) -> PathBuf {
        let base = self.path("base");
        create(&self.path(name), &base, &*open_read(&base).unwrap()).unwrap();
        self.path(name)
    }
}

fn open(path: &Path, mode: OpenMode) -> io::Result<ForkDev> {
    ForkDev::open(FileDev::open(path, mode)?, path, &open_read)
}

fn whole(dev: &dyn BlockDev) -> Vec<u8> {
    let mut all = vec![0; dev.len() as usize];
    dev.read_at(0, &mut all).unwrap();
    all
}

/// Changes a range in the device and in the model.
fn change(rng: &mut Rng, dev: &dyn BlockDev, model: &mut [u8]) {
    let at = rng.index(LEN - 1);
    let len = 1 + rng.index((LEN - at).min(40_000));
    let range = at..at + len;
    match rng.below(5) {
        0 => {
            dev.zero(at as u64, len as u64).unwrap();
            model[range].fill(0);
        }
        1 => {
            for byte in &mut model[range.clone()] {
                *byte = rng.below(256) as u8;
            }
            dev.write_at(at as u64, &model[range]).unwrap();
        }
        _ => {
            model[range.clone()].fill(rng.below(256) as u8);
            dev.write_at(at as u64, &model[range]).unwrap();
        }
    }
}

#[test]
fn a_child_is_its_base_with_its_changes() {
    for seed in 0..8 {
        let mut rng = Rng::spread(seed);
        let family = Family::new();
        let path = family.child("child");
        let mut model = family.base.clone();
        for _ in 0..6 {
            let dev = open(&path, OpenMode::Write).unwrap();
            assert!(whole(&dev) == model, "seed {seed}");
            for _ in 0..12 {
                change(&mut rng, &dev, &mut model);
                if rng.below(4) == 0 {
                    dev.flush().unwrap();
                }
                let at = rng.index(LEN - 5000);
                let mut part = vec![0; rng.index(5000)];
                dev.read_at(at as u64, &mut part).unwrap();
                assert!(part == model[at..at + part.len()], "seed {seed}");
            }
        }
        assert!(whole(&open(&path, OpenMode::Read).unwrap()) == model, "seed {seed}");
        assert!(std::fs::read(family.path("base")).unwrap() == family.base);
    }
}

#[test]
fn a_hundred_children_are_used_side_by_side() {
    let family = Family::new();
    let paths: Vec<_> = (0..100).map(|n| family.child(&format!("child-{n}"))).collect();
    let all: Vec<_> = paths.iter().map(|path| open(path, OpenMode::Write).unwrap()).collect();
    for (n, dev) in all.iter().enumerate() {
        dev.write_at(10_000, &[n as u8; 6000]).unwrap();
        dev.flush().unwrap();
    }
    for (n, dev) in all.iter().enumerate() {
        let mut model = family.base.clone();
        model[10_000..16_000].fill(n as u8);
        assert!(whole(dev) == model);
    }
    // The base cannot be written meanwhile, and no child is opened twice for writing.
    let base = FileDev::open(&family.path("base"), OpenMode::Write).err().unwrap();
    assert_eq!(base.kind(), io::ErrorKind::ResourceBusy);
    assert!(open(&paths[0], OpenMode::Write).is_err());
}

#[test]
fn another_base_is_refused_until_it_is_named() {
    let family = Family::new();
    let path = family.child("child");
    open(&path, OpenMode::Write).unwrap().write_at(0, &[9; 100_000]).unwrap();
    let model = whole(&open(&path, OpenMode::Read).unwrap());
    // A copy with another time.
    let copy = family.path("copy");
    std::fs::copy(family.path("base"), &copy).unwrap();
    std::fs::rename(family.path("base"), family.path("moved")).unwrap();
    assert_eq!(open(&path, OpenMode::Read).err().unwrap().kind(), io::ErrorKind::NotFound);
    std::fs::rename(&copy, family.path("base")).unwrap();
    let error = open(&path, OpenMode::Read).err().unwrap();
    assert!(error.to_string().contains("--rebase"), "{error}");
    let base = family.path("base");
    rebase(&path, &base, &*open_read(&base).unwrap()).unwrap();
    assert!(whole(&open(&path, OpenMode::Read).unwrap()) == model);
    // Another content.
    let mut changed = family.base.clone();
    changed[5000] ^= 1;
    std::fs::write(&base, &changed).unwrap();
    assert!(open(&path, OpenMode::Read).is_err());
    assert!(rebase(&path, &base, &*open_read(&base).unwrap()).is_err());
    std::fs::write(&base, &family.base[..LEN - 512]).unwrap();
    assert!(open(&path, OpenMode::Read).is_err());
}

/// The file at every length between two flushes is the child after one of them.
#[test]
fn a_cut_in_an_append_leaves_the_child_of_before() {
    let family = Family::new();
    let path = family.child("child");
    let mut states = vec![(std::fs::metadata(&path).unwrap().len(), family.base.clone())];
    let mut model = family.base.clone();
    let mut rng = Rng::new(5);
    // No clean close between: the copies are of an open fork.
    let dev = open(&path, OpenMode::Write).unwrap();
    for _ in 0..4 {
        change(&mut rng, &dev, &mut model);
        dev.flush().unwrap();
        states.push((std::fs::metadata(&path).unwrap().len(), model.clone()));
    }
    let file = std::fs::read(&path).unwrap();
    drop(dev);
    let cut_path = family.path("cut");
    for pair in states.windows(2) {
        let [(before, old), (after, new)] = pair else { unreachable!("windows of two") };
        for _ in 0..40 {
            let cut = before + rng.below(after - before + 1);
            let mut bytes = file[..cut as usize].to_vec();
            // What follows may be zeroes, or what was there before.
            match rng.below(3) {
                0 => bytes.resize(*after as usize, 0),
                1 => bytes.resize(*after as usize + 9000, 0xa5),
                _ => {}
            }
            std::fs::write(&cut_path, &bytes).unwrap();
            let dev = open(&cut_path, OpenMode::Write).unwrap();
            let found = whole(&dev);
            assert!(found == if cut == *after { new.clone() } else { old.clone() }, "{cut}");
            // It goes on from there.
            dev.write_at(0, &[1; 10]).unwrap();
            drop(dev);
            let found = whole(&open(&cut_path, OpenMode::Read).unwrap());
            assert!(found[..10] == [1; 10]);
        }
    }
}

#[test]
fn damage_is_an_error_and_never_other_content() {
    let family = Family::new();
    let path = family.child("child");
    let mut model = family.base.clone();
    let mut rng = Rng::new(6);
    let dev = open(&path, OpenMode::Write).unwrap();
    for _ in 0..5 {
        change(&mut rng, &dev, &mut model);
        dev.flush().unwrap();
    }
    drop(dev);
    let file = std::fs::read(&path).unwrap();
    let damaged = family.path("damaged");
    let mut refused = 0;
    for _ in 0..400 {
        let mut bytes = file.clone();
        let at = rng.index(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        std::fs::write(&damaged, &bytes).unwrap();
        let read = open(&damaged, OpenMode::Read).and_then(|dev| {
            let mut all = vec![0; LEN];
            dev.read_at(0, &mut all).map(|()| all)
        });
        match read {
            // One of the two heads, or a byte that nothing uses.
            Ok(all) => assert!(all == model, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100, "{refused}");
    for len in [0, 100, 5000, file.len() / 2, file.len() - 1] {
        std::fs::write(&damaged, &file[..len]).unwrap();
        assert!(open(&damaged, OpenMode::Read).is_err(), "{len} bytes");
    }
}

#[test]
fn a_file_that_is_mostly_outdated_is_rewritten() {
    let family = Family::new();
    let path = family.child("child");
    let dev = open(&path, OpenMode::Write).unwrap();
    let mut rng = Rng::new(7);
    let mut data = vec![0; 2 << 20];
    for _ in 0..50 {
        for chunk in data.chunks_mut(8) {
            chunk.copy_from_slice(&rng.bits().to_le_bytes()[..chunk.len()]);
        }
        dev.write_at(0, &data).unwrap();
        dev.flush().unwrap();
    }
    let mut model = family.base.clone();
    model[..data.len()].copy_from_slice(&data);
    assert!(whole(&dev) == model);
    drop(dev);
    let stored = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(stored < 80 << 20, "{stored} bytes for 2 MiB, after 100 MiB were written");
    assert!(whole(&open(&path, OpenMode::Write).unwrap()) == model);
}

/// What a flush appended is durable, whether the rewrite that follows can be done or not. Here it
/// cannot, because a block that counts is damaged.
#[test]
fn a_rewrite_that_fails_fails_no_flush() {
    let family = Family::new();
    let path = family.child("child");
    let dev = open(&path, OpenMode::Write).unwrap();
    let mut rng = Rng::new(8);
    let mut data = vec![0; 2 << 20];
    let mut fill = |data: &mut [u8]| {
        for chunk in data.chunks_mut(8) {
            chunk.copy_from_slice(&rng.bits().to_le_bytes()[..chunk.len()]);
        }
    };
    let at = 2 << 20;
    fill(&mut data[..BLOCK]);
    dev.write_at(at, &data[..BLOCK]).unwrap();
    dev.flush().unwrap();
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let stored = std::fs::read(&path).unwrap();
    let block = stored.windows(16).position(|bytes| bytes == &data[..16]).unwrap();
    io::Seek::seek(&mut file, io::SeekFrom::Start(block as u64)).unwrap();
    io::Write::write_all(&mut file, &[!data[0]]).unwrap();

    for round in 0..75 {
        fill(&mut data);
        dev.write_at(0, &data).unwrap();
        dev.flush().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let stored = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(stored >= 150 << 20, "it was rewritten: {stored} bytes");
    let mut read = vec![0; data.len()];
    drop(dev);
    for mode in [OpenMode::Write, OpenMode::Read] {
        let dev = open(&path, mode).unwrap();
        dev.read_at(0, &mut read).unwrap();
        assert!(read == data);
        assert!(dev.read_at(at, &mut [0; BLOCK]).is_err(), "the damaged block");
    }
}

fn mark(block: &mut [u8], unfinished: bool) {
    block[7] = if unfinished { 0xee } else { 0 };
}

#[test]
fn a_commit_that_is_cut_is_run_again() {
    for (seed, first_block) in [(1, true), (2, false)] {
        let mut rng = Rng::new(seed);
        let family = Family::new();
        let path = family.child("child");
        let other = family.child("other");
        let mut model = family.base.clone();
        let dev = open(&path, OpenMode::Write).unwrap();
        for _ in 0..20 {
            change(&mut rng, &dev, &mut model);
        }
        if first_block {
            dev.write_at(0, &[0; BLOCK]).unwrap();
            model[..BLOCK].fill(0);
        } else {
            dev.write_at(0, &family.base[..BLOCK]).unwrap();
            model[..BLOCK].copy_from_slice(&family.base[..BLOCK]);
        }
        drop(dev);
        // It is refused while the base is in use.
        let file = || FileDev::open(&path, OpenMode::Write).unwrap();
        let user = open(&other, OpenMode::Read).unwrap();
        let busy = commit(&file(), &path, &open_write, &mark).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy, "{busy}");
        drop(user);
        // Cut after some writes.
        for writes in [0, 1, 2, 3, 5, 8] {
            let cut = |path: &Path| -> io::Result<Arc<dyn BlockDev>> {
                Ok(Arc::new(Cut { dev: open_write(path)?, left: writes.into() }))
            };
            assert!(commit(&file(), &path, &cut, &mark).is_err(), "{writes} writes");
            assert!(open(&path, OpenMode::Read).is_err(), "a child that is half committed");
            let base = std::fs::read(family.path("base")).unwrap();
            assert!(writes == 0 || base[7] == 0xee, "the base is not marked");
        }
        let committed = commit(&file(), &path, &open_write, &mark).unwrap();
        assert!(committed.bytes > 0);
        assert!(std::fs::read(family.path("base")).unwrap() == model);
        assert!(whole(&open(&path, OpenMode::Read).unwrap()) == model);
        assert!(open(&other, OpenMode::Read).is_err(), "its base has changed");
        // The child goes on.
        let dev = open(&path, OpenMode::Write).unwrap();
        change(&mut rng, &dev, &mut model);
        drop(dev);
        assert!(whole(&open(&path, OpenMode::Read).unwrap()) == model);
    }
}

/// A commit that was cut when the base had everything and bore no mark any more: the base can be
/// used, and what is written into it then is never written over.
#[test]
fn a_commit_that_was_cut_at_its_end_writes_nothing_over() {
    for changed in [None, Some(0), Some(2_000_000), Some(LEN as u64 - 1)] {
        let family = Family::new();
        let path = family.child("child");
        let mut model = family.base.clone();
        let dev = open(&path, OpenMode::Write).unwrap();
        for at in [0, 2_000_000, LEN - 5000] {
            dev.write_at(at as u64, &[9; 5000]).unwrap();
            model[at..at + 5000].fill(9);
        }
        drop(dev);
        let file = || FileDev::open(&path, OpenMode::Write).unwrap();
        // Its head says that it is being committed, and all its deltas are there.
        let cut = |path: &Path| -> io::Result<Arc<dyn BlockDev>> {
            Ok(Arc::new(Cut { dev: open_write(path)?, left: 2.into() }))
        };
        assert!(commit(&file(), &path, &cut, &mark).is_err());
        let of_before = std::fs::read(&path).unwrap();
        commit(&file(), &path, &open_write, &mark).unwrap();
        std::fs::write(&path, of_before).unwrap();
        assert!(std::fs::read(family.path("base")).unwrap() == model);

        if let Some(at) = changed {
            open_write(&family.path("base")).unwrap().write_at(at, &[7]).unwrap();
            model[at as usize] = 7;
        }
        let done = commit(&file(), &path, &open_write, &mark);
        assert!(std::fs::read(family.path("base")).unwrap() == model, "{changed:?}");
        match changed {
            None => {
                done.unwrap();
                assert!(whole(&open(&path, OpenMode::Read).unwrap()) == model);
            }
            Some(_) => {
                let error = done.unwrap_err().to_string();
                assert!(error.contains("was changed since the commit"), "{error}");
            }
        }
    }
}

/// A device that fails after some writes.
struct Cut {
    dev: Arc<dyn BlockDev>,
    left: std::sync::atomic::AtomicI32,
}

impl BlockDev for Cut {
    uxfs_disk::forward!(self => self.dev; len, read_at, flush, discard, will_read, will_write_bulk, allocate, check_present,
        warning, read_only, sector_size, lengthen, as_file, has_fua);
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0 {
            return Err(io::Error::other("cut"));
        }
        self.dev.write_at(offset, data)
    }
}

#[test]
fn a_fork_is_made_once_and_only_where_nothing_is() {
    let family = Family::new();
    let path = family.child("child");
    let base = family.path("base");
    let error = create(&path, &base, &*open_read(&base).unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(uxfs_fork::is_fork(&File::open(&path).unwrap()).unwrap());
    assert!(!uxfs_fork::is_fork(&File::open(&base).unwrap()).unwrap());
    // Both are moved together.
    let there = family.path("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::rename(&base, there.join("base")).unwrap();
    std::fs::rename(&path, there.join("child")).unwrap();
    assert!(whole(&open(&there.join("child"), OpenMode::Read).unwrap()) == family.base);
}
