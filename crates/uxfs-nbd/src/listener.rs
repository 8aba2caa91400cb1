//! Where a server waits for clients: a TCP port or a Unix socket, with the rules of [`ListeningSocket`].

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use uxfs_host::ListeningSocket;

use crate::link::Socket;

/// Who may connect to a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permission bits of the socket.
    pub mode: u32,
}

impl Default for Access {
    fn default() -> Self {
        Self { mode: 0o600 }
    }
}

/// A place where clients connect.
pub struct Listener(Kind);

enum Kind {
    Tcp(TcpListener),
    Unix(ListeningSocket),
}

impl Listener {
    /// Listens on a TCP address, as in `127.0.0.1:10809`. Port 0 is any free one.
    ///
    /// # Errors
    /// Those of the host.
    pub fn tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self(Kind::Tcp(listener)))
    }

    /// Listens on a Unix socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a process listens there; [`io::ErrorKind::AlreadyExists`] if the path
    /// is no socket; others of the host.
    pub fn unix(path: &Path, access: Access) -> io::Result<Self> {
        let socket = ListeningSocket::bind(path, access.mode, None)?;
        socket.listener().set_nonblocking(true)?;
        Ok(Self(Kind::Unix(socket)))
    }

    /// The TCP address, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    /// The next client; [`io::ErrorKind::WouldBlock`] if none waits.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Socket::Tcp(stream))
            }
            Kind::Unix(socket) => {
                let (stream, _) = socket.listener().accept()?;
                stream.set_nonblocking(false)?;
                Ok(Socket::Unix(stream))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Tcp(listener) => listener.as_fd(),
            Kind::Unix(socket) => socket.as_fd(),
        }
    }
}
