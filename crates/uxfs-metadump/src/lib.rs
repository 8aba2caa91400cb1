//! Dumps of a volume's metadata, as xfs_metadump writes and xfs_mdrestore reads them, and copies of
//! volumes as xfs_copy makes them.
//!
//! A dump has everything but the data of files: it shows a problem without the files, and is small.
//! [`dump`] writes one, [`Restore`] makes a volume of one, [`Copier`] copies the blocks in use.
//!
//! 1. The volume that is dumped or copied is only read.
//! 2. A dump is for volumes that are damaged, too. What cannot be understood is dumped as it is, but in a
//!    dump with other names it is left out, since it could hold names: privacy first.
//! 3. Each sector is dumped once, so no damage makes a dump without end. The memory in use depends on the
//!    size of the metadata by 1/4000 at worst.
//! 4. The same volume gives the same dump, if the key of the names is the same.
//! 5. A checksum that was right before a block was changed is right after it; a wrong one stays wrong.
//! 6. No dump causes a panic, an endless loop or unbounded memory use. A volume that is restored or
//!    copied carries `inprogress`, which nothing mounts, until all of it is written.
//!
//! Used by the command: `uxfs metadump`, `uxfs mdrestore`, and the programs of xfsprogs of these names
//! and `xfs_copy`.

#![warn(missing_docs)]

mod clean_log;
mod copy;
mod dump;
mod error;
mod forks;
mod free;
mod names;
mod options;
mod reader;
mod restore;
mod scrub;
mod seen;
mod trees;
mod writer;

pub use copy::{Copier, CopySummary, Target};
pub use dump::dump;
pub use error::{CopyError, DumpError, RestoreError};
pub use names::Names;
pub use options::{DumpOptions, DumpProgress, DumpSummary, Event, Version};
pub use reader::Info;
pub use restore::{Restore, RestoreSummary, info};
pub use uxfs_format::metadump::Content;
