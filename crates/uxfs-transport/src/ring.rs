//! Requests over io_uring, which the kernel has since 6.14: one queue for each processor, each with
//! a ring and a worker that runs on that processor.
//!
//! The kernel gives a request to the queue of the processor that its caller runs on. Client and
//! worker then share the processor, so a request costs two switches between threads and wakes no
//! other processor. A reply and the wait for the next request are one system call.
//!
//! 1. A queue has a fixed number of entries. A request occupies an entry until it is answered;
//!    further requests wait in the kernel.
//! 2. Only the worker touches its ring. Replies of other threads are left with the queue; an event
//!    wakes the worker if it sleeps, once for all that are left meanwhile.
//! 3. The memory of an entry is written by the kernel before a request is seen here, and read by
//!    the kernel after its reply is submitted, never in between.
//! 4. A reply of any length is written to the memory of its entry, unless the request's own
//!    arguments lie there; then it is copied when they are no longer in use.
//!
//! Notifications, interrupts and forgotten inodes stay with the device.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{InHeader, fixed_len};
use crate::device::Device;
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::outlet::{Outlet, header};
use crate::reply::Small;
use crate::request::Args;
use crate::sys::{self, EntryMemory, Ring};

/// The number of the submission that waits for the queue's event.
const EVENT: u64 = u64::MAX;
const ENOTCONN: i32 = 107;
const ECONNABORTED: i32 = 103;
const ECANCELED: i32 = 125;

/// The replies of a queue that wait to be submitted.
struct Queue {
    replies: Mutex<Vec<Ready>>,
    /// The worker waits, or is about to, and must be woken for a reply.
    sleeps: AtomicBool,
    event: OwnedFd,
}

/// A reply to be submitted.
struct Ready {
    entry: usize,
    unique: u64,
    result: Result<(), Errno>,
    content: Content,
}

enum Content {
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
        let ready = Ready { entry: self.entry, unique: self.unique, result, content };
        self.queue.replies.lock().push(ready);
        if self.queue.sleeps.swap(false, Ordering::SeqCst) {
            // It fails only if the counter is full, and then the event is set.
            let _ = rustix::io::write(&self.queue.event, 1_u64.as_bytes());
        }
    }
}

/// Can rings be made here? Containers often forbid it.
pub(crate) fn is_possible() -> bool {
    new_ring(1).is_ok()
}

fn new_ring(entries: usize) -> io::Result<Ring> {
    let entries = u32::try_from(entries.next_power_of_two()).unwrap_or(u32::MAX);
    Ring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)
}

/// The worker of a queue.
pub(crate) struct Worker {
    /// Before the memory that the kernel uses through it, so that it is dropped first.
    ring: Ring,
    entries: Vec<EntryMemory>,
    queue: Arc<Queue>,
    number: u16,
    device: Arc<Device>,
}

impl Worker {
    /// The worker of queue `number`, which the calling thread becomes.
    pub(crate) fn new(
        device: Arc<Device>,
        number: u16,
        depth: usize,
        payload_size: usize,
    ) -> io::Result<Self> {
        let queue = Queue {
            replies: Mutex::default(),
            sleeps: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let mut worker = Self {
            ring: new_ring(depth + 1)?,
            entries: (0..depth).map(|_| EntryMemory::new(payload_size)).collect(),
            queue: Arc::new(queue),
            number,
            device,
        };
        let Self { ring, entries, queue, device, .. } = &mut worker;
        for (index, entry) in (0..).zip(entries.iter()) {
            sys::push_register(ring, device.as_fd(), number, (index, entry))?;
        }
        sys::push_poll(ring, queue.event.as_fd(), EVENT)?;
        Ok(worker)
    }

    /// Answers requests until the mount is gone.
    pub(crate) fn run(mut self, server: &impl Filesystem) -> io::Result<()> {
        let mut completions = Vec::with_capacity(self.entries.len() + 1);
        let mut replies = Vec::with_capacity(self.entries.len());
        loop {
            std::mem::swap(&mut *self.queue.replies.lock(), &mut replies);
            for ready in replies.drain(..) {
                self.commit(ready)?;
            }
            self.queue.sleeps.store(true, Ordering::SeqCst);
            if !self.queue.replies.lock().is_empty() {
                self.queue.sleeps.store(false, Ordering::SeqCst);
                continue;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.queue.sleeps.store(false, Ordering::SeqCst);
            let done = self.ring.completion().map(|entry| (entry.user_data(), entry.result()));
            completions.extend(done);
            for (number, result) in completions.drain(..) {
                match (usize::try_from(number), result) {
                    _ if number == EVENT => {
                        let mut count = [0; 8];
                        // It was read already if the poll ended for another reason.
                        let _ = rustix::io::read(&self.queue.event, &mut count);
                        sys::push_poll(&mut self.ring, self.queue.event.as_fd(), EVENT)?;
                    }
                    (_, error) if [ENOTCONN, ECONNABORTED, ECANCELED].contains(&-error) => {
                        return Ok(());
                    }
                    (Ok(entry), 0..) if entry < self.entries.len() => self.answer(entry, server),
                    (_, error) => return Err(io::Error::from_raw_os_error(-error)),
                }
            }
        }
    }

    /// Runs the request of an entry.
    fn answer(&mut self, entry: usize, server: &impl Filesystem) {
        let memory = &mut self.entries[entry];
        let head: InHeader = memory.header.request();
        let direct = dispatch::answers_with_content(head.opcode);
        let payload = if direct { memory.payload.take() } else { None };
        let unique = head.unique;
        let outlet = RingOutlet { queue: Arc::clone(&self.queue), entry, unique, payload };
        let len = memory.header.payload_size as usize;
        let rest = memory.payload.as_deref().and_then(|payload| payload.get(..len));
        let fixed = fixed_len(head.opcode).unwrap_or(0);
        let args = Args {
            fixed: &memory.header.op_in.as_bytes()[..fixed],
            rest: rest.unwrap_or_default(),
        };
        dispatch::run(server, &head, args, Outlet::Ring(outlet));
    }

    /// Submits a reply.
    fn commit(&mut self, ready: Ready) -> io::Result<()> {
        let Ready { entry, unique, result, content } = ready;
        let memory = &mut self.entries[entry];
        let (len, result) = match content {
            Content::InPlace(payload, len) => {
                memory.payload = Some(payload);
                (len, result)
            }
            Content::Copied(bytes) => {
                match memory.payload.as_mut().and_then(|to| to.get_mut(..bytes.len())) {
                    Some(to) => {
                        to.copy_from_slice(&bytes);
                        (bytes.len(), result)
                    }
                    None => (0, Err(Errno::IO)),
                }
            }
        };
        let size = u32::try_from(len).unwrap_or(u32::MAX);
        memory.header.set_reply(header(unique, result, len), size);
        let commit = (entry as u64, memory.header.commit_id);
        sys::push_commit(&mut self.ring, self.device.as_fd(), self.number, commit)
    }
}
