//! One queue of the device: requests come out of it, replies go back into it from any thread.
//!
//! 1. A request that was taken from the queue is returned to it once: with its reply, or without one when
//!    its [`Place`] is dropped.
//! 2. [`Queue::drain`] returns when every request is returned.
//! 3. A queue whose ring makes no sense is broken, and ends the connection.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use uxfs_transport::ReplySink;
use uxfs_vhost::{Chain, Memory, Stop, Vring};
use vhost_user_backend::VringT;
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryLoadGuard, GuestMemoryMmap};

pub(crate) type Snapshot = GuestMemoryLoadGuard<GuestMemoryMmap>;

/// A queue, beside what the monitor's messages change of it (the [`Vring`]).
pub(crate) struct Queue {
    memory: Memory,
    stop: Arc<Stop>,
    /// Number of requests that were taken and not returned.
    taken: Mutex<usize>,
    returned: Condvar,
}

impl Queue {
    pub(crate) fn new(memory: Memory, stop: Arc<Stop>) -> Arc<Self> {
        Arc::new(Self { memory, stop, taken: Mutex::new(0), returned: Condvar::new() })
    }

    /// Takes the next request. `longest` is the most bytes of one.
    pub(crate) fn take(self: &Arc<Self>, vring: &Vring, longest: usize) -> Option<Place> {
        loop {
            let memory = self.memory.memory();
            let mut guard = vring.get_mut();
            let size = guard.get_queue().size();
            if !guard.get_queue().ready() {
                return None;
            }
            let next = guard.get_queue_mut().iter(memory.clone()).map(|mut ring| ring.next());
            drop(guard);
            let chain = match next {
                Ok(Some(chain)) => chain,
                Ok(None) => return None,
                Err(error) => {
                    self.stop.fail(format!("the guest's queue is broken: {error}"));
                    return None;
                }
            };
            let mut taken = self.taken.lock();
            if *taken >= usize::from(size) {
                self.stop.fail("the guest has more requests under way than its queue takes".into());
                return None;
            }
            *taken += 1;
            drop(taken);
            let (queue, vring, head) = (Arc::clone(self), vring.clone(), chain.head_index());
            let back = Back { queue, vring, head, len: 0 };
            // One that is malformed goes back without a reply, because it has no place for one.
            if let Ok(chain) = Chain::of(chain, memory, longest) {
                return Some(Place { chain, back });
            }
        }
    }

    /// Waits until every request is returned.
    pub(crate) fn drain(&self) {
        let mut taken = self.taken.lock();
        self.returned.wait_while(&mut taken, |taken| *taken > 0);
    }
}

/// Returns a request to its queue when dropped.
struct Back {
    queue: Arc<Queue>,
    vring: Vring,
    head: u16,
    /// Bytes of the reply.
    len: u32,
}

impl Drop for Back {
    fn drop(&mut self) {
        let mut guard = self.vring.get_mut();
        let mut done = guard.add_used(self.head, self.len);
        if done.is_ok() {
            done = guard.needs_notification().map(|wanted| {
                if wanted {
                    // It fails if the monitor is gone.
                    let _ = guard.signal_used_queue();
                }
            });
        }
        drop(guard);
        if let Err(error) = done {
            self.queue.stop.fail(format!("the guest's queue is broken: {error}"));
        }
        *self.queue.taken.lock() -= 1;
        self.queue.returned.notify_all();
    }
}

/// A request that was taken, and the place for its reply.
pub(crate) struct Place {
    chain: Chain<Snapshot>,
    back: Back,
}

impl Place {
    /// The chain of the request.
    pub(crate) fn chain(&self) -> &Chain<Snapshot> {
        &self.chain
    }
}

impl ReplySink for Place {
    fn room(&self) -> usize {
        self.chain.room()
    }

    fn send(mut self: Box<Self>, parts: &[&[u8]]) {
        // A reply that cannot be written is none.
        self.back.len = self.chain.write(parts).unwrap_or(0);
    }
}
