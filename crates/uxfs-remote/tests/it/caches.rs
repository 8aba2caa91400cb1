//! The files of a write cache in a directory, of which one was removed.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::{
    CacheFiles, CacheOptions, Error, HoldOptions, Patience, Remote, ShipOptions, Shipper, ship,
};

use crate::hooked::Hooked;

const LEN: u64 = 64 * 4096;

fn remote(store: &Arc<Hooked>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<Hooked>::clone(store), None, Patience::without_pauses(3)))
}

/// Blocks that are made anew beside a map that names some would read as zeroes, and be shipped.
#[test]
fn a_map_without_its_blocks_is_refused() {
    let store = Arc::new(Hooked::new());
    let base = MemDev::new(LEN);
    base.write_at(0, &[1; LEN as usize]).unwrap();
    ship(&base, remote(&store), [7; 16], 5).unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let hold = |writer: u8| {
        let options = HoldOptions {
            name: "a machine".into(),
            takeover: false,
            ship: ShipOptions::default(),
            reading: CacheOptions::default(),
            cache_bytes: 1 << 30,
        };
        let open = |len: u64| CacheFiles::in_dir(dir.path(), len);
        Shipper::hold_without_thread(remote(&store), &open, &options, [writer; 16])
    };
    let blocks = dir.path().join("blocks");

    // Nothing is lost with blocks that the map does not name.
    drop(hold(1).unwrap());
    std::fs::remove_file(&blocks).unwrap();
    let held = hold(2).unwrap();
    held.write_at(5 * 4096, &[2; 4096]).unwrap();
    held.flush().unwrap();
    drop(held);
    std::fs::rename(&blocks, dir.path().join("aside")).unwrap();
    for writer in 3..5 {
        let error = hold(writer).err().unwrap();
        let is_named = matches!(&error, Error::Cache(cause) if cause.to_string().contains("blocks is missing"));
        assert!(is_named, "{error}");
    }
    std::fs::rename(dir.path().join("aside"), &blocks).unwrap();
    let held = hold(5).unwrap();
    let mut byte = [0];
    held.read_at(5 * 4096, &mut byte).unwrap();
    assert_eq!(byte, [2]);
}
