//! The device as its monitor sees it: features, configuration, and one queue that a thread serves.
//!
//! 1. When the monitor stops the queue, the request that is being done is answered first. Nothing
//!    writes to the guest's memory after that.
//! 2. A guest that does not know flushes gets a disk whose writes are durable when they are answered.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use uxfs_vhost::{Chain, Memory, Stop, Vring};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringT};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::request::{Cache, Disk, LONGEST, RANGE_SECTORS_MAX, RANGES_MAX, SECTOR, Status};

/// Features of a virtio device: the version of its standard, chains in tables of their own, and
/// notifications only where they are needed.
const VERSION_1: u64 = 1 << 32;
const INDIRECT_DESC: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;
/// Features of a disk: limits of segments, read-only, the block size, flushes, the physical block size,
/// discards, zeroes.
const SIZE_MAX: u64 = 1 << 1;
const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// Most entries of the queue.
const QUEUE_SIZE: usize = 256;
/// Most bytes of a segment, and segments of a request: together less than the longest request.
const SEGMENT_LEN: u32 = 64 << 10;
const SEGMENTS: u32 = 120;
/// Sectors of a physical block, as a power of two: 4096 bytes.
const PHYSICAL_BLOCK_EXP: u8 = 3;
/// Bytes of the configuration.
const CONFIG_LEN: usize = 60;

/// The device of one guest.
pub(crate) struct Device {
    disk: Arc<Disk>,
    memory: Memory,
    stop: Arc<Stop>,
    was_used: AtomicBool,
    /// Held from taking a request until it is returned.
    answering: Mutex<()>,
    /// The guest sends flushes.
    flushes: AtomicBool,
}

impl Device {
    pub(crate) fn new(disk: Arc<Disk>, memory: Memory, stop: Arc<Stop>) -> Self {
        Self {
            disk,
            memory,
            stop,
            was_used: AtomicBool::new(false),
            answering: Mutex::default(),
            flushes: AtomicBool::new(false),
        }
    }

    fn config(&self) -> [u8; CONFIG_LEN] {
        let mut config = [0; CONFIG_LEN];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.disk.sectors().to_le_bytes());
        put(8, &SEGMENT_LEN.to_le_bytes());
        put(12, &SEGMENTS.to_le_bytes());
        put(20, &(SECTOR as u32).to_le_bytes());
        put(24, &[PHYSICAL_BLOCK_EXP]);
        // The cache is one that loses writes.
        put(32, &[1]);
        put(34, &1_u16.to_le_bytes());
        for limits in [36, 48] {
            put(limits, &RANGE_SECTORS_MAX.to_le_bytes());
            put(limits + 4, &RANGES_MAX.to_le_bytes());
        }
        // Discards begin at any sector.
        put(44, &1_u32.to_le_bytes());
        config
    }

    /// Answers requests until there is none.
    fn serve(&self, vring: &Vring) -> io::Result<()> {
        let broken = |error: virtio_queue::Error| io::Error::other(error.to_string());
        let mut bytes = Vec::new();
        while !self.stop.is_set() {
            let _answering = self.answering.lock();
            let memory = self.memory.memory();
            let mut guard = vring.get_mut();
            if !guard.get_queue().ready() {
                return Ok(());
            }
            let next = guard.get_queue_mut().iter(memory.clone()).map(|mut ring| ring.next());
            drop(guard);
            let Some(chain) = next.map_err(broken)? else { return Ok(()) };
            let head = chain.head_index();
            // One that is malformed goes back without a reply, because it has no place for one. One
            // that is too long has.
            let len = match Chain::of(chain, memory, usize::MAX) {
                Ok(chain) => self.answer(&chain, &mut bytes),
                Err(_) => 0,
            };
            let mut guard = vring.get_mut();
            guard.add_used(head, len).map_err(broken)?;
            if guard.needs_notification().map_err(broken)? {
                // It fails if the monitor is gone.
                let _ = guard.signal_used_queue();
            }
        }
        Ok(())
    }

    fn cache(&self) -> Cache {
        match self.flushes.load(Ordering::Acquire) {
            true => Cache::Volatile,
            false => Cache::WriteThrough,
        }
    }

    /// Does a request, and writes the reply into the guest's memory. Returns the reply's length.
    fn answer<M>(&self, chain: &Chain<M>, bytes: &mut Vec<u8>) -> u32
    where
        M: std::ops::Deref + Clone,
        M::Target: vm_memory::GuestMemory,
    {
        // The last byte is for the status; without it, there is no reply.
        let Some(room) = chain.room().checked_sub(1) else { return 0 };
        if room > LONGEST || chain.len() > LONGEST {
            // The guest finds no success in memory that was not written.
            return chain.write_last(Status::Error as u8).unwrap_or(0);
        }
        let Ok(request) = chain.read(bytes) else { return 0 };
        let mut reply = self.disk.answer(request, room, self.cache());
        reply.data.resize(room, 0);
        // A reply that cannot be written is none.
        chain.write(&[&reply.data, &[reply.status as u8]]).unwrap_or(0)
    }
}

impl uxfs_vhost::Device for Device {
    fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Acquire)
    }

    fn end(&self) {
        // Every request that was taken is answered.
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        1
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        self.was_used.store(true, Ordering::Release);
        let disk = SIZE_MAX | SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | DISCARD | WRITE_ZEROES;
        let read_only = if self.disk.read_only() { READ_ONLY } else { 0 };
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        VERSION_1 | INDIRECT_DESC | EVENT_IDX | disk | read_only | protocol
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as Features;
        Features::MQ | Features::REPLY_ACK | Features::CONFIGURE_MEM_SLOTS | Features::CONFIG
    }

    fn acked_features(&self, features: u64) {
        self.flushes.store(features & FLUSH != 0, Ordering::Release);
    }

    fn set_event_idx(&self, _: bool) {
        // The queue knows.
    }

    fn stop_vring(&self, _: u32) -> io::Result<()> {
        // The queue is not ready any more, so no further request is taken.
        drop(self.answering.lock());
        Ok(())
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let config = self.config();
        let rest = config.iter().copied().skip(offset as usize).chain(std::iter::repeat(0));
        // A page is more than any device has.
        rest.take((size as usize).min(4096)).collect()
    }

    fn update_memory(&self, _: Memory) -> io::Result<()> {
        // The queue looks at the memory each time.
        Ok(())
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn handle_event(&self, event: u16, _: EventSet, vrings: &[Vring], _: usize) -> io::Result<()> {
        let (Some(vring), 0) = (vrings.first(), event) else { return Ok(()) };
        loop {
            // The addresses of the ring may lie anywhere.
            let disabled = vring.disable_notification();
            let served = catch_unwind(AssertUnwindSafe(|| self.serve(vring)));
            let served = served.unwrap_or_else(|_| Err(io::Error::other("a request panicked")));
            if let Err(error) = served {
                self.stop.fail(format!("the guest's queue is broken: {error}"));
                return Ok(());
            }
            match disabled.and_then(|()| vring.enable_notification()) {
                Ok(true) if !self.stop.is_set() => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    self.stop.fail(format!("the guest's queue is broken: {error}"));
                    return Ok(());
                }
            }
        }
    }
}
