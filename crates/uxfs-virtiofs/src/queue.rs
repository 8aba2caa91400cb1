//! One queue of the device: requests come out of it, replies go back into it from any thread.
//!
//! 1. A request that was taken from the queue is returned to it once: with its reply, or without one when
//!    its [`Place`] is dropped.
//! 2. When the queue is not ready, [`Queue::drain`] returns when every request is returned, and no
//!    further one is taken. So a request is taken and counted, and returned and no longer counted,
//!    under the ring's lock.
//! 3. A queue whose ring makes no sense is broken, and ends the connection.
//! 4. Nothing is taken any more when the connection is to end, however much the guest has put there.

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
            if !guard.get_queue().ready() || self.stop.is_set() {
                return None;
            }
            let next = guard.get_queue_mut().iter(memory.clone()).map(|mut ring| ring.next());
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
            drop((taken, guard));
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
        if let Err(error) = done {
            self.queue.stop.fail(format!("the guest's queue is broken: {error}"));
        }
        *self.queue.taken.lock() -= 1;
        drop(guard);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use vm_memory::{Bytes, GuestAddress, GuestMemoryAtomic};

    use super::*;

    const TABLE: u64 = 0x1000;
    const AVAILABLE: u64 = 0x2000;
    const USED: u64 = 0x3000;

    /// A thread takes and returns requests, and another stops the queue again and again.
    #[test]
    fn a_queue_that_is_stopped_and_drained_has_returned_what_was_taken() {
        let ranges = [(GuestAddress(0), 0x10000)];
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::from_ranges(&ranges).unwrap());
        let vring = Vring::new(memory.clone(), 8).unwrap();
        vring.set_queue_size(8);
        vring.set_queue_info(TABLE, AVAILABLE, USED).unwrap();
        let queue = Queue::new(memory.clone(), Stop::new());
        let number = |at| memory.memory().read_obj::<u16>(GuestAddress(at + 2)).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    // One chain more than came back, of an empty descriptor.
                    let next = number(USED).wrapping_add(1);
                    memory.memory().write_obj(next, GuestAddress(AVAILABLE + 2)).unwrap();
                    drop(queue.take(&vring, 100));
                }
            });
            for round in 0..500 {
                let before = number(USED);
                vring.set_queue_ready(true);
                while number(USED) == before {
                    std::thread::yield_now();
                }
                vring.set_queue_ready(false);
                queue.drain();
                let returned = number(USED);
                if vring.queue_next_avail() != returned {
                    ends.store(true, Ordering::Relaxed);
                    panic!("round {round}: a request was taken and not returned");
                }
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}
