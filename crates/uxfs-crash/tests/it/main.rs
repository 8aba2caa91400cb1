//! Power cuts at many moments, recovered by uxfs and by two kernels.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod explore;
mod faults;
mod import;
mod kernels;
#[path = "../../../uxfs/tests/it/listing.rs"]
#[expect(dead_code, reason = "shared with the tests of another crate")]
mod listing;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uxfs_disk::{BlockDev, MemDev};

fn put(disk: &MemDev, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(disk.len()).unwrap();
    disk.for_written(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
}

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}
