//! A connection's bytes: a TCP or Unix socket, as it is or under TLS, split into what is sent and what is
//! received.
//!
//! 1. A thread that sends never waits for one that receives, and the other way round: TLS' state is locked
//!    only while bytes are converted, never while the socket blocks.
//! 2. Each send and, where a limit is set, each receive ends in bounded time, also if the other
//!    side goes on byte by byte: system calls have a limit, and what consists of several has one as
//!    a whole.
//! 3. [`Socket::end`] ends both directions at once, so that blocked threads return.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::uri::Place;

/// Bytes that are received from a socket at once under TLS.
const RAW: usize = 16 << 10;
/// Longest data that is joined to its header in one send.
const JOINED: usize = 16 << 10;
/// Most bytes that one system call sends. The host sends all of them before it returns, however
/// slowly they are received.
const SENT: usize = 256 << 10;
/// Bytes that the other side sends or receives in a second at least.
const RATE: u64 = 256 << 10;
/// When a TCP peer that is silent is asked whether it is there, how long apart, and how often.
const PROBE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// How long a message of so many bytes may take of a side that may stand still for `patience`.
pub(crate) fn allowance(patience: Duration, len: usize) -> Duration {
    patience.saturating_add(Duration::from_secs(len as u64 / RATE))
}

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to a server.
    pub(crate) fn connect(place: &Place, timeout: Duration) -> io::Result<Self> {
        let socket = match place {
            Place::Unix(path) => Self::Unix(connect_unix(path, timeout)?),
            Place::Tcp(host, port) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                let mut connected = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            connected = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                Self::Tcp(connected.ok_or(last)?)
            }
        };
        socket.prepare(timeout)?;
        Ok(socket)
    }

    /// Limits how long a send may take, has small messages sent at once, and has the host find out
    /// when the other side's machine is gone.
    pub(crate) fn prepare(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                let (idle, interval, count) = PROBE;
                sockopt::set_tcp_keepidle(stream, idle)?;
                sockopt::set_tcp_keepintvl(stream, interval)?;
                sockopt::set_tcp_keepcnt(stream, count)?;
                sockopt::set_socket_keepalive(stream, true)?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    /// Limits how long a receive may take.
    pub(crate) fn limit_receive(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Ends what is received, so that a thread that waits for it goes on.
    pub(crate) fn end_receiving(&self) {
        // It fails if the other side was faster.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Read),
            Self::Unix(stream) => stream.shutdown(Shutdown::Read),
        };
    }

    /// Ends both directions.
    pub(crate) fn end(&self) {
        // It fails if the other side was faster.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Connects to a Unix socket. A server that accepts no connection lets its backlog fill, and then a
/// connection would wait without an end.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let new = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The limit of sends is that of the connection too.
    sockopt::set_socket_timeout(&new, sockopt::Timeout::Send, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&new, &address)) {
        Ok(()) => Ok(new.into()),
        Err(rustix::io::Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the server accepts no connection"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Fails when the time is over.
fn check(deadline: Option<Instant>) -> io::Result<()> {
    match deadline {
        Some(deadline) if Instant::now() >= deadline => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the other side takes too long"))
        }
        _ => Ok(()),
    }
}

/// A socket until a moment: system calls that begin later fail.
struct Until<'a> {
    socket: &'a Socket,
    deadline: Option<Instant>,
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        check(self.deadline)?;
        let mut socket = self.socket;
        socket.read(buf)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        check(self.deadline)?;
        let mut socket = self.socket;
        socket.write(&buf[..buf.len().min(SENT)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buf),
            Socket::Unix(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(buf),
            Socket::Unix(stream) => (&mut &*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Tls = Arc<Mutex<rustls::Connection>>;

/// The sending side.
pub(crate) struct Sender {
    socket: Arc<Socket>,
    tls: Option<Tls>,
    /// How long the other side may stand still.
    patience: Duration,
}

impl Sender {
    /// Sends a header and what belongs to it.
    pub(crate) fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let time = allowance(self.patience, head.len() + data.len());
        let deadline = Instant::now().checked_add(time);
        let mut socket = Until { socket: &self.socket, deadline };
        if let Some(tls) = &self.tls {
            return send_tls(&mut socket, tls, head).and_then(|()| {
                if data.is_empty() { Ok(()) } else { send_tls(&mut socket, tls, data) }
            });
        }
        if data.len() <= JOINED {
            return socket.write_all(&[head, data].concat());
        }
        socket.write_all(head)?;
        socket.write_all(data)
    }
}

fn send_tls(socket: &mut Until<'_>, tls: &Tls, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let mut raw = Vec::new();
        {
            let mut state = tls.lock();
            let taken = state.writer().write(data)?;
            data = &data[taken..];
            while state.wants_write() {
                state.write_tls(&mut raw)?;
            }
        }
        socket.write_all(&raw)?;
    }
    Ok(())
}

/// The receiving side.
pub(crate) struct Receiver {
    socket: Arc<Socket>,
    tls: Option<Tls>,
    /// When the present message has to have come.
    deadline: Option<Instant>,
    /// Received and not yet given to TLS.
    raw: Vec<u8>,
    at: usize,
}

impl Receiver {
    /// Limits what is received from now on, as a whole; a system call that has begun may take as
    /// long again.
    pub(crate) fn limit(&mut self, time: Option<Duration>) -> io::Result<()> {
        self.socket.limit_receive(time)?;
        self.deadline = time.and_then(|time| Instant::now().checked_add(time));
        Ok(())
    }

    /// Gives what is received from now on this time as a whole. The limit of a system call stays.
    pub(crate) fn allow(&mut self, time: Duration) {
        self.deadline = Instant::now().checked_add(time);
    }
}

impl Read for Receiver {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut socket = Until { socket: &self.socket, deadline: self.deadline };
        let Some(tls) = &self.tls else { return socket.read(buf) };
        loop {
            let mut state = tls.lock();
            match state.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.at < self.raw.len() {
                let mut raw = &self.raw[self.at..];
                self.at += state.read_tls(&mut raw)?;
                let processed = state.process_new_packets();
                processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                continue;
            }
            drop(state);
            self.raw.resize(RAW, 0);
            let got = socket.read(&mut self.raw)?;
            self.raw.truncate(got);
            self.at = 0;
            if got == 0 {
                return Ok(0);
            }
        }
    }
}

/// Both sides, during the handshake.
pub(crate) struct Link {
    pub(crate) socket: Arc<Socket>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

impl Link {
    /// A link without TLS, whose other side may stand still for `patience`.
    pub(crate) fn over(socket: Arc<Socket>, patience: Duration) -> Self {
        let sender = Sender { socket: Arc::clone(&socket), tls: None, patience };
        let (deadline, raw) = (None, Vec::new());
        let receiver = Receiver { socket: Arc::clone(&socket), tls: None, deadline, raw, at: 0 };
        Self { socket, sender, receiver }
    }

    /// Does TLS' handshake and goes on under TLS.
    pub(crate) fn start_tls(&mut self, mut state: rustls::Connection) -> io::Result<()> {
        let mut socket = Until { socket: &self.socket, deadline: self.receiver.deadline };
        while state.is_handshaking() {
            let (read, written) = state.complete_io(&mut socket)?;
            if read == 0 && written == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let tls = Arc::new(Mutex::new(state));
        self.sender.tls = Some(Arc::clone(&tls));
        self.receiver.tls = Some(tls);
        Ok(())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.sender.tls.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that sends a byte, or receives a few, from time to time, and leaves at last.
    fn slow_peer(work: impl Fn(&mut UnixStream) -> io::Result<()> + Send + 'static) -> Arc<Socket> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            for _ in 0..2000 {
                std::thread::sleep(Duration::from_millis(5));
                if work(&mut theirs).is_err() {
                    return;
                }
            }
        });
        Arc::new(Socket::Unix(ours))
    }

    #[test]
    fn bytes_that_come_one_by_one_are_not_received_for_ever() {
        let socket = slow_peer(|peer| peer.write_all(&[0]));
        let mut link = Link::over(socket, Duration::from_secs(30));
        link.receiver.limit(Some(Duration::from_millis(100))).unwrap();
        let error = link.receiver.read_exact(&mut [0; 10_000]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        // Without a limit what comes is awaited.
        link.receiver.limit(None).unwrap();
        link.receiver.read_exact(&mut [0; 10]).unwrap();
    }

    #[test]
    fn bytes_that_are_taken_in_small_parts_are_not_sent_for_ever() {
        let socket = slow_peer(|peer| peer.read_exact(&mut [0; 4096]));
        let deadline = Some(Instant::now() + Duration::from_millis(100));
        let error = Until { socket: &socket, deadline }.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn long_messages_may_take_longer() {
        let patience = Duration::from_secs(30);
        assert_eq!(allowance(patience, 28), patience);
        assert_eq!(allowance(patience, 32 << 20), Duration::from_secs(30 + 128));
    }

    #[test]
    fn a_machine_that_is_gone_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::Tcp(stream.try_clone().unwrap());
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        socket.prepare(Duration::from_secs(30)).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE.0);
    }
}
