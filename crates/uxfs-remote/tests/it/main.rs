//! Volumes on object storage: a simulation of writers, store and readers from a seed, objects that were
//! changed by hand, and stores of other makers.
//!
//! `UXFS_SEED` is the first seed, `UXFS_COUNT` the number of runs, `UXFS_ONLY` one seed alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod caches;
mod cuts;
mod devices;
mod hooked;
mod hostile;
mod machines;
mod parts;
mod races;
mod runs;
mod sim_store;
mod world;
