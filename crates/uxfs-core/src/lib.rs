//! The XFS engine of uxfs: volumes read and changed through buffers, transactions and the log.
//!
//! Three types stand on each other. [`Mount`] holds a volume's geometry, devices, caches and counters.
//! [`Engine`] adds the journal, and is what transactions ([`tx::Tx`]) run on. [`Fs`] adds files: its
//! methods are the operations, one file each under [`ops`]. ARCHITECTURE.md has the table of all modules,
//! from the bottom up, and a test holds the imports to it.

#![warn(missing_docs)]

pub mod ag;
mod all_groups;
pub mod alloc;
pub mod attr;
pub mod bmap;
pub mod btree;
pub mod buf;
mod bulk_data;
mod bulk_writer;
mod busy;
mod cause;
mod clean_log;
pub mod clock;
mod cow;
pub mod da;
pub mod dabuf;
mod data_io;
mod defer;
mod deferred;
mod delalloc;
mod device_io;
mod devices;
pub mod dir;
mod dquot;
mod dquot_places;
mod engine;
mod enospc;
mod enospc_causes;
mod epoch;
mod error;
mod examine;
mod features;
pub mod file;
mod freed_inodes;
mod freeze;
mod freezer;
pub mod fs;
mod full;
mod growing;
mod growth;
mod hints;
mod ialloc;
pub mod inode;
mod instrumented;
mod iolock;
pub mod journal;
mod limits;
mod log_worker;
mod mount;
mod open;
mod open_refs;
pub mod ops;
mod options;
mod point_in_time;
mod quota;
mod read_ahead;
mod recovery;
mod reserve_floor;
mod rolled_inodes;
mod sb;
mod split_files;
mod stats;
mod streams;
pub mod symlink;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod tickets;
pub mod tx;
mod unlinked;
mod unsettled;
mod unwritten;
mod writeback;

pub use bulk_data::BulkError;
pub use bulk_writer::BulkWriter;
pub use cause::Cause;
pub use delalloc::{BegunFsync, DeferredFsync, ErrorCursor, SyncKind, WritebackOptions};
pub use device_io::Cached;
pub use devices::{Device, Devices};
pub use dquot::Limits;
pub use engine::Engine;
pub use error::{EFSCORRUPTED, Error, Result};
pub use file::Segment;
pub use freeze::{Closed, FreezeProtection, Inside};
pub use fs::Fs;
pub use growing::GrowingGeometry;
pub use growth::{Growth, WriteGroups};
pub use log_worker::LogWorker;
pub use mount::Mount;
pub use ops::{
    Atime, AtomicRange, Content, DefragOptions, DefragPart, Fallocate, Fragmentation, Fsx, Kept,
    Move, NAME_MAX, NewInode, QuotaState, RenameFlags, SetAttr, Stat, StatFs, Times, XattrMode,
    Xflags, whole_groups,
};
pub use options::{OpenOptions, SyncMode};
pub use point_in_time::PointInTime;
pub use recovery::{Recovery, Replayed, replay_in_memory};
pub use sb::read as read_superblock;
pub use stats::{Histogram, Stats};
pub use tickets::Drive;
pub use unwritten::Unwritten;
