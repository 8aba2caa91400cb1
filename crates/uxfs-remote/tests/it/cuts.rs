//! Power cuts under the write cache of a writer from afar: what a flush confirmed is there, and each sector is as
//! it was written at some moment since.

use std::collections::BTreeMap;
use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev, Slice};
use uxfs_remote::fault::{Fault, plant};
use uxfs_remote::{
    Bytes, CacheFiles, CacheOptions, HoldOptions, Patience, Remote, ShipOptions, Shipper, ship,
};
use uxfs_testkit::{Event, RecordDev, Recording, Rng};

use crate::runs::number;
use crate::sim_store::SimStore;

const LEN: u64 = 40 * 4096 + 512;
const SECTOR: usize = 512;

/// What may be found if the power fails between a mark and the next one.
#[derive(Clone, Debug)]
struct Mark {
    /// The first of the contents that the device may hold: that of the last flush.
    flushed: usize,
    /// How many contents there are.
    contents: usize,
    store: BTreeMap<String, Bytes>,
}

fn remote(store: &Arc<SimStore>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<SimStore>::clone(store), None, Patience::without_pauses(20)))
}

fn files(disk: &Arc<dyn BlockDev>) -> CacheFiles {
    let part = |from, len| Arc::new(Slice::new(Arc::clone(disk), from, len).unwrap());
    let (blocks, map) = (part(0, LEN), part(LEN, CacheFiles::map_len(LEN)));
    CacheFiles { blocks, map }
}

fn hold(store: &Arc<SimStore>, disk: &Arc<dyn BlockDev>, writer: u8) -> Shipper {
    let options = HoldOptions {
        name: "a machine".into(),
        takeover: false,
        ship: ShipOptions::default(),
        reading: CacheOptions::default(),
        cache_bytes: 16 * 4096,
    };
    let open = |_| Ok(files(disk));
    Shipper::hold_without_thread(remote(store), &open, &options, [writer; 16]).unwrap()
}

fn content(dev: &dyn BlockDev) -> Vec<u8> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A recorded run: the contents of its device, one after the other, and the events on its disk.
fn recorded(seed: u64) -> (Vec<Vec<u8>>, Recording<Mark>) {
    let mut rng = Rng::spread(seed);
    let store = Arc::new(SimStore::new(seed));
    let base = MemDev::new(LEN);
    for block in 0..20 {
        base.write_at(block * 8192, &[1 + rng.bits() as u8 % 99; 4096]).unwrap();
    }
    ship(&base, remote(&store), [7; 16], 5).unwrap();
    let whole = LEN + CacheFiles::map_len(LEN);
    let record = Arc::new(RecordDev::<MemDev, Mark>::new(MemDev::new(whole)));
    let disk: Arc<dyn BlockDev> = Arc::<RecordDev<MemDev, Mark>>::clone(&record);
    let shipper = hold(&store, &disk, 1);
    // The claim is made, and the cache is empty.
    record.take();
    let before = record.below().clone();
    let (mut contents, mut events) = (vec![content(&base)], Vec::new());
    let mut flushed = 0;
    for _ in 0..60 {
        let turn = rng.below(10);
        match turn {
            0..6 => {
                let at = rng.below(LEN / 512 - 1) * 512;
                let len = ((1 + rng.below(20)) * 512).min(LEN - at) as usize;
                let data = vec![rng.bits() as u8; len];
                let mut next = contents[contents.len() - 1].clone();
                next[at as usize..at as usize + len].copy_from_slice(&data);
                contents.push(next);
                shipper.write_at(at, &data).unwrap();
            }
            6..9 => shipper.flush().unwrap(),
            // What it changes on the disk, it changes after the put.
            _ => drop(shipper.ship_now().unwrap()),
        }
        let mark = Mark { flushed, contents: contents.len(), store: store.objects() };
        events.push(Event::Mark(mark.clone()));
        events.extend(record.take());
        if (6..9).contains(&turn) {
            flushed = contents.len() - 1;
            events.push(Event::Mark(Mark { flushed, ..mark }));
        }
    }
    (contents, Recording::new(before, events, SECTOR))
}

fn run(seed: u64) -> Result<(), String> {
    let (contents, recording) = recorded(seed);
    let mut rng = Rng::spread(seed ^ 0x77);
    for _ in 0..40 {
        let at = recording.choose(&mut rng);
        let Some(mark) = recording.marks_before(at).next().cloned() else { continue };
        let state: Arc<dyn BlockDev> = Arc::new(recording.cut(at, &mut rng));
        let store = Arc::new(SimStore::new(seed ^ at as u64));
        for (name, bytes) in mark.store {
            store.set(&name, Some(bytes.to_vec()));
        }
        let shipper = hold(&store, &state, 2);
        let seen = content(&shipper);
        let possible = &contents[mark.flushed..mark.contents];
        for (number, sector) in seen.chunks(SECTOR).enumerate() {
            let from = number * SECTOR;
            let was = |content: &Vec<u8>| content[from..from + sector.len()] == *sector;
            if !possible.iter().any(was) {
                return Err(format!("a cut before event {at}: sector {number} never was so"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_leaves_what_was_flushed_and_nothing_that_never_was() {
    let first = number("UXFS_SEED", 0);
    for seed in first..first + number("UXFS_COUNT", 40) {
        run(seed).unwrap_or_else(|why| panic!("{why}; seed {seed}"));
    }
}

#[test]
fn a_map_that_is_durable_before_its_blocks_is_found() {
    let found = (0..100).any(|seed| {
        plant(Some(Fault::MapFirst));
        let found = run(seed);
        plant(None);
        found.is_err()
    });
    assert!(found, "the fault was not found");
}
