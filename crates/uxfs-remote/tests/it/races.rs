//! What a writer from afar does while another machine, or another thread, does something at one moment.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::{
    CacheFiles, CacheOptions, HoldOptions, Patience, Remote, Retention, ShipOptions, Shipper,
    compact, prune, ship,
};

use crate::hooked::{Hooked, Request, When};

const BLOCKS: u64 = 64;
const LEN: u64 = BLOCKS * 4096;

fn remote(store: &Arc<Hooked>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<Hooked>::clone(store), None, Patience::without_pauses(3)))
}

/// A store with a volume whose blocks are all ones.
fn shipped() -> Arc<Hooked> {
    let store = Arc::new(Hooked::new());
    let base = MemDev::new(LEN);
    base.write_at(0, &[1; LEN as usize]).unwrap();
    ship(&base, remote(&store), [7; 16], 5).unwrap().unwrap();
    store
}

fn files() -> CacheFiles {
    let (blocks, map) = (MemDev::new(LEN), MemDev::new(CacheFiles::map_len(LEN)));
    CacheFiles { blocks: Arc::new(blocks), map: Arc::new(map) }
}

/// A writer whose cache keeps nothing that the store has.
fn hold(store: &Arc<Hooked>, writer: u8, takeover: bool) -> Arc<Shipper> {
    let options = HoldOptions {
        name: "a machine".into(),
        takeover,
        ship: ShipOptions::default(),
        reading: CacheOptions::default(),
        cache_bytes: 0,
    };
    let open = |_| Ok(files());
    let held = Shipper::hold_without_thread(remote(store), &open, &options, [writer; 16]);
    Arc::new(held.unwrap())
}

fn first_byte(dev: &dyn BlockDev, block: u64) -> std::io::Result<u8> {
    let mut byte = [0];
    dev.read_at(block * 4096, &mut byte).map(|()| byte[0])
}

/// Another machine takes the volume over as soon as a checkpoint is put. This one reads from an earlier
/// checkpoint then, which lacks what it has shipped since.
#[test]
fn a_writer_that_was_overtaken_reads_what_it_wrote() {
    let store = shipped();
    let here = hold(&store, 1, false);
    here.write_at(5 * 4096, &[2; 4096]).unwrap();
    here.flush().unwrap();
    let there = Arc::clone(&store);
    store.once(When::After, Request::Put, "manifests/", move || {
        drop(hold(&there, 2, true));
    });
    here.ship_now().unwrap().unwrap();
    assert!(store.is_done());
    assert_eq!(first_byte(&*here, 5).unwrap(), 2);
}

/// Makes one base of all deltas, and removes them.
fn replace_all(store: &Arc<Hooked>) {
    compact(&remote(store)).unwrap().unwrap();
    let retention = Retention { last: Some(1), since: None };
    assert!(prune(&remote(store), retention).unwrap().checkpoints > 0);
}

/// A writer that reads from a checkpoint whose deltas were removed.
fn behind() -> (Arc<Hooked>, Arc<Shipper>) {
    let store = shipped();
    let here = hold(&store, 1, false);
    here.write_at(5 * 4096, &[2; 4096]).unwrap();
    here.ship_now().unwrap().unwrap();
    replace_all(&store);
    (store, here)
}

/// A reader that finds its checkpoint removed looks for a later one. Meanwhile another one is
/// shipped and read, and blocks that only that one has are given back.
#[test]
fn an_earlier_checkpoint_is_never_read_after_a_later_one() {
    let (store, here) = behind();
    let other = Arc::clone(&here);
    store.once(When::After, Request::GetRange, "manifests/", move || {
        other.write_at(6 * 4096, &[3; 4096]).unwrap();
        other.ship_now().unwrap().unwrap();
    });
    assert_eq!(first_byte(&*here, 9).unwrap(), 1);
    assert!(store.is_done());
    assert_eq!(first_byte(&*here, 6).unwrap(), 3);
}

/// Two readers find their checkpoint removed, and one of them is the first to move on.
#[test]
fn a_reader_goes_on_from_where_another_one_has_moved() {
    let (store, here) = behind();
    let other = Arc::clone(&here);
    store.once(When::Before, Request::GetRange, "manifests/", move || {
        assert_eq!(first_byte(&*other, 9).unwrap(), 1);
    });
    assert_eq!(first_byte(&*here, 20).unwrap(), 1);
    assert!(store.is_done());
}
