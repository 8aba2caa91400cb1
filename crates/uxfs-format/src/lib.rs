//! XFS on-disk structures: parse, verify, build. This crate does no I/O and takes no locks.
//!
//! Each module describes one on-disk structure and carries the structure's XFS name. Every module
//! keeps these rules:
//!
//! 1. Metadata is big-endian; checksums are little-endian. Conversions of byte order belong in
//!    this crate. Other crates use named fields ([`bytes::Field`]), views, and the encode and decode
//!    functions of each type.
//! 2. Fixed layouts are `zerocopy` views over the caller's buffer. Their sizes and offsets are
//!    checked at compile time.
//! 3. A structure is verified after a read and before a write ([`verify`]): magic number, checksum,
//!    UUID, own address, owner, bounds. A failed check is a [`Corrupt`] error that names the check.
//! 4. Nothing here panics on any input bytes.
//! 5. Structures have the layout of format version 5. Version 4 is read-only; its blocks are
//!    converted to the version 5 layout when they are read ([`v4`]).

#![warn(missing_docs)]

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
pub mod dquot;
mod error;
pub mod extent;
pub mod features;
pub mod geometry;
mod hash;
pub mod inode;
pub mod log;
pub mod metadump;
mod naming;
pub mod superblock;
pub mod symlink;
pub mod timestamp;
mod types;
pub mod v4;
pub mod verify;

pub use error::{Check, Corrupt, Place, Problem};
pub use extent::Extent;
pub use geometry::Geometry;
pub use naming::Naming;
pub use types::*;
