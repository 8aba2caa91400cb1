//! Writes the seeds of all targets into the directory `UXFS_SEEDS`. A fuzzer by its frame alone, as
//! everything here is built with the instrumentation that the frame belongs to.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|_data: &[u8]| {
    let dir = std::env::var_os("UXFS_SEEDS").unwrap_or_else(|| panic!("UXFS_SEEDS is not set"));
    uxfs_fuzz::write_seeds(Path::new(&dir)).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
});
