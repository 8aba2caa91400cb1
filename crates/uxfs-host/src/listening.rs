//! A Unix socket on which a server listens.
//!
//! 1. A socket on which a process listens is never replaced. One that a killed process left is.
//! 2. No process can connect before the socket has its mode and group.
//! 3. The socket's file is removed when it is dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::remove_stale_socket;

/// Clients that wait while others are accepted.
const BACKLOG: i32 = 64;

/// A Unix socket that listens, and its file.
#[derive(Debug)]
pub struct ListeningSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ListeningSocket {
    /// Listens at a path. `mode` are the permission bits of the socket; `group` is its group, if not that of the
    /// process.
    ///
    /// # Errors
    /// Those of [`remove_stale_socket`]; others of the host.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("socket");
    /// let socket = uxfs_host::ListeningSocket::bind(&path, 0o600, None)?;
    /// std::os::unix::net::UnixStream::connect(&path)?;
    /// drop(socket);
    /// assert!(!path.exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(path: &Path, mode: u32, group: Option<u32>) -> io::Result<Self> {
        remove_stale_socket(path)?;
        let flags = SocketFlags::CLOEXEC;
        let new = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&new, &SocketAddrUnix::new(path)?)?;
        // Removes the file if the rest fails.
        let socket = Self { listener: new.into(), path: std::path::absolute(path)? };
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
        // A process can connect from here on.
        listen(&socket.listener, BACKLOG)?;
        Ok(socket)
    }

    /// The listener.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        // It fails if another process has removed the socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let socket = ListeningSocket::bind(&path, 0o640, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let refused = ListeningSocket::bind(&path, 0o600, None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, b"kept").unwrap();
        let refused = ListeningSocket::bind(&path, 0o600, None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
