//! The library as a whole against the real tools: xfsprogs on every image, kernels in a throw-away
//! machine, and a model in memory.
//!
//! Needs `xfsprogs`, `qemu-img`, `tar`, `gzip`, `xz`, `zstd` and the kernels of `tools/setup-uml`; without them
//! the tests fail. A random test that fails prints its seed; `UXFS_SEED` changes all seeds, and
//! `UXFS_ROUNDS` makes the tests longer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ascii_ci;
mod atomic;
mod checks;
mod compared;
mod damage;
mod devices;
mod docs;
mod dumps;
mod edit;
mod external_log;
mod extremes;
mod failing;
mod files;
mod growth;
mod identity;
mod import;
mod intents;
mod kernel;
mod layers;
mod links;
mod listing;
mod matrix;
mod meanwhile;
mod model;
mod names;
mod quota;
mod recovery;
mod resize;
mod scrub;
mod sharing;
mod space;
mod stress;
mod threads;
mod v4;
mod vm_images;
mod volume;
mod watchdog;
