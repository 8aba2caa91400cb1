//! Where a server waits for clients: a TCP port or a Unix socket.
//!
//! 1. A socket on which a process listens is never replaced. One that a killed process left is.
//! 2. No process can connect before the socket has its mode.
//! 3. The socket's file is removed when this is dropped.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::link::Socket;

/// Clients that wait while others are accepted.
const BACKLOG: i32 = 64;

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
    Unix(UnixListener, PathBuf),
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
        uxfs_host::remove_stale_socket(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let new = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&new, &SocketAddrUnix::new(path)?)?;
        // Removes it if the rest fails.
        let kind = Kind::Unix(new.into(), std::path::absolute(path)?);
        let listener = Self(kind);
        rustix::fs::chmod(path, Mode::from_raw_mode(access.mode))?;
        // A process can connect from here on.
        rustix::net::listen(listener.as_fd(), BACKLOG)?;
        Ok(listener)
    }

    /// The TCP address, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(..) => None,
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
            Kind::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
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
            Kind::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.0 {
            // It fails if another process has removed the socket.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::unix(&path, Access::default()).unwrap();
        let refused = Listener::unix(&path, Access::default()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, b"kept").unwrap();
        let refused = Listener::unix(&path, Access::default()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
