//! Ordinary use.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use uxfs_testkit::{Answer, Event, Op, Rule};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::rig::{FLUSH, GET_ID, IN, OUT, REPLY, REQUEST, Rig, WRITE_ZEROES};

#[test]
fn what_a_guest_writes_reads_back_and_a_flush_reaches_the_disk() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask((OUT, 3), &[7; 1024], 0).1, 0);
    assert_eq!(rig.ask((FLUSH, 0), &[], 0).1, 0);
    assert_eq!(rig.ask((IN, 3), &[], 1536), ([[7; 512], [7; 512], [0; 512]].concat(), 0));
    let (name, status) = rig.ask((GET_ID, 0), &[], 20);
    assert_eq!((&name[..7], status), (&b"serial\0"[..], 0));
    let events = rig.disk.take();
    assert!(matches!(&events[0], Event::Write { offset: 1536, .. }), "{events:?}");
    assert_eq!(events[1..], [Event::Flush]);
    assert!(rig.disconnect().unwrap());
}

/// The length, and a cache that loses writes.
#[test]
fn the_configuration_describes_the_disk() {
    let mut rig = Rig::new();
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, config) = rig.monitor.get_config(0, 60, flags, &[0; 60]).unwrap();
    assert_eq!(config[..8], 16_u64.to_le_bytes());
    assert_eq!(config[32], 1);
    assert_ne!(rig.monitor.get_features().unwrap() & 1 << 9, 0);
    rig.disconnect().unwrap();
}

#[test]
fn a_stop_ends_the_connection() {
    let rig = Rig::new();
    rig.stopper.stop();
    assert!(!rig.ended().unwrap());
}

/// Firmware, for example, sends no flushes.
#[test]
fn a_guest_without_flushes_is_answered_when_its_writes_are_durable() {
    let mut rig = Rig::without_flushes();
    let range = [&1_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 4]].concat();
    for (request, data, offset) in
        [((OUT, 3), vec![7; 1024], 1536), ((WRITE_ZEROES, 0), range, 512)]
    {
        assert_eq!(rig.ask(request, &data, 0).1, 0);
        let events = rig.disk.take();
        let [Event::Write { offset: at, .. }, Event::Flush] = events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(at, offset);
    }
    rig.disconnect().unwrap();
}

/// What is behind the request's memory then belongs to the guest again.
#[test]
fn a_queue_that_has_stopped_has_returned_its_request() {
    let mut rig = Rig::new();
    let ((reached, was_reached), (go, may_go)) = (channel(), channel::<()>());
    let both = Mutex::new((reached, may_go));
    rig.disk.below().add(Rule::on(&[Op::Read]).before(move |_| {
        let both = both.lock().unwrap();
        both.0.send(()).unwrap();
        both.1.recv().unwrap();
        // A queue that stops too early is found if this takes longer than its stop.
        std::thread::sleep(Duration::from_millis(200));
        Answer::Pass
    }));
    rig.put_header(IN, 0);
    rig.describe(&[(REQUEST, 16, false), (REPLY, 513, true)]);
    rig.announce(0, 1);
    was_reached.recv().unwrap();
    go.send(()).unwrap();
    assert_eq!(rig.monitor.get_vring_base(0).unwrap(), 1);
    assert_eq!(rig.returned(), 1);
    rig.disconnect().unwrap();
}
