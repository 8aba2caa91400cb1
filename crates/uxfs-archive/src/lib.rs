//! File trees as streams of entries.
//!
//! This crate reads tar archives (V7, ustar, PAX, GNU; files and pipes; plain, and compressed with
//! gzip, xz and zstd if the features of these names are on), dumps of xfsdump (if the feature of this name is on),
//! directories, protofiles of mkfs.xfs, and manifests in composefs' format as one stream of entries
//! ([`Source`]), which a thread can read ahead ([`ReadAhead`]). It finds the layers of an OCI image
//! ([`OciImage`]) and writes a stream as a PAX tar ([`TarWriter`]). It does not depend on XFS;
//! `uxfs import`, `uxfs mkfs -p` and `uxfs export` are built on it.
//!
//! Invariants:
//! 1. No archive can make this crate panic, loop, or use memory beyond fixed bounds (PAX headers
//!    256 MiB for an entry and 8 MiB for a global header, attribute values 64 KiB, sparse maps
//!    1 Mi segments).
//! 2. A truncated or damaged archive causes an error with the entry and the byte offset; it is
//!    never accepted as complete. (If an archive ends exactly between two entries, truncation looks
//!    the same as a missing end marker, which is a warning.)
//! 3. All file properties of Linux are preserved (from archives on every system, from directories on
//!    Linux only): data, holes, modes, owners, times with
//!    nanoseconds, link targets, device numbers, extended attributes, ACLs.
//! 4. This crate copies file data at most once, and not at all if the consumer uses
//!    [`Source::file`] or [`Source::chunk`].

#![warn(missing_docs)]

mod acl;
#[cfg(feature = "oci")]
mod beneath;
mod decode;
mod dir;
#[cfg(feature = "oci")]
mod dump;
mod entry;
mod error;
mod file_data;
mod header;
#[cfg(target_os = "linux")]
mod host_xattrs;
#[cfg(not(target_os = "linux"))]
#[path = "no_xattrs.rs"]
mod host_xattrs;
mod input;
#[cfg(feature = "oci")]
mod oci;
mod open;
mod pax;
mod protofile;
mod read_ahead;
mod source;
mod sparse;
mod tar_reader;
mod tar_writer;
#[cfg(feature = "oci")]
mod verity;
mod window;
#[cfg(feature = "xfsdump")]
mod xfsdump;

pub use dir::{DirOptions, DirSource};
#[cfg(feature = "oci")]
pub use dump::DumpSource;
pub use entry::{Entry, Fsx, Kind, Meta, SparseMap, Time, Xattrs};
pub use error::ArchiveError;
#[cfg(feature = "oci")]
pub use oci::{OciImage, Platform};
pub use open::open;
#[cfg(feature = "xfsdump")]
pub use open::open_dump_to_list;
pub use protofile::{ProtoOptions, ProtoSource};
pub use read_ahead::ReadAhead;
pub use source::{DataReader, Source};
pub use tar_writer::TarWriter;
