//! What a virtual machine sends: queues in its memory, and requests.

use std::sync::{Arc, OnceLock};

use uxfs::format::Ino;
use uxfs_disk::{BlockDev, Overlay};
use uxfs_fuse::{MemoryGuest, Options};
use uxfs_vhost::Chain;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::Input;
use crate::base::{Base, full, open};
use crate::exercise::examine;

/// Bytes of the guest's memory; the ring's parts lie at its beginning.
const MEMORY: usize = 64 << 10;
const QUEUE_SIZE: u16 = 16;
const LONGEST: usize = 8 << 10;

/// A queue and the memory around it. Every chain is read, and written to.
pub fn chain(data: &[u8]) {
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY)]);
    let memory = memory.unwrap_or_else(|e| panic!("{e}"));
    let mut input = Input(data);
    let flags = input.byte();
    let rest = &input.0[..input.0.len().min(MEMORY)];
    memory.write_slice(rest, GuestAddress(0)).unwrap_or_else(|e| panic!("{e}"));
    let mut queue = Queue::new(QUEUE_SIZE).unwrap_or_else(|e| panic!("{e}"));
    queue.set_event_idx(flags & 1 != 0);
    let set = queue
        .try_set_avail_ring_address(GuestAddress(0x1000))
        .and_then(|()| queue.try_set_used_ring_address(GuestAddress(0x800)))
        .and_then(|()| queue.try_set_desc_table_address(GuestAddress(0x40)));
    set.unwrap_or_else(|e| panic!("{e}"));
    // The ring's index lies near the beginning of the input.
    let index: u16 = memory.read_obj(GuestAddress(2)).unwrap_or_default();
    let slots = &rest[..rest.len().min(4 + 2 * usize::from(QUEUE_SIZE))];
    memory.write_slice(slots, GuestAddress(0x1000)).unwrap_or_else(|e| panic!("{e}"));
    memory.write_obj(index % 20, GuestAddress(0x1002)).unwrap_or_else(|e| panic!("{e}"));
    queue.set_ready(true);
    let Ok(ring) = queue.iter(&memory) else { return };
    let chains: Vec<_> = ring.collect();
    let mut buffer = Vec::new();
    for chain in chains {
        let head = chain.head_index();
        let mut len = 0;
        if let Ok(chain) = Chain::of(chain, &memory, LONGEST) {
            let read = chain.read(&mut buffer).map(<[u8]>::len);
            assert!(read.is_err() || read == Ok(chain.len()));
            assert!(buffer.len() <= LONGEST);
            let reply = [7; 5000];
            if let Ok(written) = chain.write(&[&reply[..16], &reply[..flags.into()], &reply]) {
                assert!(written as usize <= chain.room());
                len = written;
            }
        }
        if queue.add_used(&memory, head, len).is_err() {
            break;
        }
        let _ = queue.needs_notification(&memory);
    }
}

/// A volume with files of every kind, and the numbers of its first inodes.
fn volume() -> (&'static Base, &'static [u64]) {
    static NODES: OnceLock<Vec<u64>> = OnceLock::new();
    let base = &full()[1];
    let nodes = NODES.get_or_init(|| {
        let overlay = Overlay::new(Arc::clone(&base.memory) as _, usize::MAX);
        let fs = open(Arc::new(overlay));
        let first = fs.root().0;
        (first..first + 64).filter(|ino| fs.stat(Ino(*ino)).is_ok()).collect()
    });
    (base, nodes)
}

const LOOKUP: u32 = 1;
const INIT: u32 = 26;

/// Bytes of a request's header, and the header of a request for a node.
fn header(len: usize, opcode: u32, node: u64, who: u8) -> Vec<u8> {
    let len = u32::try_from(40 + len).unwrap_or(u32::MAX);
    let mut head = [len.to_le_bytes(), opcode.to_le_bytes()].concat();
    head.extend(77_u64.to_le_bytes());
    head.extend(node.to_le_bytes());
    head.extend(u32::from(who & 3).to_le_bytes());
    head.extend([0; 12]);
    head
}

/// Requests, each: the operation, the node (one of the volume's or any), who asks, the reply's room, the length
/// of the body, and the body. The first request is left out if the input's first byte says so.
pub fn guest(data: &[u8]) {
    let (base, nodes) = volume();
    let overlay = Arc::new(Overlay::new(Arc::clone(&base.memory) as _, usize::MAX));
    let fs = open(Arc::clone(&overlay) as Arc<dyn BlockDev>);
    let mut input = Input(data);
    let how = input.byte();
    let words = if how & 2 == 0 { "" } else { "strict_open" };
    let options = Options::parse(words).unwrap_or_else(|e| panic!("{e}"));
    let guest = MemoryGuest::new(fs, &options);
    if how & 1 == 0 {
        let mut init = header(64, INIT, 0, 0);
        init.extend([7, 0, 0, 0, 45, 0, 0, 0, 0, 0, 0, 0]);
        // All capabilities are offered.
        init.extend([0xff; 8]);
        init.extend([0; 44]);
        guest.request(&init, 4096);
        // The guest then knows the inodes that have names.
        for node in nodes {
            let mut lookup = header(2, LOOKUP, *node, 0);
            lookup.extend(b".\0");
            guest.request(&lookup, 4096);
        }
    }
    while !input.is_empty() {
        let opcode = u32::from(input.byte()) % 56;
        let which = input.byte();
        let node = match which {
            255 => u64::from_le_bytes(input.take()),
            0 => 1,
            n => nodes[usize::from(n) % nodes.len()],
        };
        let (who, room) = (input.byte(), input.byte());
        let len = usize::from(u16::from_le_bytes(input.take()) % 600);
        let body: Vec<u8> = (0..len).map(|_| input.byte()).collect();
        let mut request = header(len, opcode, node, who);
        request.extend(&body);
        let room = match room {
            255 => 1 << 20,
            room => usize::from(room) * 64,
        };
        for reply in guest.request(&request, room) {
            assert!(reply.len() <= room);
        }
        if let Some(why) = guest.stopped_by() {
            panic!("a request stopped the volume: {why}");
        }
    }
    guest.end().unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(examine(&*overlay, 1), None);
}
