//! Keeps idle processors from halting while a mount is busy.
//!
//! A FUSE request wakes a thread twice, often on another processor. A halted processor takes tens
//! of microseconds to resume, on a virtual machine more: as long as a server works on a small
//! request. A process that may open Linux' device of CPU latency can ask that idle processors do
//! not halt. They then use power, and the host of a virtual machine sees them as busy. So this
//! module asks for it only while requests come so fast that a processor would hardly halt anyway.
//!
//! 1. It asks only while there are more than two requests per millisecond; a slower period
//!    withdraws it.
//! 2. The kernel withdraws it when the file is closed, and so whenever the process ends.
//! 3. A request only increments a counter. No request waits.
//!
//! Called by `volume`, and by benchmarks for the servers that a mount is compared with.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The device to which the maximum wake-up latency is written, as a 32-bit number of microseconds.
/// It holds while the file is open (`Documentation/power/pm_qos_interface.rst`).
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// Length of a period, and the number of requests in it from which on processors are kept awake.
const PERIOD: Duration = Duration::from_millis(50);
const BUSY_REQUESTS: u32 = 100;

/// While processors may halt, the rate is checked after this many requests; the thread is woken if they
/// took less than this time.
const CHECK_EVERY: u32 = 64;
const CHECK_WITHIN: Duration = Duration::from_millis(32);

/// Keeps all idle processors of the machine from halting until it is dropped.
pub struct LatencyRequest(#[expect(dead_code, reason = "its closing is what ends it")] File);

impl LatencyRequest {
    /// Asks the kernel to keep processors from halting.
    ///
    /// # Errors
    /// The process is not root, or the device does not exist.
    pub fn new() -> io::Result<Self> {
        Self::of(Path::new(DEVICE))
    }

    fn of(device: &Path) -> io::Result<Self> {
        let mut file = open(device)?;
        file.write_all(&[0; 4])?;
        Ok(Self(file))
    }
}

fn open(device: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(device)
}

/// Holds a latency request while there are many requests.
pub(crate) struct Awake {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    thread: Thread,
}

struct Shared {
    /// Number of requests, modulo 2^32.
    requests: AtomicU32,
    /// Time of the last check, in milliseconds since `begun`.
    last: AtomicU64,
    begun: Instant,
    /// Processors are kept awake, and the thread counts the requests.
    held: AtomicBool,
    ending: AtomicBool,
}

impl Awake {
    /// Starts the thread.
    ///
    /// # Errors
    /// As [`LatencyRequest::new`], or the host cannot start a thread.
    pub(crate) fn start() -> io::Result<Self> {
        Self::with(DEVICE.into())
    }

    fn with(device: PathBuf) -> io::Result<Self> {
        // Fails here if the device cannot be opened.
        open(&device)?;
        let shared = Arc::new(Shared {
            requests: AtomicU32::new(0),
            last: AtomicU64::new(0),
            begun: Instant::now(),
            held: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        let worker = std::thread::Builder::new().name("uxfs-awake".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.keep(&device)
        })?;
        let thread = worker.thread().clone();
        Ok(Self { shared, worker: Some(worker), thread })
    }

    pub(crate) fn count_request(&self) {
        let shared = &*self.shared;
        let before = shared.requests.fetch_add(1, Ordering::Relaxed);
        if before % CHECK_EVERY == CHECK_EVERY - 1 && !shared.held.load(Ordering::Relaxed) {
            let now = shared.begun.elapsed().as_millis() as u64;
            let few = now.saturating_sub(shared.last.swap(now, Ordering::Relaxed));
            if u128::from(few) < CHECK_WITHIN.as_millis() {
                self.thread.unpark();
            }
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.thread.unpark();
        if let Some(worker) = self.worker.take() {
            // A panic there was reported where it happened.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Waits for one period, unless the thread must end.
    fn wait_one_period(&self) {
        let over = Instant::now() + PERIOD;
        // It may be woken twice.
        while !self.ending.load(Ordering::SeqCst) {
            match over.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                _ => return,
            }
        }
    }

    fn keep(&self, device: &Path) {
        // The flag is set before the wake-up, so it is checked before each sleep.
        while !self.ending.load(Ordering::SeqCst) {
            std::thread::park();
            self.held.store(true, Ordering::Relaxed);
            // It could be opened at the start. If it cannot be now, requests only take longer.
            let held = LatencyRequest::of(device);
            while self.counts_many() {}
            drop(held);
            self.held.store(false, Ordering::Relaxed);
        }
    }

    /// Waits for one period. Returns whether there were many requests, and whether to continue.
    fn counts_many(&self) -> bool {
        let before = self.requests.load(Ordering::Relaxed);
        self.wait_one_period();
        let more = self.requests.load(Ordering::Relaxed).wrapping_sub(before);
        more >= BUSY_REQUESTS && !self.ending.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempPath;

    use super::*;

    /// `Awake` with a file as its device.
    struct Rig {
        device: TempPath,
        awake: Awake,
    }

    impl Rig {
        fn new() -> Self {
            let device = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            let awake = Awake::with(device.canonicalize().unwrap()).unwrap();
            Self { device, awake }
        }

        fn count_request(&self, times: u32) {
            (0..times).for_each(|_| self.awake.count_request());
        }

        fn until_held(&self) {
            until("held", || {
                self.count_request(2 * CHECK_EVERY);
                is_open(&self.device)
            });
        }
    }

    /// Does this process have the file open?
    fn is_open(path: &Path) -> bool {
        let path = path.canonicalize().unwrap();
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|to| to == path)
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            // Only a hang takes that long.
            assert!(begun.elapsed() < Duration::from_secs(600), "never {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn the_device_is_open_only_while_there_are_many_requests() {
        let rig = Rig::new();
        // Single requests do not keep the processors awake.
        for _ in 0..2 * CHECK_EVERY {
            rig.count_request(1);
            std::thread::sleep(Duration::from_millis(1));
            assert!(!is_open(&rig.device), "held for single requests");
        }
        for _ in 0..3 {
            rig.until_held();
            until("given back", || !is_open(&rig.device));
        }
        assert_eq!(std::fs::read(&rig.device).unwrap(), [0; 4]);
        rig.until_held();
        let Rig { device, awake } = rig;
        drop(awake);
        assert!(!is_open(&device), "still open after the end");
    }

    #[test]
    fn continuing_requests_keep_the_device_open() {
        let rig = Rig::new();
        rig.until_held();
        let (begun, mut last) = (Instant::now(), Instant::now());
        let (mut looked, mut rests, mut given_back) = (0, 0, 0);
        while begun.elapsed() < 6 * PERIOD || looked < 6 {
            rig.count_request(BUSY_REQUESTS);
            // On a busy machine this thread may sleep for long. Each such pause may close the device once,
            // and that may be seen later.
            rests += u32::from(last.elapsed() >= PERIOD / 2);
            last = Instant::now();
            looked += 1;
            if !is_open(&rig.device) {
                given_back += 1;
                rig.until_held();
            }
        }
        assert!(given_back <= rests, "given back {given_back} times in {rests} rests");
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_an_error() {
        let gone = Path::new("/nowhere/cpu_dma_latency").to_owned();
        assert_eq!(Awake::with(gone).err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
