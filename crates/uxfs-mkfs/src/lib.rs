//! Makes XFS v5 volumes: the options, geometry and bytes of `mkfs.xfs` 6.1.
//!
//! [`Options`] are parsed or filled in, [`Layout::new`] decides every number from them and the size
//! of the device, [`table`] shows the numbers, and [`write()`] puts the volume on a
//! [`BlockDev`](uxfs_disk::BlockDev).
//!
//! 1. The same options give the same bytes as `mkfs.xfs` 6.1, but for the UUID and the time.
//! 2. The primary superblock is written last: a volume that was not finished cannot be taken for
//!    one that was.
//! 3. Nothing is decided while writing, and nothing is written while deciding.

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
pub use layout::{Layout, MIN_LOG_BYTES, MIN_VOLUME_BYTES};
pub use options::{
    Autofsck, DataOptions, InodeOptions, LogOptions, MetaOptions, NamingOptions, Options,
};
pub use preset::{PRESETS, Preset};
pub use size::Size;
pub use table::{table, table_of};
pub use write::{WriteOptions, write};
