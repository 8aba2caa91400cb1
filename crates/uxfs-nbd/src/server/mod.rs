//! The server: a device for NBD clients.
//!
//! 1. A client can read and, unless the server is read-only, write the whole device, and nothing else.
//! 2. Memory is bounded for all clients together ([`budget`]), threads and connections in number. A client
//!    that stands still in the middle of a message is disconnected.
//! 3. A flush from any client covers what was answered to all of them before (`CAN_MULTI_CONN`).
//! 4. [`Server::run`] returns when it is stopped: requests that were received are done, and everything is
//!    flushed. Clients that do not take their answers in time are disconnected before.
//! 5. With TLS nothing but TLS is spoken: no export is named or opened before it.

mod budget;
mod client;
mod handshake;
mod reply;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use uxfs_disk::BlockDev;

use crate::link::Socket;
use crate::listener::Listener;
use crate::tls::ServerTls;
use budget::Budget;

/// Most connections at a time.
const CLIENTS_MAX: usize = 32;
/// Most bytes of requests that are being done.
const BUDGET: usize = 128 << 20;
/// How long a client may take for a message that it has begun, and for the whole handshake to go on.
const STILL: Duration = Duration::from_secs(30);
/// How long clients may take for the answers to their last requests when the server is stopped.
const ENDING: Duration = Duration::from_secs(5);

/// What a server offers.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The name of the export. A client that names none gets it too.
    pub export: String,
    /// Refuses to write. A device that was opened for reading is served so in any case.
    pub read_only: bool,
    /// Certificates; `None` for connections without TLS.
    pub tls: Option<ServerTls>,
}

struct Shared {
    dev: Arc<dyn BlockDev>,
    options: ServerOptions,
    budget: Budget,
    stopping: AtomicBool,
    /// Sockets of the clients that are connected.
    clients: Mutex<Vec<Arc<Socket>>>,
    /// A client has left.
    left: Condvar,
}

/// A server of one device.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
    wake: OwnedFd,
    stopper: Stopper,
}

/// Stops a server, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Has [`Server::run`] end.
    pub fn stop(&self) {
        // The pipe is full if it was called thousands of times; once is enough.
        let _ = rustix::io::write(&*self.0, b"s");
    }
}

impl Server {
    /// A server of `dev` for the clients of `listener`.
    ///
    /// # Errors
    /// Those of the host.
    pub fn new(
        listener: Listener,
        dev: Arc<dyn BlockDev>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (wake, writer) = rustix::pipe::pipe_with(flags)?;
        let shared = Arc::new(Shared {
            dev,
            options,
            budget: Budget::new(BUDGET),
            stopping: false.into(),
            clients: Mutex::default(),
            left: Condvar::new(),
        });
        Ok(Self { listener, shared, wake, stopper: Stopper(Arc::new(writer)) })
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves clients until it is stopped.
    ///
    /// # Errors
    /// Those of the host; of the last flush.
    pub fn run(self) -> io::Result<()> {
        let served = std::thread::scope(|scope| {
            let accepted = loop {
                match self.wait() {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
                let socket = match self.listener.accept() {
                    Ok(socket) => socket,
                    Err(error) if is_passing(&error) => continue,
                    Err(error) => break Err(error),
                };
                let socket = Arc::new(socket);
                {
                    let mut clients = self.shared.clients.lock();
                    if clients.len() == CLIENTS_MAX || socket.prepare(STILL).is_err() {
                        // Dropping the socket disconnects the client.
                        continue;
                    }
                    clients.push(Arc::clone(&socket));
                }
                let shared = &*self.shared;
                let of_client = Arc::clone(&socket);
                let serve = move || {
                    // A client that misbehaves concerns no other.
                    let _ = client::serve(shared, &of_client);
                    of_client.end();
                    shared.forget(&of_client);
                };
                let spawned = std::thread::Builder::new().name("nbd-client".into());
                if spawned.spawn_scoped(scope, serve).is_err() {
                    self.shared.forget(&socket);
                }
            };
            self.shared.disconnect();
            accepted
        });
        let flushed = if self.shared.read_only() { Ok(()) } else { self.shared.dev.flush() };
        served.and(flushed)
    }

    /// Waits for a client (true) or the stop (false).
    fn wait(&self) -> io::Result<bool> {
        loop {
            let mut both = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) if !both[1].revents().is_empty() => return Ok(false),
                Ok(_) if !both[0].revents().is_empty() => return Ok(true),
                Ok(_) => {}
            }
        }
    }
}

/// Is it an error of the client or of the moment, and not of the listener? A network's errors are among them:
/// Linux reports those of a new connection when it is accepted.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    use std::io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    let listeners = [Errno::BADF, Errno::FAULT, Errno::INVAL, Errno::NOTSOCK];
    if listeners.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error())) {
        return false;
    }
    if !matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock) {
        // Descriptors or memory may be short for a while.
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

impl Shared {
    fn read_only(&self) -> bool {
        self.options.read_only || self.dev.read_only()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn forget(&self, client: &Arc<Socket>) {
        self.clients.lock().retain(|other| !Arc::ptr_eq(other, client));
        self.left.notify_all();
    }

    /// Receives no further request, and ends the connections when all were answered, or the time
    /// for that is over.
    fn disconnect(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let mut clients = self.clients.lock();
        clients.iter().for_each(|socket| socket.end_receiving());
        let end = Instant::now() + ENDING;
        while !clients.is_empty() {
            if self.left.wait_until(&mut clients, end).timed_out() {
                clients.iter().for_each(|socket| socket.end());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_errors_of_the_listener_end_the_server() {
        let passes = |errno: Errno| is_passing(&errno.into());
        for errno in [Errno::AGAIN, Errno::CONNABORTED, Errno::HOSTUNREACH, Errno::PROTO] {
            assert!(passes(errno), "{errno:?}");
        }
        for errno in [Errno::MFILE, Errno::NOMEM, Errno::NOBUFS, Errno::PERM] {
            assert!(passes(errno), "{errno:?}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::NOTSOCK] {
            assert!(!passes(errno), "{errno:?}");
        }
    }
}
