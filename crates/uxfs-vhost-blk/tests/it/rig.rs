//! A guest made of its parts: a monitor, memory, and a queue that tests fill by hand.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uxfs_disk::{BlockDev, MemDev};
use uxfs_testkit::{FaultDev, RecordDev};
use uxfs_vhost_blk::{Access, Host, Socket, Stopper};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

pub(crate) const MEMORY: u64 = 1 << 20;
pub(crate) const TABLE: u64 = 0;
pub(crate) const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
/// Room for requests and replies.
pub(crate) const REQUEST: u64 = 0x10000;
pub(crate) const REPLY: u64 = 0x20000;
/// Entries of the queue.
pub(crate) const SIZE: u16 = 8;

pub(crate) const IN: u32 = 0;
pub(crate) const OUT: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
pub(crate) const WRITE_ZEROES: u32 = 13;

/// The bit of the features that the guest sends flushes.
const FLUSHES: u64 = 1 << 9;

const WAIT: Duration = Duration::from_secs(30);
const SHARED_AT: u64 = 0x7000_0000;

/// A part of a chain: address, length, and whether the reply goes there.
pub(crate) type Part = (u64, u32, bool);

pub(crate) struct Rig {
    pub(crate) disk: Arc<RecordDev<FaultDev<MemDev>>>,
    pub(crate) stopper: Stopper,
    thread: JoinHandle<io::Result<bool>>,
    pub(crate) monitor: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    file: File,
    kick: EventFd,
    available: u16,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A guest that is ready to send requests to a disk of 16 sectors.
    pub(crate) fn new() -> Self {
        Self::connected().started()
    }

    /// The same, of a guest that sends no flushes.
    pub(crate) fn without_flushes() -> Self {
        Self::connected_without(FLUSHES).started()
    }

    fn started(mut self) -> Self {
        self.share_memory();
        self.start_queue(TABLE, AVAILABLE, USED).unwrap();
        self
    }

    /// A monitor that has agreed on features.
    pub(crate) fn connected() -> Self {
        Self::connected_without(0)
    }

    fn connected_without(absent: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = Socket::bind(&path, Access::default()).unwrap();
        let disk = Arc::new(RecordDev::new(FaultDev::new(MemDev::new(16 * 512))));
        let host = Host::new(Arc::clone(&disk) as Arc<dyn BlockDev>, "serial", socket).unwrap();
        let stopper = host.stopper();
        let thread = std::thread::spawn(move || host.serve_one());
        let mut monitor = Frontend::connect(&path, 1).unwrap();
        monitor.set_owner().unwrap();
        let features = monitor.get_features().unwrap();
        let ours = monitor.get_protocol_features().unwrap();
        monitor.set_protocol_features(ours).unwrap();
        // Without notifications on demand: each reply is announced.
        monitor.set_features(features & !(1 << 29 | absent)).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY).unwrap();
        let shared = Some(FileOffset::new(file.try_clone().unwrap(), 0));
        let regions = [(GuestAddress(0), MEMORY as usize, shared)];
        let memory = GuestMemoryMmap::from_ranges_with_files(regions).unwrap();
        let kick = EventFd::new(0).unwrap();
        Self { disk, stopper, thread, monitor, memory, file, kick, available: 0, _dir: dir }
    }

    pub(crate) fn share_memory(&self) {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY,
            userspace_addr: SHARED_AT,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        self.monitor.set_mem_table(&[region]).unwrap();
    }

    /// Starts the queue with parts at these addresses.
    pub(crate) fn start_queue(
        &mut self,
        table: u64,
        available: u64,
        used: u64,
    ) -> vhost::Result<()> {
        let at = |address: u64| address.wrapping_add(SHARED_AT);
        self.monitor.set_vring_num(0, SIZE)?;
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at(table),
            used_ring_addr: at(used),
            avail_ring_addr: at(available),
            log_addr: None,
        };
        self.monitor.set_vring_addr(0, &config)?;
        self.monitor.set_vring_base(0, self.available)?;
        self.monitor.set_vring_call(0, &EventFd::new(0).unwrap())?;
        self.monitor.set_vring_kick(0, &self.kick)?;
        self.monitor.set_vring_enable(0, true)
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    /// Writes the header of a request.
    pub(crate) fn put_header(&self, kind: u32, sector: u64) {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.put(REQUEST, &header);
    }

    pub(crate) fn descriptor(&self, n: u16, (address, len): (u64, u32), flags: u16, next: u16) {
        let (address, len) = (address.to_le_bytes(), len.to_le_bytes());
        let raw = [&address[..], &len, &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        self.put(TABLE + 16 * u64::from(n), &raw);
    }

    pub(crate) fn describe(&self, parts: &[Part]) {
        for (n, (address, len, writable)) in (0..).zip(parts) {
            let last = usize::from(n) + 1 == parts.len();
            let flags = u16::from(!last) | u16::from(*writable) << 1;
            self.descriptor(n, (*address, *len), flags, n + 1);
        }
    }

    /// Announces the chain that begins at `first`, and says that there are `by` more.
    pub(crate) fn announce(&mut self, first: u16, by: u16) {
        let slot = AVAILABLE + 4 + 2 * u64::from(self.available % SIZE);
        self.put(slot, &first.to_le_bytes());
        self.available = self.available.wrapping_add(by);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
        self.kick.write(1).unwrap();
    }

    /// Number of chains that came back.
    pub(crate) fn returned(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    /// Announces the chain that is described, and waits for it. Returns the length of the reply.
    pub(crate) fn sent(&mut self) -> u32 {
        let count = self.returned().wrapping_add(1);
        self.announce(0, 1);
        let begun = Instant::now();
        while self.returned() != count {
            assert!(begun.elapsed() < WAIT, "{} of {count} came back", self.returned());
            std::thread::sleep(Duration::from_millis(1));
        }
        let slot = USED + 4 + 8 * u64::from(count.wrapping_sub(1) % SIZE);
        self.memory.read_obj(GuestAddress(slot + 4)).unwrap()
    }

    /// Sends an ordinary request. Returns the data and the status of the reply.
    pub(crate) fn ask(
        &mut self,
        (kind, sector): (u32, u64),
        data: &[u8],
        room: u32,
    ) -> (Vec<u8>, u8) {
        self.put_header(kind, sector);
        self.put(REQUEST + 16, data);
        self.put(REPLY, &vec![0xff; room as usize + 1]);
        let mut parts = vec![(REQUEST, 16, false)];
        if !data.is_empty() {
            parts.push((REQUEST + 16, u32::try_from(data.len()).unwrap(), false));
        }
        if room > 0 {
            parts.push((REPLY, room, true));
        }
        parts.push((REPLY + u64::from(room), 1, true));
        self.describe(&parts);
        assert_eq!(self.sent(), room + 1);
        let status = self.get(REPLY + u64::from(room), 1)[0];
        (self.get(REPLY, room as usize), status)
    }

    /// Waits until the connection has ended by itself.
    pub(crate) fn ended(self) -> io::Result<bool> {
        let begun = Instant::now();
        while !self.thread.is_finished() {
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
