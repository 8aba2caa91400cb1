//! Runs a program for a recording: stops it after each call that changes a file, makes one durable, or may
//! acknowledge, and reports that before it goes on.
//!
//! 1. When a call that wrote to a pipe or a socket has returned to the program, what it acknowledged is
//!    recorded. So nothing that the acknowledgement caused is recorded before it.
//! 2. What a call did is recorded after it has returned, and before the program does the next.
//! 3. Stores into a mapping of a file are found by comparing its content, when the program acknowledges or begins
//!    to sync. They are reported before that. A sync covers what was there when it began ([`Changes`]).
//! 4. When [`Tracer::run`] returns, no process of the program is left.
//!
//! It uses ptrace(2), so it sees programs that are linked statically, too. A program that traces others itself, or
//! that writes through io_uring or AIO, is recorded without these operations.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::Advice;

use super::calls::{Begun, Call, Done};
use super::changes::Changes;
use super::ears::Ears;
use super::post::Post;
use super::seen::Seen;
use super::volume::{Volume, open};
use crate::job::{Ended, How, pipe};
use crate::kernel::message::{Pace, Program, Report};
use crate::operations::{Action, Operation};
use crate::tree::BYTES_MAX;

/// It waits until it is traced, and becomes the program.
const WAIT: &str = r#"read -r _ && exec "$@" </dev/null"#;

/// What `PTRACE_GETEVENTMSG` says of a stop at a call.
const CALL_BEGINS: libc::c_long = 1;
const CALL_ENDS: libc::c_long = 2;

pub(crate) struct Tracer<'a> {
    volume: &'a Volume,
    pace: Pace,
    post: &'a mut Post,
    /// A file without a name. A sync of it writes the journal.
    pulse: Option<File>,
    mappings: Vec<Mapping>,
    threads: BTreeMap<Pid, Thread>,
    changes: Changes,
}

/// A thread of the program.
struct Thread {
    process: u32,
    in_call: bool,
    call: Option<Begun>,
    /// Changes that were recorded when the call began.
    began: u64,
}

/// A file that is mapped, and its content when it was looked at last.
struct Mapping {
    ino: u64,
    file: File,
    content: Vec<u8>,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(volume: &'a Volume, pace: Pace, post: &'a mut Post) -> io::Result<Self> {
        let nameless = || {
            let mut options = OpenOptions::new();
            options.write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
            options.open(volume.at())
        };
        let pulse = (pace == Pace::Names).then(nameless).transpose()?;
        let (mappings, threads, changes) = (Vec::new(), BTreeMap::new(), Changes::default());
        Ok(Self { volume, pace, post, pulse, mappings, threads, changes })
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// It cannot be started or traced.
    pub(crate) fn run(mut self, program: &Program) -> io::Result<Ended> {
        let ((acks, acks_end), (output, output_end)) = (pipe()?, pipe()?);
        let ears = Ears::new(acks, output)?;
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WAIT, "sh"]).args(program.words.iter().map(text));
        command.env_clear();
        command.envs(program.env.iter().map(|(name, value)| (text(name), text(value))));
        // The program inherits this one, which is closed here as soon as it has started.
        let inherited = rustix::io::dup(&acks_end)?;
        drop(acks_end);
        command.env("UXFS_ACK", inherited.as_raw_fd().to_string());
        command.current_dir(self.volume.at()).process_group(0);
        let both = output_end.try_clone()?;
        command.stdin(Stdio::piped()).stdout(output_end).stderr(both);
        if program.user != 0 {
            command.uid(program.user).gid(program.group);
        }
        let mut child = command.spawn()?;
        drop((inherited, command));
        let main = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let stdin = child.stdin.take();
        std::thread::scope(|scope| {
            scope.spawn(|| ears.listen());
            let ended = self.begin(main).and_then(|()| {
                let mut stdin = stdin.ok_or(io::ErrorKind::BrokenPipe)?;
                stdin.write_all(b"\n")?;
                drop(stdin);
                self.follow(main, &ears)
            });
            ears.end();
            if ended.is_err() {
                // It fails if the program has ended.
                let _ = child.kill();
            }
            ended
        })
    }

    /// Begins to trace the waiting child.
    fn begin(&mut self, main: Pid) -> io::Result<()> {
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(main, options)?;
        ptrace::interrupt(main)?;
        waitpid(main, Some(WaitPidFlag::__WALL))?;
        self.threads.insert(main, Thread::new(main));
        Ok(ptrace::syscall(main, None)?)
    }

    /// Follows the program to its end.
    fn follow(&mut self, main: Pid, ears: &Ears) -> io::Result<Ended> {
        let mut how = None;
        let mut left_processes = false;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::__WALL)) {
            match status {
                WaitStatus::PtraceSyscall(thread) => {
                    self.stopped_at_call(thread, ears)?;
                    resume(thread, None);
                }
                WaitStatus::PtraceEvent(thread, _, event) => {
                    if event == libc::PTRACE_EVENT_EXEC {
                        // A thread that is not the first takes the first one's number.
                        let was =
                            ptrace::getevent(thread).ok().and_then(|id| i32::try_from(id).ok());
                        if let Some(was) = was.map(Pid::from_raw).filter(|was| *was != thread) {
                            self.threads.remove(&was);
                        }
                    }
                    self.threads.entry(thread).or_insert_with(|| Thread::new(thread));
                    resume(thread, None);
                }
                WaitStatus::Stopped(thread, signal) => resume(thread, Some(signal)),
                WaitStatus::Exited(thread, code) => {
                    how = how.or(self.ended(thread, main, How::exit(code)));
                }
                WaitStatus::Signaled(thread, signal, _) => {
                    how = how.or(self.ended(thread, main, How::Signal(signal as i32)));
                }
                _ => {}
            }
            if how.is_some() && !self.threads.is_empty() && !left_processes {
                left_processes = true;
                for thread in self.threads.keys() {
                    // It fails if the thread is gone.
                    let _ = kill(*thread, Signal::SIGKILL);
                }
            }
        }
        self.look_at_mappings()?;
        self.forward(ears)?;
        let how = how.unwrap_or(How::Signal(0));
        Ok(Ended { how, output: String::new(), left_processes })
    }

    fn ended(&mut self, thread: Pid, main: Pid, how: How) -> Option<How> {
        self.threads.remove(&thread);
        (thread == main).then_some(how)
    }

    /// A thread has stopped where a call begins, or where it ends.
    fn stopped_at_call(&mut self, id: Pid, ears: &Ears) -> io::Result<()> {
        let thread = self.threads.entry(id).or_insert_with(|| Thread::new(id));
        thread.in_call = match ptrace::getevent(id) {
            Ok(CALL_BEGINS) => true,
            Ok(CALL_ENDS) => false,
            // Kernels before 5.3 do not tell.
            _ => !thread.in_call,
        };
        let Ok(call) = Call::of(id) else {
            // What was said may be anything.
            return self.forward(ears);
        };
        if thread.in_call {
            thread.call = Begun::of(&call, id, self.volume);
            let is_sync = thread.call.as_ref().is_some_and(Begun::is_sync);
            if is_sync {
                self.look_at_mappings()?;
            }
            let began = self.changes.now();
            self.threads.entry(id).and_modify(|thread| thread.began = began);
            return Ok(());
        }
        let Some(begun) = thread.call.take().filter(|_| call.result >= 0) else { return Ok(()) };
        let (process, began) = (thread.process, thread.began);
        // A file that went away meanwhile is not followed.
        let done = begun.did(&call, id, self.volume).unwrap_or_default();
        self.report(done, process, began, ears)
    }

    fn report(&mut self, done: Done, process: u32, began: u64, ears: &Ears) -> io::Result<()> {
        if done.spoke {
            self.look_at_mappings()?;
        }
        if done.spoke {
            return self.forward(ears);
        }
        if let Some(path) = &done.mapped {
            self.remember(path)?;
        }
        let names = done.actions.iter().any(changes_names);
        for what in done.actions {
            self.forward(ears)?;
            self.note(&what);
            for what in self.changes.seen(what, began) {
                self.post.send(&Report::Did(Operation { pid: process, what }))?;
            }
        }
        match (self.pace, &done.wrote) {
            (Pace::Names, _) if names => self.write_journal(),
            (Pace::Data, Some(path)) => {
                let file = open(path)?;
                // The kernel begins to write what it is advised to forget.
                Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
            }
            _ => Ok(()),
        }
    }

    /// Reports what the program has said.
    fn forward(&mut self, ears: &Ears) -> io::Result<()> {
        let [acks, output] = ears.take();
        if acks.is_empty() && output.is_empty() {
            return Ok(());
        }
        self.post.send(&Report::Heard { acks, output })
    }

    /// Has the journal written, with all changes of names so far, and no data that is not.
    fn write_journal(&self) -> io::Result<()> {
        let Some(pulse) = &self.pulse else { return Ok(()) };
        pulse.write_all_at(b"x", 0)?;
        pulse.sync_all()
    }

    /// Keeps the content of a file that is mapped.
    fn remember(&mut self, path: &Path) -> io::Result<()> {
        let seen = Seen::followed(path)?;
        let known = self.mappings.iter().any(|mapping| mapping.ino == seen.ino);
        if known || !seen.is_file() || seen.size > BYTES_MAX {
            return Ok(());
        }
        let file = open(path)?;
        let content = whole(&file)?;
        self.mappings.push(Mapping { ino: seen.ino, file, content });
        Ok(())
    }

    /// Keeps in mind what a call changed in a file that is mapped, too.
    fn note(&mut self, what: &Action) {
        let changed = match what {
            Action::Written { ino, .. } | Action::Resized { ino, .. } => *ino,
            Action::Zeroed { ino, .. } => *ino,
            _ => return,
        };
        for mapping in self.mappings.iter_mut().filter(|mapping| mapping.ino == changed) {
            mapping.content = whole(&mapping.file).unwrap_or_default();
        }
    }

    /// Reports what was stored into mappings since the last look.
    fn look_at_mappings(&mut self) -> io::Result<()> {
        let Self { mappings, changes, post, .. } = self;
        for mapping in mappings {
            let now = whole(&mapping.file)?;
            let old = &mapping.content;
            let differs = |at: &usize| old.get(*at) != now.get(*at);
            let first = (0..now.len()).find(differs);
            let last = (0..now.len()).rev().find(differs);
            if let (Some(first), Some(last)) = (first, last) {
                let data = Arc::from(&now[first..=last]);
                let (ino, offset) = (mapping.ino, first as u64);
                let what = Action::Written { ino, offset, data, mapped: true };
                for what in changes.seen(what, 0) {
                    post.send(&Report::Did(Operation { pid: 0, what }))?;
                }
            }
            mapping.content = now;
        }
        Ok(())
    }
}

impl Thread {
    fn new(id: Pid) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let process = process.and_then(|text| text.trim().parse().ok());
        Self {
            process: process.unwrap_or(id.as_raw().unsigned_abs()),
            in_call: false,
            call: None,
            began: 0,
        }
    }
}

/// Lets a thread go on, to its next call. It fails if the thread was killed meanwhile.
fn resume(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}

fn changes_names(what: &Action) -> bool {
    !matches!(
        what,
        Action::Written { .. }
            | Action::Zeroed { .. }
            | Action::TooLong { .. }
            | Action::Copied { .. }
            | Action::Synced { .. }
            | Action::SyncedAll
    )
}

fn whole(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(len.min(BYTES_MAX)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
