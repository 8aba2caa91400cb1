//! Keeps idle processors from halting while a mount is in use (`-o awake`).
//!
//! A call that FUSE serves wakes a thread twice, often on another processor. One that has halted takes
//! tens of microseconds to come back, on a virtual machine more, and as long as what a server does
//! for a small request. Linux lets who may open its device of CPU latency ask that idle processors wait
//! awake: they then burn power, and a virtual machine's host sees them as busy.
//!
//! 1. It is asked for only while there are requests: a pause takes it back.
//! 2. The kernel takes it back when the file is closed, so when the process ends, however it does.
//! 3. A request pays for it with looking at one flag; nobody waits.
//!
//! Used by [`crate::volume`], and by benchmarks for what a mount is compared with.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Where Linux takes how late a processor may come back, as a 32-bit number of microseconds: for as long as the
/// file is open (`Documentation/power/pm_qos_interface.rst`).
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// After so long without a request processors may halt again; twice as long at most.
const PAUSE: Duration = Duration::from_millis(50);

/// While it lives, no idle processor of the machine halts.
pub struct Held(#[expect(dead_code, reason = "its closing is what ends it")] File);

impl Held {
    /// Asks for it.
    ///
    /// # Errors
    /// What the system says, which is that only root may, or that there is no such device.
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

/// Asks for it while there are requests.
pub(crate) struct Awake {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    /// There was a request since the keeper looked last.
    stirred: AtomicBool,
    /// The keeper looks again by itself.
    held: AtomicBool,
    ending: AtomicBool,
}

impl Awake {
    /// Begins.
    ///
    /// # Errors
    /// As [`Held::new`], and what the host says to a new thread.
    pub(crate) fn start() -> io::Result<Self> {
        Self::with(DEVICE.into())
    }

    fn with(device: PathBuf) -> io::Result<Self> {
        // Who may not, or cannot, is told so now.
        open(&device)?;
        let shared = Arc::<Shared>::default();
        let keeper = std::thread::Builder::new().name("uxfs-awake".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.keep(&device)
        })?;
        let thread = keeper.thread().clone();
        Ok(Self { shared, keeper: Some(keeper), thread })
    }

    /// There is a request.
    pub(crate) fn stir(&self) {
        let shared = &*self.shared;
        if !shared.stirred.load(Ordering::Relaxed)
            && !shared.stirred.swap(true, Ordering::SeqCst)
            && !shared.held.load(Ordering::SeqCst)
        {
            self.thread.unpark();
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.thread.unpark();
        if let Some(keeper) = self.keeper.take() {
            // A panic there was reported where it happened.
            let _ = keeper.join();
        }
    }
}

impl Shared {
    /// Lets a pause go by, unless it is to end.
    fn rest(&self) {
        let over = Instant::now() + PAUSE;
        // It may have been woken by whoever stirred first.
        while !self.ending.load(Ordering::SeqCst) {
            match over.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                _ => return,
            }
        }
    }

    fn keep(&self, device: &Path) {
        while !self.ending.load(Ordering::SeqCst) {
            // Whoever stirs after this finds `held` unset, and wakes this thread.
            if !self.stirred.swap(false, Ordering::SeqCst) {
                std::thread::park();
                continue;
            }
            self.held.store(true, Ordering::SeqCst);
            // It could be opened when this began. If it cannot be now, requests take longer, no more.
            let held = Held::of(device);
            while {
                self.rest();
                self.stirred.swap(false, Ordering::SeqCst) && !self.ending.load(Ordering::SeqCst)
            } {}
            drop(held);
            self.held.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often this process has a file open.
    fn opened(path: &Path) -> usize {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path)).count()
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "never {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn until_held(awake: &Awake, is_held: impl Fn() -> bool) {
        until("held", || {
            awake.stir();
            is_held()
        });
    }

    #[test]
    fn it_is_asked_for_only_while_there_are_requests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = file.path().canonicalize().unwrap();
        // The test's own.
        let before = opened(&device);
        let awake = Awake::with(device.clone()).unwrap();
        assert_eq!(opened(&device), before, "nobody has asked for anything");
        for _ in 0..3 {
            until_held(&awake, || opened(&device) == before + 1);
            until("given back", || opened(&device) == before);
        }
        assert_eq!(std::fs::read(&device).unwrap(), [0; 4]);
        until_held(&awake, || opened(&device) == before + 1);
        drop(awake);
        assert_eq!(opened(&device), before, "it ended while it was held");
    }

    #[test]
    fn requests_that_go_on_keep_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = file.path().canonicalize().unwrap();
        let before = opened(&device);
        let awake = Awake::with(device.clone()).unwrap();
        let is_held = || opened(&device) == before + 1;
        until_held(&awake, is_held);
        let (begun, mut last) = (Instant::now(), Instant::now());
        let mut looked = 0;
        while begun.elapsed() < 6 * PAUSE || looked < 6 {
            awake.stir();
            let (held, before) = (is_held(), core::mem::replace(&mut last, Instant::now()));
            // A machine that lets this thread rest for as long as a pause has made one.
            if before.elapsed() < PAUSE {
                assert!(held, "given back in the midst of requests");
                looked += 1;
            } else {
                until_held(&awake, is_held);
                last = Instant::now();
            }
        }
    }

    #[test]
    fn who_may_not_is_told_at_once() {
        let gone = Path::new("/nowhere/cpu_dma_latency").to_owned();
        assert_eq!(Awake::with(gone).err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
