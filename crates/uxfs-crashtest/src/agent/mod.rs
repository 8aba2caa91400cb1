//! The first process in a virtual machine: it mounts the disk under test, runs programs and checks, and reports.
//!
//! 1. It does what the host orders, one order at a time, and ends with the machine.
//! 2. The host's root is read-only here. What programs may write is the volume, and /dev/shm and /run, which are
//!    in memory.
//!
//! Modules, from the bottom: `post` (messages), `seen` (what stat says), `volume` (mounts, trees), `ears` (what a
//! program says), `calls` (what a system call did), `changes` (what a sync covers), `tracer`.

mod calls;
mod changes;
mod ears;
mod post;
mod seen;
mod tracer;
mod volume;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use crate::job::Job;
use crate::kernel::message::{DISK_SERIAL, MAILBOX_SERIAL, Order, Program, Report};
use post::Post;
use tracer::Tracer;
use volume::Volume;

/// How long the kernel may take to find its disks.
const DISKS: Duration = Duration::from_secs(10);

/// Serves the host, as the first process of a virtual machine. Returns if that fails.
///
/// # Errors
/// This is no such machine, or its host is gone.
pub fn serve_as_init() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::other("this is for the first process of a virtual machine"));
    }
    prepare()?;
    let mut post = Post::open(&disk(MAILBOX_SERIAL)?)?;
    let mut agent = Agent { disk: disk(DISK_SERIAL)?, volume: None };
    post.send(&ready()?)?;
    loop {
        let order = post.receive()?;
        let report = agent.obey(order, &mut post);
        post.send(&report.unwrap_or_else(|error| Report::Refused(error.to_string())))?;
        reap();
    }
}

struct Agent {
    disk: PathBuf,
    volume: Option<Volume>,
}

impl Agent {
    fn obey(&mut self, order: Order, post: &mut Post) -> io::Result<Report> {
        match order {
            Order::Mount { fs, options, at } => {
                let at = PathBuf::from(OsString::from_vec(at));
                self.volume = Some(Volume::mount(&self.disk, &fs, &options, &at)?);
                Ok(Report::Done)
            }
            Order::Own { user, group } => {
                let root = self.root()?.to_owned();
                std::os::unix::fs::chown(root, Some(user), Some(group))?;
                Ok(Report::Done)
            }
            Order::Tree => self.mounted()?.tree().map(Report::Tree),
            Order::Run(program) => self.run(program, self.root()?),
            Order::Trace(program, pace) => {
                let tracer = Tracer::new(self.mounted()?, pace, post)?;
                tracer.run(&program).map(Report::Ended)
            }
            Order::Unmount => {
                self.mounted()?.unmount()?;
                self.volume = None;
                Ok(Report::Done)
            }
            Order::Inspect(mut program) => {
                let disk = self.disk.clone().into_os_string().into_vec();
                program.words.iter_mut().filter(|word| **word == b"%").for_each(|word| {
                    word.clone_from(&disk);
                });
                self.run(program, Path::new("/"))
            }
        }
    }

    fn run(&self, program: Program, dir: &Path) -> io::Result<Report> {
        let ended = job(program).run_in(dir, None);
        ended.map(Report::Ended).map_err(|error| io::Error::other(error.to_string()))
    }

    fn mounted(&self) -> io::Result<&Volume> {
        self.volume.as_ref().ok_or_else(|| io::Error::other("nothing is mounted"))
    }

    fn root(&self) -> io::Result<&Path> {
        self.mounted().map(Volume::at)
    }
}

/// A program as a job.
fn job(program: Program) -> Job {
    let text = OsString::from_vec;
    Job {
        words: program.words.into_iter().map(text).collect(),
        env: program.env.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
        timeout: program.timeout,
        stop: Arc::default(),
        ack: None,
        owner: (program.user != 0).then_some((program.user, program.group)),
    }
}

/// Mounts what programs expect.
fn prepare() -> io::Result<()> {
    for (fs, at, options) in [
        ("proc", "/proc", c""),
        ("sysfs", "/sys", c""),
        ("devtmpfs", "/dev", c""),
        ("tmpfs", "/dev/shm", c"mode=1777"),
        ("tmpfs", "/run", c"mode=0755"),
    ] {
        if at == "/dev/shm" {
            std::fs::create_dir_all(at)?;
        }
        match mount(fs, at, fs, MountFlags::empty(), options) {
            // The kernel may have mounted it.
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(error) => return Err(about(at, error.into())),
        }
    }
    for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let link = format!("/dev/{name}");
        match std::os::unix::fs::symlink(format!("/proc/self/fd{target}"), &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(about(&link, error));
            }
            _ => {}
        }
    }
    // The clock writes nothing: what is written is what programs and paces ask for.
    let writeback = "/proc/sys/vm/dirty_writeback_centisecs";
    match std::fs::write(writeback, "0") {
        // This kernel has no such setting, and writes after seconds.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| about(writeback, error)),
    }
}

fn about(path: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The disk with this serial number.
fn disk(serial: &str) -> io::Result<PathBuf> {
    let until = Instant::now() + DISKS;
    loop {
        for entry in std::fs::read_dir("/sys/block")? {
            let entry = entry?;
            let found = std::fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
            if found.trim_end_matches(['\0', '\n']) == serial {
                return Ok(Path::new("/dev").join(entry.file_name()));
            }
        }
        if Instant::now() > until {
            return Err(io::Error::other(format!("there is no disk {serial}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ready() -> io::Result<Report> {
    let known = std::fs::read_to_string("/proc/filesystems")?;
    let names = known.lines().filter_map(|line| line.split_whitespace().last());
    Ok(Report::Ready { file_systems: names.map(str::to_owned).collect() })
}

/// Takes the status of processes that programs left behind.
fn reap() {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
