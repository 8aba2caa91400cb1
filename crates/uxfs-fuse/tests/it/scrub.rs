//! Scrubs of a mount while programs change it.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uxfs_fuse::control;
use uxfs_fuse::scrub::{self, Status};
use uxfs_oracle::Rng;
use uxfs_testkit::{Op, Rule};

use crate::rig::{Image, Ours, Volume, gated, transports};

/// Changes beside the scrubs of a mount.
const CHANGES: u64 = 3000;
const THREADS: u64 = 3;

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Scrubs, and waits for the end.
fn scrubbed(dir: &Path, limit: Option<u64>) -> Status {
    let number = scrub::begin(dir, limit).unwrap();
    loop {
        let now = scrub::status(dir).unwrap();
        assert_eq!(now.number, number);
        if now.code.is_some() || now.why.is_some() {
            return now;
        }
        std::thread::yield_now();
    }
}

fn report(dir: &Path) -> String {
    let number = scrub::status(dir).unwrap().number;
    String::from_utf8(scrub::text(dir, number).unwrap()).unwrap()
}

/// Changes files of its own until it is stopped.
fn load(dir: &Path, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let dir = dir.join(format!("t{seed}"));
    std::fs::create_dir(&dir).unwrap();
    let mut files = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        match rng.below(5) {
            0..=2 => {
                next += 1;
                let path = dir.join(format!("file {next}"));
                let len = rng.index(20_000);
                std::fs::write(&path, rng.bytes(len)).unwrap();
                files.push(path);
            }
            3 if !files.is_empty() => {
                let at = rng.index(files.len());
                std::fs::File::open(&files[at]).unwrap().sync_all().unwrap();
            }
            _ if files.len() > 50 => {
                let at = rng.index(files.len());
                std::fs::remove_file(files.swap_remove(at)).unwrap();
            }
            _ => {}
        }
        done.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn scrubs_of_a_mount_in_use_find_nothing() {
    for transport in transports() {
        for mode in ["", ",sync=ordered"] {
            let options = format!("{transport}{mode}");
            let ours = Ours::of(Image::new(320 << 20, &[]), &options);
            let dir = ours.dir();
            let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
            let mut bad = None;
            std::thread::scope(|scope| {
                let (dir, stop, done) = (&dir, &stop, &done);
                for seed in 0..THREADS {
                    scope.spawn(move || load(dir, seed, stop, done));
                }
                while bad.is_none() && done.load(Ordering::Acquire) < CHANGES {
                    let end = scrubbed(dir, None);
                    if end.code != Some(0) {
                        bad = Some((end, report(dir)));
                    }
                }
                stop.store(true, Ordering::Release);
            });
            assert!(bad.is_none(), "{options}: {bad:#?}");
            assert!(report(&dir).starts_with("clean"), "{options}: {}", report(&dir));
            ours.unmount().judge();
        }
    }
}

#[test]
fn a_scrub_of_a_mount_finds_a_flipped_bit() {
    let image = Image::new(320 << 20, &[]);
    let path = image.path();
    let ours = Ours::of(image, "noio_uring");
    let dir = ours.dir();
    let block = 4096;
    std::fs::create_dir(dir.join("many")).unwrap();
    for n in 0..300 {
        std::fs::write(dir.join(format!("many/some long name number {n}")), b"").unwrap();
    }
    assert_eq!(scrubbed(&dir, None).code, Some(0));
    // A block of the directory, by what is in it.
    let bytes = std::fs::read(&path).unwrap();
    let is_dir = |at: &usize| &bytes[*at..*at + 4] == b"XDD3";
    let at = (0..bytes.len()).step_by(block).find(is_dir).unwrap() as u64 + 100;
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let old = bytes[at as usize];
    file.write_all_at(&[old ^ 1], at).unwrap();
    let end = scrubbed(&dir, None);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(report(&dir).contains("damaged"), "{}", report(&dir));
    let json = scrub::json(&dir, end.number).unwrap();
    assert!(json.starts_with(b"{\"verdict\":\"damaged\""));
    file.write_all_at(&[old], at).unwrap();
    let sound = scrubbed(&dir, None);
    assert_eq!(sound.code, Some(0));
    // A report is that of its number.
    for number in [end.number, sound.number + 1] {
        assert_eq!(errno(scrub::json(&dir, number)), Some(116));
        assert_eq!(errno(scrub::text(&dir, number)), Some(116));
    }
    assert!(scrub::text(&dir, sound.number).unwrap().starts_with(b"clean"));
    ours.unmount().judge();
}

#[test]
fn a_frozen_mount_is_not_scrubbed_and_stays_frozen() {
    let ours = Ours::of(Image::new(320 << 20, &[]), "noio_uring");
    let dir = ours.dir();
    control::freeze(&dir).unwrap();
    assert_eq!(errno(scrub::begin(&dir, None)), Some(16));
    control::thaw(&dir).unwrap();
    assert_eq!(scrubbed(&dir, None).code, Some(0));
    ours.unmount().judge();
}

#[test]
fn a_scrub_can_be_ended_and_ends_with_the_mount() {
    let image = Image::new(320 << 20, &[]);
    let (dev, gate) = gated(&image, Rule::on(&[Op::Read]), "uxfs-scrub");
    let ours = Ours::on(image, dev, "noio_uring");
    let dir = ours.dir();
    scrub::begin(&dir, None).unwrap();
    gate.reached();
    // It keeps what this overwrites.
    std::fs::write(dir.join("file"), b"content").unwrap();
    control::freeze(&dir).unwrap();
    control::thaw(&dir).unwrap();
    assert!(scrub::status(&dir).unwrap().kept_bytes > 0, "the scrub does not run");
    std::thread::scope(|scope| {
        let ender = scope.spawn(|| scrub::end(&dir).unwrap());
        // A scrub that is ended keeps nothing.
        while scrub::status(&dir).unwrap().kept_bytes > 0 && !ender.is_finished() {
            std::thread::yield_now();
        }
        gate.open();
    });
    let end = scrub::status(&dir).unwrap();
    assert_eq!((end.code, end.why.as_deref()), (None, Some("it was interrupted")));
    assert_eq!(scrubbed(&dir, None).code, Some(0));
    assert!(std::fs::metadata(dir.join("file")).unwrap().size() == 7);
    // The end of the mount ends it.
    gate.close();
    scrub::begin(&dir, None).unwrap();
    gate.reached();
    gate.open();
    ours.unmount().judge();
}
