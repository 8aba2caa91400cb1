//! Makes XFS v5 volumes with the options, geometry and bytes of `mkfs.xfs` 6.1.
//!
//! [`Options`] are parsed or set. [`Layout::new`] computes all numbers from the options and the
//! device size. [`table`] shows the numbers. [`write()`] writes the volume to a
//! [`BlockDev`](uxfs_disk::BlockDev), and [`write_with_log`] one with an external log to two.
//!
//! 1. The same options produce the same bytes as `mkfs.xfs` 6.1, except for UUID and timestamps.
//! 2. The primary superblock is written last, so an unfinished volume is never mistaken for a
//!    finished one.
//! 3. Computing the layout writes nothing, and writing decides nothing.

#![warn(missing_docs)]

mod config;
mod defaults;
mod error;
mod groups;
mod grown;
mod layout;
mod log;
mod minlog;
mod options;
mod preset;
pub mod signature;
mod size;
mod stripe;
mod suboption;
mod table;
mod units;
mod write;

pub use config::MAX_CONFIG_BYTES;
pub use error::MkfsError;
pub use grown::{options_like, write_groups};
pub use layout::{Layout, MIN_LOG_BYTES, MIN_VOLUME_BYTES, random_uuid};
pub use options::{
    Autofsck, DataOptions, InodeOptions, LogOptions, MetaOptions, NamingOptions, Options,
    PopulationOptions,
};
pub use preset::{PRESETS, Preset};
pub use size::Size;
pub use table::{table, table_7, table_of, table_of_7};
pub use write::{WriteOptions, write, write_with_log};
