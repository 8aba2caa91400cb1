//! What the kernel keeps of files in its cache, beside programs that write past it.

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

/// What a file holds, read past the cache. Its length has to be one of whole pages.
fn past_the_cache(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let mut file = File::options().read(true).custom_flags(O_DIRECT).open(path).unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

/// Reads single pages through the cache until it is stopped.
fn read_pages(path: &Path, step: usize, stop: &AtomicBool) {
    let file = File::open(path).unwrap();
    // Each page is a request of its own, which overtakes large writes on their way into the server.
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let (mut room, mut page) = (vec![0; PAGE], 0);
    while !stop.load(Ordering::Relaxed) {
        page = (page + step) % (SIZE / PAGE);
        file.read_exact_at(&mut room, (page * PAGE) as u64).unwrap();
    }
}

/// Bytes that readers through the cache find other than they are, when writers past it have ended that
/// wrote by this engine of fio beside them.
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
        let now = past_the_cache(&path);
        stale += cached.iter().zip(&now).filter(|(one, other)| one != other).count();
    }
    volume.end();
    stale
}

#[test]
fn what_was_read_beside_asynchronous_direct_writes_is_not_kept() {
    for engine in ["libaio", "io_uring", "psync"] {
        assert_eq!(stale_after(engine), 0, "stale bytes after all writers by {engine} have ended");
    }
}
