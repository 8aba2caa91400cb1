//! A connection from its beginning to its end.
//!
//! 1. When a [`Session`] exists, the kernel and the server have agreed on their settings.
//! 2. The kernel's requests are answered while [`Session::run`] runs. It returns when the mount is
//!    gone.
//! 3. With rings, one thread still reads the device: forgotten inodes, interrupts and everything
//!    before the rings are registered come there. If the kernel refuses a ring, everything comes
//!    there.
//! 4. No request is taken before all threads exist. If one cannot be started the others end, and
//!    with the last descriptor of the device the mount does.
//! 5. A thread of a ring that fails ends the connection: its callers would wait for ever. All
//!    threads then end, and with the last descriptor of the device the kernel gives an error to
//!    everyone who waits.
//! 6. With rings, the reader waits for [`GATHERING`] when two messages in a row were of forgotten inodes: the kernel
//!    then gives many of them at once, and does not wake the reader for each.
//! 7. A [`Stopper`] ends the connection in the same way, also if other namespaces have copies of the mount.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::RwLock;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{Capabilities, InHeader, op};
use crate::count::{Requests, Tally};
use crate::device::{Device, Notifier};
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::handshake::{Handshake, REFUSED, handshake};
use crate::mount::{self, MountOptions};
use crate::negotiation::Negotiation;
use crate::outlet::Outlet;
use crate::ring::{self, Worker};
use crate::stop::Stop;
use crate::{Errno, sys};

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reads and writes of `/dev/fuse`, and why not a ring.
    Device(NoRing),
    /// io_uring, one ring for each processor.
    Ring,
    /// The queues of a virtual machine's device.
    Virtiofs,
}

/// Why requests do not come over io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRing {
    /// [`Settings::ring`] is not set.
    NotWanted,
    /// The kernel does not have FUSE over io_uring.
    NotInKernel,
    /// The kernel has it, and it is not switched on.
    SwitchedOff,
    /// This process may make no rings.
    Forbidden,
    /// The kernel's list of processors cannot be read: each needs a ring.
    Uncounted,
}

/// How long forgotten inodes may gather in the kernel, where the device brings nothing that a caller waits for.
const GATHERING: Duration = Duration::from_millis(2);

/// The parameter of the kernel that switches FUSE over io_uring on.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device(_) => "/dev/fuse",
            Self::Ring => "io_uring",
            Self::Virtiofs => "virtiofs",
        })
    }
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("an option of the mount excludes io_uring"),
            Self::NotInKernel => {
                f.write_str("the kernel has no FUSE over io_uring (Linux 6.14 and later)")
            }
            Self::SwitchedOff => write!(f, "{PARAMETER} is not Y"),
            Self::Forbidden => f.write_str("this process may not use io_uring"),
            Self::Uncounted => write!(f, "{} cannot be read: mount sysfs", ring::POSSIBLE),
        }
    }
}

/// Settings of a connection that do not concern the kernel.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that read the device.
    pub threads: usize,
    /// Use rings where the kernel and the container allow it.
    pub ring: bool,
    /// Let a [`Stopper`] end the connection. It costs a system call for each request of the device.
    pub can_stop: bool,
}

/// A connection to the kernel.
pub struct Session<S> {
    server: Arc<S>,
    device: Arc<Device>,
    settings: Settings,
    negotiation: Negotiation,
    /// Number of rings, or why there are none.
    rings: Result<u16, NoRing>,
    requests: Requests,
    stop: Arc<Stop>,
}

/// Ends a connection.
#[derive(Clone)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// Ends the connection. [`Session::run`] returns as soon as the requests that are answered just now are
    /// done. With those that are answered later the last descriptors are closed; the kernel holds some a moment
    /// longer, since it takes rings apart in the background. Every call to the mount then fails with ENOTCONN,
    /// and one of that moment with ECONNABORTED, also in other mount namespaces.
    pub fn stop(&self) {
        self.0.raise();
    }
}

impl<S: Filesystem> Session<S> {
    /// Mounts on a directory.
    ///
    /// # Errors
    /// Those of the kernel and of `fusermount3`; the server's [`Filesystem::init`].
    pub fn mount(
        server: S,
        dir: &Path,
        options: &MountOptions,
        settings: Settings,
    ) -> io::Result<Self> {
        let device = mount::mount(dir, options)?;
        let (negotiation, rings) = negotiate(&server, &device, &settings)?;
        Ok(Self {
            server: Arc::new(server),
            device: Arc::new(device),
            settings,
            negotiation,
            rings,
            requests: Requests::default(),
            stop: Arc::new(Stop::new()?),
        })
    }

    /// What ends the connection. `None` without [`Settings::can_stop`].
    pub fn stopper(&self) -> Option<Stopper> {
        self.settings.can_stop.then(|| Stopper(Arc::clone(&self.stop)))
    }

    /// What answers the requests.
    pub fn server(&self) -> &Arc<S> {
        &self.server
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        self.rings.map_or_else(Transport::Device, |_| Transport::Ring)
    }

    /// The requests that came, by kind.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// A channel for notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// Number of threads that read the device.
    fn readers(&self) -> usize {
        match self.rings {
            Err(_) => self.settings.threads.max(1),
            Ok(_) => 1,
        }
    }

    /// Number of threads that answer requests.
    pub fn threads(&self) -> usize {
        self.readers() + usize::from(self.rings.unwrap_or(0))
    }

    /// Answers requests until the mount is gone.
    ///
    /// # Errors
    /// The connection fails, or the host starts no thread.
    pub fn run(self) -> io::Result<()> {
        let rings = self.rings.unwrap_or(0);
        if self.settings.can_stop {
            // Threads that share this descriptor would wait in its reads.
            self.device.set_nonblocking()?;
        }
        let workers = (0..rings).map(|number| self.worker(number, rings));
        let readers = (0..self.readers()).map(|number| self.reader(number));
        run_all(workers.chain(readers))
    }

    fn reader(&self, number: usize) -> Task {
        // Otherwise nothing raises it, and waiting for it would cost a system call a request.
        let can_stop = self.rings.is_ok() || self.settings.can_stop;
        let stop = can_stop.then(|| Arc::clone(&self.stop));
        // Where the device cannot be opened again, threads share a descriptor.
        let device = match (number, &stop) {
            (_, Some(_)) => self.device.clone_nonblocking().ok(),
            (0, None) => None,
            (_, None) => self.device.clone_connection().ok(),
        };
        let device = device.map_or_else(|| Arc::clone(&self.device), Arc::new);
        let (server, size) = (Arc::clone(&self.server), self.negotiation.request_size());
        let tally = self.requests.tally();
        let gathers = self.rings.is_ok();
        let run =
            move || read_requests(&*server, &device, (stop.as_deref(), gathers), &tally, size);
        Task {
            thread: std::thread::Builder::new().name(format!("fuse-{number}")),
            run: Box::new(run),
        }
    }

    fn worker(&self, number: u16, rings: u16) -> Task {
        let (server, device) = (Arc::clone(&self.server), Arc::clone(&self.device));
        let stop = Arc::clone(&self.stop);
        let payload = self.negotiation.payload_size();
        let (depth, tally) = (ring::depth(rings), self.requests.tally());
        let run = move || {
            sys::serve_processor(number);
            let mut unless_ended = StopOnDrop(Some(Arc::clone(&stop)));
            Worker::new(device, tally, stop, number, depth, payload)?.run(&*server)?;
            unless_ended.0 = None;
            Ok(())
        };
        let thread = std::thread::Builder::new().name(format!("fuse-ring-{number}"));
        Task { thread, run: Box::new(run) }
    }
}

/// What a thread of the connection does.
struct Task {
    thread: std::thread::Builder,
    run: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// Runs tasks in threads of their own, all of them or none, until all have ended. Returns the first
/// error.
fn run_all(tasks: impl Iterator<Item = Task>) -> io::Result<()> {
    // Threads wait for it until all are started, and then read whether they were.
    let started = Arc::new(RwLock::new(false));
    let mut starting = started.write();
    let mut result = Ok(());
    let mut threads: Vec<JoinHandle<io::Result<()>>> = Vec::new();
    for Task { thread, run } in tasks {
        let started = Arc::clone(&started);
        match thread.spawn(move || if *started.read() { run() } else { Ok(()) }) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let text = format!("a thread of the mount cannot be started: {error}");
                result = Err(io::Error::new(error.kind(), text));
                break;
            }
        }
    }
    *starting = result.is_ok();
    drop(starting);
    // All threads end before the first error is returned.
    for thread in threads {
        let failed = |_| Err(io::Error::other("a thread of the mount failed"));
        result = result.and(thread.join().unwrap_or_else(failed));
    }
    result
}

/// Stops the connection when a thread returns or panics, unless it is emptied before.
struct StopOnDrop(Option<Arc<Stop>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.raise();
        }
    }
}

/// Reads requests and runs them. With `gathers`, pauses after inodes that were forgotten in a row.
fn read_requests(
    server: &impl Filesystem,
    device: &Arc<Device>,
    (stop, gathers): (Option<&Stop>, bool),
    tally: &Tally,
    size: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; size];
    let mut forgot = false;
    while let Some(message) = device.next(&mut buffer, stop)? {
        let head = InHeader::read_from_prefix(message);
        let forgets = head.is_ok_and(|(head, _)| dispatch::is_silent(head.opcode));
        let outlet = |unique| Outlet::Device { device: Arc::clone(device), unique };
        dispatch::run_message(server, message, tally, outlet);
        if gathers
            && forgets
            && forgot
            && let Some(stop) = stop
            && stop.raised_within(GATHERING)?
        {
            break;
        }
        forgot = forgets;
    }
    Ok(())
}

/// Asks for rings if they are wanted and possible, and returns their number. A kernel that could have them has
/// the file `parameter`; `possible` lists the processors.
fn take_rings(
    negotiation: &mut Negotiation,
    settings: &Settings,
    (parameter, possible): (&Path, &Path),
) -> Result<u16, NoRing> {
    if !settings.ring {
        return Err(NoRing::NotWanted);
    }
    let rings = ring::processors(possible).ok_or(NoRing::Uncounted)?;
    match () {
        () if !ring::is_possible() => Err(NoRing::Forbidden),
        () if negotiation.take(Capabilities::OVER_IO_URING).is_empty() => Ok(rings),
        () if parameter.exists() => Err(NoRing::SwitchedOff),
        () => Err(NoRing::NotInKernel),
    }
}

/// Answers the kernel's first request. Returns also whether there are rings.
fn negotiate(
    server: &impl Filesystem,
    device: &Device,
    settings: &Settings,
) -> io::Result<(Negotiation, Result<u16, NoRing>)> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let gone = || io::Error::other("the mount ended before it was used");
        let message = device.next(&mut buffer, None)?.ok_or_else(gone)?;
        let (head, body) = InHeader::read_from_prefix(message)
            .map_err(|_| io::Error::other("the kernel's first request is cut short"))?;
        if head.opcode != op::INIT {
            device.reply(head.unique, Err(Errno::IO), &[]);
            continue;
        }
        let mut negotiation = match handshake(server, body) {
            Ok(Handshake::Begun(negotiation)) => negotiation,
            Ok(Handshake::Again(ours)) => {
                device.reply(head.unique, Ok(()), &[ours.as_bytes()]);
                continue;
            }
            Err(error) => {
                device.reply(head.unique, Err(REFUSED), &[]);
                return Err(error);
            }
        };
        let files = (Path::new(PARAMETER), Path::new(ring::POSSIBLE));
        let rings = take_rings(&mut negotiation, settings, files);
        device.reply(head.unique, Ok(()), &[negotiation.reply().as_bytes()]);
        return Ok((negotiation, rings));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::abi::InitIn;

    /// A task that counts itself, in a thread with so many bytes of stack.
    fn counting(count: &Arc<AtomicUsize>, stack: usize) -> Task {
        let count = Arc::clone(count);
        let run = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        Task { thread: std::thread::Builder::new().stack_size(stack), run: Box::new(run) }
    }

    #[test]
    fn if_one_thread_cannot_be_started_none_takes_requests() {
        /// More than an address space has.
        const IMPOSSIBLE: usize = 1 << 60;
        let count = Arc::new(AtomicUsize::new(0));
        let tasks = [1 << 20, 1 << 20, IMPOSSIBLE, 1 << 20].map(|stack| counting(&count, stack));
        let error = run_all(tasks.into_iter()).unwrap_err();
        assert!(error.to_string().contains("cannot be started"), "{error}");
        // Those that were started have ended.
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&count)), (0, 1));
        let tasks = [1 << 20; 3].map(|stack| counting(&count, stack));
        run_all(tasks.into_iter()).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_kernel_that_does_not_offer_rings_is_told_from_one_that_has_none() {
        let reason = |parameter: &str| {
            let mut offers_nothing = Negotiation::new(&InitIn::default());
            let settings = Settings { threads: 1, ring: true, can_stop: false };
            let files = (Path::new(parameter), Path::new(ring::POSSIBLE));
            take_rings(&mut offers_nothing, &settings, files)
        };
        let expected = match ring::is_possible() {
            true => [NoRing::SwitchedOff, NoRing::NotInKernel],
            false => [NoRing::Forbidden; 2],
        };
        assert_eq!([reason("/"), reason("/none")], expected.map(Err));
        assert!(NoRing::SwitchedOff.to_string().contains(PARAMETER));
    }

    /// With a ring too few the kernel lets every request wait for ever.
    #[test]
    fn there_are_no_rings_where_processors_cannot_be_counted() {
        for (list, count) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0,2-7\n", Some(8)),
            ("", None),
            ("0-65535", None),
            ("none", None),
        ] {
            assert_eq!(ring::counted(list), count, "{list:?}");
        }
        assert_eq!(ring::processors(Path::new("/none")), None);
        assert!(ring::processors(Path::new(ring::POSSIBLE)).is_some());
        let mut offers = Negotiation::new(&InitIn::default());
        let files = (Path::new(PARAMETER), Path::new("/none"));
        let settings = Settings { threads: 1, ring: true, can_stop: false };
        assert_eq!(take_rings(&mut offers, &settings, files), Err(NoRing::Uncounted));
        assert!(NoRing::Uncounted.to_string().contains(ring::POSSIBLE));
    }
}
