//! The system calls that no safe crate offers: the only `unsafe` code of this crate.

#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::ioctl;
use rustix::thread::CpuSet;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand, RingHeader};

/// The ioctl that makes a descriptor of `/dev/fuse` one of an existing connection.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// Makes `new`, just opened, a descriptor of the connection of `existing`.
pub(crate) fn clone_fuse_device(new: BorrowedFd<'_>, existing: BorrowedFd<'_>) -> io::Result<()> {
    let number = existing.as_raw_fd().cast_unsigned();
    // SAFETY: the call reads a `u32` through the pointer, which is what a `Setter` of that type
    // passes, and writes nothing.
    unsafe { ioctl::ioctl(new, ioctl::Setter::<CLONE, u32>::new(number))? };
    Ok(())
}

/// The nice value of a thread that serves a processor, for root: with four and eight callers on two
/// processors it raises the rate of creates by a tenth to a seventh.
const NICE: i32 = -10;

/// A ring whose entries carry FUSE requests.
pub(crate) type Ring = IoUring<Entry128, cqueue::Entry>;

/// Two addresses and lengths, as `struct iovec`: where the kernel writes requests and reads replies.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Segment {
    base: usize,
    len: usize,
}

/// The memory of one entry, which the kernel writes and reads from its registration to the end of
/// the ring.
pub(crate) struct EntryMemory {
    pub(crate) header: Box<RingHeader>,
    /// The content of a request or reply; absent while a reply owns it.
    pub(crate) payload: Option<Box<[u8]>>,
    segments: Box<[Segment; 2]>,
}

impl EntryMemory {
    pub(crate) fn new(payload_size: usize) -> Self {
        let mut header = Box::new(RingHeader::default());
        let mut payload = vec![0; payload_size].into_boxed_slice();
        let segments = Box::new([
            Segment { base: std::ptr::from_mut(&mut *header).addr(), len: size_of::<RingHeader>() },
            Segment { base: payload.as_mut_ptr().expose_provenance(), len: payload_size },
        ]);
        Self { header, payload: Some(payload), segments }
    }
}

/// Queues the registration of an entry.
pub(crate) fn push_register(
    ring: &mut Ring,
    device: BorrowedFd<'_>,
    queue: u16,
    (index, entry): (u64, &EntryMemory),
) -> io::Result<()> {
    let command = RingCommand { queue, ..RingCommand::default() };
    let base = entry.segments.as_ptr().addr() as u64;
    push(ring, submission(device, RING_REGISTER, &command, base, index))
}

/// Queues the reply of an entry, which then takes the next request.
pub(crate) fn push_commit(
    ring: &mut Ring,
    device: BorrowedFd<'_>,
    queue: u16,
    (index, commit_id): (u64, u64),
) -> io::Result<()> {
    let command = RingCommand { queue, commit_id, ..RingCommand::default() };
    push(ring, submission(device, RING_COMMIT_AND_FETCH, &command, 0, index))
}

/// Queues a wait until `event` can be read.
pub(crate) fn push_poll(ring: &mut Ring, event: BorrowedFd<'_>, index: u64) -> io::Result<()> {
    const POLLIN: u32 = 1;
    let poll = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), POLLIN).build();
    push(ring, Entry128::from(poll.user_data(index)))
}

fn submission(
    device: BorrowedFd<'_>,
    command: u32,
    area: &RingCommand,
    segments: u64,
    index: u64,
) -> Entry128 {
    let mut bytes = [0; size_of::<RingCommand>()];
    bytes.copy_from_slice(area.as_bytes());
    let entry = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), command)
        .cmd(bytes)
        .addr(Some(segments))
        .build()
        .user_data(index);
    // The crate cannot set the number of segments, which lies at byte 24 of a submission.
    const SEGMENTS: usize = 24 / size_of::<u32>();
    // SAFETY: both types have 128 bytes (the compiler checks), a submission is a structure of the
    // kernel's made of numbers only, and any numbers are valid in it.
    unsafe {
        let mut words = std::mem::transmute::<Entry128, [u32; 32]>(entry);
        words[SEGMENTS] = 2;
        std::mem::transmute::<[u32; 32], Entry128>(words)
    }
}

fn push(ring: &mut Ring, entry: Entry128) -> io::Result<()> {
    // SAFETY: what an entry points to, the memory of [`EntryMemory`], belongs to the worker of this
    // ring and lives in boxes that do not move. The kernel reads and writes it only during system
    // calls of the worker's thread, because the ring defers its work to that thread
    // (`setup_defer_taskrun`): never while code here refers to it, and never after the worker has
    // closed the ring, which precedes the end of the memory.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| io::Error::other("the ring has no room for a submission"))
}

/// Makes the calling thread the server of one processor's callers: it runs there, it never takes
/// the processor from a thread that wakes it, and where that is allowed it is preferred to others
/// that wait, since callers wait for it.
pub(crate) fn serve_processor(processor: u16) {
    // Each call may be refused, or the processor be switched off. Then requests take longer.
    let mut set = CpuSet::new();
    if usize::from(processor) < CpuSet::MAX_CPU {
        set.set(processor.into());
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    // Priority 0. The structure has other fields with musl.
    let normal = MaybeUninit::<libc::sched_param>::zeroed();
    // SAFETY: the call reads the structure, which lives until it returns and whose fields are
    // numbers.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, normal.as_ptr()) };
    let _ = rustix::process::setpriority_process(None, NICE);
}
