//! The socket on which a monitor connects.
//!
//! 1. A socket on which a process listens is never replaced. One that a killed process left is.
//! 2. No process can connect before the socket has its mode and group.
//! 3. The socket is removed when this is dropped.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Monitors that wait while one is served.
const BACKLOG: i32 = 16;

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permission bits of the socket.
    pub mode: u32,
    /// The group of the socket, if not that of the process.
    pub group: Option<u32>,
}

impl Default for Access {
    fn default() -> Self {
        Self { mode: 0o600, group: None }
    }
}

/// A socket that listens.
pub struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at a path.
    ///
    /// # Errors
    /// ADDRINUSE if a process listens there; EEXIST if the path is not a socket; others of the host.
    pub fn bind(path: &Path, access: Access) -> io::Result<Self> {
        uxfs_host::remove_stale_socket(path)?;
        let flags = SocketFlags::CLOEXEC;
        let new = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&new, &SocketAddrUnix::new(path)?)?;
        // Removes it if the rest fails.
        let socket = Self { listener: new.into(), path: path.to_owned() };
        if access.group.is_some() {
            std::os::unix::fs::chown(path, None, access.group)?;
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(access.mode))?;
        // A process can connect from here on.
        rustix::net::listen(&socket.listener, BACKLOG)?;
        Ok(socket)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
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
        let socket = Socket::bind(&path, Access { mode: 0o640, group: None }).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let refused = Socket::bind(&path, Access::default()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, b"kept").unwrap();
        let refused = Socket::bind(&path, Access::default()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
