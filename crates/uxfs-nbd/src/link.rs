//! A connection's bytes: a TCP or Unix socket, as it is or under TLS, split into what is sent and what is
//! received.
//!
//! 1. A thread that sends never waits for one that receives, and the other way round: TLS' state is locked
//!    only while bytes are converted, never while the socket blocks.
//! 2. Each send and, where a limit is set, each receive ends in bounded time.
//! 3. [`Socket::end`] ends both directions at once, so that blocked threads return.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::uri::Place;

/// Bytes that are received from a socket at once under TLS.
const RAW: usize = 16 << 10;
/// Longest data that is joined to its header in one send.
const JOINED: usize = 16 << 10;

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to a server.
    pub(crate) fn connect(place: &Place, timeout: Duration) -> io::Result<Self> {
        let socket = match place {
            Place::Unix(path) => Self::Unix(UnixStream::connect(path)?),
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

    /// Limits how long a send may take, and has small messages sent at once.
    pub(crate) fn prepare(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
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
}

impl Sender {
    /// Sends a header and what belongs to it.
    pub(crate) fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            return send_tls(&self.socket, tls, head).and_then(|()| {
                if data.is_empty() { Ok(()) } else { send_tls(&self.socket, tls, data) }
            });
        }
        let mut socket = &*self.socket;
        if data.len() <= JOINED {
            return socket.write_all(&[head, data].concat());
        }
        socket.write_all(head)?;
        socket.write_all(data)
    }
}

fn send_tls(mut socket: &Socket, tls: &Tls, mut data: &[u8]) -> io::Result<()> {
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
    /// Received and not yet given to TLS.
    raw: Vec<u8>,
    at: usize,
}

impl Read for Receiver {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return (&*self.socket).read(buf) };
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
            let got = (&*self.socket).read(&mut self.raw)?;
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
    pub(crate) fn over(socket: Arc<Socket>) -> Self {
        let sender = Sender { socket: Arc::clone(&socket), tls: None };
        let receiver = Receiver { socket: Arc::clone(&socket), tls: None, raw: Vec::new(), at: 0 };
        Self { socket, sender, receiver }
    }

    /// Does TLS' handshake and goes on under TLS.
    pub(crate) fn start_tls(&mut self, mut state: rustls::Connection) -> io::Result<()> {
        while state.is_handshaking() {
            let (read, written) = state.complete_io(&mut &*self.socket)?;
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
