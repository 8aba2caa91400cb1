//! Deltas: the blocks of a disk image that changed since another moment, as one object that any store
//! keeps whole; and manifests, which list the deltas of one moment.
//!
//! A delta that has no parent is a *base*: it holds all blocks that are not zero. The image of a moment is
//! a base and the deltas above it, applied in order. `docs/REMOTE.md` has the layout, field by field.
//!
//! 1. Whatever a store returns is hostile until it is checked. No input panics, and no input makes a
//!    reader allocate more than a fixed multiple of the bytes that it was given, or of a chunk.
//! 2. A trailer's hash covers the hash of the table, the table covers the hash of each chunk, and a
//!    manifest names its deltas by the hash of their trailers. So a manifest's hash covers every byte of
//!    its image.
//! 3. A chunk is read and checked without any other chunk.
//! 4. With a key everything but sizes, numbers and the volume's UUID is sealed (XChaCha20-Poly1305). No
//!    nonce is used twice: each object has a random salt, and each sealed part of it a number.
//! 5. All numbers are little-endian. The same input without a key gives the same bytes.
//!
//! Used by `uxfs-remote`, which keeps the objects in a store, and by forks in local files. It does no I/O.
//!
//! ```
//! use uxfs_delta::{Head, Index, TRAILER_LEN, Trailer, Writer};
//!
//! let head = Head { image_len: 1 << 20, ..Head::default() };
//! let mut writer = Writer::new(head, None)?;
//! writer.push(7, &[1; 4096])?;
//! let (object, delta) = writer.finish()?;
//!
//! let (_, end) = object.split_at(object.len() - TRAILER_LEN);
//! let trailer = Trailer::parse(end, object.len() as u64)?;
//! let index = Index::parse(&trailer, &object[trailer.table()], None)?;
//! assert_eq!(index.trailer().id(), delta.id);
//! let chunk = index.open(0, &object[index.chunk_at(0)?], None)?;
//! assert_eq!(chunk[..], [1; 4096]);
//! # Ok::<(), uxfs_delta::Error>(())
//! ```

#![warn(missing_docs)]

mod copies;
mod error;
mod hash;
mod index;
mod key;
mod layout;
mod manifest;
mod trailer;
mod writer;

pub use copies::{COPIES_MAX, Copies};
pub use error::{Error, Result};
pub use hash::Hash;
pub use index::{Extent, Index};
pub use key::Key;
pub use layout::TRAILER_LEN;
pub use manifest::{HOLDER_NAME_MAX, Holder, Layer, MANIFEST_MAX, Manifest, Place};
pub use trailer::{Head, Trailer};
pub use writer::{Delta, Writer, is_zero};
