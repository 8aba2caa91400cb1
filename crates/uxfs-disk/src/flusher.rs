//! Flushes of a file by several threads, none of which misses an error.
//!
//! Linux reports an error of writing back once for each open file description. Of two flushes of one
//! description that overlap, one returns the error and the other success (seen with a loop device over a
//! full tmpfs). The second would acknowledge data that is lost.
//!
//! 1. Each flush that runs has a description of its own, which was there before the flush began. If there
//!    is none, it waits.
//! 2. After an error every later flush fails: what was not written stays lost.
//!
//! Called by [`FileDev`](crate::FileDev) and [`Qcow2Dev`](crate::Qcow2Dev).

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::sys;

/// Flushes that may overlap; more wait.
const OVERLAPPING: usize = 4;
/// The errno of an error that has none.
const EIO: i32 = 5;

/// What flushes a file.
pub(crate) struct Flusher {
    idle: Mutex<Vec<File>>,
    returned: Condvar,
    /// The errno of the first failure; 0 if there was none.
    failed: AtomicI32,
}

impl Flusher {
    /// For a file; `write` says whether it is open for writing.
    ///
    /// # Errors
    /// The host's for another handle of the file.
    pub(crate) fn new(file: &File, write: bool) -> io::Result<Self> {
        let more = if write { OVERLAPPING } else { 0 };
        let mut idle: Vec<File> = (0..more).map_while(|_| sys::described_anew(file)).collect();
        if idle.is_empty() {
            // One flush at a time then, which is as good.
            idle.push(file.try_clone()?);
        }
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new(), failed: AtomicI32::new(0) })
    }

    /// Makes all earlier writes of the file durable.
    ///
    /// # Errors
    /// The host's, and those of earlier flushes.
    pub(crate) fn flush(&self, read_only: bool) -> io::Result<()> {
        let file = self.take();
        let done = self.check().and_then(|()| sys::flush(&file, read_only));
        if let Err(error) = &done {
            let errno = error.raw_os_error().unwrap_or(EIO);
            let _first =
                self.failed.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
        }
        // Note the failure first: the next flush of this description does not return it again.
        self.idle.lock().push(file);
        self.returned.notify_one();
        done
    }

    /// Fails if a flush has failed.
    ///
    /// # Errors
    /// That of the flush.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn take(&self) -> File {
        let mut idle = self.idle.lock();
        loop {
            if let Some(file) = idle.pop() {
                return file;
            }
            self.returned.wait(&mut idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_without_more_descriptions_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        for write in [false, true] {
            let flusher = Flusher::new(&file, write).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..50).for_each(|_| flusher.flush(!write).unwrap()));
                }
            });
        }
    }

    /// A disk that fails is a loop device, which needs root.
    #[cfg(target_os = "linux")]
    mod privileged {
        use std::path::Path;
        use std::process::Command;
        use std::sync::Barrier;

        use super::*;
        use crate::{BlockDev, FileDev, OpenMode};

        fn run(program: &str, args: &[&str]) -> String {
            let out = Command::new(program).args(args).output().unwrap();
            assert!(out.status.success(), "{program} {args:?}: {out:?}");
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        }

        /// A disk of 256 MiB of which 8 MiB can be written.
        struct Failing {
            dir: tempfile::TempDir,
            disk: String,
        }

        impl Failing {
            fn new() -> Self {
                let dir = tempfile::tempdir().unwrap();
                let at = dir.path().to_str().unwrap();
                run("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", at]);
                let file = format!("{at}/file");
                File::create(&file).unwrap().set_len(256 << 20).unwrap();
                let disk = run("losetup", &["-f", "--show", &file]);
                Self { dir, disk }
            }
        }

        impl Drop for Failing {
            fn drop(&mut self) {
                run("losetup", &["-d", &self.disk]);
                run("umount", &["-l", self.dir.path().to_str().unwrap()]);
            }
        }

        #[test]
        #[ignore = "needs root"]
        fn no_flush_that_overlaps_a_failed_one_succeeds() {
            let failing = Failing::new();
            for threads in [1, 2, OVERLAPPING + 3] {
                let dev = FileDev::open(Path::new(&failing.disk), OpenMode::Write).unwrap();
                for at in 0..64 {
                    dev.write_at(at << 20, &vec![at as u8 + 1; 1 << 20]).unwrap();
                }
                let start = Barrier::new(threads);
                std::thread::scope(|scope| {
                    let flush = || {
                        start.wait();
                        dev.flush()
                    };
                    let all: Vec<_> = (0..threads).map(|_| scope.spawn(flush)).collect();
                    all.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap_err()));
                });
                // Nothing was written since, and the lost pages are clean.
                dev.flush().unwrap_err();
                dev.write_fua_at(0, &[1; 4096]).unwrap_err();
            }
        }
    }
}
