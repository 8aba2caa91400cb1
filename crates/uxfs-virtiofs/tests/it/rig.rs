//! A monitor and its guest's memory, with one queue for requests, and a server that notes what it is asked.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uxfs_transport::{Attr, Filesystem, Handle, Negotiation, Node, ReplyAttr, ReplyEmpty, Request};
use uxfs_virtiofs::{Access, Host, Settings, Socket, Stopper};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Bytes of the guest's memory, and where the parts of the queue lie in it.
pub(crate) const MEMORY: u64 = 4 << 20;
pub(crate) const TABLE: u64 = 0x1000;
pub(crate) const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
/// Room for requests and replies.
pub(crate) const REQUEST: u64 = 0x10000;
pub(crate) const REPLY: u64 = 0x20000;
/// Entries of the queue.
pub(crate) const SIZE: u16 = 8;

pub(crate) const INIT: u32 = 26;
pub(crate) const GETATTR: u32 = 3;
pub(crate) const FSYNC: u32 = 20;

const WAIT: Duration = Duration::from_secs(30);

/// What the server was asked, and the replies that it keeps back.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) forgot_all: AtomicU32,
    pub(crate) parked: Mutex<Vec<ReplyEmpty>>,
    /// Called for each request for attributes, before its reply.
    pub(crate) on_getattr: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Server(Arc<Asked>);

impl Filesystem for Server {
    fn init(&self, _: &mut Negotiation) -> io::Result<()> {
        Ok(())
    }
    fn getattr(&self, req: &Request, node: Node, reply: ReplyAttr) {
        assert!(req.is_of_guest());
        assert_ne!(node, Node(13), "planted");
        if let Some(hook) = self.0.on_getattr.get() {
            hook();
        }
        reply.send(Ok((Attr { ino: node.0, size: 77, ..Attr::default() }, Duration::ZERO)));
    }
    fn fsync(&self, _: &Request, _: Node, _: Handle, _: bool, reply: ReplyEmpty) {
        self.0.parked.lock().unwrap().push(reply);
    }
    fn forget_all(&self) {
        self.0.forgot_all.fetch_add(1, Ordering::SeqCst);
    }
}

/// A part of a chain: address, length, and whether the reply goes there.
pub(crate) type Part = (u64, u32, bool);

pub(crate) struct Rig {
    pub(crate) asked: Arc<Asked>,
    pub(crate) stopper: Stopper,
    thread: JoinHandle<io::Result<bool>>,
    pub(crate) monitor: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) file: File,
    kick: EventFd,
    available: u16,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A guest that is ready to send requests.
    pub(crate) fn new() -> Self {
        let mut rig = Self::connected();
        rig.share_memory().unwrap();
        rig.start_queue(TABLE, AVAILABLE, USED).unwrap();
        rig
    }

    /// A guest whose first request was answered.
    pub(crate) fn begun() -> Self {
        let mut rig = Self::new();
        rig.ask(INIT, 0);
        rig
    }

    /// A monitor that has agreed on features.
    pub(crate) fn connected() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = Socket::bind(&path, Access::default()).unwrap();
        let asked = Arc::<Asked>::default();
        let settings = Settings { threads: 2, tag: Some("name".into()) };
        let host = Host::new(Server(Arc::clone(&asked)), socket, settings).unwrap();
        let stopper = host.stopper();
        let thread = std::thread::spawn(move || host.serve_one());
        let mut monitor = Frontend::connect(&path, 3).unwrap();
        monitor.set_owner().unwrap();
        let features = monitor.get_features().unwrap();
        let ours = monitor.get_protocol_features().unwrap();
        assert!(ours.contains(VhostUserProtocolFeatures::CONFIG));
        monitor.set_protocol_features(VhostUserProtocolFeatures::MQ).unwrap();
        // Without notifications on demand: each reply is announced.
        monitor.set_features(features & !(1 << 29)).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY).unwrap();
        let shared = Some(FileOffset::new(file.try_clone().unwrap(), 0));
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), MEMORY as usize, shared)]);
        let kick = EventFd::new(0).unwrap();
        let memory = memory.unwrap();
        Self { asked, stopper, thread, monitor, memory, file, kick, available: 0, _dir: dir }
    }

    pub(crate) fn region(&self, size: u64) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: size,
            userspace_addr: 0x7000_0000,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    pub(crate) fn share_memory(&self) -> vhost::Result<()> {
        self.monitor.set_mem_table(&[self.region(MEMORY)]).map(drop)
    }

    /// Starts the queue with parts at these addresses.
    pub(crate) fn start_queue(
        &mut self,
        table: u64,
        available: u64,
        used: u64,
    ) -> vhost::Result<()> {
        let at = |address: u64| address.wrapping_add(0x7000_0000);
        self.monitor.set_vring_num(1, SIZE)?;
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at(table),
            used_ring_addr: at(used),
            avail_ring_addr: at(available),
            log_addr: None,
        };
        self.monitor.set_vring_addr(1, &config)?;
        self.monitor.set_vring_base(1, self.available)?;
        self.monitor.set_vring_call(1, &EventFd::new(0).unwrap())?;
        self.monitor.set_vring_kick(1, &self.kick)?;
        self.monitor.set_vring_enable(1, true)
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    /// Writes a request for a node.
    pub(crate) fn put_request(&self, address: u64, opcode: u32, node: u64) -> u32 {
        let mut request = vec![0; 40 + 64];
        request[0..4].copy_from_slice(&104_u32.to_le_bytes());
        request[4..8].copy_from_slice(&opcode.to_le_bytes());
        request[8..16].copy_from_slice(&99_u64.to_le_bytes());
        request[16..24].copy_from_slice(&node.to_le_bytes());
        if opcode == INIT {
            request[40..44].copy_from_slice(&7_u32.to_le_bytes());
            request[44..48].copy_from_slice(&38_u32.to_le_bytes());
        }
        self.put(address, &request);
        104
    }

    /// Describes a chain that begins in the table at `first`.
    pub(crate) fn describe(&self, first: u16, parts: &[Part]) {
        for (n, (address, len, writable)) in (first..).zip(parts) {
            let last = usize::from(n - first) + 1 == parts.len();
            let flags = u16::from(!last) | u16::from(*writable) << 1;
            self.descriptor(n, (*address, *len), flags, n + 1);
        }
    }

    pub(crate) fn descriptor(&self, n: u16, (address, len): (u64, u32), flags: u16, next: u16) {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&address.to_le_bytes());
        raw[8..12].copy_from_slice(&len.to_le_bytes());
        raw[12..14].copy_from_slice(&flags.to_le_bytes());
        raw[14..].copy_from_slice(&next.to_le_bytes());
        self.put(TABLE + 16 * u64::from(n), &raw);
    }

    /// Announces the chain that begins at `first`, and says that there are `by` more.
    pub(crate) fn announce(&mut self, first: u16, by: u16) {
        let slot = AVAILABLE + 4 + 2 * u64::from(self.available % SIZE);
        self.put(slot, &first.to_le_bytes());
        self.available = self.available.wrapping_add(by);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
        self.kick.write(1).unwrap();
    }

    /// Describes a request with this much room for the reply.
    pub(crate) fn describe_request(&self, first: u16, (opcode, node): (u32, u64), room: u32) {
        let len = self.put_request(REQUEST, opcode, node);
        self.describe(first, &[(REQUEST, len, false), (REPLY, room, true)]);
    }

    /// Number of chains that came back.
    pub(crate) fn returned(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    /// Waits until this many chains have come back. Returns the length of the last reply.
    pub(crate) fn wait(&self, count: u16) -> u32 {
        let begun = Instant::now();
        while self.returned() != count {
            assert!(begun.elapsed() < WAIT, "{} of {count} came back", self.returned());
            std::thread::sleep(Duration::from_millis(1));
        }
        let slot = USED + 4 + 8 * u64::from(count.wrapping_sub(1) % SIZE);
        self.memory.read_obj(GuestAddress(slot + 4)).unwrap()
    }

    /// Sends an ordinary request. Returns the error and the length of its reply.
    pub(crate) fn ask(&mut self, opcode: u32, node: u64) -> (i32, u32) {
        let before = self.returned();
        let len = self.put_request(REQUEST, opcode, node);
        self.put(REPLY, &[0xff; 16]);
        self.describe(0, &[(REQUEST, len, false), (REPLY, 16, true), (REPLY + 16, 4096, true)]);
        self.announce(0, 1);
        let len = self.wait(before.wrapping_add(1));
        let unique: u64 = self.memory.read_obj(GuestAddress(REPLY + 8)).unwrap();
        assert_eq!(unique, 99);
        (self.memory.read_obj(GuestAddress(REPLY + 4)).unwrap(), len)
    }

    /// Waits for replies that the server keeps back.
    pub(crate) fn wait_for_parked(&self, count: usize) {
        let begun = Instant::now();
        while self.asked.parked.lock().unwrap().len() != count {
            assert!(begun.elapsed() < WAIT);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the connection has ended by itself.
    pub(crate) fn ended(self) -> io::Result<bool> {
        let begun = Instant::now();
        while !self.thread.is_finished() {
            self.asked.parked.lock().unwrap().clear();
            assert!(begun.elapsed() < WAIT, "the connection goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.join().unwrap()
    }

    /// Disconnects, and returns the end of the service.
    pub(crate) fn disconnect(self) -> io::Result<bool> {
        drop(self.monitor);
        self.thread.join().unwrap()
    }
}
