//! What no sound guest or monitor does.

use uxfs_transport::Errno;
use vhost::VhostBackend;

use crate::rig::{AVAILABLE, FSYNC, GETATTR, MEMORY, Part, REPLY, REQUEST, Rig, SIZE, TABLE, USED};

/// Chains that are not requests come back without a reply, and the next request is answered.
#[test]
fn malformed_chains_come_back() {
    let mut rig = Rig::begun();
    let len = rig.put_request(REQUEST, GETATTR, 1);
    let malformed: [&[Part]; 9] = [
        &[],
        &[(REPLY, 64, true), (REQUEST, len, false)],
        &[(REQUEST, len, false), (REPLY, 64, true), (REQUEST, len, false)],
        &[(MEMORY - 8, len, false), (REPLY, 64, true)],
        &[(u64::MAX - 4, len, false), (REPLY, 64, true)],
        &[(REQUEST, u32::MAX, false), (REPLY, 64, true)],
        &[(0, 2 << 20, false), (REPLY, 64, true)],
        &[(REQUEST, 39, false), (REPLY, 64, true)],
        &[(REQUEST, len, false), (u64::MAX - 4, 4096, true)],
    ];
    for parts in malformed {
        let before = rig.returned();
        rig.descriptor(0, (REQUEST, 0), 0, 0);
        rig.describe(0, parts);
        rig.announce(0, 1);
        assert_eq!(rig.wait(before + 1), 0, "{parts:?}");
        assert_eq!(rig.ask(GETATTR, 5), (0, 16 + 104), "{parts:?}");
    }
    rig.disconnect().unwrap();
}

#[test]
fn replies_stay_within_their_room() {
    let mut rig = Rig::begun();
    let eio = (-Errno::IO.raw_os_error()).to_le_bytes();
    for (room, expected) in [(0, 0), (15, 0), (16, 16), (119, 16), (120, 120)] {
        let before = rig.returned();
        rig.put(REPLY, &[0xaa; 256]);
        rig.describe_request(0, (GETATTR, 1), room);
        rig.announce(0, 1);
        assert_eq!(rig.wait(before + 1), expected, "{room}");
        let mut there = [0; 256];
        vm_memory::Bytes::read_slice(&rig.memory, &mut there, vm_memory::GuestAddress(REPLY))
            .unwrap();
        assert!(there[room as usize..].iter().all(|byte| *byte == 0xaa), "{room}");
        assert_eq!(there[4..8] == eio, expected == 16, "{room}");
    }
    rig.disconnect().unwrap();
}

#[test]
fn a_chain_that_loops_ends() {
    let mut rig = Rig::begun();
    let before = rig.returned();
    rig.put_request(REQUEST, GETATTR, 1);
    rig.descriptor(0, (REQUEST, 104), 1, 1);
    rig.descriptor(1, (REQUEST, 104), 1, 0);
    rig.announce(0, 1);
    assert_eq!(rig.wait(before + 1), 0);
    // A table of its own that refers to itself, with the flag of such a table.
    rig.descriptor(0, (TABLE, 16), 4, 0);
    rig.announce(0, 1);
    assert_eq!(rig.wait(before + 2), 0);
    assert_eq!(rig.ask(GETATTR, 5), (0, 16 + 104));
    // One behind the table's end.
    rig.announce(SIZE, 1);
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("queue is broken"), "{why}");
}

#[test]
fn a_ring_that_jumps_ends_the_connection() {
    let mut rig = Rig::begun();
    rig.announce(0, SIZE + 1);
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("queue is broken"), "{why}");
}

/// One chain that is announced again and again, and kept.
#[test]
fn more_requests_than_the_queue_takes_end_the_connection() {
    let mut rig = Rig::begun();
    rig.describe_request(0, (FSYNC, 1), 16);
    for number in 1..=SIZE {
        rig.announce(0, 1);
        rig.wait_for_parked(number.into());
    }
    rig.announce(0, 1);
    // The replies are sent only when it has ended.
    while rig.monitor.get_features().is_ok() {}
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("more requests"), "{why}");
}

#[test]
fn a_request_that_panics_ends_the_connection() {
    let mut rig = Rig::begun();
    rig.describe_request(0, (GETATTR, 13), 64);
    rig.announce(0, 1);
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("panicked"), "{why}");
}

/// The monitor may refuse or end; the process goes on.
#[test]
fn queues_outside_of_the_memory_are_refused() {
    for (table, available, used) in [
        (MEMORY, AVAILABLE, USED),
        (TABLE, MEMORY + 4096, USED),
        (TABLE, AVAILABLE, u64::MAX - 16),
        (TABLE + 1, AVAILABLE, USED),
        (MEMORY - 16, AVAILABLE, USED),
        (TABLE, MEMORY - 2, USED),
        (TABLE, AVAILABLE, MEMORY - 4),
    ] {
        let mut rig = Rig::connected();
        rig.share_memory().unwrap();
        if rig.start_queue(table, available, used).is_ok() {
            rig.announce(0, 1);
        }
        // It ends, with whatever says so.
        let _ = rig.disconnect();
    }
}

#[test]
fn memory_may_go_while_a_reply_is_due() {
    let mut rig = Rig::begun();
    rig.describe_request(0, (FSYNC, 1), 16);
    rig.announce(0, 1);
    rig.wait_for_parked(1);
    // Too small for the request's place and for the queue.
    rig.monitor.set_mem_table(&[rig.region(0x1000)]).unwrap();
    rig.monitor.get_features().unwrap();
    rig.asked.parked.lock().unwrap().clear();
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("queue is broken"), "{why}");
}

#[test]
fn regions_that_overlap_or_wrap_are_refused() {
    let rig = Rig::connected();
    let mut second = rig.region(MEMORY);
    second.guest_phys_addr = 4096;
    let _ = rig.monitor.set_mem_table(&[rig.region(MEMORY), second]);
    let _ = rig.disconnect();
    let rig = Rig::connected();
    let mut wraps = rig.region(MEMORY);
    wraps.guest_phys_addr = u64::MAX - 4096;
    let _ = rig.monitor.set_mem_table(&[wraps]);
    let _ = rig.disconnect();
}
