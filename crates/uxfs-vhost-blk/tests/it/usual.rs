//! Ordinary use.

use uxfs_testkit::Event;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::rig::{FLUSH, GET_ID, IN, OUT, Rig};

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
    assert_ne!(vhost::VhostBackend::get_features(&rig.monitor).unwrap() & 1 << 9, 0);
    rig.disconnect().unwrap();
}

#[test]
fn a_stop_ends_the_connection() {
    let rig = Rig::new();
    rig.stopper.stop();
    assert!(!rig.ended().unwrap());
}
