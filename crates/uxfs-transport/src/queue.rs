//! Replies on their way to a ring, from the threads that give them to the worker that submits them.
//!
//! 1. A reply that is added while the worker does not sleep is seen before it sleeps. One that is
//!    added while it sleeps wakes it, once for all that are added meanwhile.
//! 2. A reply's content is in the memory of its entry, or is copied there by the worker when the
//!    request's arguments are no longer in use.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::CreateOut;

/// The replies of a ring that wait to be submitted.
pub(crate) struct Queue {
    replies: Mutex<Vec<Ready>>,
    /// The worker waits, or is about to, and must be woken for a reply.
    sleeps: AtomicBool,
    event: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            replies: Mutex::default(),
            sleeps: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// What becomes readable when the worker must wake.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn clear_event(&self) {
        let mut count = [0; 8];
        // It was read already if the wait ended for another reason.
        let _ = rustix::io::read(&self.event, &mut count);
    }

    /// Exchanges the replies for an empty list.
    pub(crate) fn take(&self, empty: &mut Vec<Ready>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut *self.replies.lock(), empty);
    }

    /// Notes that the worker is about to sleep, and returns true, unless there are replies.
    pub(crate) fn sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        let may = self.replies.lock().is_empty();
        if !may {
            self.wake_up();
        }
        may
    }

    /// Notes that the worker does not sleep.
    pub(crate) fn wake_up(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    fn add(&self, ready: Ready) {
        self.replies.lock().push(ready);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It fails only if the counter is full, and then the event is set.
            let _ = rustix::io::write(&self.event, 1_u64.as_bytes());
        }
    }
}

/// A small reply on its way: as large as the largest of a fixed size.
type Small = SmallVec<[u8; size_of::<CreateOut>()]>;

/// A reply to be submitted.
pub(crate) struct Ready {
    pub(crate) entry: usize,
    pub(crate) unique: u64,
    pub(crate) result: Result<(), Errno>,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Copied(Small),
    /// The entry's own memory, and how many bytes of it.
    InPlace(Box<[u8]>, usize),
}

/// Where the reply to one request goes.
pub(crate) struct RingOutlet {
    queue: Arc<Queue>,
    entry: usize,
    unique: u64,
    payload: Option<Box<[u8]>>,
}

impl RingOutlet {
    /// The place for the reply of an entry, with the entry's memory if content may be written there.
    pub(crate) fn new(
        queue: Arc<Queue>,
        entry: usize,
        unique: u64,
        payload: Option<Box<[u8]>>,
    ) -> Self {
        Self { queue, entry, unique, payload }
    }

    pub(crate) fn send(mut self, result: Result<(), Errno>, body: &[&[u8]]) {
        let content = match self.payload.take() {
            None => {
                let mut copied = Small::new();
                body.iter().for_each(|part| copied.extend_from_slice(part));
                Content::Copied(copied)
            }
            Some(mut payload) => {
                let mut len = 0;
                for part in body {
                    let part = &part[..part.len().min(payload.len() - len)];
                    payload[len..len + part.len()].copy_from_slice(part);
                    len += part.len();
                }
                Content::InPlace(payload, len)
            }
        };
        self.leave(result, content);
    }

    pub(crate) fn fill(
        mut self,
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) {
        let Some(mut payload) = self.payload.take() else { return self.send(Err(Errno::IO), &[]) };
        let limit = limit.min(payload.len());
        let (result, len) = match fill(&mut payload[..limit]) {
            Ok(len) => (Ok(()), len.min(limit)),
            Err(error) => (Err(error), 0),
        };
        self.leave(result, Content::InPlace(payload, len));
    }

    fn leave(self, result: Result<(), Errno>, content: Content) {
        let Self { entry, unique, .. } = self;
        self.queue.add(Ready { entry, unique, result, content });
    }
}
