//! The device as its monitor sees it: features, configuration, and queues that are served when the guest
//! announces requests.
//!
//! Queue 0 is for requests that must not wait behind others (forgotten inodes); the others are for all
//! requests. Each queue has a thread.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_transport::{Connection, Filesystem, Requests};
use uxfs_vhost::{Memory, Stop, Vring};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringT};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::pool::Pool;
use crate::queue::{Place, Queue};

/// Bits of the features of a virtio device: the version of its standard, chains in tables of their own,
/// and notifications only where they are needed.
const VERSION_1: u64 = 1 << 32;
const INDIRECT_DESC: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;

/// Most entries of a queue.
const QUEUE_SIZE: usize = 1024;
/// Most queues for requests.
const QUEUES_MAX: usize = 16;
/// Bytes of the name in the device's configuration, before the number of queues.
const TAG_LEN: usize = 36;

/// How a guest is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that answer requests, and queues that a guest may use.
    pub threads: usize,
    /// The name of the file system for the guest, for monitors that ask this process for it. At most 36
    /// bytes.
    pub tag: Option<String>,
}

impl Settings {
    fn queues(&self) -> usize {
        self.threads.clamp(1, QUEUES_MAX)
    }
}

/// The device of one guest.
pub(crate) struct Device<S> {
    connection: Arc<Connection<S>>,
    settings: Settings,
    queues: Vec<Arc<Queue>>,
    helpers: Pool<Place>,
    stop: Arc<Stop>,
    /// A monitor has asked for the features.
    was_used: AtomicBool,
}

impl<S: Filesystem> Device<S> {
    pub(crate) fn new(
        (server, requests): (Arc<S>, &Requests),
        settings: &Settings,
        memory: &Memory,
        stop: &Arc<Stop>,
    ) -> io::Result<Self> {
        let connection = Arc::new(Connection::new(server, requests));
        let queue = |_| Queue::new(memory.clone(), Arc::clone(stop));
        let (answering, failing) = (Arc::clone(&connection), Arc::clone(stop));
        let helpers = Pool::start(settings.threads.saturating_sub(1), move |place| {
            answer(&answering, place, &failing);
        })?;
        Ok(Self {
            connection,
            settings: settings.clone(),
            queues: (0..=settings.queues()).map(queue).collect(),
            helpers,
            stop: Arc::clone(stop),
            was_used: AtomicBool::new(false),
        })
    }

    fn serve(&self, queue: &Arc<Queue>, vring: &Vring) {
        let mut next = queue.take(vring, Connection::<S>::MESSAGE_MAX);
        while let Some(place) = next {
            next = queue.take(vring, Connection::<S>::MESSAGE_MAX);
            // This thread answers the last one: handing it over takes longer.
            let mine = match next {
                Some(_) => self.helpers.give(place).err(),
                None => Some(place),
            };
            if let Some(place) = mine {
                answer(&self.connection, place, &self.stop);
                next = next.or_else(|| queue.take(vring, Connection::<S>::MESSAGE_MAX));
            }
        }
    }
}

impl<S: Filesystem> uxfs_vhost::Device for Device<S> {
    fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Acquire)
    }

    /// Waits for all replies, and makes the server forget what the guest knew.
    fn end(&self) {
        self.queues.iter().for_each(|queue| queue.drain());
        self.connection.end();
    }
}

thread_local! {
    /// The request that a thread answers.
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Answers a request, now or later.
fn answer<S: Filesystem>(connection: &Connection<S>, place: Place, stop: &Stop) {
    let work = || {
        MESSAGE.with_borrow_mut(|buffer| {
            // A request that cannot be read is returned without a reply.
            let chain = place.chain().clone();
            if let Ok(message) = chain.read(buffer) {
                connection.run(message, move || place);
            }
        });
    };
    // Whatever the panic left behind ends with the connection.
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        stop.fail("a request panicked".into());
    }
}

impl<S: Filesystem> VhostUserBackend for Device<S> {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.queues.len()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        self.was_used.store(true, Ordering::Release);
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        VERSION_1 | INDIRECT_DESC | EVENT_IDX | protocol
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as Features;
        let always = Features::MQ | Features::REPLY_ACK | Features::CONFIGURE_MEM_SLOTS;
        match self.settings.tag {
            Some(_) => always | Features::CONFIG,
            None => always,
        }
    }

    fn set_event_idx(&self, _: bool) {
        // Each queue knows.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = [0; TAG_LEN + 4];
        let tag = self.settings.tag.as_deref().unwrap_or_default().as_bytes();
        let len = tag.len().min(TAG_LEN);
        config[..len].copy_from_slice(&tag[..len]);
        let queues = u32::try_from(self.settings.queues()).unwrap_or(1);
        config[TAG_LEN..].copy_from_slice(&queues.to_le_bytes());
        let rest = config.iter().copied().skip(offset as usize).chain(std::iter::repeat(0));
        // A page is more than any device has.
        rest.take((size as usize).min(4096)).collect()
    }

    fn update_memory(&self, _: Memory) -> io::Result<()> {
        // The queues look at the memory each time.
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.queues.len()).map(|queue| 1 << queue).collect()
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        if let Some(queue) = self.queues.get(queue as usize) {
            queue.drain();
        }
        Ok(())
    }

    fn handle_event(
        &self,
        event: u16,
        _: EventSet,
        vrings: &[Vring],
        thread: usize,
    ) -> io::Result<()> {
        let (Some(queue), Some(vring), 0) = (self.queues.get(thread), vrings.first(), event) else {
            return Ok(());
        };
        loop {
            // The addresses of the ring may lie anywhere.
            let disabled = vring.disable_notification();
            self.serve(queue, vring);
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
