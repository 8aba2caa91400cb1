//! Frozen mounts: copies of the image under load are sound, and no change is lost.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use uxfs::Fs;
use uxfs::disk::{FileDev, OpenMode};
use uxfs_check::{CheckOptions, check};
use uxfs_disk::fault::{self, Fault};
use uxfs_fuse::{Options, control};
use uxfs_oracle::{Kernel, Rng, vm};

use crate::rig::{Image, Ours, Volume, requests, run};

const THREADS: u64 = 4;
const ROUNDS: u64 = 3;
/// Changes between two freezes.
const CHANGES: u64 = 200;

/// How long something may take that happens at all.
const LIMIT: Duration = Duration::from_secs(60);

/// The modes of a mount that write in ways of their own.
const MODES: [&str; 3] = ["noio_uring", "noio_uring,sync=ordered", "noio_uring,wsync"];

/// Is a copy sound, with a clean log? The kernel gives files up some time after they lost their last name.
/// While it has some, the log holds one transaction, and a recovery frees them; the copy is then recovered.
fn sound(image: &Path) -> Result<(), String> {
    let dev = FileDev::open(image, OpenMode::Write).map_err(|error| error.to_string())?;
    let opened = Fs::open(Arc::new(dev), Options::default().open_options());
    let fs = opened.map_err(|error| error.to_string())?;
    if let Some(recovery) = fs.recovery()
        && (recovery.unlinked == 0 || recovery.replay.transactions > 1)
    {
        return Err(format!("the log is dirty: {recovery:?}"));
    }
    fs.close().map_err(|error| error.to_string())?;
    let dev = FileDev::open(image, OpenMode::Read).map_err(|error| error.to_string())?;
    let report = check(&dev, &CheckOptions::default(), &|_| {}).map_err(|e| format!("{e:?}"))?;
    if !report.is_clean() {
        return Err(format!("uxfs check: {:#?}", report.findings));
    }
    uxfs_oracle::both(image).map_err(|finding| finding.to_string())
}

/// Is a file without a name still in the volume?
fn has_unlinked(image: &Path) -> bool {
    let dev = FileDev::open(image, OpenMode::Read).unwrap();
    let report = check(&dev, &CheckOptions::default(), &|_| {}).unwrap();
    report.findings.iter().any(|finding| finding.code == "unlinked-list")
}

/// Changes files of its own until it is stopped. Returns the files that must be there, with their
/// contents.
fn load(dir: &Path, seed: u64, stop: &AtomicBool, done: &AtomicU64) -> Vec<(PathBuf, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let dir = dir.join(format!("t{seed}"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        let pick = |rng: &mut Rng, files: &[_]| rng.index(files.len());
        match rng.below(6) {
            0 | 1 => {
                next += 1;
                let path = dir.join(format!("f{next}"));
                let len = rng.index(30_000);
                let data = rng.bytes(len);
                File::create(&path).unwrap().write_all(&data).unwrap();
                files.push((path, data));
            }
            2 if !files.is_empty() => {
                let at = pick(&mut rng, &files);
                let (path, data) = &mut files[at];
                let more = rng.bytes(3000);
                let offset = rng.index(data.len() + 1);
                let file = File::options().write(true).open(&*path).unwrap();
                file.write_all_at(&more, offset as u64).unwrap();
                data.resize(data.len().max(offset + more.len()), 0);
                data[offset..offset + more.len()].copy_from_slice(&more);
            }
            3 if !files.is_empty() => {
                let at = pick(&mut rng, &files);
                File::open(&files[at].0).unwrap().sync_all().unwrap();
            }
            4 if !files.is_empty() => {
                next += 1;
                let at = pick(&mut rng, &files);
                let to = dir.join(format!("r{next}"));
                std::fs::rename(&files[at].0, &to).unwrap();
                files[at].0 = to;
            }
            5 if files.len() > 20 => {
                let at = pick(&mut rng, &files);
                std::fs::remove_file(files.swap_remove(at).0).unwrap();
            }
            _ => {}
        }
        done.fetch_add(1, Ordering::AcqRel);
    }
    files
}

fn errno(result: std::io::Result<()>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Freezes a mount under load, and returns the copies made meanwhile.
fn copies(ours: &Ours, image: &Path, to: &Path) -> Vec<PathBuf> {
    let dir = ours.dir();
    let still = dir.join("still");
    std::fs::write(&still, b"still").unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let (dir, stop, done) = (&dir, &stop, &done);
        let workers: Vec<_> =
            (0..THREADS).map(|seed| scope.spawn(move || load(dir, seed, stop, done))).collect();
        for round in 0..ROUNDS {
            let enough = done.load(Ordering::Acquire) + CHANGES;
            while done.load(Ordering::Acquire) < enough {
                std::thread::yield_now();
            }
            control::freeze(dir).unwrap();
            assert_eq!(errno(control::freeze(dir)), Some(16));
            assert!(control::remount(dir, "commit=7").is_err());
            assert_eq!(std::fs::read(&still).unwrap(), b"still");
            let copy = to.join(format!("copy{round}"));
            std::fs::copy(image, &copy).unwrap();
            // Time for what does not wait to show.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let again = to.join("again");
            std::fs::copy(image, &again).unwrap();
            control::thaw(dir).unwrap();
            assert_eq!(errno(control::thaw(dir)), Some(22));
            if fault::in_force().is_none() {
                assert!(same(&copy, &again), "the image changed while it was frozen");
            }
            all.push(copy);
        }
        stop.store(true, Ordering::Release);
        for worker in workers {
            for (path, data) in worker.join().unwrap() {
                assert!(std::fs::read(&path).unwrap() == data, "{}", path.display());
            }
        }
    });
    all
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).unwrap() == std::fs::read(other).unwrap()
}

#[test]
fn copies_of_a_frozen_mount_are_sound() {
    for mode in MODES {
        let image = Image::new(320 << 20, &[]);
        let path = image.path();
        let to = tempfile::tempdir().unwrap();
        let ours = Ours::of(image, mode);
        let all = copies(&ours, &path, to.path());
        for kernel in [Kernel::Stable, Kernel::Current] {
            vm::list(kernel, &[&all[1]]).unwrap_or_else(|f| panic!("{mode}: {f}"));
        }
        for copy in &all {
            sound(copy).unwrap_or_else(|why| panic!("{mode}: {why}"));
        }
        ours.unmount().judge();
    }
}

/// A recovery of the copy frees the files without a name, and the volume is sound.
#[test]
fn a_copy_with_an_open_file_without_a_name_recovers() {
    let image = Image::new(320 << 20, &[]);
    let (path, to) = (image.path(), tempfile::tempdir().unwrap());
    let ours = Ours::of(image, "noio_uring");
    let name = ours.dir().join("gone");
    let file = File::create(&name).unwrap();
    file.write_all_at(&[7; 50_000], 0).unwrap();
    std::fs::remove_file(&name).unwrap();
    control::freeze(&ours.dir()).unwrap();
    let copy = to.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    // Its last reference goes while the volume is frozen.
    drop(file);
    control::thaw(&ours.dir()).unwrap();
    ours.unmount().judge();
    for kernel in [Kernel::Stable, Kernel::Current] {
        vm::list(kernel, &[&copy]).unwrap_or_else(|f| panic!("{f}"));
    }
    assert!(has_unlinked(&copy));
    sound(&copy).unwrap();
    assert!(!has_unlinked(&copy));
}

/// Freezes a mount, and begins to make its file shorter. Returns when the server has the request. A program
/// of its own waits: this process could not end while a thread waits for its own server.
fn change_that_waits(dir: &Path) -> Child {
    let name = dir.join("file");
    std::fs::write(&name, b"content").unwrap();
    control::freeze(dir).unwrap();
    let before = requests(dir, "SETATTR");
    let mut program = Command::new("truncate").args(["-s", "3"]).arg(name).spawn().unwrap();
    while requests(dir, "SETATTR") == before {
        std::thread::yield_now();
    }
    assert!(program.try_wait().unwrap().is_none(), "a frozen mount was changed");
    program
}

/// Asserts that a change which waited was made, and is in the image.
fn was_made(mut program: Child, image: &Image) {
    let since = Instant::now();
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        assert!(since.elapsed() < LIMIT, "a change was forgotten");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{status}");
    let fs = image.open();
    let ino = fs.lookup(fs.root(), b"file").unwrap();
    assert_eq!(fs.stat(ino).unwrap().size, 3);
    fs.close().unwrap();
    image.judge();
}

/// The server thaws a mount that it ends, and what waited is done.
#[test]
fn a_frozen_mount_can_be_unmounted() {
    let ours = Ours::of(Image::new(320 << 20, &[]), "noio_uring");
    let program = change_that_waits(&ours.dir());
    let (image, _) = ours.end_in_use();
    was_made(program, &image);
}

/// The same for a mount that was detached while it was frozen: its users cannot thaw it any more.
#[test]
fn a_frozen_mount_that_was_detached_can_be_ended() {
    let ours = Ours::of(Image::new(320 << 20, &[]), "noio_uring");
    let program = change_that_waits(&ours.dir());
    run("umount", &[OsStr::new("-l"), ours.dir().as_os_str()]);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(ours.end_in_use()));
    let (image, said) = ended.recv_timeout(LIMIT).expect("the server does not end");
    assert_eq!(said, None);
    was_made(program, &image);
}

#[test]
fn a_freeze_that_does_not_wait_is_found() {
    fault::plant(Some(Fault::FreezeWithoutWait));
    let image = Image::new(320 << 20, &[]);
    let (path, to) = (image.path(), tempfile::tempdir().unwrap());
    let ours = Ours::of(image, MODES[0]);
    let all = copies(&ours, &path, to.path());
    fault::plant(None);
    drop(ours);
    assert!(all.iter().any(|copy| sound(copy).is_err()), "the planted fault is not seen");
}
