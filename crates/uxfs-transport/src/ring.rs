//! Requests over io_uring, which the kernel has since 6.14: one queue for each processor, each with
//! a ring and a worker that runs on that processor.
//!
//! The kernel gives a request to the queue of the processor that its caller runs on. Client and
//! worker then share the processor, so a request costs two switches between threads and wakes no
//! other processor. A reply and the wait for the next request are one system call.
//!
//! 1. A queue has a fixed number of entries. A request occupies an entry until it is answered;
//!    further requests wait in the kernel.
//! 2. Only the worker touches its ring. Replies are left with its queue ([`crate::queue`]).
//! 3. The memory of an entry is written by the kernel before a request is seen here, and read by
//!    the kernel after its reply is submitted, never in between.
//! 4. A reply of any length is written to the memory of its entry, unless the request's own
//!    arguments lie there; then it is copied when they are no longer in use.
//!
//! Notifications, interrupts and forgotten inodes stay with the device.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{InHeader, fixed_len};
use crate::count::Tally;
use crate::device::Device;
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::head::header;
use crate::outlet::Outlet;
use crate::queue::{Content, Queue, Ready, RingOutlet};
use crate::request::{Args, Origin};
use crate::stop::Stop;
use crate::sys::{self, EntryMemory, Ring};

/// The numbers of the submissions that wait for the queue's event, and for the connection's end.
const EVENT: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const ENOTCONN: i32 = 107;
const ECONNABORTED: i32 = 103;
const ECANCELED: i32 = 125;

/// Can rings be made here? Containers often forbid it.
pub(crate) fn is_possible() -> bool {
    new_ring(1).is_ok()
}

fn new_ring(entries: usize) -> io::Result<Ring> {
    let entries = u32::try_from(entries.next_power_of_two()).unwrap_or(u32::MAX);
    Ring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)
}

/// The processors that this machine may ever have, as the kernel lists them.
pub(crate) const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Number of processors in such a list, and so of a connection's rings. `None` if the list cannot be read, for
/// example without sysfs. The kernel serves no request before there is a ring for each processor.
pub(crate) fn processors(list: &Path) -> Option<u16> {
    counted(&std::fs::read_to_string(list).ok()?)
}

/// One more than the last number of a list such as `0-3`.
pub(crate) fn counted(list: &str) -> Option<u16> {
    list.trim().rsplit(['-', ',']).next()?.parse::<u16>().ok()?.checked_add(1)
}

/// Entries of each of `rings` rings: requests of a processor's callers that may be in progress at
/// once.
pub(crate) fn depth(rings: u16) -> usize {
    (256 / usize::from(rings.max(1))).clamp(8, 64)
}

/// The worker of a queue.
pub(crate) struct Worker {
    /// Before the memory that the kernel uses through it, so that it is dropped first.
    ring: Ring,
    entries: Vec<EntryMemory>,
    queue: Arc<Queue>,
    number: u16,
    device: Arc<Device>,
    tally: Arc<Tally>,
    stop: Arc<Stop>,
    /// A request came.
    served: bool,
}

impl Worker {
    /// The worker of queue `number`, which the calling thread becomes.
    pub(crate) fn new(
        device: Arc<Device>,
        tally: Arc<Tally>,
        stop: Arc<Stop>,
        number: u16,
        depth: usize,
        payload_size: usize,
    ) -> io::Result<Self> {
        let mut worker = Self {
            ring: new_ring(depth + 2)?,
            entries: (0..depth).map(|_| EntryMemory::new(payload_size)).collect(),
            queue: Arc::new(Queue::new()?),
            number,
            device,
            tally,
            stop,
            served: false,
        };
        let Self { ring, entries, queue, device, stop, .. } = &mut worker;
        for (index, entry) in (0..).zip(entries.iter()) {
            sys::push_register(ring, device.as_fd(), number, (index, entry))?;
        }
        sys::push_poll(ring, queue.event(), EVENT)?;
        sys::push_poll(ring, stop.as_fd(), STOP)?;
        Ok(worker)
    }

    /// Answers requests until the mount is gone or another thread stops the connection.
    pub(crate) fn run(mut self, server: &impl Filesystem) -> io::Result<()> {
        let mut completions = Vec::with_capacity(self.entries.len() + 2);
        let mut replies = Vec::with_capacity(self.entries.len());
        loop {
            self.queue.take(&mut replies);
            for ready in replies.drain(..) {
                self.commit(ready)?;
            }
            if !self.queue.sleep() {
                continue;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // A signal, or a kernel that is short of memory for the moment.
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error),
            }
            self.queue.wake_up();
            let done = self.ring.completion().map(|entry| (entry.user_data(), entry.result()));
            completions.extend(done);
            for (number, result) in completions.drain(..) {
                match (usize::try_from(number), result) {
                    _ if number == EVENT => {
                        self.queue.clear_event();
                        sys::push_poll(&mut self.ring, self.queue.event(), EVENT)?;
                    }
                    _ if number == STOP => return Ok(()),
                    (_, error) if [ENOTCONN, ECONNABORTED, ECANCELED].contains(&-error) => {
                        return Ok(());
                    }
                    (Ok(entry), 0..) if entry < self.entries.len() => self.answer(entry, server),
                    // The kernel does not take this ring. All requests then come over the device.
                    (_, _) if !self.served => return Ok(()),
                    (_, error) => return Err(io::Error::from_raw_os_error(-error)),
                }
            }
        }
    }

    /// Runs the request of an entry.
    fn answer(&mut self, entry: usize, server: &impl Filesystem) {
        self.served = true;
        let memory = &mut self.entries[entry];
        let head: InHeader = memory.header.request();
        self.tally.count(head.opcode);
        let direct = dispatch::answers_with_content(head.opcode);
        let payload = if direct { memory.payload.take() } else { None };
        let unique = head.unique;
        let outlet = RingOutlet::new(Arc::clone(&self.queue), entry, unique, payload);
        let len = memory.header.payload_size as usize;
        let rest = memory.payload.as_deref().and_then(|payload| payload.get(..len));
        let fixed = fixed_len(head.opcode).unwrap_or(0);
        let args = Args {
            fixed: &memory.header.op_in.as_bytes()[..fixed],
            rest: rest.unwrap_or_default(),
        };
        dispatch::run(server, &head, args, Origin::Host, Outlet::Ring(outlet));
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

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | ResourceBusy | WouldBlock)
}
