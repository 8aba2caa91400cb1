//! Unix sockets that a killed process left.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Removes the socket at a path if no process listens on it, so that a server can bind there. Does nothing if
/// there is no file.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a process listens there; [`io::ErrorKind::AlreadyExists`] if the path is not
/// a socket; others of the host.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("socket");
/// // The process ends, and its socket stays.
/// drop(std::os::unix::net::UnixListener::bind(&path)?);
/// uxfs_host::remove_stale_socket(&path)?;
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "something that is not a socket is here: remove it, or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
        Ok(_) => {
            let text = "a process listens on this socket: end it, or choose another path";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}
