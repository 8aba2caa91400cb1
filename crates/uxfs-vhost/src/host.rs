//! Serves guests, one after the other, until it is stopped. Each connection has a device of its own.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{
    Error as DaemonError, ShutdownHandle, VhostUserBackend, VhostUserDaemon, VringMutex,
};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::socket::Socket;

/// The memory of a guest, as its monitor has handed it over by now.
pub type Memory = GuestMemoryAtomic<GuestMemoryMmap>;
/// A queue of a device, as its monitor has set it up.
pub type Vring = VringMutex<Memory>;

/// The device of one connection.
pub trait Device: VhostUserBackend<Bitmap = (), Vring = Vring> + Send + Sync + 'static {
    /// Has a monitor begun to use it? A process that only tests whether the socket accepts connections
    /// has not.
    fn was_used(&self) -> bool;

    /// Ends what the guest has left under way. Called once, when the monitor has disconnected.
    fn end(&self);
}

/// Ends the connection to a guest: on request, or because the guest breaks the rules.
pub struct Stop {
    is_set: AtomicBool,
    why: Mutex<Option<String>>,
    connection: Mutex<Option<ShutdownHandle>>,
}

impl Stop {
    /// A connection that goes on.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (why, connection) = (Mutex::default(), Mutex::default());
        Arc::new(Self { is_set: AtomicBool::new(false), why, connection })
    }

    /// Is the connection to end?
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Ends the connection because of an error. The first one is reported.
    pub fn fail(&self, why: String) {
        self.why.lock().get_or_insert(why);
        self.end();
    }

    fn end(&self) {
        let connection = self.connection.lock();
        self.is_set.store(true, Ordering::Release);
        if let Some(connection) = &*connection {
            connection.shutdown();
        }
    }

    /// Sets the connection, and ends it if that was asked for before.
    fn set_connection(&self, handle: Option<ShutdownHandle>) {
        *self.connection.lock() = handle;
        if self.is_set() {
            self.end();
        }
    }
}

/// Stops a [`Host`] from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

struct Shared {
    is_stopped: AtomicBool,
    /// One end is shut down when it is stopped, which wakes who waits at the other.
    wakes: UnixStream,
    waits: UnixStream,
    guest: Mutex<Option<Arc<Stop>>>,
}

impl Stopper {
    /// Ends the connection to a guest, and accepts no further one.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
        // It fails only if it was done before.
        let _ = self.0.wakes.shutdown(std::net::Shutdown::Both);
        if let Some(guest) = &*self.0.guest.lock() {
            guest.end();
        }
    }
}

/// Serves guests that connect to a socket.
pub struct Host<F> {
    name: String,
    make: F,
    socket: Socket,
    shared: Arc<Shared>,
}

impl<F, D> Host<F>
where
    F: Fn(&Memory, &Arc<Stop>) -> io::Result<D>,
    D: Device,
{
    /// A host whose connections each get a device of `make`. Its threads have names that begin with `name`.
    ///
    /// # Errors
    /// This machine has no descriptor left.
    pub fn new(name: &str, socket: Socket, make: F) -> io::Result<Self> {
        let (wakes, waits) = UnixStream::pair()?;
        let (is_stopped, guest) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { is_stopped, wakes, waits, guest });
        Ok(Self { name: name.to_owned(), make, socket, shared })
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Waits for a guest and serves it until its monitor disconnects or the host is stopped. Returns false
    /// if it was stopped.
    ///
    /// # Errors
    /// The guest or its monitor broke the rules, or this machine failed.
    pub fn serve_one(&self) -> io::Result<bool> {
        while self.wait_for_connection()? {
            if self.serve_connection()? {
                break;
            }
        }
        Ok(!self.is_stopped())
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// Returns false if it was stopped.
    fn wait_for_connection(&self) -> io::Result<bool> {
        while !self.is_stopped() {
            let wanted = PollFlags::IN;
            let mut ready = [
                PollFd::from_borrowed_fd(self.socket.listener().as_fd(), wanted),
                PollFd::from_borrowed_fd(self.shared.waits.as_fd(), wanted),
            ];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(other) => return Err(other.into()),
                Ok(_) if ready[0].revents().contains(wanted) => return Ok(!self.is_stopped()),
                Ok(_) => {}
            }
        }
        Ok(false)
    }

    /// Serves one connection. Returns whether a monitor used it.
    fn serve_connection(&self) -> io::Result<bool> {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let stop = Stop::new();
        *self.shared.guest.lock() = Some(Arc::clone(&stop));
        let device = Arc::new((self.make)(&memory, &stop)?);
        let served = self.run_device(&device, memory, &stop);
        *self.shared.guest.lock() = None;
        device.end();
        let why = stop.why.lock().take();
        match (why, served) {
            (Some(why), _) => Err(io::Error::other(why)),
            (None, Err(_)) if self.is_stopped() => Ok(true),
            (None, served) => served.map(|()| device.was_used()),
        }
    }

    fn run_device(&self, device: &Arc<D>, memory: Memory, stop: &Stop) -> io::Result<()> {
        let other = |error: DaemonError| io::Error::other(error.to_string());
        let mut listener = Listener::from(self.socket.listener().try_clone()?);
        let mut daemon =
            VhostUserDaemon::new(self.name.clone(), Arc::clone(device), memory).map_err(other)?;
        daemon.start(&mut listener).map_err(other)?;
        stop.set_connection(daemon.shutdown_handle());
        if self.is_stopped() {
            stop.end();
        }
        let ended = daemon.wait();
        stop.set_connection(None);
        // The threads of the queues end with the daemon, also those of a guest whose queue is never empty.
        stop.end();
        match ended {
            Ok(())
            | Err(DaemonError::HandleRequest(
                ProtocolError::Disconnected | ProtocolError::PartialMessage,
            )) => Ok(()),
            Err(error) => Err(other(error)),
        }
    }
}
