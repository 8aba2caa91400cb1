//! Serves guests, one after the other, until it is stopped.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use uxfs_transport::{Filesystem, Requests};
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::device::{Device, Settings};
use crate::socket::Socket;

/// Ends the connection to a guest: on request, or because the guest breaks the rules.
pub(crate) struct Stop {
    is_set: AtomicBool,
    why: Mutex<Option<String>>,
    connection: Mutex<Option<ShutdownHandle>>,
}

impl Stop {
    fn new() -> Arc<Self> {
        let (why, connection) = (Mutex::default(), Mutex::default());
        Arc::new(Self { is_set: AtomicBool::new(false), why, connection })
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Ends the connection because of an error. The first one is reported.
    pub(crate) fn fail(&self, why: String) {
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
pub struct Host<S> {
    server: Arc<S>,
    socket: Socket,
    settings: Settings,
    requests: Requests,
    shared: Arc<Shared>,
}

impl<S: Filesystem> Host<S> {
    /// # Errors
    /// This machine has no descriptor left.
    pub fn new(server: S, socket: Socket, settings: Settings) -> io::Result<Self> {
        let (wakes, waits) = UnixStream::pair()?;
        let (is_stopped, guest) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { is_stopped, wakes, waits, guest });
        let (server, requests) = (Arc::new(server), Requests::default());
        Ok(Self { server, socket, settings, requests, shared })
    }

    /// The requests that came, by kind.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

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
                PollFd::from_borrowed_fd(self.socket.listener.as_fd(), wanted),
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
        let server = (Arc::clone(&self.server), &self.requests);
        let device = Device::new(server, &self.settings, &memory, &stop)?;
        let device = Arc::new(device);
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

    fn run_device(
        &self,
        device: &Arc<Device<S>>,
        memory: GuestMemoryAtomic<GuestMemoryMmap>,
        stop: &Stop,
    ) -> io::Result<()> {
        let other = |error: DaemonError| io::Error::other(error.to_string());
        let mut listener = Listener::from(self.socket.listener.try_clone()?);
        let mut daemon =
            VhostUserDaemon::new("virtiofs".into(), Arc::clone(device), memory).map_err(other)?;
        daemon.start(&mut listener).map_err(other)?;
        stop.set_connection(daemon.shutdown_handle());
        if self.is_stopped() {
            stop.end();
        }
        let ended = daemon.wait();
        stop.set_connection(None);
        match ended {
            Ok(())
            | Err(DaemonError::HandleRequest(
                ProtocolError::Disconnected | ProtocolError::PartialMessage,
            )) => Ok(()),
            Err(error) => Err(other(error)),
        }
    }
}
