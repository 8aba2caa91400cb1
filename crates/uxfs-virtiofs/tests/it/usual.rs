//! Ordinary use.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use uxfs_transport::Errno;
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};

use crate::rig::{AVAILABLE, FSYNC, GETATTR, INIT, REPLY, REQUEST, Rig, SIZE, TABLE, USED};

#[test]
fn requests_are_answered_after_the_first_one() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(GETATTR, 1), (-Errno::IO.raw_os_error(), 16));
    assert_eq!(rig.ask(INIT, 0), (0, 16 + 64));
    assert_eq!(rig.ask(GETATTR, 5), (0, 16 + 104));
    // A guest that starts again.
    assert_eq!(rig.ask(INIT, 0), (0, 16 + 64));
    assert_eq!(rig.asked.forgot_all.load(Ordering::SeqCst), 1);
    assert_eq!(rig.ask(4096, 5), (-Errno::NOSYS.raw_os_error(), 16));
    for _ in 0..1000 {
        assert_eq!(rig.ask(GETATTR, 5), (0, 16 + 104));
    }
    let asked = rig.asked.clone();
    assert!(rig.disconnect().unwrap());
    assert_eq!(asked.forgot_all.load(Ordering::SeqCst), 2);
}

#[test]
fn replies_may_come_later_and_a_queue_stops_after_them() {
    let mut rig = Rig::begun();
    rig.describe_request(4, (FSYNC, 1), 16);
    rig.announce(4, 1);
    rig.wait_for_parked(1);
    // Others are answered meanwhile.
    let len = rig.put_request(REQUEST + 4096, GETATTR, 1);
    rig.describe(0, &[(REQUEST + 4096, len, false), (REPLY + 4096, 4096, true)]);
    rig.announce(0, 1);
    assert_eq!(rig.wait(2), 16 + 104);
    let asked = rig.asked.clone();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        for reply in asked.parked.lock().unwrap().drain(..) {
            reply.send(Ok(()));
        }
    });
    rig.monitor.get_vring_base(1).unwrap();
    assert_eq!(rig.returned(), 3);
    later.join().unwrap();
    rig.start_queue(TABLE, AVAILABLE, USED).unwrap();
    assert_eq!(rig.ask(GETATTR, 5), (0, 16 + 104));
    rig.disconnect().unwrap();
}

#[test]
fn a_stop_ends_the_connection() {
    let rig = Rig::begun();
    rig.stopper.stop();
    assert!(!rig.ended().unwrap());
}

/// Each request is followed by another before it is answered, so the queue is never empty.
#[test]
fn a_guest_that_never_pauses_is_stopped_too() {
    let mut rig = Rig::begun();
    for slot in 0..u64::from(SIZE) {
        rig.put(AVAILABLE + 4 + 2 * slot, &[0; 2]);
    }
    rig.describe_request(0, (GETATTR, 5), 4096);
    let (memory, count) = (rig.memory.clone(), AtomicU16::new(2));
    let next = move || {
        let count = count.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        memory.write_obj(count, GuestAddress(AVAILABLE + 2)).unwrap();
    };
    assert!(rig.asked.on_getattr.set(Box::new(next)).is_ok());
    rig.announce(0, 1);
    while rig.returned() < 1000 {
        std::thread::yield_now();
    }
    rig.stopper.stop();
    assert!(!rig.ended().unwrap());
}
