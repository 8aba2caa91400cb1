//! An export as a device: requests cut to what the server takes, sent again when it comes back.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use uxfs_disk::fault::{Fault, planted};
use uxfs_disk::{BlockDev, host};

use super::ClientOptions;
use super::blocks::{around, pieces, within};
use super::connection::Failed;
use super::export::Export;
use super::session::{Route, Sent, Session};
use super::unflushed::{Content, Part, Unflushed};
use crate::tls::ClientTls;
use crate::uri::Uri;
use crate::wire;

/// Pause before a server is tried again: the first and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most bytes that one request zeroes: a server whose storage cannot zero writes them, and has to
/// answer in time.
const ZERO_MAX: u32 = wire::PAYLOAD_MAX;
/// Requests to zero that are outstanding.
const ZERO_WINDOW: usize = 4;
/// Most bytes that one request trims. Nothing is written for it.
const TRIM_MAX: u32 = 1 << 30;
/// Requests that are outstanding while writes are sent again.
const WINDOW: usize = 32;

/// The device of an NBD server.
pub struct NbdDev {
    route: Arc<Route>,
    reconnect: Duration,
    export: Export,
    read_only: bool,
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
    unflushed: Mutex<Unflushed>,
    /// Held shared by writes of whole blocks, alone by those that read a block first.
    partial: RwLock<()>,
}

enum State {
    Open(Arc<Session>),
    /// A thread is making new connections.
    Lost,
    /// The device is given up, for this reason.
    Dead(String),
}

/// A request.
#[derive(Clone, Copy)]
struct Request<'a> {
    command: u16,
    flags: u16,
    offset: u64,
    len: u32,
    data: &'a [u8],
}

impl Request<'_> {
    fn send(&self, session: &Session) -> Result<Sent, Failed> {
        session.send((self.command, self.flags), self.offset, self.len, self.data)
    }
}

impl NbdDev {
    /// Opens the export at an address, for writing if `write`.
    ///
    /// # Errors
    /// Those of connecting; [`io::ErrorKind::NotFound`] if the server has no such export;
    /// [`io::ErrorKind::ReadOnlyFilesystem`] if it is read-only and `write` is set;
    /// [`io::ErrorKind::InvalidData`] if the server breaks the protocol.
    pub fn open(uri: Uri, options: ClientOptions, write: bool) -> io::Result<Self> {
        let tls = uri.tls.then(|| ClientTls::new(&uri)).transpose()?;
        let route = Arc::new(Route {
            tls,
            timeout: uri.timeout.unwrap_or(options.timeout),
            connections: uri.connections.unwrap_or(options.connections),
            uri,
        });
        let session = Session::open(&route)?;
        let export = session.export;
        if write && export.read_only() {
            let text = "the NBD server exports it for reading only";
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text));
        }
        Ok(Self {
            reconnect: route.uri.reconnect.unwrap_or(options.reconnect),
            route,
            export,
            read_only: !write,
            limit: options.unflushed_bytes,
            state: Mutex::new(State::Open(Arc::new(session))),
            changed: Condvar::new(),
            unflushed: Mutex::default(),
            partial: RwLock::new(()),
        })
    }

    /// The present session; waits while connections are being made.
    fn session(&self) -> io::Result<Arc<Session>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Open(session) => return Ok(Arc::clone(session)),
                State::Dead(why) => return Err(host::lost(why.clone())),
                State::Lost => self.changed.wait(&mut state),
            }
        }
    }

    /// Performs requests at once. Returns what each read.
    fn perform(&self, requests: &[Request<'_>]) -> io::Result<Vec<Vec<u8>>> {
        let mut results: Vec<Option<Vec<u8>>> = vec![None; requests.len()];
        let mut refused = None;
        while refused.is_none() && results.iter().any(Option::is_none) {
            let session = self.session()?;
            let left = (0..requests.len()).filter(|at| results[*at].is_none());
            let sent: Vec<_> = left.map(|at| (at, requests[at].send(&session))).collect();
            let mut failed = None;
            for (at, sent) in sent {
                match sent.and_then(Sent::wait) {
                    Ok(data) => results[at] = Some(data),
                    Err(Failed::Refused(code)) => refused = Some(wire::error_of(code)),
                    Err(other) => failed = Some(other),
                }
            }
            if let Some(failed) = failed {
                self.replace(&session, failed)?;
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(results.into_iter().flatten().collect()),
        }
    }

    fn bury(&self, state: &mut State, why: String) -> io::Error {
        let error = host::lost(why.clone());
        *state = State::Dead(why);
        self.changed.notify_all();
        error
    }

    /// Makes a new session in place of one that failed, unless another thread does.
    fn replace(&self, old: &Arc<Session>, failed: Failed) -> io::Result<()> {
        let mut state = self.state.lock();
        match &*state {
            State::Open(present) if Arc::ptr_eq(present, old) => {}
            State::Dead(why) => return Err(host::lost(why.clone())),
            _ => return Ok(()),
        }
        let why = match failed {
            Failed::Gone(why) => why,
            Failed::Broken(why) => {
                old.end(&Failed::Broken(why.clone()));
                return Err(self.bury(&mut state, why));
            }
            Failed::Refused(code) => return Err(wire::error_of(code)),
        };
        *state = State::Lost;
        drop(state);
        old.end(&Failed::Gone(why.clone()));
        let made = self.connect_again(&why);
        let mut state = self.state.lock();
        match made {
            Ok(session) => {
                *state = State::Open(Arc::new(session));
                self.changed.notify_all();
                Ok(())
            }
            Err(why) => Err(self.bury(&mut state, why)),
        }
    }

    /// Connects and sends again what is not flushed, until that succeeds or the time is over.
    fn connect_again(&self, why: &str) -> Result<Session, String> {
        let begun = Instant::now();
        let mut pause = PAUSE;
        loop {
            let problem = match Session::open(&self.route) {
                Ok(session) if session.export != self.export => {
                    return Err("the server came back with another export".into());
                }
                Ok(session) => match self.send_again(&session) {
                    Ok(()) => return Ok(session),
                    Err(Failed::Gone(why)) => why,
                    Err(Failed::Broken(why)) => return Err(why),
                    Err(Failed::Refused(code)) => {
                        return Err(format!("writing again: {}", wire::error_of(code)));
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(format!("the server {error}"));
                }
                Err(error) => error.to_string(),
            };
            if begun.elapsed() + pause > self.reconnect {
                let seconds = self.reconnect.as_secs();
                return Err(format!("{why}, and did not come back in {seconds} s: {problem}"));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn send_again(&self, session: &Session) -> Result<(), Failed> {
        if planted(Fault::UnflushedForgotten) {
            return Ok(());
        }
        let unflushed = self.unflushed.lock();
        let mut window = std::collections::VecDeque::new();
        for (offset, part) in unflushed.parts() {
            let requests: Vec<Request<'_>> = match part {
                Part::Data(data) => self.writes(offset, data, 0).collect(),
                Part::Zeroes(len) => self.zeroes(offset, len, 0).collect(),
            };
            for request in requests {
                if window.len() == WINDOW {
                    window.pop_front().map_or(Ok(Vec::new()), Sent::wait)?;
                }
                window.push_back(request.send(session)?);
            }
        }
        window.into_iter().try_for_each(|sent| sent.wait().map(drop))
    }

    fn writes<'a>(
        &self,
        offset: u64,
        data: &'a [u8],
        flags: u16,
    ) -> impl Iterator<Item = Request<'a>> + use<'a> {
        pieces(offset, data.len() as u64, self.export.payload).map(move |(at, len)| {
            let from = (at - offset) as usize;
            let data = &data[from..from + len as usize];
            Request { command: wire::CMD_WRITE, flags, offset: at, len, data }
        })
    }

    fn zeroes(
        &self,
        offset: u64,
        len: u64,
        flags: u16,
    ) -> impl Iterator<Item = Request<'static>> + use<> {
        pieces(offset, len, ZERO_MAX).map(move |(offset, len)| Request {
            command: wire::CMD_WRITE_ZEROES,
            flags,
            offset,
            len,
            data: &[],
        })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.export.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.check(offset, len)
    }

    fn is_whole(&self, offset: u64, len: u64) -> bool {
        around(offset, len, self.export.block) == (offset, len)
    }

    /// Reads whole blocks.
    fn read_whole(&self, offset: u64, len: u64) -> io::Result<Vec<Vec<u8>>> {
        let read =
            |(offset, len)| Request { command: wire::CMD_READ, flags: 0, offset, len, data: &[] };
        let requests: Vec<_> = pieces(offset, len, self.export.payload).map(read).collect();
        self.perform(&requests)
    }

    /// Writes content of whole blocks, and keeps it until it is flushed.
    fn write_whole(&self, offset: u64, content: &Content, flags: u16) -> io::Result<()> {
        if self.unflushed.lock().bytes() > self.limit {
            self.flush()?;
        }
        let (requests, at_once): (Vec<Request<'_>>, _) = match content {
            Content::Data(data) => (self.writes(offset, data, flags).collect(), usize::MAX),
            Content::Zeroes(len) => (self.zeroes(offset, *len, flags).collect(), ZERO_WINDOW),
        };
        let number = self.unflushed.lock().enter(offset, content.clone());
        let mut groups = requests.chunks(at_once);
        let written = groups.try_for_each(|group| self.perform(group).map(drop));
        let mut unflushed = self.unflushed.lock();
        match written {
            Ok(()) => unflushed.confirm(number),
            Err(_) => unflushed.withdraw(number),
        }
        written
    }

    fn write_flagged(&self, offset: u64, data: &[u8], flags: u16) -> io::Result<()> {
        self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        if self.is_whole(offset, data.len() as u64) {
            let _shared = self.partial.read();
            return self.write_whole(offset, &Content::Data(data.into()), flags);
        }
        let _alone = self.partial.write();
        let (from, len) = around(offset, data.len() as u64, self.export.block);
        let mut blocks = self.read_whole(from, len)?.concat();
        let at = (offset - from) as usize;
        blocks[at..at + data.len()].copy_from_slice(data);
        self.write_whole(from, &Content::Data(blocks.into()), flags)
    }
}

impl BlockDev for NbdDev {
    uxfs_disk::emulate!(write_bulk_at);
    uxfs_disk::without!(will_read, will_write_bulk, allocate, lengthen, as_file);

    fn len(&self) -> u64 {
        self.export.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let (from, len) = around(offset, buf.len() as u64, self.export.block);
        let mut skip = (offset - from) as usize;
        let mut rest = buf;
        for piece in self.read_whole(from, len)? {
            let piece = piece.get(skip..).unwrap_or_default();
            skip = 0;
            let take = piece.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&piece[..take]);
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_flagged(offset, data, 0)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        self.write_at(offset, &pieces.concat())
    }

    fn has_fua(&self) -> bool {
        self.export.fua()
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.export.fua() {
            return self.write_flagged(offset, data, wire::CMD_FLAG_FUA);
        }
        self.write_at(offset, data)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return self.check_present();
        }
        let moment = self.unflushed.lock().now();
        if self.export.flush() {
            let flush =
                Request { command: wire::CMD_FLUSH, flags: 0, offset: 0, len: 0, data: &[] };
            self.perform(&[flush])?;
        }
        self.unflushed.lock().flushed(moment);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) {
        if !self.export.trim() || self.check_write(offset, len).is_err() {
            return;
        }
        let (from, len) = within(offset, len, self.export.block);
        for (offset, len) in pieces(from, len, TRIM_MAX) {
            let trim = Request { command: wire::CMD_TRIM, flags: 0, offset, len, data: &[] };
            // A hint: a server that refuses it goes on as before.
            let _ = self.perform(&[trim]);
        }
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if !self.export.write_zeroes() || !self.is_whole(offset, len) {
            return uxfs_disk::explicit::write_zeroes(self, offset, len);
        }
        let _shared = self.partial.read();
        self.write_whole(offset, &Content::Zeroes(len), 0)
    }

    fn check_present(&self) -> io::Result<()> {
        match &*self.state.lock() {
            State::Dead(why) => Err(host::lost(why.clone())),
            _ => Ok(()),
        }
    }

    fn warning(&self) -> Option<String> {
        let lacks = !self.read_only && !self.export.flush();
        lacks.then(|| {
            "the NBD server cannot flush: what is durable is for the server to say".to_owned()
        })
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn sector_size(&self) -> u32 {
        self.export.block.max(512)
    }
}

impl Drop for NbdDev {
    fn drop(&mut self) {
        if let State::Open(session) = &*self.state.lock() {
            session.disconnect();
        }
    }
}
