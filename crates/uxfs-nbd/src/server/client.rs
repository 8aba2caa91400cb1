//! One client, from its handshake to its end.
//!
//! 1. One thread receives, [`WORKERS`] threads do what was received. Requests may be answered in any order.
//! 2. A request that cannot be done is answered with an error. A client that breaks the protocol, so that
//!    the next request cannot be found, is disconnected.
//! 3. When the client has left, or the server stops, what was received is done first.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::budget::Share;
use super::handshake::{self, Greeted};
use super::reply::Replies;
use super::{STILL, Shared};
use crate::link::{self, Receiver, Socket};
use crate::wire::{self, ReadNumbers, RequestHead, broken};

/// Threads that do the requests of one client.
const WORKERS: usize = 4;
/// Requests that wait for a thread.
const QUEUE: usize = 64;

/// A request that was received, with the memory that it takes.
struct Work<'a> {
    head: RequestHead,
    data: Vec<u8>,
    _share: Share<'a>,
}

/// Requests between the thread that receives and those that do them.
struct Queue<'a> {
    state: Mutex<State<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct State<'a> {
    waiting: std::collections::VecDeque<Work<'a>>,
    ended: bool,
}

impl<'a> Queue<'a> {
    fn push(&self, work: Work<'a>) {
        let mut state = self.state.lock();
        while state.waiting.len() == QUEUE {
            self.changed.wait(&mut state);
        }
        state.waiting.push_back(work);
        self.changed.notify_all();
    }

    fn pop(&self) -> Option<Work<'a>> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                self.changed.notify_all();
                return Some(work);
            }
            if state.ended {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Serves a client until it leaves.
pub(crate) fn serve(shared: &Shared, socket: &Arc<Socket>) -> io::Result<()> {
    let Some(Greeted { link, structured }) = handshake::greet(shared, socket)? else {
        return Ok(());
    };
    let replies = Replies::new(link.sender, structured);
    let queue = Queue { state: Mutex::default(), changed: Condvar::new() };
    let mut from = link.receiver;
    std::thread::scope(|scope| {
        let work = || {
            while let Some(work) = queue.pop() {
                if answer(shared, &replies, &work).is_err() {
                    // The client does not receive: it is gone, or stands still.
                    socket.end();
                }
            }
        };
        let mut workers = 0;
        for _ in 0..WORKERS {
            let thread = std::thread::Builder::new().name("nbd-work".into());
            workers += usize::from(thread.spawn_scoped(scope, work).is_ok());
        }
        let received = match workers {
            0 => Err(io::ErrorKind::OutOfMemory.into()),
            _ => receive(shared, &mut from, &queue),
        };
        queue.end();
        received
    })
}

fn receive<'a>(shared: &'a Shared, from: &mut Receiver, queue: &Queue<'a>) -> io::Result<()> {
    loop {
        from.limit(None)?;
        let first: [u8; 1] = from.bytes()?;
        // It has begun a message, so it has to end it.
        from.limit(Some(STILL))?;
        let mut head = [0; RequestHead::LEN];
        head[0] = first[0];
        io::Read::read_exact(from, &mut head[1..])?;
        let head =
            RequestHead::parse(head).ok_or_else(|| broken("a request does not begin as one"))?;
        if head.command == wire::CMD_DISC || shared.is_stopping() {
            return Ok(());
        }
        let has_payload = head.command == wire::CMD_WRITE;
        if has_payload && head.len > wire::PAYLOAD_MAX {
            return Err(broken(format_args!("a write of {} bytes", head.len)));
        }
        let memory = match head.command {
            wire::CMD_READ | wire::CMD_WRITE => head.len.min(wire::PAYLOAD_MAX),
            _ => 0,
        };
        let share = shared.budget.take(memory as usize);
        let data = if has_payload {
            // The wait for memory is not the client's.
            from.allow(link::allowance(STILL, head.len as usize));
            from.payload(head.len as usize)?
        } else {
            Vec::new()
        };
        queue.push(Work { head, data, _share: share });
    }
}

/// Does a request and answers it.
fn answer(shared: &Shared, replies: &Replies, work: &Work<'_>) -> io::Result<()> {
    let head = work.head;
    match perform(shared, &head, &work.data) {
        Ok(Some(data)) => replies.data(head.cookie, head.offset, &data),
        Ok(None) => replies.status(head.cookie, 0),
        Err(code) => replies.status(head.cookie, code),
    }
}

/// Does a request. Returns what it reads, or the code of an error.
fn perform(shared: &Shared, head: &RequestHead, data: &[u8]) -> Result<Option<Vec<u8>>, u32> {
    let dev = &*shared.dev;
    let (offset, len) = (head.offset, u64::from(head.len));
    let inside = offset.checked_add(len).is_some_and(|end| end <= dev.len());
    let known = match head.command {
        wire::CMD_WRITE_ZEROES => wire::CMD_FLAG_FUA | wire::CMD_FLAG_NO_HOLE,
        _ => wire::CMD_FLAG_FUA,
    };
    if head.flags & !known != 0 {
        return Err(wire::EINVAL);
    }
    let writes = matches!(head.command, wire::CMD_WRITE | wire::CMD_TRIM | wire::CMD_WRITE_ZEROES);
    if writes && shared.read_only() {
        return Err(wire::EPERM);
    }
    if writes && !inside {
        return Err(wire::ENOSPC);
    }
    let fua = head.flags & wire::CMD_FLAG_FUA != 0;
    let durable = || if fua { dev.flush() } else { Ok(()) };
    let done = match head.command {
        wire::CMD_READ if !inside => return Err(wire::EINVAL),
        wire::CMD_READ if head.len > wire::PAYLOAD_MAX => return Err(wire::EOVERFLOW),
        wire::CMD_READ => {
            let mut buf = vec![0; head.len as usize];
            return match dev.read_at(offset, &mut buf) {
                Ok(()) => Ok(Some(buf)),
                Err(error) => Err(wire::code_of(&error)),
            };
        }
        wire::CMD_WRITE if fua => dev.write_fua_at(offset, data),
        wire::CMD_WRITE => dev.write_at(offset, data),
        wire::CMD_FLUSH if shared.read_only() => Ok(()),
        wire::CMD_FLUSH => dev.flush(),
        wire::CMD_TRIM => {
            dev.discard(offset, len);
            durable()
        }
        wire::CMD_WRITE_ZEROES => {
            let zeroed = dev.zero(offset, len);
            let solid = head.flags & wire::CMD_FLAG_NO_HOLE != 0;
            let zeroed =
                zeroed.and_then(|()| if solid { dev.allocate(offset, len) } else { Ok(()) });
            zeroed.and_then(|()| durable())
        }
        _ => return Err(wire::EINVAL),
    };
    done.map(|()| None).map_err(|error| wire::code_of(&error))
}
