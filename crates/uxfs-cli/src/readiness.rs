//! Reports to a service manager that a command in the foreground serves requests, as sd_notify(3)
//! does: a datagram to the socket that `NOTIFY_SOCKET` names. Without that variable nothing happens.
//!
//! Called by `uxfs mount -f`, `uxfs serve` and `uxfs nbd-serve`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state to the service manager, if there is one.
///
/// # Errors
/// If the socket cannot be reached. The service manager would then wait until its timeout.
pub(crate) fn notify(state: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) => send(&socket, state),
        None => Ok(()),
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    };
    let sent = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to));
    let named = |error: io::Error| {
        let text = format!("NOTIFY_SOCKET={}: {error}", socket.display());
        io::Error::new(error.kind(), text)
    };
    sent.map(drop).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Vec<u8> {
        let mut room = [0; 64];
        let len = socket.recv(&mut room).unwrap();
        room[..len].to_vec()
    }

    #[test]
    fn sockets_are_paths_or_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(received(&socket), b"READY=1");
        let name = format!("uxfs-readiness-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "READY=1").unwrap();
        assert_eq!(received(&socket), b"READY=1");
        let missing = dir.path().join("missing");
        let error = send(missing.as_os_str(), "READY=1").unwrap_err().to_string();
        assert!(error.contains("NOTIFY_SOCKET=") && error.contains("missing"), "{error}");
    }
}
