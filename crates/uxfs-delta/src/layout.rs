//! The records of deltas and manifests as they are stored. Little-endian; `docs/REMOTE.md` is the page.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a delta.
pub(crate) const DELTA_MAGIC: [u8; 8] = *b"uxfsdelt";
/// The first bytes of a delta's trailer.
pub(crate) const TRAILER_MAGIC: [u8; 8] = *b"uxfstrlr";
/// The first bytes of a manifest.
pub(crate) const MANIFEST_MAGIC: [u8; 8] = *b"uxfsmani";
pub(crate) const VERSION: u32 = 1;

/// Flag of a trailer and of a manifest: sealed with a key.
pub(crate) const SEALED: u32 = 1;
/// Flag of a manifest: some of its deltas are in objects of manifests, and the head is followed by the length of the
/// body as it is stored.
pub(crate) const INSIDE: u32 = 2;
/// Bit of a delta's number in a manifest: the delta is in the object of the manifest with that number.
pub(crate) const IN_MANIFEST: u64 = 1 << 63;
/// Flag of a chunk: not compressed.
pub(crate) const STORED: u32 = 1;
/// Flag of an extent: zeroes, for which no content is stored.
pub(crate) const ZEROES: u32 = 1;

/// Bytes before the first chunk: the magic number, the version, zeroes.
pub(crate) const PREAMBLE_LEN: usize = 16;
/// Bytes of a delta's trailer.
pub const TRAILER_LEN: usize = 232;
pub(crate) const EXTENT_LEN: usize = 16;
pub(crate) const CHUNK_LEN: usize = 40;
pub(crate) const MANIFEST_HEAD_LEN: usize = 96;
/// Bytes of the length behind the head.
pub(crate) const BODY_LEN_LEN: usize = 8;
pub(crate) const BODY_HEAD_LEN: usize = 96;

/// The end of a delta.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTrailer {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) flags: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) sequence: U64,
    /// Bytes of the image.
    pub(crate) image_len: U64,
    pub(crate) block_size: U32,
    /// Bytes of a chunk before compression. The last one may be shorter.
    pub(crate) chunk_size: U32,
    /// The trailer's hash of the delta below; zeroes for a base.
    pub(crate) parent: [u8; 32],
    /// The hash of the last of the deltas that this one was merged of; zeroes if it was not merged.
    pub(crate) stands_for: [u8; 32],
    pub(crate) salt: [u8; 16],
    pub(crate) extents: U64,
    pub(crate) chunks: U64,
    /// Where the table begins; it ends where the trailer begins.
    pub(crate) table_at: U64,
    /// Bytes of content before compression.
    pub(crate) content_len: U64,
    /// The hash of the table before it is sealed.
    pub(crate) table_hash: [u8; 32],
    /// The hash of all fields above; the name of the delta.
    pub(crate) hash: [u8; 32],
}

/// A run of blocks.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawExtent {
    pub(crate) first: U64,
    pub(crate) count: U32,
    pub(crate) flags: U32,
}

/// A part of the content.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawChunk {
    /// Bytes in the object.
    pub(crate) stored_len: U32,
    pub(crate) flags: U32,
    /// The hash of the content before compression.
    pub(crate) hash: [u8; 32],
}

/// The beginning of a manifest, which is never sealed.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawManifest {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) flags: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) number: U64,
    pub(crate) layers: U64,
    pub(crate) salt: [u8; 16],
    /// The hash of the fields above and of the body before it is sealed.
    pub(crate) hash: [u8; 32],
}

/// The beginning of a manifest's body.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawBody {
    /// The hash of the manifest before it; zeroes if it is the first one.
    pub(crate) parent: [u8; 32],
    pub(crate) writer: [u8; 16],
    pub(crate) epoch: U64,
    /// Milliseconds since 1970, UTC.
    pub(crate) made_at: U64,
    pub(crate) image_len: U64,
    pub(crate) block_size: U32,
    /// Bytes of the holder behind the layers; 0 if there is none.
    pub(crate) holder_len: U32,
    pub(crate) changed_bytes: U64,
    pub(crate) stored_bytes: U64,
}

/// A delta in a manifest.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawLayer {
    pub(crate) id: [u8; 32],
    pub(crate) sequence: U64,
    /// Of its object; with [`IN_MANIFEST`], where it begins in that of the manifest.
    pub(crate) tag: U64,
    pub(crate) object_len: U64,
    pub(crate) table_at: U64,
    pub(crate) blocks: U64,
}

const _: () = assert!(size_of::<RawTrailer>() == TRAILER_LEN);
const _: () = assert!(size_of::<RawExtent>() == EXTENT_LEN);
const _: () = assert!(size_of::<RawChunk>() == CHUNK_LEN);
const _: () = assert!(size_of::<RawManifest>() == MANIFEST_HEAD_LEN);
const _: () = assert!(size_of::<RawBody>() == BODY_HEAD_LEN);
const _: () = assert!(size_of::<RawLayer>() == 72);

/// The bytes that precede the chunks.
pub(crate) fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..8].copy_from_slice(&DELTA_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}
