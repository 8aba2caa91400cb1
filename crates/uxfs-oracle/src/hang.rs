//! Distinguishes a process that hangs from one that is slow, on a machine of any load.
//!
//! 1. A process hangs if it has been idle for minutes ([`Hang::Idle`]), or if it has worked far
//!    longer than its task can take ([`Hang::Endless`]). The time on the clock alone decides
//!    nothing.
//! 2. A process that waits for a processor or for the host's disk is not idle.
//! 3. Work is processor time, so a busy machine does not use it up.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// The longest time that a process may be idle, and that it may work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HangLimits {
    /// Time on the clock during which it does almost nothing.
    pub idle: Duration,
    /// Processor time.
    pub work: Duration,
}

/// Why a process counts as hanging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// It has been idle for this time.
    Idle(Duration),
    /// It has worked for this time.
    Endless(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(time) => write!(f, "it hangs: idle for {time:?}"),
            Self::Endless(time) => write!(f, "it hangs: no end after {time:?} of processor time"),
        }
    }
}

/// A process that uses less than this share of the time is idle: a machine that does nothing still
/// has a ticking clock.
const BUSY_PERCENT: u32 = 10;
/// Interval of checks for the end, and longest interval of checks for progress.
const LOOK: Duration = Duration::from_millis(20);
const SAMPLE: Duration = Duration::from_secs(1);

impl HangLimits {
    /// Waits for the end of a child. `moved` returns a number that changes when the child makes
    /// progress. A child that hangs is not killed.
    ///
    /// # Errors
    /// An I/O error of the host.
    pub fn wait(
        self,
        child: &mut Child,
        mut moved: impl FnMut() -> u64,
    ) -> io::Result<Result<ExitStatus, Hang>> {
        let mut watch = Watch::new(child.id(), self);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ok(status));
            }
            if let Some(hang) = watch.look(&mut moved) {
                return Ok(Err(hang));
            }
            std::thread::sleep(LOOK.min(self.idle / 4));
        }
    }
}

/// Watches a process.
#[derive(Debug)]
pub struct Watch {
    process: u32,
    limits: HangLimits,
    /// The last sample, and the last number of `moved`.
    last: Sample,
    moved: u64,
    looked: Instant,
    /// When it was busy last, and its processor time since the task began.
    busy: Instant,
    worked: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    /// Processor time, including that of threads that have ended.
    work: Duration,
    /// Time during which its threads ran or waited for a processor.
    wanted: Duration,
    /// Bytes read from and written to devices.
    bytes: u64,
    /// A thread waits for a device.
    waits_for_disk: bool,
}

impl Watch {
    /// Starts to watch a process.
    #[must_use]
    pub fn new(process: u32, limits: HangLimits) -> Self {
        let (last, now) = (Sample::of(process), Instant::now());
        Self { process, limits, last, moved: 0, looked: now, busy: now, worked: Duration::ZERO }
    }

    /// Does it hang? `moved` returns a number that changes when the process makes progress.
    pub fn look(&mut self, moved: impl FnOnce() -> u64) -> Option<Hang> {
        let passed = self.looked.elapsed();
        if passed < SAMPLE.min(self.limits.idle / 4) {
            return None;
        }
        let (now, moved) = (Sample::of(self.process), moved());
        let busy = now.busier_than(&self.last, passed) || moved != self.moved;
        if busy {
            self.busy = Instant::now();
        }
        self.worked += now.work.saturating_sub(self.last.work);
        (self.last, self.moved, self.looked) = (now, moved, Instant::now());
        if self.worked > self.limits.work {
            return Some(Hang::Endless(self.worked));
        }
        let idle = self.busy.elapsed();
        (idle > self.limits.idle).then_some(Hang::Idle(idle))
    }

    /// A new task begins: earlier work no longer counts.
    pub fn begin_again(&mut self) {
        (self.busy, self.worked) = (Instant::now(), Duration::ZERO);
    }
}

impl Sample {
    /// The use of a process and its children; nothing for a process that has ended.
    fn of(process: u32) -> Self {
        let mut sample = Self::default();
        sample.add(process);
        sample
    }

    fn add(&mut self, process: u32) {
        let sample = self;
        let home = format!("/proc/{process}");
        let text = |name: &str| fs::read_to_string(format!("{home}/{name}")).unwrap_or_default();
        // After the name, which may hold anything, the 12th and 13th number: hundredths of a
        // second.
        let stat = text("stat");
        let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = numbers.skip(11).take(2).filter_map(|number| number.parse::<u64>().ok());
        sample.work += Duration::from_millis(10 * ticks.sum::<u64>());
        for line in text("io").lines() {
            if let Some(("read_bytes" | "write_bytes", bytes)) = line.split_once(": ") {
                sample.bytes = sample.bytes.wrapping_add(bytes.parse().unwrap_or(0));
            }
        }
        for thread in fs::read_dir(format!("{home}/task")).into_iter().flatten().flatten() {
            let text =
                |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let times = text("schedstat");
            let times = times.split_whitespace().take(2);
            let times = times.filter_map(|time| time.parse::<u64>().ok());
            sample.wanted += Duration::from_nanos(times.sum());
            let stat = text("stat");
            let state = stat.rsplit(')').next().unwrap_or_default().split_whitespace().next();
            sample.waits_for_disk |= state == Some("D");
            let children = text("children");
            children.split_whitespace().filter_map(|c| c.parse().ok()).for_each(|c| sample.add(c));
        }
    }

    /// Was it busy since an earlier sample, `passed` ago?
    fn busier_than(&self, before: &Self, passed: Duration) -> bool {
        // A thread that ends takes its time with it; the kernel's other count keeps it.
        let wanted = self.wanted.saturating_sub(before.wanted);
        let used = wanted.max(self.work.saturating_sub(before.work));
        used * 100 > passed * BUSY_PERCENT || self.bytes != before.bytes || self.waits_for_disk
    }
}

/// What the threads of a process, of its children and of this process wait for, and the events that they have
/// not read: a kernel that misses an interrupt has one, a server that sends none has not.
#[must_use]
pub(crate) fn what_waits(process: u32) -> String {
    let mut text = String::new();
    describe(process, &mut text);
    describe(std::process::id(), &mut text);
    text
}

fn describe(process: u32, text: &mut String) {
    let proc = Path::new("/proc").join(process.to_string());
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let entries = |name: &str| fs::read_dir(proc.join(name)).into_iter().flatten().flatten();
    for thread in entries("task") {
        let at = thread.path();
        let (name, place) = (read(&at.join("comm")), read(&at.join("wchan")));
        text.push_str(&format!("\nprocess {process}: {name} waits in {place}"));
        // This process is described by itself.
        let children = read(&at.join("children"));
        if process != std::process::id() {
            children
                .split_whitespace()
                .filter_map(|child| child.parse().ok())
                .for_each(|child| describe(child, text));
        }
    }
    for file in entries("fdinfo") {
        let info = read(&file.path());
        let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
        if let Some(count) = count.map(str::trim).filter(|count| *count != "0") {
            let number = file.file_name();
            text.push_str(&format!(
                "\nprocess {process}: descriptor {} has {count} unread events",
                number.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Ends a child with the test.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            // Both fail only if it has ended already.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        Running(command.args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
    }

    fn limits(idle_ms: u64, work_ms: u64) -> HangLimits {
        let [idle, work] = [idle_ms, work_ms].map(Duration::from_millis);
        HangLimits { idle, work }
    }

    const LONG: u64 = 3_600_000;

    #[test]
    fn a_process_that_sleeps_for_ever_hangs() {
        let mut child = shell("exec sleep 36000");
        let end = limits(1000, LONG).wait(&mut child.0, || 0).unwrap();
        assert!(matches!(end, Err(Hang::Idle(_))), "{end:?}");
    }

    #[test]
    fn a_process_that_computes_does_not_hang() {
        // It works for far longer than it may be idle; on a busy machine it also waits for processors.
        let mut child = shell("i=0; while [ $i -lt 3000000 ]; do i=$((i + 1)); done; exit 3");
        let limits = limits(1000, LONG);
        let end = limits.wait(&mut child.0, || 0).unwrap();
        assert_eq!(end.map(|status| status.code()), Ok(Some(3)));
    }

    #[test]
    fn a_process_that_computes_for_ever_hangs() {
        let mut child = shell("while :; do :; done");
        let end = limits(LONG, 500).wait(&mut child.0, || 0).unwrap();
        assert!(matches!(end, Err(Hang::Endless(_))), "{end:?}");
    }

    #[test]
    fn a_process_whose_child_computes_for_ever_hangs() {
        let mut child = shell("(while :; do :; done) & echo $!; wait");
        let end = limits(LONG, 500).wait(&mut child.0, || 0).unwrap();
        assert!(matches!(end, Err(Hang::Endless(_))), "{end:?}");
        // The shell's child has to be killed as well.
        let mut pkill = Command::new("pkill");
        pkill.args(["-P", &child.0.id().to_string()]).status().unwrap();
    }

    #[test]
    fn a_process_that_sleeps_and_makes_progress_does_not_hang() {
        let mut child = shell("sleep 4");
        let mut looks = 0;
        let end = limits(1000, LONG).wait(&mut child.0, || {
            looks += 1;
            looks
        });
        assert_eq!(end.unwrap().map(|status| status.success()), Ok(true));
    }

    #[test]
    fn threads_and_unread_events_are_described() {
        use rustix::event::{EventfdFlags, eventfd};
        let unread = eventfd(3, EventfdFlags::CLOEXEC).unwrap();
        let child = shell("sleep 36000");
        let text = what_waits(child.0.id());
        let number = rustix::fd::AsRawFd::as_raw_fd(&unread);
        let wanted = [
            format!("process {}: ", child.0.id()),
            format!("process {}: descriptor {number} has 3 unread events", std::process::id()),
        ];
        assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{text}");
    }

    #[test]
    fn a_process_that_waits_for_a_processor_or_disk_is_busy() {
        let second = Duration::from_secs(1);
        let before = Sample::default();
        let busy = |now: Sample| now.busier_than(&before, second);
        assert!(!busy(before));
        assert!(!busy(Sample { wanted: second / 20, ..before }));
        assert!(busy(Sample { wanted: second / 2, ..before }));
        assert!(busy(Sample { work: second / 2, ..before }));
        assert!(busy(Sample { bytes: 512, ..before }));
        assert!(busy(Sample { waits_for_disk: true, ..before }));
    }
}
