//! The socket on which a monitor connects. Its rules are those of [`ListeningSocket`].

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use uxfs_host::ListeningSocket;

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
pub struct Socket(ListeningSocket);

impl Socket {
    /// Listens at a path.
    ///
    /// # Errors
    /// ADDRINUSE if a process listens there; EEXIST if the path is not a socket; others of the host.
    pub fn bind(path: &Path, access: Access) -> io::Result<Self> {
        ListeningSocket::bind(path, access.mode, access.group).map(Self)
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        self.0.listener()
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
