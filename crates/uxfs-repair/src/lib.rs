//! Repair of damaged XFS v5 volumes.
//!
//! [`plan`] repairs a volume in memory and returns a [`Plan`]: what is wrong, what it becomes, what is
//! lost, and every byte that changes. [`apply`] carries a plan out, [`undo`] gives every byte back.
//!
//! 1. Nothing is written to an image before its repair is whole in memory and [`uxfs_check::check`] finds
//!    the result sound. Otherwise the plan is an error.
//! 2. Inodes and what they map are the truth; trees of the groups, indexes of directories, counters and
//!    link counts follow from them.
//! 3. Nothing sound is dropped: of what two owners claim, one keeps it; what no entry leads to goes to
//!    `lost+found`. What is lost is listed.
//! 4. No content of an image causes a panic, an endless loop or unbounded use of memory.
//!
//! A repair runs in rounds until the check is content. The phases of a round, one file each: bits put back
//! by checksums, the superblock, the log, the pass over all inodes with their forks, blocks with two
//! owners, links, forks written anew, trees of the groups, what the engine enters again.
//!
//! Called by `uxfs repair`.
//!
//! ```
//! use std::sync::Arc;
//! use uxfs_disk::MemDev;
//! use uxfs_repair::{RepairOptions, plan};
//!
//! let empty = Arc::new(MemDev::new(1 << 20));
//! assert!(plan(empty, &RepairOptions::default(), &|_| {}).is_err());
//! ```

#![warn(missing_docs)]

mod apply;
mod attr;
mod bits;
mod burst;
mod chunk;
mod claim;
mod conflict;
mod dir;
mod error;
mod fork;
mod group;
mod inode;
mod links;
mod log;
mod options;
mod pass;
mod plan;
mod refill;
mod rewrite;
mod round;
mod superblock;
mod tree;
mod undo;
mod volume;
mod walk;

pub use apply::{apply, undo};
pub use error::{RepairError, Result};
pub use options::{Phase, RepairOptions};
pub use plan::{Change, Plan, SECTOR, Step};
pub use round::plan;
