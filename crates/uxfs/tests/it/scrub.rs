//! Scrubs: what changes after the moment, and while the check reads, is not seen; damage is found.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs::check::{CheckOptions, Report, Verdict, check};
use uxfs::scrub::{Scrub, ScrubError, ScrubOptions, scrub};
use uxfs::{Error, Fs, NewInode, OpenOptions, SyncMode, WritebackOptions, XattrMode};
use uxfs_disk::fault::{self, Fault};
use uxfs_disk::{FileDev, OpenMode};
use uxfs_format::Ino;
use uxfs_oracle::Rng;

use crate::volume::Volume;

const DIRS: usize = 6;
const FILES: usize = 250;

/// Volumes whose metadata blocks have sizes of their own.
const SHAPES: [&str; 3] = ["", "-b size=1024 -n size=8192", "-n size=16384 -i size=1024"];

fn fill(fs: &Fs) {
    for d in 0..DIRS {
        let dir = fs.create(fs.root(), format!("d{d}").as_bytes(), &NewInode::dir(0o755)).unwrap();
        for n in 0..FILES {
            let name = format!("a rather long name of file number {n}");
            let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
            match n % 10 {
                0 => fs.write_at(file, 0, &[d as u8; 5000]).unwrap(),
                1 => fs.set_xattr(file, b"user.long", &[7; 9000], XattrMode::Any).unwrap(),
                2 => {
                    let name = format!("link {n}");
                    let new = NewInode::file(0o777);
                    fs.symlink(dir, name.as_bytes(), &[b'x'; 900], &new).map(drop).unwrap();
                }
                3 => {
                    for piece in 0..40u64 {
                        fs.write_at(file, piece * 40_000, &[1; 100]).unwrap();
                    }
                }
                _ => {}
            }
        }
    }
    fs.quiesce().unwrap();
}

fn names(fs: &Fs, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut take = |entry: uxfs::format::dir::DirEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        std::ops::ControlFlow::Continue(())
    };
    fs.read_dir(dir, 0, &mut take).unwrap();
    names
}

/// Removes everything, writes data where the metadata was, and makes new metadata.
fn replace(fs: &Fs) {
    for name in names(fs, fs.root()) {
        let dir = fs.lookup(fs.root(), &name).unwrap();
        for file in names(fs, dir) {
            fs.unlink(dir, &file).unwrap();
        }
        fs.rmdir(fs.root(), &name).unwrap();
    }
    fs.quiesce().unwrap();
    let file = fs.create(fs.root(), b"data", &NewInode::file(0o644)).unwrap();
    let mut at = 0;
    for piece in [1 << 20, 4096] {
        while fs.write_at(file, at, &vec![0xaa; piece]).is_ok() {
            at += piece as u64;
        }
    }
    fs.quiesce().unwrap();
    fs.unlink(fs.root(), b"data").unwrap();
    fs.quiesce().unwrap();
    let dir = fs.create(fs.root(), b"new", &NewInode::dir(0o755)).unwrap();
    for n in 0..FILES {
        fs.create(dir, format!("new {n}").as_bytes(), &NewInode::file(0o600)).unwrap();
    }
    fs.quiesce().unwrap();
}

fn clean(report: &Report) {
    assert!(report.is_clean() && !report.incomplete, "{:#?}", report.findings);
}

/// The volume is replaced after the moment; then it is checked. Returns the report of the moment.
fn replaced(shape: &str, planted: Option<Fault>) -> Report {
    let volume = Volume::small(64, shape);
    let fs = volume.open();
    fill(&fs);
    let before = scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap();
    clean(&before);
    fault::plant(planted);
    let moment = Scrub::begin(&fs, ScrubOptions::default()).unwrap();
    assert!(matches!(Scrub::begin(&fs, ScrubOptions::default()), Err(Error::Busy)));
    replace(&fs);
    let report = moment.run(&|_| {}).unwrap();
    fault::plant(None);
    if planted.is_none() {
        assert_eq!(report.totals, before.totals, "{shape}");
        drop(moment);
        let now = scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap();
        clean(&now);
        assert_ne!(now.totals, before.totals, "{shape}");
    }
    fs.close().unwrap();
    report
}

#[test]
fn what_changes_after_the_moment_is_not_seen() {
    for shape in SHAPES {
        clean(&replaced(shape, None));
    }
}

#[test]
fn a_scrub_without_kept_content_is_found() {
    let report = replaced(SHAPES[0], Some(Fault::ReadWithoutKept));
    assert_eq!(report.verdict(), Verdict::Damaged, "the planted fault is not seen");
}

#[test]
fn freed_metadata_that_is_not_kept_is_found() {
    for shape in SHAPES {
        let report = replaced(shape, Some(Fault::FreedNotKept));
        assert_eq!(report.verdict(), Verdict::Damaged, "the planted fault is not seen: {shape}");
    }
}

fn modes() -> [(&'static str, OpenOptions); 2] {
    let mut default = OpenOptions::default();
    default.writeback = Some(WritebackOptions::default());
    let mut ordered = default.clone();
    ordered.sync = SyncMode::Ordered { loss: std::time::Duration::from_secs(5) };
    [("default", default), ("ordered", ordered)]
}

/// Changes files of its own until it is stopped.
fn load(fs: &Fs, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let dir = fs.create(fs.root(), format!("t{seed}").as_bytes(), &NewInode::dir(0o755)).unwrap();
    let mut files: Vec<(Vec<u8>, Ino)> = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        match rng.below(5) {
            0 | 1 => {
                next += 1;
                let name = format!("file {next} of thread {seed}").into_bytes();
                let ino = fs.create(dir, &name, &NewInode::file(0o644)).unwrap();
                files.push((name, ino));
            }
            2 if !files.is_empty() => {
                let len = rng.index(20_000);
                let (_, ino) = files[rng.index(files.len())];
                fs.write_at(ino, rng.below(100_000), &vec![3; len]).unwrap();
            }
            3 if !files.is_empty() => {
                let (_, ino) = files[rng.index(files.len())];
                let len = rng.index(6000);
                fs.set_xattr(ino, b"user.x", &vec![5; len], XattrMode::Any).unwrap();
            }
            4 if files.len() > 100 => {
                let (name, _) = files.swap_remove(rng.index(files.len()));
                fs.unlink(dir, &name).unwrap();
            }
            _ => {}
        }
        done.fetch_add(1, Ordering::AcqRel);
    }
}

/// Scrubs beside changes: between two steps of the check at least as many changes are made as this says,
/// and are written in place.
const CHANGES: u64 = 100;
const STEPS: u64 = 12;

fn beside_changes(options: OpenOptions) -> Vec<Report> {
    let volume = Volume::small(256, "");
    let fs = volume.open_with(options);
    fill(&fs);
    let (stop, done, steps) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut reports = Vec::new();
    std::thread::scope(|scope| {
        let (fs, stop, done, steps) = (&fs, &stop, &done, &steps);
        let workers: Vec<_> =
            (0..3).map(|seed| scope.spawn(move || load(fs, seed, stop, done))).collect();
        for _ in 0..3 {
            steps.store(0, Ordering::Release);
            let step = |_| {
                if steps.fetch_add(1, Ordering::AcqRel) >= STEPS {
                    return;
                }
                let enough = done.load(Ordering::Acquire) + CHANGES;
                while done.load(Ordering::Acquire) < enough {
                    assert!(!workers.iter().any(|worker| worker.is_finished()));
                    std::thread::yield_now();
                }
                fs.quiesce().unwrap();
            };
            let report = scrub(fs, ScrubOptions::default(), &step);
            if report.is_err() {
                stop.store(true, Ordering::Release);
            }
            reports.push(report.unwrap());
            if steps.load(Ordering::Acquire) < 4 {
                stop.store(true, Ordering::Release);
                panic!("the check made no steps");
            }
        }
        stop.store(true, Ordering::Release);
    });
    fs.close().unwrap();
    let dev = FileDev::open(&volume.path, OpenMode::Read).unwrap();
    clean(&check(&dev, &CheckOptions::default(), &|_| {}).unwrap());
    uxfs_oracle::repair(&volume.path).unwrap_or_else(|finding| panic!("{finding}"));
    reports
}

#[test]
fn scrubs_beside_changes_find_nothing() {
    for (mode, options) in modes() {
        for report in beside_changes(options) {
            assert!(report.is_clean() && !report.incomplete, "{mode}: {:#?}", report.findings);
        }
    }
}

#[test]
fn a_mixture_of_moments_is_found() {
    fault::plant(Some(Fault::ReadWithoutKept));
    let [(_, options), _] = modes();
    let reports = beside_changes(options);
    fault::plant(None);
    let seen = reports.iter().any(|report| report.verdict() == Verdict::Damaged);
    assert!(seen, "the planted fault is not seen");
}

/// The last bytes of the root blocks of the last group's free-space tree, which nothing rewrites.
#[test]
fn a_flipped_bit_is_found() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fill(&fs);
    let image = std::fs::File::options().read(true).write(true).open(&volume.path).unwrap();
    let group = u64::from(fs.geo.ag_blocks) * u64::from(fs.geo.block_size);
    let agf = group * u64::from(fs.geo.ag_count - 1) + 512;
    let mut root = [0; 4];
    image.read_exact_at(&mut root, agf + 16).unwrap();
    let block = group * u64::from(fs.geo.ag_count - 1)
        + u64::from(u32::from_be_bytes(root)) * u64::from(fs.geo.block_size);
    let mut byte = [0];
    image.read_exact_at(&mut byte, block + 60).unwrap();
    image.write_all_at(&[byte[0] ^ 0x10], block + 60).unwrap();
    let report = scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap();
    assert_eq!(report.verdict(), Verdict::Damaged, "{report}");
    image.write_all_at(&byte, block + 60).unwrap();
    clean(&scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap());
    fs.close().unwrap();
}

#[test]
fn too_much_old_content_ends_without_a_verdict() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fill(&fs);
    let mut options = ScrubOptions::default();
    options.kept_limit = 64 << 10;
    let moment = Scrub::begin(&fs, options).unwrap();
    replace(&fs);
    assert_eq!(moment.kept_bytes(), 0);
    let Err(ScrubError::Ended(why)) = moment.run(&|_| {}) else { panic!("a verdict") };
    assert!(why.contains("64 KiB"), "{why}");
    drop(moment);
    clean(&scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap());
    fs.close().unwrap();
}

#[test]
fn a_frozen_volume_is_not_scrubbed() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fs.freeze().unwrap();
    assert!(matches!(Scrub::begin(&fs, ScrubOptions::default()), Err(Error::Busy)));
    assert!(fs.is_frozen());
    fs.thaw().unwrap();
    clean(&scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap());
    fs.close().unwrap();
    let fs = volume.open_read_only();
    clean(&scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap());
}

/// A file that is in use without a name is on a list of unlinked inodes, which a check of an image
/// reports.
#[test]
fn files_in_use_without_a_name_are_no_damage() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fill(&fs);
    let dir = fs.lookup(fs.root(), b"d0").unwrap();
    for number in [0, 1] {
        let name = format!("a rather long name of file number {number}");
        fs.hold(fs.lookup(dir, name.as_bytes()).unwrap());
        fs.unlink(dir, name.as_bytes()).unwrap();
    }
    assert_eq!(fs.unlinked(), 2);
    clean(&scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap());
    // The freeze of the scrub has put everything in place.
    let copy = volume.path.with_extension("copy");
    std::fs::copy(&volume.path, &copy).unwrap();
    let dev = FileDev::open(&copy, OpenMode::Read).unwrap();
    let report = check(&dev, &CheckOptions::default(), &|_| {}).unwrap();
    assert!(report.findings.iter().any(|finding| finding.code == "unlinked-list"), "{report}");
    fs.close().unwrap();
}

/// Both memories of a scrub, of what is kept and of the check, beside a mount's caches.
#[test]
fn a_scrub_takes_at_most_half_a_gibibyte() {
    let options = ScrubOptions::default();
    assert!(options.kept_limit + options.check.memory_limit <= 512 << 20);
}

/// What a log holds that was not replayed is missing in the metadata, and is no damage.
#[test]
fn a_volume_without_its_log_is_not_scrubbed() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fill(&fs);
    for n in 0..50 {
        let name = format!("only in the log {n}");
        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    let fs = volume.open_with(options);
    let refused = scrub(&fs, ScrubOptions::default(), &|_| {});
    assert!(matches!(refused, Err(ScrubError::Volume(Error::Unsupported(_)))), "{refused:?}");
    assert!(!fs.is_frozen());
    drop(fs);
    // Replayed in memory, it is.
    clean(&scrub(&volume.open_read_only(), ScrubOptions::default(), &|_| {}).unwrap());
}
