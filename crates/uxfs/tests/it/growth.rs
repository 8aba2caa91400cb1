//! Volumes that grow while they are in use: beside writers, again and again, cut off at every
//! write, and judged by xfsprogs and kernels.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uxfs::growth;
use uxfs::resize::{Method, ResizeError, Target};
use uxfs::{Error, Fs, NewInode, OpenOptions, SyncMode, WritebackOptions};
use uxfs_check::{CheckOptions, Severity};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_oracle::{Fields, Kernel, Rng};
use uxfs_testkit::{Answer, FaultDev, Op, RecordDev, Recording, Rule};

use crate::damage::rich;
use crate::listing;
use crate::volume::{MIB, Volume, setting};

const LINES: [&str; 4] = [
    "-m rmapbt=1",
    "-b size=1k -m reflink=1,rmapbt=1 -i nrext64=1",
    "-m reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0",
    "-d su=64k,sw=3 -s size=4k -i size=1024",
];

fn open(path: &Path, sync: SyncMode) -> Fs {
    let mut options = OpenOptions::default();
    options.writeback = Some(WritebackOptions::default());
    options.sync = sync;
    Fs::open(Arc::new(FileDev::open(path, OpenMode::Write).unwrap()), options).unwrap()
}

/// Makes, overwrites and removes files in a directory of its own, at least until `until` says so.
fn work(fs: &Fs, number: u64, until: &dyn Fn(u64) -> bool) {
    let dir = format!("w{number}").into_bytes();
    let dir = fs.create(fs.root(), &dir, &NewInode::dir(0o755)).unwrap();
    let mut rng = Rng::new(number);
    for round in 0.. {
        // Also when a growth failed, and `until` never says so.
        if round > 50_000 || until(round) {
            break;
        }
        let name = format!("f{}", rng.below(100));
        if let Ok(ino) = fs.lookup(dir, name.as_bytes()) {
            fs.write_at(ino, rng.below(100_000), &[number as u8; 9000]).unwrap();
            if rng.once_in(3) {
                fs.unlink(dir, name.as_bytes()).unwrap();
            } else if rng.once_in(5) {
                fs.fsync(ino).unwrap();
            }
        } else {
            let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
            fs.write_at(ino, 0, &vec![round as u8; rng.below(200_000) as usize]).unwrap();
        }
    }
}

/// Writes one file until the volume is full; returns its bytes.
fn fill(fs: &Fs, name: &[u8]) -> u64 {
    let ino = fs.create(fs.root(), name, &NewInode::file(0o644)).unwrap();
    let mut at = 0;
    loop {
        match fs.write_at(ino, at, &vec![9; 1 << 20]) {
            Ok(_) => at += MIB,
            Err(Error::NoSpace) => return at,
            Err(error) => panic!("at {at}: {error}"),
        }
    }
}

#[test]
fn a_volume_grows_while_four_threads_write() {
    let modes = [SyncMode::Durable, SyncMode::Ordered { loss: Duration::from_secs(5) }];
    let rounds = LINES.into_iter().zip(modes.into_iter().cycle());
    for (line, mode) in rounds.take(setting("UXFS_ROUNDS", 2) as usize) {
        let volume = Volume::real(300, line);
        let fs = open(&volume.path, mode);
        let block = u64::from(fs.geo.block_size);
        let old_inodes = fs.statfs().files;
        let grown = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (fs, grown) = (&fs, &grown);
                scope.spawn(move || {
                    work(fs, number, &|round| round > 300 && grown.load(Ordering::Acquire) == 3);
                });
            }
            // A short last group, then one that becomes longer, with others behind it, then an odd size.
            for bytes in [301 * MIB, 777 * MIB, 1210 * MIB + 12_345] {
                let done = growth::grow_in_use(&fs, Target::Bytes(bytes)).unwrap();
                assert_eq!(
                    (done.method, done.after),
                    (Method::Grown, bytes / block * block),
                    "{line}"
                );
                let blocks = fs.statfs().blocks + u64::from(fs.geo.log_blocks);
                assert_eq!(blocks * block, done.after, "{line}");
                grown.fetch_add(1, Ordering::Release);
            }
        });
        assert!(fs.statfs().files > old_inodes, "{line}: no room for more inodes");
        assert!(fill(&fs, b"big") > 800 * MIB, "{line}: the new room is not used");
        // Kernels complain of a volume that is full.
        fs.unlink(fs.root(), b"big").unwrap();
        fs.close().unwrap();
        volume.judge(line);
        let ours = listing::list(&volume.open_read_only());
        for kernel in Kernel::ALL {
            let seen = listing::of_kernel(kernel, &[&volume.path]);
            seen[0].assert_same(&ours, Fields::ALL - Fields::SPACE);
        }
        volume.judge(line);
    }
}

/// The file's length is taken over, a last group that would be too short is left out, a full volume
/// grows, and what is no growth is refused.
#[test]
fn a_volume_in_use_grows_to_what_is_possible() {
    let volume = Volume::real(300, "-m rmapbt=1");
    let fs = open(&volume.path, SyncMode::Durable);
    let block = u64::from(fs.geo.block_size);
    let group = u64::from(fs.geo.ag_blocks) * block;
    let whole = fs.geo.dblocks * block;
    assert_eq!(whole % group, 0);
    fill(&fs, b"first");
    let same = growth::grow_in_use(&fs, Target::Fill).unwrap();
    assert_eq!((same.method, same.after), (Method::Unchanged, whole));
    for (bytes, after) in [
        (whole + 63 * block, whole),
        (whole + 64 * block, whole + 64 * block),
        (whole + 65 * block + 17, whole + 65 * block),
        (whole + group + 63 * block, whole + group),
    ] {
        std::fs::File::options().write(true).open(&volume.path).unwrap().set_len(bytes).unwrap();
        let done = growth::grow_in_use(&fs, Target::Fill).unwrap();
        assert_eq!(done.after, after);
        assert_eq!(fs.superblock().dblocks.get() * block, after);
    }
    for target in [Target::Bytes(whole), Target::Minimize] {
        let refused = growth::grow_in_use(&fs, target);
        assert!(matches!(refused, Err(ResizeError::Volume(Error::Invalid(_)))), "{refused:?}");
    }
    let file_len = || std::fs::metadata(&volume.path).unwrap().len();
    let len = file_len();
    fs.freeze().unwrap();
    let frozen = growth::grow_in_use(&fs, Target::Bytes(2 * whole));
    assert!(matches!(frozen, Err(ResizeError::Volume(Error::Busy))), "{frozen:?}");
    assert_eq!(file_len(), len, "a frozen volume's file was lengthened");
    fs.thaw().unwrap();
    assert!(fill(&fs, b"second") > group / 2);
    fs.close().unwrap();
    volume.judge("grown");
    // The file may be written, the volume may not.
    let dev = Arc::new(FileDev::open(&volume.path, OpenMode::Write).unwrap());
    let read_only = Fs::open(dev, OpenOptions::read_only()).unwrap();
    let refused = growth::grow_in_use(&read_only, Target::Bytes(2 * whole));
    assert!(matches!(refused, Err(ResizeError::Volume(Error::ReadOnly))), "{refused:?}");
    assert_eq!(file_len(), len, "a read-only volume's file was lengthened");
}

/// A volume of two groups on a device that fails, and where its second group begins.
fn failing() -> (Arc<FaultDev<MemDev>>, Arc<Fs>, u64) {
    let mut bytes = rich("-d agcount=2 -m rmapbt=1", 40).to_vec();
    bytes.resize(75 << 20, 0);
    let dev = Arc::new(FaultDev::new(MemDev::from_bytes(&bytes)));
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::default()).unwrap();
    let second = u64::from(fs.geo.ag_blocks) * u64::from(fs.geo.block_size);
    (dev, Arc::new(fs), second)
}

/// The new groups are written beside changes, and one growth at a time.
#[test]
fn changes_do_not_wait_for_new_groups() {
    let (dev, fs, _) = failing();
    let mut called = false;
    let seen = std::cell::RefCell::new(&mut called);
    fs.grow_in_use::<ResizeError>(NEW, &|sb, groups, dev| {
        **seen.borrow_mut() = true;
        assert!(!fs.is_frozen(), "the volume is frozen while its new groups are written");
        fs.create(fs.root(), b"beside", &NewInode::file(0o644)).unwrap();
        let second = growth::prepare(&fs, Target::Bytes(NEW * 4096)).map(drop);
        assert!(matches!(second, Err(ResizeError::Volume(Error::Busy))), "{second:?}");
        uxfs_mkfs::write_groups(sb, groups, dev).map_err(ResizeError::from)
    })
    .unwrap();
    assert!(called);
    // A growth that is given up leaves the volume free for another one.
    drop(growth::prepare(&fs, Target::Fill).unwrap());
    assert_eq!(growth::grow_in_use(&fs, Target::Fill).unwrap().method, Method::Unchanged);
    Arc::into_inner(fs).unwrap().close().unwrap();
    assert_eq!(recover(dev.below(), NEW), Ok(NEW));
}

/// A thaw ends no freeze that a growth began.
#[test]
fn a_growth_is_not_thawed_from_outside() {
    let (dev, fs, second) = failing();
    let (of, thawed) = (Arc::downgrade(&fs), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&thawed);
    // The copy of the superblock, which is written while the volume is frozen.
    dev.add(Rule::on(Op::WRITES).within(second..second + 512).before(move |_| {
        let fs = of.upgrade().unwrap();
        if fs.is_frozen() {
            seen.fetch_add(1, Ordering::AcqRel);
            assert!(fs.thaw().is_err() && fs.is_frozen(), "a thaw ended the freeze of a growth");
        }
        Answer::Pass
    }));
    growth::grow_in_use(&fs, Target::Bytes(NEW * 4096)).unwrap();
    assert!(thawed.load(Ordering::Acquire) > 0);
    assert!(!fs.is_frozen());
    dev.clear();
    Arc::into_inner(fs).unwrap().close().unwrap();
    assert_eq!(recover(dev.below(), NEW), Ok(NEW));
}

/// A panic in a freeze, and in the frozen part of a growth, leaves nothing frozen. It stops the growth's
/// volume, which is half grown.
#[test]
fn a_panic_leaves_nothing_frozen() {
    let panicking = |rule: Rule| rule.before(|_| panic!("planted"));
    let (dev, fs, _) = failing();
    fs.create(fs.root(), b"dirty", &NewInode::file(0o644)).unwrap();
    dev.add(panicking(Rule::on(Op::CHANGES)));
    assert!(catch_unwind(AssertUnwindSafe(|| fs.freeze())).is_err());
    assert!(!fs.is_frozen(), "a panic left the volume frozen");
    dev.clear();

    let (dev, fs, second) = failing();
    dev.add(panicking(Rule::on(Op::WRITES).within(second..second + 512)));
    let grow = || growth::grow_in_use(&fs, Target::Bytes(NEW * 4096)).map(drop);
    assert!(catch_unwind(AssertUnwindSafe(grow)).is_err());
    assert!(!fs.is_frozen(), "a panic left the volume frozen");
    assert!(fs.stopped_by().is_some(), "a volume that is half grown goes on");
    dev.clear();
    drop(fs);
}

const OLD: u64 = (44 << 20) / 4096;
const NEW: u64 = (75 << 20) / 4096;

/// A volume of 44 MiB with files grows to 75 MiB and is used. Marks: 1 when it has grown, 2 when what was
/// written into the new groups is durable. The groups are written by the library, or not at all.
fn run(groups_written: bool) -> Recording<u64> {
    let mut bytes = rich("-d agcount=2 -m rmapbt=1", 40).to_vec();
    bytes.resize(75 << 20, 0);
    // What was behind the end before must not show through.
    bytes[40 << 20..].fill(0xa5);
    let base = Arc::new(MemDev::from_bytes(&bytes));
    // The last group is short.
    let fs = Fs::open(Arc::<MemDev>::clone(&base), OpenOptions::default()).unwrap();
    growth::grow_in_use(&fs, Target::Bytes(OLD * 4096)).unwrap();
    fs.close().unwrap();
    let before = MemDev::clone(&base);
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::default()).unwrap();
    let dir = fs.create(fs.root(), b"before", &NewInode::dir(0o755)).unwrap();
    for number in 0..20 {
        let ino = fs.create(dir, format!("{number}").as_bytes(), &NewInode::file(0o644)).unwrap();
        fs.write_at(ino, 0, &[1; 20_000]).unwrap();
    }
    if groups_written {
        growth::grow_in_use(&fs, Target::Bytes(NEW * 4096)).unwrap();
    } else {
        fs.grow_in_use::<Error>(NEW, &|_, _, _| Ok(0)).unwrap();
        dev.mark(1);
        return Recording::new(before, dev.take(), 512);
    }
    dev.mark(1);
    for number in 0..8 {
        let dir = format!("after{number}");
        let dir = fs.create(fs.root(), dir.as_bytes(), &NewInode::dir(0o755)).unwrap();
        for number in 0..10 {
            let ino =
                fs.create(dir, format!("{number}").as_bytes(), &NewInode::file(0o644)).unwrap();
            fs.write_at(ino, 0, &vec![2; 100_000]).unwrap();
        }
    }
    fs.sync().unwrap();
    dev.mark(2);
    drop(fs);
    Recording::new(before, dev.take(), 512)
}

/// Recovers a state and checks it. Returns its length in blocks.
fn recover(disk: &MemDev, least: u64) -> Result<u64, String> {
    let disk = Arc::new(disk.clone());
    let fs =
        Fs::open(Arc::<MemDev>::clone(&disk), OpenOptions::default()).map_err(|e| e.to_string())?;
    let dblocks = fs.superblock().dblocks.get();
    fs.close().map_err(|e| e.to_string())?;
    let report =
        uxfs_check::check(&*disk, &CheckOptions::default(), &|_| {}).map_err(|e| e.to_string())?;
    let text = report.to_string();
    // The copies of the superblock are written last. Until the growth has returned they may be old.
    let stale = |line: &str| least == OLD && dblocks == NEW && line.ends_with("[sb-copy]");
    let bad = |line: &&str| line.starts_with("error: ") && !stale(line);
    if report.count(Severity::Error) > 0 && text.lines().any(|line| bad(&line)) {
        return Err(text);
    }
    match [OLD, NEW].contains(&dblocks) && dblocks >= least {
        true => Ok(dblocks),
        false => Err(format!("{dblocks} blocks, at least {least}")),
    }
}

/// Cuts the power before every event of the run, and recovers. Returns how many states had the old and the
/// new length, or the first bad state.
fn cut_everywhere(run: &Recording<u64>) -> Result<[u64; 2], String> {
    let mut seen = [0; 2];
    for at in 0..=run.len() {
        let mut rng = Rng::new(at as u64);
        let grown = run.marks_before(at).next().is_some();
        for _ in 0..2 {
            let disk = run.cut(at, &mut rng);
            let least = if grown { NEW } else { OLD };
            let dblocks = recover(&disk, least).map_err(|why| format!("cut at {at}: {why}"))?;
            seen[usize::from(dblocks == NEW)] += 1;
        }
    }
    Ok(seen)
}

#[test]
fn a_power_cut_at_any_write_of_a_growth_leaves_the_old_or_the_new_length() {
    let seen = cut_everywhere(&run(true)).unwrap_or_else(|why| panic!("{why}"));
    println!("old length {}, new length {}", seen[0], seen[1]);
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

/// A growth that publishes groups of which nothing was written.
#[test]
fn groups_that_are_not_written_are_found() {
    let problem = cut_everywhere(&run(false)).unwrap_err();
    assert!(problem.starts_with("cut at "), "{problem}");
}

/// Images of states of the run: of some moments before it is over, and of the last moment.
fn states(run: &Recording<u64>, dir: &Path, count: usize) -> Vec<std::path::PathBuf> {
    let mut rng = Rng::new(5);
    let step = (run.len() / count).max(1);
    let moments = (0..run.len()).step_by(step).chain([run.len()]);
    let write = |at: usize| {
        let path = dir.join(format!("{at}.img"));
        let disk = run.cut(at, &mut rng);
        let mut bytes = vec![0; disk.len() as usize];
        disk.read_at(0, &mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    };
    moments.map(write).collect()
}

/// Kernels recover what a power cut left, and xfs_repair finds it clean.
#[test]
fn kernels_recover_a_growth_that_was_cut_off() {
    let run = run(true);
    for kernel in Kernel::ALL {
        let dir = tempfile::tempdir().unwrap();
        let images = states(&run, dir.path(), 12);
        for image in &images {
            let aged = uxfs_oracle::vm::age(kernel, image, 3, 30);
            aged.unwrap_or_else(|f| panic!("{kernel:?}, {}: {f}", image.display()));
            let judged = uxfs_oracle::both_after_old_kernel(image);
            judged.unwrap_or_else(|f| panic!("{kernel:?}, {}: {f}", image.display()));
        }
    }
}
