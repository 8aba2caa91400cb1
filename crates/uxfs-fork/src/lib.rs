//! Forks: a copy-on-write child of a disk image. The child is a file that names its base and holds what was
//! changed, as deltas (`uxfs-delta`). It is made in milliseconds, whatever the size of the base.
//!
//! 1. The base is never written, except by [`commit`], and is open for reading with a shared lock while a
//!    child is: any number of children can be used side by side, and no writer beside them.
//! 2. A child is used only with the base that it was made of: length, time of change and the hash of the
//!    first bytes are compared when it is opened.
//! 3. Each flush appends one delta, in one piece, and then makes it durable. After a power cut the child is
//!    as after its last flush, or after a later one that was not confirmed, never in between.
//! 4. What was confirmed by a flush and is damaged later is an error when it is read, or when the child is
//!    opened. It is never read as something else.
//! 5. The file is rewritten within itself when most of it is outdated; no moment lies in between.
//!
//! From the bottom up: `head` (what names the base), `frame` (a delta in the file), `map` and `chunks` (where
//! each block is), `deltas` (the file), `dev` (the child as a device), `commit`.
//!
//! Used by `uxfs`, which opens forks as it opens other images, and makes and commits them.
//!
//! ```
//! use std::sync::Arc;
//! use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
//! use uxfs_fork::{Base, ForkDev, create};
//!
//! let dir = tempfile::tempdir()?;
//! let (image, child) = (dir.path().join("base.img"), dir.path().join("child"));
//! std::fs::write(&image, vec![1; 1 << 20])?;
//! let open = |path: &std::path::Path| -> std::io::Result<Arc<dyn BlockDev>> {
//!     Ok(Arc::new(FileDev::open(path, OpenMode::Read)?))
//! };
//! create(&child, &image, &*open(&image)?)?;
//!
//! let dev = ForkDev::open(FileDev::open(&child, OpenMode::Write)?, &child, &open)?;
//! dev.write_at(4096, &[2; 4096])?;
//! dev.flush()?;
//! let mut read = [0; 2];
//! dev.read_at(8191, &mut read)?;
//! assert_eq!(read, [2, 1]);
//! # Ok::<(), std::io::Error>(())
//! ```

#![warn(missing_docs)]

mod base;
mod chunks;
mod commit;
mod deltas;
mod dev;
mod frame;
mod head;
mod map;
mod sys;

pub use base::{Base, is_address};
pub use commit::{Committed, Mark, commit};
pub use dev::{ForkDev, base_of, changes, create, rebase};
pub use head::is_fork;

/// Bytes of a block, the unit in which a child differs from its base.
pub const BLOCK: usize = 4096;

/// The error of a file that is not what it should be.
fn damaged(what: impl core::fmt::Display) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("damaged fork: {what}"))
}

/// The error of a delta.
fn of_delta(error: uxfs_delta::Error) -> std::io::Error {
    damaged(format_args!("a delta {error}"))
}
