//! The kernel's page cache while programs write with direct I/O.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise};

use crate::rig::{Ours, Volume, run_in};

const O_DIRECT: i32 = 0o40000;
const SIZE: usize = 4 << 20;
const PAGE: usize = 4096;
/// With asynchronous requests in the kernel, most rounds of any two leave something stale.
const ROUNDS: usize = 6;

/// The content of a file, read with direct I/O. Its length must be a multiple of the page size.
fn read_direct(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let mut file = File::options().read(true).custom_flags(O_DIRECT).open(path).unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

/// Reads single pages through the cache until it is stopped.
fn read_pages(path: &Path, step: usize, stop: &AtomicBool) {
    let file = File::open(path).unwrap();
    // Each page is one request, which overtakes large writes on their way into the server.
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let (mut room, mut page) = (vec![0; PAGE], 0);
    while !stop.load(Ordering::Relaxed) {
        page = (page + step) % (SIZE / PAGE);
        file.read_exact_at(&mut room, (page * PAGE) as u64).unwrap();
    }
}

/// Runs direct writers with an I/O engine of fio beside cached readers, and returns how many cached
/// bytes are stale after the writers have ended.
fn stale_after(engine: &str) -> usize {
    let volume = Box::new(Ours::new(320 << 20, "threads=4"));
    let path = volume.dir().join("f");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let mut stale = 0;
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for step in [1, 7, 13] {
                let (path, stop) = (&path, &stop);
                scope.spawn(move || read_pages(path, step, stop));
            }
            let (engine, seed) = (format!("--ioengine={engine}"), format!("--randseed={round}"));
            let job = [
                "--name=direct",
                "--filename=f",
                "--rw=randwrite",
                "--bs=1m",
                "--size=4m",
                "--direct=1",
            ];
            let more = ["--iodepth=4", "--io_size=64m", "--thread", "--minimal", &engine, &seed];
            run_in(&volume.dir(), "fio", &[&job[..], &more].concat());
            stop.store(true, Ordering::Relaxed);
        });
        let cached = std::fs::read(&path).unwrap();
        let now = read_direct(&path);
        stale += cached.iter().zip(&now).filter(|(one, other)| one != other).count();
    }
    volume.end();
    stale
}

#[test]
fn cached_pages_are_not_stale_after_asynchronous_direct_writes() {
    for engine in ["libaio", "io_uring", "psync"] {
        assert_eq!(stale_after(engine), 0, "stale bytes after all writers by {engine} have ended");
    }
}
