//! What no sound guest or monitor does.

use crate::rig::{AVAILABLE, IN, MEMORY, OUT, Part, REPLY, REQUEST, Rig, SIZE, TABLE, USED};

/// Chains that are no requests come back, without a reply or with an error, and the next one is answered.
#[test]
fn malformed_chains_come_back() {
    let mut rig = Rig::new();
    let malformed: [(&[Part], u32); 9] = [
        (&[(REQUEST, 16, false)], 0),
        (&[(REPLY, 1, true), (REQUEST, 16, false)], 0),
        (&[(REQUEST, 15, false), (REPLY, 1, true)], 1),
        (&[(MEMORY - 8, 16, false), (REPLY, 1, true)], 0),
        (&[(u64::MAX - 4, 16, false), (REPLY, 1, true)], 0),
        (&[(REQUEST, u32::MAX, false), (REPLY, 1, true)], 0),
        (&[(REQUEST, 16, false), (REPLY, u32::MAX, true)], 0),
        (&[(REQUEST, 16, false), (MEMORY - 8, 513, true)], 0),
        (&[(REQUEST, 16, false), (REPLY, 100, true)], 100),
    ];
    for (parts, len) in malformed {
        rig.put_header(IN, 0);
        rig.put(REPLY, &[0xff; 512]);
        rig.describe(parts);
        assert_eq!(rig.sent(), len, "{parts:?}");
        if len > 0 {
            assert_eq!(rig.get(REPLY + u64::from(len) - 1, 2), [1, 0xff], "{parts:?}");
        }
        assert_eq!(rig.ask((OUT, 0), &[1; 512], 0).1, 0, "{parts:?}");
    }
    rig.disconnect().unwrap();
}

/// A request or a room for a reply that is longer than any that the disk offers: an error, in the
/// place of the status.
#[test]
fn chains_that_are_too_long_get_an_error() {
    /// Where the table of the chain lies, and the memory that its parts share.
    const PARTS: u64 = 0x8000;
    const SHARED: (u64, u32) = (0x30000, 0xc0000);
    let mut rig = Rig::new();
    for (count, writable) in [(12_u16, false), (12, true), (10, false)] {
        rig.put_header(OUT, 0);
        rig.put(REPLY, &[0xff; 2]);
        let mut parts = vec![(REQUEST, 16, false)];
        parts.extend((0..count).map(|_| (SHARED.0, SHARED.1, writable)));
        parts.push((REPLY, 1, true));
        for (n, (address, len, writable)) in (0..).zip(&parts) {
            let last = usize::from(n) + 1 == parts.len();
            let flags = u16::from(!last) | u16::from(*writable) << 1;
            let (address, len) = (address.to_le_bytes(), len.to_le_bytes());
            let next = (n + 1_u16).to_le_bytes();
            let raw = [&address[..], &len, &flags.to_le_bytes(), &next].concat();
            rig.put(PARTS + 16 * u64::from(n), &raw);
        }
        rig.descriptor(0, (PARTS, 16 * u32::try_from(parts.len()).unwrap()), 4, 0);
        rig.sent();
        assert_eq!(rig.get(REPLY, 2), [1, 0xff], "{count} parts, {writable}");
    }
    assert!(rig.disk.take().is_empty());
    assert_eq!(rig.ask((OUT, 0), &[1; 512], 0).1, 0);
    rig.disconnect().unwrap();
}

#[test]
fn requests_beyond_the_disk_are_refused() {
    let mut rig = Rig::new();
    for sector in [16, 1 << 55, u64::MAX] {
        assert_eq!(rig.ask((OUT, sector), &[1; 512], 0).1, 1, "{sector}");
        assert_eq!(rig.ask((IN, sector), &[], 512), (vec![0; 512], 1), "{sector}");
    }
    assert_eq!(rig.ask((77, 0), &[], 0).1, 2);
    assert!(rig.disk.take().is_empty());
    rig.disconnect().unwrap();
}

#[test]
fn a_chain_that_loops_ends() {
    let mut rig = Rig::new();
    rig.put_header(IN, 0);
    rig.descriptor(0, (REQUEST, 16), 1, 1);
    rig.descriptor(1, (REQUEST, 16), 1, 0);
    assert_eq!(rig.sent(), 0);
    // A table of its own that refers to itself.
    rig.descriptor(0, (TABLE, 16), 4, 0);
    assert_eq!(rig.sent(), 0);
    assert_eq!(rig.ask((OUT, 0), &[1; 512], 0).1, 0);
    // One behind the table's end.
    rig.announce(SIZE, 1);
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("queue is broken"), "{why}");
}

#[test]
fn a_ring_that_jumps_ends_the_connection() {
    let mut rig = Rig::new();
    rig.announce(0, SIZE + 1);
    let why = rig.ended().unwrap_err().to_string();
    assert!(why.contains("queue is broken"), "{why}");
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
        rig.share_memory();
        if rig.start_queue(table, available, used).is_ok() {
            rig.announce(0, 1);
        }
        // It ends, with whatever says so.
        let _ = rig.disconnect();
    }
}
