//! Processes that a job left behind, wherever they went.
//!
//! 1. A process belongs to a job if its environment has the job's mark. One that left the process group has
//!    it, too; one that was given another environment is not found.
//! 2. It looks only at processes of its own user: it may not read the environment of others.
//!
//! A [`Job`](crate::Job) makes one for each of its runs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

/// The variable with the mark.
const NAME: &str = "UXFS_JOB";
/// How often it looks for processes that were killed and do not end.
const ROUNDS: usize = 5000;
const WAIT: Duration = Duration::from_millis(1);

pub(crate) struct Mark(OsString);

impl Mark {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self(format!("{}-{now}-{number}", std::process::id()).into())
    }

    /// The name and the value of the variable.
    pub(crate) fn variable(&self) -> (&'static str, &OsString) {
        (NAME, &self.0)
    }

    /// Ends all processes that have the mark. Returns whether there were any.
    pub(crate) fn end(&self) -> bool {
        for round in 0..ROUNDS {
            let found = self.processes();
            if found.is_empty() {
                return round > 0;
            }
            for process in found {
                // It may have ended by now.
                let _ = kill_process(process, Signal::KILL);
            }
            std::thread::sleep(WAIT);
        }
        true
    }

    fn processes(&self) -> Vec<Pid> {
        let wanted = [NAME.as_bytes(), b"=", self.0.as_bytes()].concat();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let marked = entries.filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            // That of a process that has ended is empty.
            let variables = std::fs::read(entry.path().join("environ")).ok()?;
            let is_marked = variables.split(|byte| *byte == 0).any(|variable| variable == wanted);
            is_marked.then(|| Pid::from_raw(id))?
        });
        marked.collect()
    }
}
