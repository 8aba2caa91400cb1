//! The XFS engine of uxfs.
//!
//! Layers, each importing only those before it: buffers ([`buf`]) and inodes in memory ([`inode`]),
//! transactions ([`tx`]), btrees and allocation inside a group, extent maps ([`bmap`]), blocks of
//! directories and attributes ([`dabuf`]), directories, attributes, and on top the operations.

pub mod ag;
pub mod alloc;
mod arrivals;
pub mod attr;
pub mod bmap;
pub mod btree;
pub mod buf;
mod cause;
pub mod clock;
mod contents;
mod cow;
pub mod da;
pub mod dabuf;
mod defer;
mod devices;
pub mod dir;
mod dirty;
mod error;
pub mod file;
pub mod fs;
mod full;
mod handles;
mod hints;
mod ialloc;
pub mod inode;
pub mod journal;
mod log_state;
mod meter;
pub mod ops;
mod patience;
mod primary;
mod recovery;
mod stats;
pub mod symlink;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod turns;
pub mod tx;
mod unlinked;
mod unwritten;
mod writeback;

pub use arrivals::Arrivals;
pub use cause::Cause;
pub use devices::{Device, Devices};
pub use dirty::{ErrorCursor, SyncKind, WritebackOptions};
pub use error::{EFSCORRUPTED, Error, Result};
pub use file::Segment;
pub use fs::{Fs, OpenOptions};
pub use ops::{
    Atime, Content, Fallocate, Fsx, Move, NAME_MAX, NewInode, RenameFlags, SetAttr, Stat, StatFs,
    Times, XattrMode, Xflags, whole_groups,
};
pub use recovery::{Recovery, Replayed, replay_in_memory};
pub use stats::{Histogram, Stats};
pub use unwritten::Unwritten;
pub use writeback::Cached;
