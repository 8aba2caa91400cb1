//! Files by path, in the spelling of [`std::fs`].
//!
//! A [`Volume`] is an open volume; its methods are the functions of `std::fs`. A [`File`] is an open
//! file with [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`]. Both can be shared between
//! threads. [`crate::Fs`], the engine below, takes inode numbers instead of paths
//! ([`Volume::with_fs`]).
//!
//! 1. A path starts at the volume's root, with or without a leading slash. `..` and symbolic links
//!    never lead out of the volume. On Unix the bytes of a path may have any value.
//! 2. The caller acts as root: no permission is checked. The flags *immutable* and *append-only* are
//!    obeyed.
//! 3. Results and kinds of errors are those of `std::fs` on Linux, except where a method says
//!    otherwise.
//! 4. An open file keeps its volume open. After [`Volume::close`] its methods fail with EBADF.
//! 5. A process that forks keeps its volumes for itself. In the child each call fails with EBADF, and
//!    closing and dropping write nothing. The child has a copy of the image's file, so the image stays
//!    locked until both have closed it or ended.
//! 6. A dropped volume is closed like an explicitly closed one. The errors of that are kept for
//!    [`drop_errors`].

mod dir;
mod error;
mod file;
mod lookup;
mod metadata;
mod names;
mod options;
mod path;
#[cfg(feature = "archive")]
mod transfer;
mod tree;
mod volume;
mod xattr;

pub use dir::{DirEntry, ReadDir};
pub use error::{PathError, Result};
pub use file::File;
pub use metadata::{FileTimes, FileType, Metadata, Permissions};
pub use options::{FileOptions, VolumeOptions};
pub use tree::Walk;
pub use volume::{Ticket, Volume, drop_errors};
