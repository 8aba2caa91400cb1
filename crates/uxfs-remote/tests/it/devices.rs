//! Devices that ship, with threads: consistent moments under load, an idle device, one that reads from afar.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::cloud::Cloud;
use uxfs_remote::{
    At, CacheOptions, Checkpoint, Patience, Remote, RemoteDev, ShipMode, ShipOptions, ShipStatus,
    Shipper, compact, restore,
};

use crate::hooked::Hooked;
use crate::sim_store::SimStore;

const BLOCKS: u64 = 4096;
const LEN: u64 = BLOCKS * 4096;

fn remote(store: &Arc<SimStore>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<SimStore>::clone(store), None, Patience::without_pauses(20)))
}

/// The number at the beginning of each block.
fn numbers(dev: &dyn BlockDev) -> Vec<u64> {
    let mut block = [0; 8];
    let number = |at: u64| {
        dev.read_at(at * 4096, &mut block).unwrap();
        u64::from_be_bytes(block)
    };
    (0..BLOCKS).map(number).collect()
}

/// A writer numbers all blocks, one round after the other, while they are shipped. In every checkpoint the
/// blocks before some place are of one round, and those behind it of the round before.
#[test]
fn a_checkpoint_under_load_is_one_moment() {
    let store = Arc::new(SimStore::new(4));
    let options = ShipOptions {
        interval: Duration::ZERO,
        // So little that the writer waits for room.
        aside_bytes: 100 * 4096,
        ..ShipOptions::default()
    };
    let dev = Arc::new(MemDev::new(LEN));
    let shipper = Arc::new(Shipper::start(dev, remote(&store), [1; 16], options).unwrap());
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                for at in 0..BLOCKS {
                    shipper.write_at(at * 4096, &round.to_be_bytes()).unwrap();
                    if at % 500 == 0 {
                        shipper.flush().unwrap();
                    }
                }
            }
            round
        });
        while shipper.status().checkpoints < 30 {
            assert!(!writer.is_finished(), "the writer failed");
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    shipper.finish().unwrap();
    let reader = remote(&store);
    for manifest in reader.manifests().unwrap() {
        let checkpoint = Checkpoint::open(Arc::clone(&reader), manifest).unwrap();
        let number = checkpoint.manifest().number;
        let dev = RemoteDev::new(checkpoint, CacheOptions::default());
        let seen = numbers(&dev);
        let turn = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let falls = seen.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1);
        assert!(turn <= 1 && falls, "checkpoint {number}: {turn} turns, up to round {rounds}");
    }
    let last = reader.find(At::Newest).unwrap();
    let last = RemoteDev::new(Checkpoint::open(reader, last).unwrap(), CacheOptions::default());
    assert_eq!(numbers(&last), vec![rounds; BLOCKS as usize]);
}

#[test]
fn callers_of_sync_share_checkpoints_and_lose_nothing() {
    let store = Arc::new(SimStore::new(5));
    let options = ShipOptions { mode: ShipMode::Sync, ..ShipOptions::default() };
    let dev = Arc::new(MemDev::new(LEN));
    let shipper = Shipper::start(dev, remote(&store), [1; 16], options).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..8_u64 {
            let (shipper, store) = (&shipper, &store);
            scope.spawn(move || {
                for count in 1..=20_u64 {
                    shipper.write_at(caller * 4096, &count.to_be_bytes()).unwrap();
                    shipper.flush().unwrap();
                    let reader = remote(store);
                    let newest = reader.find(At::Newest).unwrap();
                    let checkpoint = Checkpoint::open(reader, newest).unwrap();
                    let dev = RemoteDev::new(checkpoint, CacheOptions::default());
                    let mut seen = [0; 8];
                    dev.read_at(caller * 4096, &mut seen).unwrap();
                    assert_eq!(u64::from_be_bytes(seen), count);
                }
            });
        }
    });
    assert!(shipper.status().checkpoints <= 160, "a flush needs no more than one");
    shipper.finish().unwrap();
}

#[test]
fn an_idle_device_sends_nothing() {
    let store = Arc::new(SimStore::new(6));
    let dev = Arc::new(MemDev::new(LEN));
    let options = ShipOptions { interval: Duration::ZERO, ..ShipOptions::default() };
    let shipper = Shipper::start(dev, remote(&store), [1; 16], options).unwrap();
    shipper.write_at(0, &[1; 4096]).unwrap();
    shipper.flush().unwrap();
    while shipper.status().lag_flushes > 0 || shipper.status().checkpoint == 0 {
        std::thread::yield_now();
    }
    let before = store.requests();
    for _ in 0..20 {
        shipper.flush().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.requests(), before);
    let status = shipper.status();
    assert_eq!((status.lag_bytes, status.lag), (0, Duration::ZERO));
}

/// What the store does not take, the status says, and writers are slowed once the bound is passed.
#[test]
fn a_store_that_stands_still_slows_writers_and_is_named() {
    let store = Arc::new(SimStore::new(7));
    let dev = Arc::new(MemDev::new(LEN));
    let options =
        ShipOptions { interval: Duration::ZERO, lag: Duration::ZERO, ..ShipOptions::default() };
    let shipper = Shipper::start(dev, remote(&store), [1; 16], options).unwrap();
    store.set_down(true);
    while shipper.status().slowed_writes == 0 || shipper.status().error.is_none() {
        shipper.write_at(0, &[1; 4096]).unwrap();
        shipper.flush().unwrap();
    }
    let status = shipper.status();
    assert!(
        status.error.unwrap().contains("503") && status.lag_flushes > 0 && status.lag_bytes > 0
    );
    store.set_down(false);
    shipper.finish().unwrap();
    assert_eq!((shipper.status().error, shipper.status().lag_bytes), (None, 0));
}

/// Waits until the shipper's status is as wanted.
fn until(shipper: &Shipper, wanted: impl Fn(&ShipStatus) -> bool) -> ShipStatus {
    let begun = Instant::now();
    loop {
        let status = shipper.status();
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{status:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Credentials that expired, or a bucket that is missing for a while.
#[test]
fn a_store_that_refuses_is_tried_again_later() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::NotFound] {
        let store = Arc::new(Hooked::new());
        store.refuse(0, 1, kind);
        let remote = Remote::new(Arc::<Hooked>::clone(&store), None, Patience::without_pauses(3));
        let dev = Arc::new(MemDev::new(LEN));
        let options = ShipOptions { interval: Duration::ZERO, ..ShipOptions::default() };
        let shipper = Shipper::start(dev, Arc::new(remote), [1; 16], options).unwrap();
        let failed = until(&shipper, |now| now.stopped || now.next_try.is_some());
        assert!(!failed.stopped && failed.error.is_some(), "{failed:?}");
        let shipped = until(&shipper, |now| now.checkpoint == 1 && now.next_try.is_none());
        assert_eq!((shipped.error, shipped.stopped), (None, false));
        shipper.finish().unwrap();
    }
}

#[test]
fn a_writer_that_lost_its_place_says_that_it_stopped() {
    let store = Arc::new(SimStore::new(9));
    store.set_calm();
    let options = ShipOptions { interval: Duration::ZERO, ..ShipOptions::default() };
    let device = || Arc::new(MemDev::new(LEN));
    let first = Shipper::start(device(), remote(&store), [1; 16], options).unwrap();
    until(&first, |now| now.checkpoint == 1);
    let second = Shipper::without_thread(device(), remote(&store), [1; 16], options, [9; 16]);
    let second = second.unwrap();
    second.write_at(0, &[2; 4096]).unwrap();
    second.ship_now().unwrap().unwrap();
    first.write_at(0, &[1; 4096]).unwrap();
    first.flush().unwrap();
    let status = until(&first, |now| now.stopped);
    assert!(status.error.unwrap().contains("another writer") && status.next_try.is_none());
}

/// Many checkpoints stay readable in few objects, and what is merged is counted apart.
#[test]
fn deltas_are_merged_while_shipping_and_by_compaction() {
    let store = Arc::new(SimStore::new(8));
    let dev = Arc::new(MemDev::new(LEN));
    let options = ShipOptions::default();
    let shipper = Shipper::without_thread(dev, remote(&store), [1; 16], options, [9; 16]).unwrap();
    let mut known = vec![0; BLOCKS as usize];
    for round in 1..400_u64 {
        for at in [round * 7 % BLOCKS, round * 31 % BLOCKS, 5] {
            shipper.write_at(at * 4096, &round.to_be_bytes()).unwrap();
            known[at as usize] = round;
        }
        shipper.ship_now().unwrap();
        if round == 250 {
            assert!(compact(&remote(&store)).unwrap().is_some());
        }
        let newest = remote(&store).find(At::Newest).unwrap();
        assert!(newest.layers.len() <= 64, "{} layers", newest.layers.len());
        if round % 50 == 0 {
            let dev = MemDev::new(LEN);
            let checkpoint = Checkpoint::open(remote(&store), newest).unwrap();
            restore(&checkpoint, &dev, true, &|_, _| {}).unwrap();
            assert_eq!(numbers(&dev), known, "round {round}");
        }
    }
    let status = shipper.status();
    assert!(
        status.merged_bytes > 0 && status.merged_bytes < 8 * status.changed_bytes,
        "{status:?}"
    );
}

/// A directory as a store, and a long object in parts.
#[test]
fn a_directory_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let url = url::Url::from_directory_path(dir.path().join("store")).unwrap();
    let open = || {
        let store = Arc::new(Cloud::open(&url, true).unwrap());
        Arc::new(Remote::new(store, None, Patience::without_pauses(2)))
    };
    let len = 40 << 20;
    let dev = MemDev::new(len);
    let mut rng = uxfs_testkit::Rng::new(1);
    let noise: Vec<u8> = (0..20 << 20).map(|_| rng.bits() as u8).collect();
    dev.write_at(3 << 20, &noise).unwrap();
    let done = uxfs_remote::ship(&dev, open(), [1; 16], 5).unwrap().unwrap();
    assert_eq!(done.changed_bytes, 20 << 20);
    let reader = open();
    let checkpoint = Checkpoint::open(Arc::clone(&reader), reader.find(At::Newest).unwrap());
    let target = MemDev::new(len);
    restore(&checkpoint.unwrap(), &target, true, &|_, _| {}).unwrap();
    let mut seen = vec![0; noise.len()];
    target.read_at(3 << 20, &mut seen).unwrap();
    assert!(seen == noise);
    // The same reader cannot put a checkpoint over one that is there.
    assert!(uxfs_remote::ship(&target, open(), [1; 16], 6).unwrap().is_none());
}

/// Windows are measured in bytes of the object: what is stored in a tenth of its size comes in a tenth of the
/// requests.
#[test]
fn what_compresses_well_is_read_in_few_requests() {
    let store = Arc::new(SimStore::new(5));
    let dev = MemDev::new(LEN);
    for at in 0..BLOCKS {
        dev.write_at(at * 4096, &[at.to_be_bytes(); 512].concat()).unwrap();
    }
    uxfs_remote::ship(&dev, remote(&store), [1; 16], 1).unwrap().unwrap();
    let remote = remote(&store);
    let checkpoint = Checkpoint::open(Arc::clone(&remote), remote.find(At::Newest).unwrap());
    let read = RemoteDev::new(checkpoint.unwrap(), CacheOptions::default());
    let before = remote.requests();
    let mut block = [0; 4096];
    // Each in a window of its own, if that were measured in content, and none continues the last one.
    for at in (0..BLOCKS).step_by(200) {
        read.read_at(at * 4096, &mut block).unwrap();
        assert_eq!(block[..], [at.to_be_bytes(); 512].concat());
    }
    let requests = remote.requests() - before;
    assert!(requests <= 5, "{requests} requests for {} reads", BLOCKS / 200);
}

/// A stream takes few requests, although a thread fetches ahead of it, and nothing is fetched twice.
#[test]
fn a_stream_is_fetched_ahead_and_once() {
    let store = Arc::new(SimStore::new(6));
    let dev = MemDev::new(LEN);
    let mut rng = uxfs_testkit::Rng::new(6);
    let content: Vec<u8> = (0..LEN / 8).flat_map(|_| rng.bits().to_be_bytes()).collect();
    dev.write_at(0, &content).unwrap();
    uxfs_remote::ship(&dev, remote(&store), [1; 16], 1).unwrap().unwrap();
    for step in [4096, 60_000, 1 << 20] {
        let remote = remote(&store);
        let checkpoint = Checkpoint::open(Arc::clone(&remote), remote.find(At::Newest).unwrap());
        let read = RemoteDev::new(checkpoint.unwrap(), CacheOptions::default());
        let before = remote.requests();
        let mut bytes = vec![0; content.len()];
        for (number, part) in bytes.chunks_mut(step).enumerate() {
            read.read_at((number * step) as u64, part).unwrap();
        }
        assert!(bytes == content, "steps of {step} bytes");
        let requests = remote.requests() - before;
        // 512 KiB, 1, 2, 4 and 8 MiB.
        assert!(requests <= 6, "{requests} requests in steps of {step} bytes");
    }
}
