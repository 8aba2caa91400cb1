//! Objects that were changed, moved, cut short or removed: an error that says so, never a wrong byte.

use std::sync::Arc;

use uxfs_delta::{Copies, Layer, Manifest, Place};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::fault::{Fault, plant};
use uxfs_remote::{
    At, Checkpoint, Error, Patience, Remote, Retention, ShipOptions, Shipper, prune, restore, ship,
};
use uxfs_testkit::Rng;

use crate::sim_store::SimStore;

const LEN: u64 = 64 * 4096;

fn remote(store: &Arc<SimStore>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<SimStore>::clone(store), None, Patience::without_pauses(10)))
}

/// A store with some checkpoints of a device, and the device's contents.
fn shipped(checkpoints: u64) -> (Arc<SimStore>, Vec<Vec<u8>>) {
    let store = Arc::new(SimStore::new(1));
    let dev = MemDev::new(LEN);
    let mut rng = Rng::new(1);
    let mut contents = Vec::new();
    for number in 1..=checkpoints {
        for _ in 0..10 {
            let data: Vec<u8> = (0..4096).map(|_| rng.bits() as u8).collect();
            dev.write_at(rng.below(64) * 4096, &data).unwrap();
        }
        let done = ship(&dev, remote(&store), [1; 16], 1000 * number).unwrap().unwrap();
        assert_eq!(done.number, number);
        contents.push(content(&dev));
    }
    (store, contents)
}

/// The same by one writer, with deltas of at most so many bytes in their manifests' objects.
fn shipped_by_one(checkpoints: u64, inside_bytes: usize) -> (Arc<SimStore>, Vec<Vec<u8>>) {
    let store = Arc::new(SimStore::new(1));
    let options = ShipOptions { inside_bytes, ..ShipOptions::default() };
    let dev = Arc::new(MemDev::new(LEN));
    let on = Arc::<MemDev>::clone(&dev);
    let shipper = Shipper::without_thread(on, remote(&store), [1; 16], options, [2; 16]).unwrap();
    let mut rng = Rng::new(1);
    let mut contents = Vec::new();
    for number in 1..=checkpoints {
        for _ in 0..10 {
            let data: Vec<u8> = (0..4096).map(|_| rng.bits() as u8).collect();
            shipper.write_at(rng.below(64) * 4096, &data).unwrap();
        }
        assert_eq!(shipper.ship_now().unwrap().unwrap().number, number);
        contents.push(content(&*dev));
    }
    (store, contents)
}

/// The object with a delta, and where in it the delta begins.
fn object_of(store: &SimStore, layer: &Layer) -> (String, Vec<u8>, usize) {
    let (name, at) = match layer.place {
        Place::Object(tag) => (format!("deltas/{:016}-{tag:016x}", layer.sequence), 0),
        Place::Manifest(at) => (format!("manifests/{:016}", layer.sequence), at as usize),
    };
    let bytes = store.objects()[&name].to_vec();
    (name, bytes, at)
}

fn content(dev: &dyn BlockDev) -> Vec<u8> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    bytes
}

fn restored(store: &Arc<SimStore>, at: At) -> Result<Vec<u8>, Error> {
    let remote = remote(store);
    let checkpoint = Checkpoint::open(Arc::clone(&remote), remote.find(at)?)?;
    let target = MemDev::new(LEN);
    restore(&checkpoint, &target, true, &|_, _| {})?;
    Ok(content(&target))
}

#[test]
fn each_checkpoint_is_found_by_number_and_time() {
    let (store, contents) = shipped(9);
    for (number, content) in (1..).zip(&contents) {
        assert_eq!(&restored(&store, At::Number(number)).unwrap(), content);
        assert_eq!(&restored(&store, At::Time(1000 * number)).unwrap(), content);
        assert_eq!(&restored(&store, At::Time(1000 * number + 999)).unwrap(), content);
    }
    assert_eq!(restored(&store, At::Newest).unwrap(), contents[8]);
    assert!(matches!(restored(&store, At::Time(999)), Err(Error::NoCheckpoint(_))));
    assert!(matches!(restored(&store, At::Number(10)), Err(Error::NoCheckpoint(_))));
    assert!(matches!(restored(&Arc::new(SimStore::new(0)), At::Newest), Err(Error::NoVolume)));
}

#[test]
fn an_unchanged_image_ships_nothing() {
    let (store, contents) = shipped(3);
    let dev = MemDev::from_bytes(&contents[2]);
    assert!(ship(&dev, remote(&store), [1; 16], 9000).unwrap().is_none());
    assert!(matches!(ship(&dev, remote(&store), [2; 16], 9000), Err(Error::OtherVolume(_))));
    let longer = MemDev::new(LEN + 4096);
    assert!(matches!(ship(&longer, remote(&store), [1; 16], 9000), Err(Error::OtherVolume(_))));
    // One changed byte is one block.
    dev.write_at(5000, &[contents[2][5000] ^ 1]).unwrap();
    let done = ship(&dev, remote(&store), [1; 16], 9000).unwrap().unwrap();
    assert_eq!(done.changed_bytes, 4096);
}

#[test]
fn every_change_to_an_object_is_found_or_harmless() {
    let apart = shipped_by_one(4, 0);
    assert_eq!(apart.0.objects().len(), 8);
    every_change_is_found_or_harmless(apart);
    let together = shipped(4);
    assert_eq!(together.0.objects().len(), 4);
    every_change_is_found_or_harmless(together);
}

fn every_change_is_found_or_harmless((store, contents): (Arc<SimStore>, Vec<Vec<u8>>)) {
    let mut rng = Rng::new(3);
    let objects = store.objects();
    let mut refused = 0;
    for _ in 0..600 {
        let names: Vec<&String> = objects.keys().collect();
        let name = (*rng.pick(&names).unwrap()).clone();
        let mut bytes = objects[&name].to_vec();
        let changed = match rng.below(4) {
            0 => None,
            1 => {
                bytes.truncate(rng.index(bytes.len()));
                Some(bytes)
            }
            2 => Some(objects[*rng.pick(&names).unwrap()].to_vec()),
            _ => {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
                Some(bytes)
            }
        };
        store.set(&name, changed);
        for (number, content) in (1..).zip(&contents) {
            match restored(&store, At::Number(number)) {
                Ok(bytes) => assert_eq!(&bytes, content, "checkpoint {number}, {name}"),
                Err(_) => refused += 1,
            }
        }
        store.set(&name, Some(objects[&name].to_vec()));
    }
    assert!(refused > 300, "{refused} refused");
}

/// A manifest that lists its deltas in another order is refused, although each delta is whole.
#[test]
fn deltas_out_of_order_are_found() {
    let (store, contents) = shipped(4);
    let (mut manifest, _) = remote(&store).manifest(4).unwrap();
    manifest.layers.swap(2, 3);
    manifest.number = 5;
    let (bytes, _) = Manifest::build(&manifest, None).unwrap();
    store.set("manifests/0000000000000005", Some(bytes));
    let error = restored(&store, At::Number(5)).unwrap_err().to_string();
    assert!(error.contains("does not follow"), "{error}");
    plant(Some(Fault::ParentIgnored));
    let wrong = restored(&store, At::Number(5));
    plant(None);
    assert_ne!(wrong.unwrap(), contents[3], "the fault shows");
}

/// The end of the newest delta has the tables of those below, or says which delta has them.
#[test]
fn few_requests_open_a_checkpoint_of_many_deltas() {
    let (store, contents) = shipped(40);
    let mut copied = 0;
    for (number, content) in (1..).zip(&contents) {
        let remote = remote(&store);
        let manifest = remote.find(At::Number(number)).unwrap();
        let before = remote.requests();
        let checkpoint = Checkpoint::open(Arc::clone(&remote), manifest.clone()).unwrap();
        let requests = remote.requests() - before;
        assert!(requests <= 5, "{requests} requests for {} deltas", manifest.layers.len());
        let target = MemDev::new(LEN);
        restore(&checkpoint, &target, true, &|_, _| {}).unwrap();
        assert_eq!(&self::content(&target), content, "checkpoint {number}");
        let top = manifest.layers.last().unwrap();
        let (_, object, at) = object_of(&store, top);
        let copies = (object.len() - at) as u64 - top.object_len;
        copied += copies;
        assert!(copies <= top.object_len / 6 + Copies::HEAD_LEN as u64, "{copies} bytes of copies");
    }
    assert!(copied > 0);
}

/// A table that is a copy of another delta's is not taken for this one's.
#[test]
fn copies_of_tables_are_verified() {
    let store = Arc::new(SimStore::new(1));
    let dev = MemDev::new(LEN);
    // The tables have the same length, so that nothing but the hash tells them apart.
    let mut rng = Rng::new(5);
    for number in 1..=4 {
        let data: Vec<u8> = (0..8192).map(|_| rng.bits() as u8).collect();
        dev.write_at(8192 * number, &data).unwrap();
        ship(&dev, remote(&store), [1; 16], 1000 * number).unwrap().unwrap();
    }
    let (manifest, _) = remote(&store).manifest(4).unwrap();
    let top = manifest.layers.last().unwrap();
    let (name, object, at) = object_of(&store, top);
    let (delta, behind) = object.split_at(at + top.object_len as usize);
    let mut copies = Copies::parse(behind).unwrap();
    assert!(copies.ends.len() >= 2, "{copies:?}");
    let (one, two) = (copies.ends[0].0, copies.ends[1].0);
    (copies.ends[0].0, copies.ends[1].0) = (two, one);
    store.set(&name, Some([delta, &copies.build()].concat()));
    assert_eq!(restored(&store, At::Newest).unwrap(), content(&dev));
    plant(Some(Fault::CopyTrusted));
    let wrong = restored(&store, At::Newest);
    plant(None);
    assert!(wrong.is_err(), "the fault shows");
}

/// A small checkpoint is one put.
#[test]
fn a_small_checkpoint_is_one_object() {
    let store = Arc::new(SimStore::new(1));
    let dev = Arc::new(MemDev::new(LEN));
    let on = Arc::<MemDev>::clone(&dev);
    let options = ShipOptions::default();
    store.set_calm();
    let shipper = Shipper::without_thread(on, remote(&store), [1; 16], options, [2; 16]).unwrap();
    for number in 0..5 {
        shipper.write_at(4096 * number, &[1; 4096]).unwrap();
        let before = store.requests();
        shipper.ship_now().unwrap().unwrap();
        // The first one looks twice whether there are later ones.
        assert_eq!(store.requests() - before, if number == 0 { 3 } else { 1 });
    }
    assert_eq!(store.objects().len(), 5);
    assert_eq!(restored(&store, At::Newest).unwrap(), content(&*dev));
}

/// Objects of removed checkpoints stay while their deltas are needed, and no checkpoint is found in them.
#[test]
fn a_delta_outlives_its_checkpoint() {
    let (store, contents) = shipped_by_one(9, usize::MAX);
    store.set_calm();
    let keep = |last| prune(&remote(&store), Retention { last: Some(last), since: None }).unwrap();
    let manifests =
        || store.objects().keys().filter(|name| name.starts_with("manifests/0")).count();
    assert_eq!((keep(2).kept, manifests()), (2, 9));
    assert_eq!(remote(&store).numbers().unwrap(), [8, 9]);
    assert!(matches!(restored(&store, At::Number(7)), Err(Error::NoCheckpoint(_))));
    assert!(matches!(restored(&store, At::Time(1)), Err(Error::NoCheckpoint(_))));
    assert_eq!(restored(&store, At::Number(8)).unwrap(), contents[7]);
    assert_eq!(restored(&store, At::Newest).unwrap(), contents[8]);
    // Nothing needs them after a compaction.
    uxfs_remote::compact(&remote(&store)).unwrap().unwrap();
    assert_eq!((keep(1).kept, manifests()), (1, 1));
    assert_eq!(restored(&store, At::Newest).unwrap(), contents[8]);
    let names: Vec<String> = store.objects().into_keys().collect();
    assert!(!names.iter().any(|name| name.contains("floor")), "{names:?}");
}
