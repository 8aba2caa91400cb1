//! Tests: what is moved, what stays, and what others see.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::{Extent, Ino};
use uxfs_testkit::Rng;

use super::{DefragOptions, Kept};
use crate::ops::NewInode;
use crate::{Error, Fallocate, Fs, Fsx, OpenOptions, SyncMode, WritebackOptions, Xflags};

const BLOCK: usize = 4096;
/// Blocks of a test file.
const BLOCKS: usize = 200;
const ALONE: DefragOptions = DefragOptions { shared: false };

struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    fs: Fs,
}

/// In ordered mode, or with data written at once.
fn volume(mkfs: &str, mib: u64, ordered: bool) -> Volume {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    crate::delalloc::tests::make_image(&path, mkfs, mib);
    let fs = open(&path, ordered);
    Volume { _dir: dir, path, fs }
}

fn open(path: &std::path::Path, ordered: bool) -> Fs {
    let dev: Arc<dyn BlockDev> = Arc::new(FileDev::open(path, OpenMode::Write).unwrap());
    let mut options = OpenOptions { seed: Some(1), ..OpenOptions::default() };
    if ordered {
        options.sync = SyncMode::Ordered { loss: Duration::from_secs(3600) };
        options.writeback = Some(WritebackOptions::default());
    }
    Fs::open(dev, options).unwrap()
}

impl Volume {
    fn file(&self, name: &str) -> Ino {
        self.fs.create(self.fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap()
    }

    /// A file of one extent a block, because another file grew beside it.
    fn split_file(&self, name: &str, blocks: usize) -> (Ino, Vec<u8>) {
        let (file, other) = (self.file(name), self.file(&format!("beside-{name}")));
        let mut content = Vec::new();
        for at in 0..blocks {
            let bytes = [(at % 251) as u8 + 1; BLOCK];
            content.extend_from_slice(&bytes);
            for ino in [file, other] {
                self.fs.write_at(ino, (at * BLOCK) as u64, &bytes).unwrap();
                self.fs.write_back_file(ino).unwrap();
            }
        }
        assert_eq!(self.extents(file).len(), blocks);
        (file, content)
    }

    fn extents(&self, ino: Ino) -> Vec<Extent> {
        self.fs.extents(ino).unwrap()
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let mut all = vec![0; self.fs.stat(ino).unwrap().size as usize];
        assert_eq!(self.fs.read_at(ino, 0, &mut all).unwrap(), all.len());
        all
    }

    /// Closes the volume and checks it with xfsprogs. Opens it again.
    fn judged(self) -> Self {
        let Self { _dir, path, fs } = self;
        fs.close().unwrap();
        uxfs_oracle::both(&path).unwrap_or_else(|finding| panic!("{finding}"));
        let fs = open(&path, false);
        Self { _dir, path, fs }
    }
}

/// What a file maps, without the places: offset, blocks, unwritten.
fn mapped(extents: &[Extent]) -> Vec<(u64, u64, bool)> {
    let mut all: Vec<(u64, u64, bool)> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some((at, len, unwritten))
                if *at + *len == extent.offset.0 && *unwritten == extent.unwritten =>
            {
                *len += extent.len;
            }
            _ => all.push((extent.offset.0, extent.len, extent.unwritten)),
        }
    }
    all
}

#[test]
fn a_split_file_becomes_one_extent() {
    for (line, ordered) in [("-m rmapbt=1", false), ("-m reflink=0", false), ("", true)] {
        let v = volume(line, 300, ordered);
        let (file, content) = v.split_file("a", BLOCKS);
        let before = v.fs.stat(file).unwrap();
        let counted = v.fs.fragmentation(file).unwrap();
        assert_eq!((counted.extents, counted.possible), (BLOCKS as u64, 1));
        let done = v.fs.defrag(file, ALONE).unwrap();
        assert_eq!((done.moved, done.kept), ((BLOCKS * BLOCK) as u64, None));
        assert_eq!(v.extents(file).len(), 1);
        assert_eq!(v.content(file), content);
        let stats = v.fs.stats();
        assert_eq!((stats.defrag_bytes, stats.defrag_extents), (done.moved, BLOCKS as u64 - 1));
        let after = v.fs.stat(file).unwrap();
        let times = |stat: &crate::Stat| (stat.atime, stat.mtime, stat.ctime, stat.crtime);
        assert_eq!(times(&after), times(&before));
        // The block of its extent tree is free again.
        assert_eq!((after.size, after.blocks), (before.size, BLOCKS as u64));
        // Nothing is left to do.
        assert_eq!(v.fs.defrag(file, ALONE).unwrap().moved, 0);
        let v = v.judged();
        assert_eq!(v.content(file), content);
    }
}

#[test]
fn holes_and_unwritten_blocks_stay() {
    let v = volume("-m rmapbt=1", 300, false);
    let (file, mut content) = v.split_file("a", BLOCKS);
    let at = |block: usize| (block * BLOCK) as u64;
    let keep = Fallocate::Allocate { keep_size: true };
    for block in [20, 21, 60, 100, 101, 102] {
        v.fs.fallocate(file, Fallocate::PunchHole, at(block), BLOCK as u64).unwrap();
        content[block * BLOCK..(block + 1) * BLOCK].fill(0);
    }
    v.fs.fallocate(file, keep, at(100), at(2)).unwrap();
    v.fs.fallocate(file, keep, at(BLOCKS + 3), at(9)).unwrap();
    let before = mapped(&v.extents(file));
    let possible = v.fs.fragmentation(file).unwrap().possible;
    v.fs.defrag(file, ALONE).unwrap();
    let after = v.extents(file);
    assert_eq!(mapped(&after), before);
    // One place for each range between holes, and the blocks past the end where they were.
    assert_eq!(after.len() as u64, possible + 1);
    assert_eq!(v.content(file), content);
    let v = v.judged();
    assert_eq!(v.content(file), content);
}

#[test]
fn shared_blocks_are_moved_only_if_asked_for() {
    let v = volume("-m rmapbt=1", 300, false);
    let (file, content) = v.split_file("a", BLOCKS);
    let half = (BLOCKS / 2 * BLOCK) as u64;
    let clone = v.file("clone");
    v.fs.share(file, 0, clone, 0, half).unwrap();
    v.fs.defrag(file, ALONE).unwrap();
    let extents = v.extents(file);
    assert_eq!(extents.len(), BLOCKS / 2 + 1, "{extents:?}");
    assert_eq!(v.extents(clone)[..], extents[..BLOCKS / 2]);
    assert_eq!(v.fs.defrag(clone, ALONE).unwrap().moved, 0);
    v.fs.defrag(file, DefragOptions { shared: true }).unwrap();
    assert_eq!(v.extents(file).len(), 1);
    assert_eq!(v.extents(clone).len(), BLOCKS / 2);
    assert_eq!(v.content(file), content);
    let v = v.judged();
    assert_eq!(v.content(clone), content[..half as usize]);
}

#[test]
fn flags_keep_a_file_where_it_is() {
    let v = volume("", 300, false);
    let (file, content) = v.split_file("a", 20);
    for (flag, kept) in [
        (Xflags::NODEFRAG, Kept::NoDefrag),
        (Xflags::IMMUTABLE, Kept::Immutable),
        (Xflags::APPEND, Kept::Immutable),
    ] {
        let old = v.fs.get_fsx(file).unwrap();
        v.fs.set_fsx(file, &Fsx { xflags: flag, ..old }).unwrap();
        let done = v.fs.defrag(file, ALONE).unwrap();
        assert_eq!((done.moved, done.kept), (0, Some(kept)));
        assert_eq!(v.extents(file).len(), 20);
        v.fs.set_fsx(file, &old).unwrap();
    }
    assert!(matches!(v.fs.defrag(v.fs.root(), ALONE), Err(Error::IsDir)));
    assert_eq!(v.content(file), content);
}

#[test]
fn a_full_volume_stays_as_it_is() {
    for ordered in [false, true] {
        let v = volume("-m rmapbt=1 -l size=16m", 96, ordered);
        let (file, content) = v.split_file("a", BLOCKS);
        let filler = v.file("filler");
        let mut at = 0;
        for step in [1 << 20, BLOCK] {
            while v.fs.write_at(filler, at, &vec![9; step]).is_ok() {
                at += step as u64;
            }
        }
        let before = v.extents(file);
        match v.fs.defrag(file, ALONE) {
            Ok(_) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        let after = v.extents(file);
        assert!(after.len() <= before.len());
        assert_eq!(mapped(&after), mapped(&before));
        assert_eq!(v.content(file), content);
        // Space comes back: everything can be moved.
        v.fs.truncate(filler, 0).unwrap();
        v.fs.sync().unwrap();
        v.fs.defrag(file, ALONE).unwrap();
        assert_eq!(v.extents(file).len(), 1);
        let v = v.judged();
        assert_eq!(v.content(file), content);
    }
}

/// In free space of short runs, a move is made only if it halves what it moves.
#[test]
fn a_move_that_does_not_help_is_not_made() {
    let v = volume("-m rmapbt=1 -l size=16m", 96, false);
    let (file, content) = v.split_file("a", 40);
    // Every free run is a single block.
    let filler = v.file("filler");
    let mut at = 0;
    for step in [1 << 20, BLOCK] {
        while v.fs.write_at(filler, at, &vec![9; step]).is_ok() {
            at += step as u64;
        }
    }
    let beside = v.fs.lookup(v.fs.root(), b"beside-a").unwrap();
    for block in (0..40).step_by(2) {
        v.fs.fallocate(beside, Fallocate::PunchHole, block * BLOCK as u64, BLOCK as u64).unwrap();
    }
    v.fs.sync().unwrap();
    let before = v.extents(file);
    let counted = v.fs.stats().defrag_runs;
    let done = v.fs.defrag(file, ALONE);
    assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{done:?}");
    let after = v.extents(file);
    assert!(after == before || after.len() < before.len(), "{after:?}");
    assert_eq!(after == before, v.fs.stats().defrag_runs == counted);
    assert_eq!(v.content(file), content);
    v.judged();
}

/// Readers and writers of a file that is moved again and again see what was written.
#[test]
fn a_file_in_use_is_moved() {
    for ordered in [false, true] {
        let v = volume("-m rmapbt=1", 300, ordered);
        let (file, mut content) = v.split_file("a", BLOCKS);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut moved = 0;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    moved += v.fs.defrag(file, ALONE).unwrap().moved;
                }
                moved
            });
            let mut rng = Rng::new(7);
            for step in 0..3000 {
                let from = rng.index(BLOCKS * BLOCK - 9000);
                let len = 1 + rng.index(9000);
                if step % 3 == 0 {
                    let mut found = vec![0; len];
                    v.fs.read_at(file, from as u64, &mut found).unwrap();
                    assert!(found == content[from..from + len], "step {step}");
                    continue;
                }
                if step % 50 == 1 {
                    v.fs.fallocate(file, Fallocate::PunchHole, from as u64, len as u64).unwrap();
                    content[from..from + len].fill(0);
                    continue;
                }
                let bytes = vec![step as u8; len];
                v.fs.write_at(file, from as u64, &bytes).unwrap();
                content[from..from + len].copy_from_slice(&bytes);
                if step % 100 == 0 {
                    v.fs.wait(v.fs.durable().unwrap()).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            assert!(mover.join().unwrap() > 0);
        });
        let v = v.judged();
        assert!(v.content(file) == content);
    }
}
