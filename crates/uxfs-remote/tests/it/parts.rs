//! Objects that are put in parts: each request is tried again.

use std::io;
use std::sync::Arc;

use object_store::memory::InMemory;
use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::cloud::Cloud;
use uxfs_remote::{
    At, Bytes, Checkpoint, Patience, Remote, ShipOptions, Shipper, Store, compact, restore,
};

use crate::hooked::Hooked;

const LEN: u64 = 24 << 20;

/// A device whose content takes three parts, and that content.
fn noise() -> (Arc<MemDev>, Vec<u8>) {
    let mut rng = uxfs_testkit::Rng::new(3);
    let content: Vec<u8> = (0..LEN / 8).flat_map(|_| rng.bits().to_be_bytes()).collect();
    let dev = MemDev::new(LEN);
    dev.write_at(0, &content).unwrap();
    (Arc::new(dev), content)
}

fn restored(remote: &Arc<Remote>) -> Vec<u8> {
    let newest = remote.find(At::Newest).unwrap();
    let checkpoint = Checkpoint::open(Arc::clone(remote), newest).unwrap();
    let (target, mut all) = (MemDev::new(LEN), vec![0; LEN as usize]);
    restore(&checkpoint, &target, true, &|_, _| {}).unwrap();
    target.read_at(0, &mut all).unwrap();
    all
}

/// The store refuses one request after another: the beginning, each part, the end.
#[test]
fn a_long_object_is_tried_again() {
    let (dev, content) = noise();
    for pass in 0..6 {
        let store = Arc::new(Hooked::new());
        let patience = Patience::without_pauses(4);
        let remote = Arc::new(Remote::new(Arc::<Hooked>::clone(&store), None, patience));
        let options = ShipOptions::default();
        let dev = Arc::<MemDev>::clone(&dev);
        let shipper =
            Shipper::without_thread(dev, Arc::clone(&remote), [1; 16], options, [9; 16]).unwrap();
        store.refuse(pass, 1, io::ErrorKind::TimedOut);
        shipper.ship_now().unwrap().unwrap();
        assert_eq!((store.refusing(), remote.tried_again()), (0, 1), "{pass} passed");
        // A compaction does the same.
        shipper.write_at(0, &content[4096..8192]).unwrap();
        shipper.ship_now().unwrap().unwrap();
        store.refuse(pass, 1, io::ErrorKind::TimedOut);
        compact(&remote).unwrap().unwrap();
        assert_eq!((store.refusing(), remote.tried_again()), (0, 2), "{pass} passed");
        let seen = restored(&remote);
        assert!(seen[..4096] == content[4096..8192] && seen[4096..] == content[4096..]);
        shipper.write_at(0, &content[..4096]).unwrap();
    }
}

/// A store that knows parts by their numbers gets them in any order, and twice if an answer was lost.
#[test]
fn parts_are_put_by_their_numbers() {
    let cloud = Cloud::below(Arc::new(InMemory::new()), "some/prefix".into());
    let parts = cloud.begin_parts("deltas/1").unwrap();
    for number in [2, 0, 1, 0, 2] {
        parts.put(number, Bytes::from(vec![number as u8; 10])).unwrap();
    }
    parts.finish().unwrap();
    // The answer to this was lost.
    parts.finish().unwrap();
    let whole = cloud.get("deltas/1", 100).unwrap();
    assert_eq!(whole, [[0; 10], [1; 10], [2; 10]].concat());
}

/// A directory takes them in the order of their numbers, whichever comes first.
#[test]
fn parts_are_put_in_order_into_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let url = url::Url::from_directory_path(dir.path()).unwrap();
    let cloud = Cloud::open(&url, true).unwrap();
    let parts = cloud.begin_parts("deltas/1").unwrap();
    for number in [2, 0, 1] {
        parts.put(number, Bytes::from(vec![number as u8; 10])).unwrap();
    }
    parts.finish().unwrap();
    let whole = cloud.get("deltas/1", 100).unwrap();
    assert_eq!(whole, [[0; 10], [1; 10], [2; 10]].concat());
}
