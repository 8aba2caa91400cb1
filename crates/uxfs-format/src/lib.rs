//! XFS on-disk structures: parse, verify, build. This crate does no I/O and takes no locks.
//!
//! One module is one structure of the format, named as the field names it. The rules every module
//! keeps:
//!
//! 1. Byte order is known here and nowhere else: big-endian throughout, checksums little-endian.
//! 2. Fixed layouts are `zerocopy` views, used in place over a buffer; their sizes and offsets are
//!    checked at compile time.
//! 3. A structure is verified when read and before it is written ([`verify`]): magic, checksum,
//!    UUID, own address, owner, bounds. A failed check is a [`Corrupt`], which names the check.
//! 4. Nothing here panics on any input bytes.
//! 5. Version 5 is the format; version 4, which is only read, is brought into its shape ([`v4`]).

pub mod acl;
pub mod agf;
pub mod agfl;
pub mod agi;
pub mod attr;
pub mod btree;
mod buf_kind;
pub mod bytes;
pub mod copies;
pub mod crc;
pub mod da;
pub mod dir;
mod error;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod hash;
pub mod inode;
pub mod log;
pub mod superblock;
pub mod symlink;
pub mod timestamp;
mod types;
pub mod v4;
pub mod verify;

pub use error::{Corrupt, Place};
pub use extent::Extent;
pub use geometry::Geometry;
pub use types::*;
