//! A mount under mixed load for long: neither its memory nor what it takes of the volume grows.
//!
//! `UXFS_SOAK_ROUNDS=N` sets the number of rounds, `UXFS_SEED=N` the first seed. A round ends with an empty
//! volume. `./test long` runs thousands of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uxfs_oracle::Rng;

use crate::fixture::Fixture;
use crate::mount_ends::until;
use crate::mounts::{serve, with_dir};
use crate::remounts::status;

/// Threads, each with a directory of its own.
const THREADS: u64 = 4;
/// Operations of a thread in each round.
const OPERATIONS: usize = 600;
/// Most bytes that one operation writes.
const MOST: usize = 64 << 10;

/// What the allocator may keep for the threads of the server, in KiB.
const ARENAS: u64 = 24 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One operation on the files of a directory.
fn operate(dir: &Path, files: &mut Vec<PathBuf>, serial: usize, rng: &mut Rng) {
    let known = rng.pick(files).cloned();
    match (rng.below(12), known) {
        (0..=3, _) | (_, None) => {
            let path = dir.join(format!("file-{serial}"));
            let len = rng.index(MOST);
            std::fs::write(&path, rng.bytes(len)).unwrap();
            files.push(path);
        }
        (4, Some(path)) => {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&rng.bytes(4096), rng.below(1 << 20)).unwrap();
        }
        (5, Some(path)) => File::open(path).unwrap().sync_all().unwrap(),
        (6, Some(path)) => drop(std::fs::read(path).unwrap()),
        (7, Some(path)) => {
            let to = dir.join(format!("renamed-{serial}"));
            std::fs::rename(&path, &to).unwrap();
            files.retain(|known| *known != path);
            files.push(to);
        }
        (8, Some(path)) => {
            let to = dir.join(format!("linked-{serial}"));
            std::fs::hard_link(path, &to).unwrap();
            files.push(to);
        }
        (9, Some(path)) => {
            let value = rng.bytes(200);
            rustix::fs::setxattr(path, "user.soak", &value, rustix::fs::XattrFlags::empty())
                .unwrap();
        }
        (10, Some(_)) => assert_eq!(std::fs::read_dir(dir).unwrap().count(), files.len()),
        (_, Some(path)) => {
            std::fs::remove_file(&path).unwrap();
            files.retain(|known| *known != path);
        }
    }
}

/// A round: threads operate, then everything is removed.
fn round(mnt: &Path, seed: u64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut rng = Rng::new(seed * THREADS + thread);
                let dir = mnt.join(format!("thread-{thread}"));
                std::fs::create_dir(&dir).unwrap();
                let mut files = Vec::new();
                for serial in 0..OPERATIONS {
                    operate(&dir, &mut files, serial, &mut rng);
                }
                std::fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
}

/// Resident memory of a process, in KiB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn free_blocks(fixture: &Fixture) -> u64 {
    rustix::fs::statvfs(fixture.path("mnt")).unwrap().f_bfree
}

#[test]
fn memory_and_space_stay_the_same_over_rounds() {
    let (rounds, seed) = (number("UXFS_SOAK_ROUNDS", 6), number("UXFS_SEED", 1));
    // The first rounds fill caches and make what stays: chunks of inodes, blocks of the root.
    let warm_up = (rounds / 4).clamp(2, 50);
    let fixture = with_dir();
    let mut child = serve(&fixture, "cache_bytes=4m");
    let (mut memory, mut free) = (0, u64::MAX);
    for done in 0..rounds {
        round(&fixture.path("mnt"), seed + done);
        // The kernel forgets removed files a little later, and only then is their space free.
        until("forgotten", || status(&fixture, "files_without_name") == "0");
        fixture.uxfs(&["sync", "mnt"]).good();
        let now = (resident(child.id()), free_blocks(&fixture));
        println!(
            "round {done}, seed {}: {} KiB resident, {} blocks free",
            seed + done,
            now.0,
            now.1
        );
        if done < warm_up {
            (memory, free) = (memory.max(now.0), free.min(now.1));
        } else {
            let again = format!("UXFS_SOAK_ROUNDS={} UXFS_SEED={seed}", done + 1);
            assert!(now.0 <= memory + memory / 4 + ARENAS, "{again}: {now:?} after {memory} KiB");
            assert!(now.1 + 64 >= free, "{again}: {now:?} after {free} blocks");
        }
    }
    fixture.unmount("mnt");
    assert!(child.wait().unwrap().success());
    fixture.check("a.img");
}
