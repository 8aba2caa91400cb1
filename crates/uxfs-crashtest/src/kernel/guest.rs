//! A running machine, with the disk under test and a mailbox.
//!
//! 1. The kernel and its processes are one process group, which is killed when the guest is dropped. If this
//!    process is killed, the kernel dies with it.
//! 2. An order is answered within its limit of time, or the guest is lost: it stopped, or hangs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use uxfs_disk::BlockDev;
use uxfs_vhost_blk::{Access, Host, Socket, Stopper};

use super::machine::{Kernel, Start};
use super::mailbox::{Listener, Mailbox};
use super::message::{DISK_SERIAL, MAILBOX_SERIAL, Order, Report};
use super::slot::Slot;

/// How often a wait looks whether the kernel still runs.
const LOOK: Duration = Duration::from_millis(100);
/// How long a kernel may take until its agent is there.
const BOOT: Duration = Duration::from_secs(60);
/// Characters of the console that are kept for a report.
const TAIL: usize = 2000;

/// Why an order got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The kernel stopped; the end of its console.
    Stopped(String),
    Hangs(Duration),
    /// The caller wanted no answer any more.
    Cancelled,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped(console) => write!(f, "the kernel stopped:\n{console}"),
            Self::Hangs(time) => write!(f, "the kernel gave no answer in {} s", time.as_secs()),
            Self::Cancelled => f.write_str("it was interrupted"),
        }
    }
}

pub(crate) struct Guest {
    process: Running,
    mailbox: Arc<Mailbox>,
    slot: Arc<Slot>,
    console: PathBuf,
    // They end after the process.
    _servers: Vec<Server>,
    _dir: TempDir,
}

impl Guest {
    /// Boots a machine whose agent is this program with these arguments. Returns the file systems that its
    /// kernel has, too.
    ///
    /// # Errors
    /// Why it does not come up.
    pub(crate) fn boot(
        kernel: &Kernel,
        agent: &[OsString],
        disk: Arc<dyn BlockDev>,
    ) -> Result<(Self, Vec<String>), String> {
        let dir = tempfile::Builder::new().prefix("uxfs-guest-").tempdir();
        let dir = dir.map_err(|error| format!("no temporary directory: {error}"))?;
        let guest = Self::start(kernel, agent, disk, dir).map_err(|error| error.to_string())?;
        match guest.answer(kernel.machine.patience(BOOT), &|| false) {
            Ok(Report::Ready { file_systems }) => Ok((guest, file_systems)),
            Ok(other) => Err(format!("the agent said: {other:?}")),
            Err(lost) => Err(lost.to_string()),
        }
    }

    fn start(
        kernel: &Kernel,
        agent: &[OsString],
        disk: Arc<dyn BlockDev>,
        dir: TempDir,
    ) -> io::Result<Self> {
        let at = |name: &str| dir.path().join(name);
        let mailbox = Arc::new(Mailbox::default());
        let slot = Arc::new(Slot::new(disk));
        let (program, arguments) = agent.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        symlink(program, at("agent"))?;
        let sockets = [at("mailbox"), at("disk")];
        let served: [(Arc<dyn BlockDev>, &str); 2] = [
            (Arc::clone(&mailbox) as Arc<dyn BlockDev>, MAILBOX_SERIAL),
            (Arc::clone(&slot) as Arc<dyn BlockDev>, DISK_SERIAL),
        ];
        let servers = sockets.iter().zip(served).map(|(socket, (dev, serial))| {
            Server::start(Host::new(dev, serial, Socket::bind(socket, Access::default())?)?)
        });
        let servers = servers.collect::<io::Result<Vec<_>>>()?;
        let console = at("console");
        let start = Start {
            dir: dir.path(),
            disks: &sockets,
            init: &at("agent"),
            arguments,
            console: File::create(&console)?.into(),
        };
        let process = Running::start(kernel.command(start))?;
        Ok(Self { process, mailbox, slot, console, _servers: servers, _dir: dir })
    }

    /// Puts another disk in. Nothing is mounted.
    pub(crate) fn put(&self, disk: Arc<dyn BlockDev>) {
        self.slot.put(disk);
    }

    pub(crate) fn set_listener(&self, listener: Option<Arc<dyn Listener>>) {
        self.mailbox.set_listener(listener);
    }

    /// Gives an order, and waits for the answer.
    pub(crate) fn ask(
        &self,
        order: &Order,
        longest: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Report, Lost> {
        self.mailbox.send(order).map_err(Lost::Stopped)?;
        self.answer(longest, cancelled)
    }

    fn answer(&self, longest: Duration, cancelled: &dyn Fn() -> bool) -> Result<Report, Lost> {
        let until = Instant::now() + longest;
        loop {
            if let Some(report) = self.mailbox.wait(LOOK) {
                return Ok(report);
            }
            if cancelled() {
                return Err(Lost::Cancelled);
            }
            if !self.process.runs() {
                // The answer may have come before the end.
                let report = self.mailbox.wait(Duration::ZERO);
                return report.ok_or_else(|| Lost::Stopped(self.last_words()));
            }
            if Instant::now() >= until {
                return Err(Lost::Hangs(longest));
            }
        }
    }

    /// The end of the console.
    pub(crate) fn last_words(&self) -> String {
        let bytes = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]);
        text.replace('\r', "").trim().to_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.process.kill();
        self.mailbox.close();
    }
}

/// The kernel's process.
struct Running {
    child: Mutex<Child>,
    /// Ends the thread that started it. The process is killed when this thread ends, as it is with this process.
    _starter: Sender<()>,
}

impl Running {
    fn start(mut command: Command) -> io::Result<Self> {
        let (child, started) = channel();
        let (starter, end) = channel::<()>();
        std::thread::Builder::new().name("crash-test-kernel".into()).spawn(move || {
            // Both fail only when the other side has gone.
            let _ = child.send(command.process_group(0).spawn());
            let _ = end.recv();
        })?;
        let child = started.recv().map_err(io::Error::other)??;
        Ok(Self { child: Mutex::new(child), _starter: starter })
    }

    fn runs(&self) -> bool {
        matches!(self.child.lock().try_wait(), Ok(None))
    }

    fn kill(&self) {
        let mut child = self.child.lock();
        // Both fail only if everything has ended already.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
    }
}

/// A thread that serves a disk.
struct Server {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(host: Host) -> io::Result<Self> {
        let stopper = host.stopper();
        // A machine that breaks the protocol is one that stops.
        let serve = move || while host.serve_one().is_ok_and(|served| served) {};
        let thread = std::thread::Builder::new().name("crash-test-disk".into()).spawn(serve)?;
        Ok(Self { stopper, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }
}
