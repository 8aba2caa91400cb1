//! A program run in a directory: with a limit of time, in a process group of its own, and always gone
//! afterwards.
//!
//! 1. When [`Job::run_in`] returns, no process of the program's group is left, and none that left the group and
//!    has the environment that it was given ([`left`]).
//! 2. Nothing of the program's output reaches the terminal. The end of it is kept for the report.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use regex::bytes::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group,
};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::left::Mark;
use crate::lines::Lines;
use crate::recorder::Recorder;

/// How often a waiting job looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A command, and how long it may take.
#[derive(Clone)]
pub struct Job {
    pub words: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub timeout: Duration,
    /// Set when the test is to end.
    pub stop: Arc<AtomicBool>,
    /// Lines of its output that acknowledge.
    pub ack: Option<Regex>,
    /// The user and the group that it runs as, if not those of this process.
    pub owner: Option<(u32, u32)>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub how: How,
    /// The last of its output.
    pub output: String,
    /// Other processes that it started were still running.
    pub left_processes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    Success,
    Exit(i32),
    Signal(i32),
    TimedOut,
    /// The test was stopped.
    Stopped,
    /// More was written than allowed.
    OverLimit,
    /// The kernel under it stopped.
    KernelStopped,
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Success => f.write_str("it succeeded"),
            Self::Exit(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} ended it"),
            Self::TimedOut => f.write_str("it did not end in time"),
            Self::Stopped => f.write_str("it was interrupted"),
            Self::OverLimit => f.write_str("it wrote too much"),
            Self::KernelStopped => f.write_str("the kernel stopped"),
        }
    }
}

impl How {
    /// The end with this exit status.
    pub(crate) fn exit(code: i32) -> Self {
        if code == 0 { Self::Success } else { Self::Exit(code) }
    }

    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::exit(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

impl Job {
    /// A job for a command line of the shell.
    pub fn shell(line: &str, timeout: Duration, stop: Arc<AtomicBool>) -> Self {
        let words = ["sh", "-c", line].map(OsString::from).to_vec();
        Self { words, env: Vec::new(), timeout, stop, ack: None, owner: None }
    }

    /// Runs it in this directory. A recorder hears what it acknowledges.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run_in(&self, dir: &Path, recorder: Option<&Recorder>) -> Result<Ended> {
        let name = self.words.first().map(|word| word.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let failed = |error: std::io::Error| Error::host(&format!("cannot run {name}"), error);
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.env.iter().cloned()).current_dir(dir);
        command.stdin(Stdio::null()).process_group(0);
        let mark = Mark::new();
        let (variable, value) = mark.variable();
        command.env(variable, value);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        let (output, output_end) = pipe().map_err(failed)?;
        let both = output_end.try_clone().map_err(failed)?;
        command.stdout(output_end).stderr(both);
        let (acks, acks_end) = pipe().map_err(failed)?;
        // The program inherits this one, which is closed here as soon as it has started.
        let inherited = rustix::io::dup(&acks_end).map_err(|error| failed(error.into()))?;
        drop(acks_end);
        if recorder.is_some() {
            command.env("UXFS_ACK", inherited.as_raw_fd().to_string());
        } else {
            command.env_remove("UXFS_ACK");
        }
        let (acks, output) =
            (Lines::new(acks).map_err(failed)?, Lines::new(output).map_err(failed)?);
        let spawned = command.spawn();
        drop((inherited, command));
        let child = spawned.map_err(failed)?;
        let mut ears = match recorder {
            Some(recorder) => {
                let ears = [acks.fd(), output.fd()].map(|fd| fd.try_clone_to_owned());
                recorder.listen(acks, output, self.ack.clone());
                let [acks, output] = ears;
                Ears::Recorder(recorder, [acks.map_err(failed)?, output.map_err(failed)?])
            }
            None => Ears::Output(output),
        };
        let (how, left_processes) =
            self.attend(child, &mut ears, recorder, &mark).map_err(failed)?;
        let output = match ears {
            Ears::Recorder(recorder, _) => recorder.ended(),
            Ears::Output(mut output) => {
                output.read(|_| ());
                output.tail()
            }
        };
        Ok(Ended { how, output, left_processes })
    }

    /// Waits until the program has ended, and hears it meanwhile.
    fn attend(
        &self,
        mut child: std::process::Child,
        ears: &mut Ears<'_>,
        recorder: Option<&Recorder>,
        mark: &Mark,
    ) -> std::io::Result<(How, bool)> {
        let group = Pid::from_child(&child);
        let process = pidfd_open(group, PidfdFlags::empty())?;
        let until = Instant::now() + self.timeout;
        let why = loop {
            if ears.wait(&process, LOOK.min(until.saturating_duration_since(Instant::now())))? {
                break None;
            }
            if self.stop.load(Ordering::Relaxed) {
                break Some(How::Stopped);
            }
            if recorder.is_some_and(Recorder::is_over) {
                break Some(How::OverLimit);
            }
            if Instant::now() >= until {
                break Some(How::TimedOut);
            }
        };
        let over = recorder.is_some_and(Recorder::is_over).then_some(How::OverLimit);
        if why.is_some() {
            // It may have ended by now.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait()?;
        let left = why.is_none() && group_lives(group);
        // What is left of the group has no leader any more.
        let _ = kill_process_group(group, Signal::KILL);
        let left = mark.end() && why.is_none() || left;
        Ok((why.or(over).unwrap_or_else(|| How::of(status)), left))
    }
}

/// Has the group a process that runs? One that has ended and was not waited for does not count.
fn group_lives(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut stats =
        stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.any(|stat| {
        // `PID (NAME) STATE PARENT GROUP …`, and a name may hold anything.
        let words = stat.rsplit_once(") ").map(|(_, words)| words.split(' ').collect::<Vec<_>>());
        let of_group = |words: &Vec<&str>| {
            words.get(2).is_some_and(|id| id.parse() == Ok(group.as_raw_nonzero().get()))
        };
        words.is_some_and(|words| of_group(&words) && !matches!(words[0], "Z" | "X"))
    })
}

/// Where a program's words go.
enum Ears<'a> {
    /// Copies of the recorder's pipes, to wait for.
    Recorder(&'a Recorder, [OwnedFd; 2]),
    Output(Lines),
}

impl Ears<'_> {
    /// Waits for words or the program's end, and takes the words. Returns whether it has ended.
    fn wait(&mut self, process: &OwnedFd, longest: Duration) -> std::io::Result<bool> {
        let longest = Timespec::try_from(longest).unwrap_or_default();
        let fds: Vec<BorrowedFd<'_>> = match &*self {
            Self::Recorder(_, copies) => copies.iter().map(std::os::fd::AsFd::as_fd).collect(),
            Self::Output(output) if output.ended() => Vec::new(),
            Self::Output(output) => vec![output.fd()],
        };
        let mut polled: Vec<PollFd<'_>> = vec![PollFd::new(process, PollFlags::IN)];
        polled.extend(fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut polled, Some(&longest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = polled[0].revents().contains(PollFlags::IN);
        let hung_up = polled[1..].iter().any(|fd| fd.revents() == PollFlags::HUP);
        match self {
            Self::Recorder(recorder, _) => recorder.drain(),
            Self::Output(output) => output.read(|_| ()),
        }
        if hung_up && !ended {
            // A closed pipe is always ready; the end of the program is what is left to wait for.
            let mut polled = [PollFd::new(process, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&longest)).unwrap_or(0);
            return Ok(ready > 0);
        }
        Ok(ended)
    }
}

/// A pipe that no child inherits.
pub(crate) fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, timeout: Duration) -> Ended {
        let job = Job::shell(line, timeout, Arc::default());
        job.run_in(Path::new("/"), None).unwrap()
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_job_tells_how_it_ended_and_what_it_said() {
        let ended = run("echo out; echo err >&2; exit 3", LONG);
        assert_eq!((ended.how, ended.output.as_str()), (How::Exit(3), "out\nerr"));
        assert_eq!(run("kill -9 $$", LONG).how, How::Signal(9));
        assert_eq!(run("exec >&- 2>&-; true", LONG).how, How::Success);
    }

    #[test]
    fn a_job_that_never_ends_is_ended() {
        assert_eq!(run("sleep 600", Duration::from_millis(50)).how, How::TimedOut);
        let job = Job::shell("sleep 600", LONG, Arc::new(AtomicBool::new(true)));
        assert_eq!(job.run_in(Path::new("/"), None).unwrap().how, How::Stopped);
    }

    #[test]
    fn processes_that_are_left_are_reported_and_ended() {
        let ended = run("sleep 600 & echo $!", LONG);
        assert!(ended.left_processes);
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", ended.output)).ok();
        let gone = |stat: Option<String>| stat.is_none_or(|stat| stat.contains(") Z "));
        while !gone(state()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!run("true", LONG).left_processes);
    }

    /// One that left the process group and closed its output, as a daemon does.
    #[test]
    fn a_daemon_that_is_left_is_reported_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let line = "setsid sh -c 'echo $$ > daemon.new; mv daemon.new daemon; exec >/dev/null 2>&1; \
                    exec sleep 600' & until [ -e daemon ]; do sleep 0.01; done";
        let ended = Job::shell(line, LONG, Arc::default()).run_in(dir.path(), None).unwrap();
        assert!(ended.left_processes && ended.how == How::Success, "{ended:?}");
        let daemon = std::fs::read_to_string(dir.path().join("daemon")).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.trim()));
        assert!(stat.is_err() || stat.unwrap().contains(") Z "), "{daemon} runs");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let words = vec!["/no/such/program".into()];
        let job = Job { words, ..Job::shell("", LONG, Arc::default()) };
        let error = job.run_in(Path::new("/"), None).unwrap_err().to_string();
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
