//! Power cuts during rolling transactions: the library and kernels finish the pending intents with the
//! same result.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::clock::Clock;
use uxfs::journal::{JournalOptions, RollPolicy};
use uxfs::{Error, Fallocate, Fs, NewInode, OpenOptions, XattrMode};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_format::Ino;
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::{Fields, Kernel, Rng, vm};
use uxfs_testkit::{FaultDev, Op, Rule};

use crate::listing;
use crate::volume::{MIB, Volume, device, setting};

/// Everything but free space, of which the kernel subtracts its reserve, and access times.
const ALL: Fields = Fields::ALL.difference(Fields::SPACE).difference(Fields::ATIME);
const SIZE: u64 = 40 * MIB;
/// Number of images of each volume that kernels recover.
const IMAGES: usize = 5;

fn fair(result: Result<(), Error>) {
    match result {
        Ok(()) | Err(Error::NoSpace | Error::Invalid(_) | Error::Unsupported(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Changes that need several deferred operations: in files of many extents, shared and not.
fn work(fs: &Fs, rng: &mut Rng) {
    let mut files: Vec<(Vec<u8>, Ino)> = Vec::new();
    for number in 0..70 {
        if files.len() < 6 {
            let name = format!("file {number}").into_bytes();
            let ino = fs.create(fs.root(), &name, &NewInode::file(0o644)).unwrap();
            files.push((name, ino));
        }
        let at = rng.index(files.len());
        let (from, ino) = (files[rng.index(files.len())].1, files[at].1);
        let (offset, len) = (rng.below(60) * 4096, (1 + rng.below(20)) * 4096);
        match rng.below(9) {
            0 | 1 => {
                for part in 0..6 {
                    let bytes = vec![number as u8 + 1; 4096 + rng.index(3000)];
                    fair(fs.write_at(ino, offset + part * 16384, &bytes));
                }
            }
            2 if from != ino => fair(fs.clone_file(from, ino)),
            3 if from != ino => fair(fs.share(from, 0, ino, offset, 65536)),
            4 => fair(fs.fallocate(ino, Fallocate::PunchHole, offset, len)),
            5 => fair(fs.fallocate(ino, Fallocate::CollapseRange, offset, len)),
            6 => fair(fs.fallocate(ino, Fallocate::Allocate { keep_size: false }, offset, 2 * len)),
            7 => fair(fs.set_xattr(ino, b"user.x", &vec![1; rng.index(9000)], XattrMode::Any)),
            _ => {
                let (name, _) = files.swap_remove(at);
                fs.unlink(fs.root(), &name).unwrap();
            }
        }
    }
}

/// The volume after a power cut following `writes` writes of the workload, and the workload's number
/// of writes.
fn cut_after(image: &[u8], seed: u64, writes: u64) -> (MemDev, u64) {
    let cut = Arc::new(FaultDev::new(MemDev::from_bytes(image)).in_pieces());
    cut.add(Rule::on(Op::WRITES).after(writes).lose());
    let mut options = OpenOptions::default();
    options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 1 });
    options.seed = Some(seed);
    let mut journal =
        JournalOptions { roll_policy: RollPolicy::AlwaysDurable, ..JournalOptions::default() };
    journal.pipeline.size_max = 16 << 10;
    options.journal = journal;
    let fs = Fs::open(Arc::clone(&cut) as Arc<dyn BlockDev>, options).unwrap();
    work(&fs, &mut Rng::new(seed));
    fs.sync().unwrap();
    drop(fs);
    (cut.below().clone(), cut.calls(Op::WRITES))
}

fn copy_of(dev: &MemDev, path: &Path) {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// The kinds of intents in the log of an image, as xfs_logprint names them.
fn announced(path: &Path) -> [bool; 3] {
    let program = uxfs_oracle::program("xfs_logprint", "xfsprogs");
    let out = std::process::Command::new(program).arg("-t").arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ["EFI: ", "CUI: ", "RUI: "].map(|name| text.lines().any(|line| line.starts_with(name)))
}

/// Images in `dir` with pending intents in the log.
fn images(dir: &Path, line: &str, seed: u64) -> Vec<PathBuf> {
    let volume = Volume::small(SIZE / MIB, line);
    let image = std::fs::read(&volume.path).unwrap();
    let (_, all) = cut_after(&image, seed, u64::MAX);
    let mut rng = Rng::new(seed);
    let mut found = Vec::new();
    for _ in 0..200 {
        let (dev, _) = cut_after(&image, seed, 1 + rng.below(all));
        let dev = Arc::new(dev);
        let fs =
            Fs::open(Arc::<MemDev>::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::read_only());
        let fs = fs.unwrap_or_else(|e| panic!("{line}, seed {seed}: {e}"));
        if fs.recovery().is_some_and(|recovery| recovery.intents > 0) {
            let path = dir.join(format!("{seed}-{}.img", found.len()));
            copy_of(&dev, &path);
            found.push(path);
        }
        if found.len() == IMAGES {
            break;
        }
    }
    assert_eq!(found.len(), IMAGES, "{line}, seed {seed}: too few cuts left something owed");
    found
}

#[test]
fn kernels_finish_pending_intents() {
    let seed = setting("UXFS_SEED", 0);
    let dir = tempfile::tempdir().unwrap();
    let lines = [
        "-m rmapbt=1",
        "-m rmapbt=0",
        "-m rmapbt=1,reflink=0 -l size=8m",
        "-b size=1k -m rmapbt=1",
    ];
    let mut all = Vec::new();
    for (line, seed) in lines.into_iter().zip(10 * seed..) {
        all.extend(images(dir.path(), line, seed));
    }
    let mut kinds = [false; 3];
    for path in &all {
        let here = announced(path);
        kinds = core::array::from_fn(|kind| kinds[kind] | here[kind]);
    }
    assert_eq!(kinds, [true; 3], "seed {seed}: not every kind of intent was left open");
    for kernel in [Kernel::Stable, Kernel::Current] {
        let theirs: Vec<PathBuf> = all.iter().map(|path| path.with_extension("theirs")).collect();
        for (from, to) in all.iter().zip(&theirs) {
            std::fs::copy(from, to).unwrap();
        }
        let jobs: Vec<(&Path, u64)> = theirs.iter().map(|path| (path.as_path(), 0)).collect();
        let listings = vm::age_all(kernel, &jobs, 0).unwrap_or_else(|f| panic!("{seed}: {f}"));
        for ((path, theirs), listing) in all.iter().zip(&theirs).zip(&listings) {
            let at = format!("seed {seed}, {}, {kernel:?}", path.display());
            uxfs_oracle::both_after_old_kernel(theirs).unwrap_or_else(|f| panic!("{at}: {f}"));
            let ours = path.with_extension("ours");
            std::fs::copy(path, &ours).unwrap();
            let dev: Arc<FileDev> = Arc::new(device(&ours, OpenMode::Write));
            let fs = Fs::open(dev, OpenOptions::default()).unwrap();
            listing::list(&fs).assert_same(listing, ALL);
            fs.close().unwrap();
            uxfs_oracle::both(&ours).unwrap_or_else(|f| panic!("{at}: {f}"));
            std::fs::remove_file(ours).unwrap();
            std::fs::remove_file(theirs).unwrap();
        }
    }
}
