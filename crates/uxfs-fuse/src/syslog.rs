//! The system's log, for a server in the background: datagrams to `/dev/log`, where syslog daemons and
//! systemd's journal listen.
//!
//! 1. Nothing waits for the log, and nothing fails without it.

use std::os::unix::net::UnixDatagram;

const SOCKET: &str = "/dev/log";
/// The facility of daemons.
const DAEMON: u8 = 3;

/// The severity of a message, by syslog's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Data is lost, or the volume is stopped.
    Error = 3,
    /// An administrator should act.
    Warning = 4,
}

pub(crate) fn send(severity: Severity, text: &str) {
    let message = message(severity, std::process::id(), text);
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(message.as_bytes(), SOCKET)
    });
    // Without a log daemon the message is lost.
    let _ = sent;
}

/// Without a time, which the log daemon adds.
fn message(severity: Severity, process: u32, text: &str) -> String {
    let priority = DAEMON << 3 | severity as u8;
    format!("<{priority}>uxfs[{process}]: {}", text.replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_a_daemon() {
        let said = message(Severity::Error, 7, "a.img: lost\nall");
        assert_eq!(said, "<27>uxfs[7]: a.img: lost; all");
    }
}
