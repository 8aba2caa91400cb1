//! Volumes on object storage: an image's checkpoints shipped to a store, restored from it, and read where
//! they are.
//!
//! A store holds the deltas of one volume (`uxfs-delta`), under `deltas/`, and a manifest for each
//! checkpoint, under `manifests/`. `docs/REMOTE.md` says what is guaranteed, and what it costs.
//!
//! 1. A delta is in the store before the first manifest that names it. A manifest is in the store before
//!    anything older than it is removed.
//! 2. Manifests are numbered without gaps, and each is put only if there is none of its number. So two
//!    writers cannot both go on, and the order of checkpoints is that of their numbers.
//! 3. The image of a checkpoint is one that a power cut could have left: the device's content at a moment
//!    when no write was under way.
//! 4. No byte from a store is used before its hash was compared.
//! 5. Calls block. The asynchronous runtime is in [`cloud`] and seen by no caller.
//!
//! From the bottom up: `store`, `aws_profile` and `cloud` (objects by name), `patience` (trying
//! again), `remote` (the manifests of a volume), `tables`, `map` and `checkpoint` (which delta
//! holds each block), `restore`, `remote_dev`, `read_ahead` and `cache` (reading), `bits` and
//! `tracker` (what changed), `publisher` (a checkpoint put), `compare`, `cache_head` and
//! `write_cache` (changes on this machine's disk), `hold` (who may write from afar), `shipper` (a
//! device that ships), `prune` and `compact` (what becomes of old checkpoints).

#![warn(missing_docs)]

mod address;
#[cfg(feature = "cloud")]
mod aws_profile;
mod bits;
mod cache;
mod cache_head;
mod checkpoint;
pub mod cloud;
mod cloud_parts;
mod compact;
mod compare;
mod error;
#[doc(hidden)]
pub mod fault;
mod hold;
mod map;
mod offline;
mod parallel;
mod patience;
mod prune;
mod publisher;
mod read_ahead;
mod remote;
mod remote_dev;
mod restore;
mod shipper;
mod store;
mod tables;
mod tracker;
mod write_cache;

pub use address::{Address, At};
pub use bytes::Bytes;
pub use cache::CacheOptions;
pub use checkpoint::Checkpoint;
pub use compact::{Compacted, compact};
pub use error::{Error, Result};
pub use hold::HoldOptions;
pub use offline::ship;
pub use patience::Patience;
pub use prune::{Pruned, Retention, prune};
pub use publisher::Published;
pub use remote::Remote;
pub use remote_dev::RemoteDev;
pub use restore::{Restored, restore};
pub use shipper::{ShipMode, ShipOptions, ShipStatus, Shipper};
pub use store::{Entry, Parts, Store};
pub use uxfs_delta::{Hash, Holder, Key, Manifest};
pub use write_cache::CacheFiles;
