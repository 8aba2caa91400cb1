//! Requests from memory, without a kernel: for tests and fuzzers of servers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::count::Tally;
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::outlet::{Outlet, ReplySink};

type Replies = Arc<Mutex<Vec<Vec<u8>>>>;

/// A reply's place in a list.
struct Listed {
    replies: Replies,
    room: usize,
}

impl ReplySink for Listed {
    fn room(&self) -> usize {
        self.room
    }

    fn send(self: Box<Self>, parts: &[&[u8]]) {
        self.replies.lock().push(parts.concat());
    }
}

/// Runs a request given as the bytes that a read of the device returns, and returns the bytes of
/// the replies that were sent meanwhile: none for a request without one or with a later one.
pub fn exchange(server: &impl Filesystem, request: &[u8]) -> Vec<Vec<u8>> {
    let replies = Replies::default();
    dispatch::run_message(server, request, &Tally::default(), |unique| Outlet::Sink {
        sink: Box::new(Listed { replies: Arc::clone(&replies), room: usize::MAX }),
        unique,
    });
    std::mem::take(&mut *replies.lock())
}

/// The same for a guest's request, whose caller has `room` bytes for the reply.
pub fn exchange_with_guest<S: Filesystem>(
    guest: &Connection<S>,
    request: &[u8],
    room: usize,
) -> Vec<Vec<u8>> {
    let replies = Replies::default();
    guest.run(request, || Listed { replies: Arc::clone(&replies), room });
    std::mem::take(&mut *replies.lock())
}
