//! One connection: requests out, replies in, many outstanding.
//!
//! 1. A thread receives. It ends when the connection does, and then answers every outstanding request.
//! 2. A request is answered once. A reply to none, or of another shape, breaks the protocol.
//! 3. A caller waits as long as replies come; when none comes for the timeout, the connection is given up,
//!    at the latest after [`PATIENCE`] timeouts for one request.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::handshake::Connected;
use super::read_reply::ReadReply;
use crate::link::{Receiver, Sender, Socket};
use crate::wire::{self, ReadNumbers, RequestHead};

/// Timeouts that a single request may take while others are answered.
const PATIENCE: u32 = 8;
/// Most bytes of a chunk that reports an error.
const ERROR_MAX: u32 = 8 << 10;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server reports an error for it.
    Refused(u32),
    /// The connection ended.
    Gone(String),
    /// The server is not to be used any more.
    Broken(String),
}

type Outcome = Result<Vec<u8>, Failed>;

/// A request that is outstanding.
pub(crate) struct Ticket {
    outcome: Mutex<Option<Outcome>>,
    answered: Condvar,
}

/// What a reply has to look like.
struct Expected {
    ticket: Arc<Ticket>,
    /// Offset and length, if it is a read.
    read: Option<(u64, u32)>,
    partial: Option<ReadReply>,
}

#[derive(Default)]
struct Outstanding {
    by_cookie: FxHashMap<u64, Expected>,
    ended: Option<Failed>,
}

struct Shared {
    outstanding: Mutex<Outstanding>,
    /// Replies that came.
    heard: AtomicU64,
    structured: bool,
}

pub(crate) struct Connection {
    sender: Mutex<Sender>,
    socket: Arc<Socket>,
    shared: Arc<Shared>,
    cookies: AtomicU64,
    load: AtomicUsize,
    timeout: Duration,
    receiver: Option<JoinHandle<()>>,
}

impl Connection {
    pub(crate) fn new(connected: Connected, timeout: Duration) -> io::Result<Self> {
        let Connected { link, structured, .. } = connected;
        let shared =
            Arc::new(Shared { outstanding: Mutex::default(), heard: 0.into(), structured });
        let (socket, of_thread) = (Arc::clone(&link.socket), Arc::clone(&shared));
        let ending = Arc::clone(&socket);
        let mut from = link.receiver;
        let thread = std::thread::Builder::new().name("nbd-receive".into()).spawn(move || {
            let failed = loop {
                match receive(&mut from, &of_thread) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        break Failed::Broken(format!("the server {error}"));
                    }
                    Err(error) => break Failed::Gone(gone(&error)),
                }
            };
            ending.end();
            of_thread.end(&failed);
        })?;
        Ok(Self {
            sender: Mutex::new(link.sender),
            socket,
            shared,
            cookies: 1.into(),
            load: 0.into(),
            timeout,
            receiver: Some(thread),
        })
    }

    /// Requests that are outstanding.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Sends a request. `data` is what it writes.
    pub(crate) fn send(
        &self,
        (command, flags): (u16, u16),
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<Arc<Ticket>, Failed> {
        let cookie = self.cookies.fetch_add(1, Ordering::Relaxed);
        let ticket = Arc::new(Ticket { outcome: Mutex::new(None), answered: Condvar::new() });
        let read = (command == wire::CMD_READ).then_some((offset, len));
        let expected = Expected { ticket: Arc::clone(&ticket), read, partial: None };
        {
            let mut outstanding = self.shared.outstanding.lock();
            if let Some(failed) = &outstanding.ended {
                return Err(failed.clone());
            }
            outstanding.by_cookie.insert(cookie, expected);
        }
        self.load.fetch_add(1, Ordering::Relaxed);
        let head = RequestHead { flags, command, cookie, offset, len }.to_bytes();
        let sent = self.sender.lock().send(&head, data);
        if let Err(error) = sent {
            // The receiving thread answers the request.
            self.give_up(&match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.still(),
                _ => Failed::Gone(gone(&error)),
            });
        }
        Ok(ticket)
    }

    fn still(&self) -> Failed {
        let seconds = self.timeout.as_secs();
        Failed::Broken(format!("the server has not answered for {seconds} s"))
    }

    /// Ends the connection; requests fail with `why`.
    pub(crate) fn give_up(&self, why: &Failed) {
        self.shared.outstanding.lock().ended.get_or_insert_with(|| why.clone());
        self.socket.end();
    }

    /// Waits for the reply to a request.
    pub(crate) fn wait(&self, ticket: &Ticket) -> Outcome {
        let mut heard = self.shared.heard.load(Ordering::Relaxed);
        let mut outcome = ticket.outcome.lock();
        let mut waits = 0;
        while outcome.is_none() {
            if !ticket.answered.wait_for(&mut outcome, self.timeout).timed_out() {
                continue;
            }
            let now = self.shared.heard.load(Ordering::Relaxed);
            waits += 1;
            if now == heard || waits >= PATIENCE {
                self.give_up(&self.still());
            }
            heard = now;
        }
        self.load.fetch_sub(1, Ordering::Relaxed);
        outcome.take().unwrap_or_else(|| Err(self.still()))
    }

    /// Says good-bye. The server ends the connection.
    pub(crate) fn disconnect(&self) {
        let head = RequestHead { flags: 0, command: wire::CMD_DISC, cookie: 0, offset: 0, len: 0 };
        // The connection ends in any case.
        let _ = self.sender.lock().send(&head.to_bytes(), &[]);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.end();
        if let Some(thread) = self.receiver.take() {
            // It ends, because the socket did.
            let _ = thread.join();
        }
    }
}

fn gone(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("the connection failed: {error}"),
    }
}

impl Shared {
    fn end(&self, failed: &Failed) {
        let mut outstanding = self.outstanding.lock();
        let failed = outstanding.ended.get_or_insert_with(|| failed.clone()).clone();
        for (_, expected) in outstanding.by_cookie.drain() {
            expected.ticket.answer(Err(failed.clone()));
        }
    }

    /// Takes the request that a reply is for.
    fn take(&self, cookie: u64) -> io::Result<Expected> {
        let taken = self.outstanding.lock().by_cookie.remove(&cookie);
        taken.ok_or_else(|| {
            wire::broken(format_args!("it answers {cookie:#x}, which is no request"))
        })
    }

    fn answer(&self, expected: &Expected, outcome: Outcome) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        expected.ticket.answer(outcome);
    }
}

impl Ticket {
    fn answer(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.answered.notify_all();
    }
}

/// Receives a reply, or a chunk of one.
fn receive(from: &mut Receiver, shared: &Shared) -> io::Result<()> {
    match from.u32()? {
        wire::SIMPLE_REPLY_MAGIC => simple(from, shared),
        wire::STRUCTURED_REPLY_MAGIC if shared.structured => chunk(from, shared),
        other => Err(wire::broken(format_args!("a reply begins with {other:#010x}"))),
    }
}

fn simple(from: &mut Receiver, shared: &Shared) -> io::Result<()> {
    let (code, cookie) = (from.u32()?, from.u64()?);
    let expected = shared.take(cookie)?;
    let outcome = match (code, expected.read) {
        (0, Some(_)) if shared.structured => Err(wire::broken("it answers a read without chunks")),
        (0, Some((_, len))) => from.payload(len as usize).map(Ok),
        (0, None) => Ok(Ok(Vec::new())),
        (code, _) => Ok(Err(Failed::Refused(code))),
    };
    finish(shared, &expected, outcome)
}

/// Answers a request; if the connection ended meanwhile, puts it among those that end with it.
fn finish(shared: &Shared, expected: &Expected, outcome: io::Result<Outcome>) -> io::Result<()> {
    match outcome {
        Ok(outcome) => {
            shared.answer(expected, outcome);
            Ok(())
        }
        Err(error) => {
            let failed = match error.kind() {
                io::ErrorKind::InvalidData => Failed::Broken(format!("the server {error}")),
                _ => Failed::Gone(gone(&error)),
            };
            let ended = shared.outstanding.lock().ended.get_or_insert(failed).clone();
            expected.ticket.answer(Err(ended));
            Err(error)
        }
    }
}

fn chunk(from: &mut Receiver, shared: &Shared) -> io::Result<()> {
    let (flags, kind) = (from.u16()?, from.u16()?);
    let (cookie, len) = (from.u64()?, from.u32()?);
    let mut expected = shared.take(cookie)?;
    match take_chunk(from, &mut expected, kind, len) {
        Ok(()) if flags & wire::REPLY_FLAG_DONE == 0 => {
            shared.heard.fetch_add(1, Ordering::Relaxed);
            shared.outstanding.lock().by_cookie.insert(cookie, expected);
            Ok(())
        }
        Ok(()) => {
            let outcome = whole(&mut expected);
            finish(shared, &expected, outcome)
        }
        Err(error) => finish(shared, &expected, Err(error)),
    }
}

/// The outcome of a request whose last chunk came.
fn whole(expected: &mut Expected) -> io::Result<Outcome> {
    let Some(reply) = expected.partial.take() else {
        return match expected.read {
            Some(_) => Err(wire::broken("a read ends without data")),
            None => Ok(Ok(Vec::new())),
        };
    };
    match reply.error {
        Some(code) => Ok(Err(Failed::Refused(code))),
        None if expected.read.is_none() => Ok(Ok(Vec::new())),
        None => reply.end().map(Ok).map_err(wire::broken),
    }
}

fn take_chunk(from: &mut Receiver, expected: &mut Expected, kind: u16, len: u32) -> io::Result<()> {
    let (offset, whole) = expected.read.unwrap_or((0, 0));
    let reply = expected.partial.get_or_insert_with(|| ReadReply::new(offset, whole as usize));
    match kind {
        wire::REPLY_NONE if len == 0 => Ok(()),
        wire::REPLY_OFFSET_DATA if len > 8 => {
            let offset = from.u64()?;
            let place = reply.chunk(offset, u64::from(len) - 8).map_err(wire::broken)?;
            from.read_exact(place)
        }
        wire::REPLY_OFFSET_HOLE if len == 12 => {
            let (offset, len) = (from.u64()?, from.u32()?);
            reply.chunk(offset, len.into()).map(|_| ()).map_err(wire::broken)
        }
        kind if kind & wire::REPLY_ERROR != 0 && (6..=ERROR_MAX).contains(&len) => {
            let data = from.payload(len as usize)?;
            let code = data.as_slice().u32()?;
            if code == 0 {
                return Err(wire::broken("a chunk reports no error as an error"));
            }
            reply.error.get_or_insert(code);
            Ok(())
        }
        _ => Err(wire::broken(format_args!("a chunk has type {kind} and {len} bytes"))),
    }
}
