//! File trees as streams.
//!
//! Reads tar archives (V7, ustar, PAX, GNU; plain, gzip, xz, zstd; files and pipes), directories,
//! and manifests in composefs' format as one stream of entries ([`Source`]), finds the layers of
//! an OCI image ([`OciImage`]), and writes such a stream as a PAX tar ([`TarWriter`]). Knows
//! nothing of XFS: `uxfs import` and `uxfs export` stand on it.
//!
//! Invariants:
//! 1. Nothing in an archive makes this crate panic, loop, or take memory beyond fixed bounds
//!    (PAX headers 8 MiB, attribute values 64 KiB, sparse maps 1 Mi segments).
//! 2. An archive that is cut short or damaged gives an error that names the entry and the
//!    byte offset; it is never taken for a complete one. (One cut exactly between two entries
//!    can not be told from one whose writer left the end marker out: a warning.)
//! 3. What Linux keeps of a file is kept: bytes, holes, modes, owners, times to the
//!    nanosecond, link targets, device numbers, extended attributes, ACLs.
//! 4. File data is moved at most once within this crate, and not at all where the consumer
//!    takes it from [`Source::file`] or [`Source::chunk`].

mod acl;
mod decode;
mod dir;
mod dump;
mod entry;
mod error;
mod file_data;
mod header;
mod input;
mod oci;
mod pax;
mod source;
mod sparse;
mod tar_reader;
mod tar_writer;
mod verity;
mod window;

pub use dir::{DirOptions, DirSource};
pub use dump::DumpSource;
pub use entry::{Entry, Kind, Meta, SparseMap, Time, Xattrs};
pub use error::ArchiveError;
pub use oci::{OciImage, Platform};
pub use source::{DataReader, Source, open};
pub use tar_writer::TarWriter;
