//! The trailer of a delta: what it is a delta of, and where its table is.
//!
//! 1. A parsed trailer is consistent in itself and with the length of its object: the table lies inside.

use core::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use crate::key::TAG_LEN;
use crate::layout::{
    CHUNK_LEN, EXTENT_LEN, PREAMBLE_LEN, RawTrailer, SEALED, TRAILER_LEN, TRAILER_MAGIC, VERSION,
};
use crate::{Error, Hash, Result};

const BLOCK_MIN: u32 = 512;
const BLOCK_MAX: u32 = 64 << 10;
const CHUNK_MAX: u32 = 16 << 20;

/// What a delta is a delta of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The volume.
    pub uuid: [u8; 16],
    /// The number of the manifest for which it was made.
    pub sequence: u64,
    /// Bytes of the image.
    pub image_len: u64,
    /// Bytes of a block: a power of two from 512 to 64 KiB. The last block of an image may be shorter; it
    /// is filled with zeroes.
    pub block_size: u32,
    /// Bytes of a chunk before compression: a power of two from the block's size to 16 MiB.
    pub chunk_size: u32,
    /// The delta below; `None` for a base.
    pub parent: Option<Hash>,
    /// If it was merged of others, the last of them.
    pub stands_for: Option<Hash>,
}

impl Default for Head {
    /// A base of an empty image, in blocks of 4 KiB and chunks of 64 KiB.
    fn default() -> Self {
        Self {
            uuid: [0; 16],
            sequence: 0,
            image_len: 0,
            block_size: 4096,
            chunk_size: 64 << 10,
            parent: None,
            stands_for: None,
        }
    }
}

impl Head {
    /// Blocks of the image.
    pub fn blocks(&self) -> u64 {
        self.image_len.div_ceil(u64::from(self.block_size))
    }

    pub(crate) fn check(&self) -> core::result::Result<(), &'static str> {
        let power =
            |size: u32, least, most| size.is_power_of_two() && size >= least && size <= most;
        if !power(self.block_size, BLOCK_MIN, BLOCK_MAX) {
            return Err("the size of a block is no power of two from 512 to 65536");
        }
        if !power(self.chunk_size, self.block_size, CHUNK_MAX) {
            return Err("the size of a chunk is no power of two from a block's to 16 MiB");
        }
        if i64::try_from(self.image_len).is_err() {
            return Err("the image is longer than a file can be");
        }
        Ok(())
    }
}

/// The trailer of a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    head: Head,
    sealed: bool,
    salt: [u8; 16],
    extents: usize,
    chunks: usize,
    table: Range<usize>,
    content_len: u64,
    table_hash: Hash,
    id: Hash,
}

/// The hash, or `None` for zeroes.
fn some(hash: [u8; 32]) -> Option<Hash> {
    Some(Hash(hash)).filter(|hash| !hash.is_none())
}

impl Trailer {
    /// Parses the last [`TRAILER_LEN`] bytes of an object of `object_len` bytes.
    ///
    /// # Errors
    /// If these bytes are not the trailer of such a delta.
    pub fn parse(bytes: &[u8], object_len: u64) -> Result<Self> {
        let raw = RawTrailer::ref_from_bytes(bytes).map_err(|_| Error::IsNot("a delta"))?;
        if raw.magic != TRAILER_MAGIC {
            return Err(Error::IsNot("a delta"));
        }
        if raw.version.get() != VERSION {
            return Err(Error::Version(raw.version.get()));
        }
        let id = Hash::of(&bytes[..TRAILER_LEN - 32]);
        if id.0 != raw.hash {
            return Err(Error::Damaged("the trailer's hash is wrong"));
        }
        if raw.flags.get() & !SEALED != 0 {
            return Err(Error::Damaged("the trailer has an unknown flag"));
        }
        let head = Head {
            uuid: raw.uuid,
            sequence: raw.sequence.get(),
            image_len: raw.image_len.get(),
            block_size: raw.block_size.get(),
            chunk_size: raw.chunk_size.get(),
            parent: some(raw.parent),
            stands_for: some(raw.stands_for),
        };
        head.check().map_err(Error::Damaged)?;
        let sealed = raw.flags.get() & SEALED != 0;
        let number = |value: u64, what| usize::try_from(value).map_err(|_| Error::Damaged(what));
        let extents = number(raw.extents.get(), "too many extents")?;
        let chunks = number(raw.chunks.get(), "too many chunks")?;
        let content_len = raw.content_len.get();
        if content_len.div_ceil(u64::from(head.chunk_size)) != chunks as u64
            || content_len % u64::from(head.block_size) != 0
        {
            return Err(Error::Damaged("the number of chunks does not fit the content"));
        }
        let table_len = extents.checked_mul(EXTENT_LEN).zip(chunks.checked_mul(CHUNK_LEN));
        let table_len = table_len.and_then(|(extents, chunks)| extents.checked_add(chunks));
        let table_len = table_len.and_then(|len| len.checked_add(if sealed { TAG_LEN } else { 0 }));
        let end = number(object_len, "the object is too long")?.checked_sub(TRAILER_LEN);
        let at = number(raw.table_at.get(), "the table lies outside")?;
        let table = match (table_len, end) {
            (Some(len), Some(end)) if at >= PREAMBLE_LEN && at.checked_add(len) == Some(end) => {
                at..end
            }
            _ => return Err(Error::Damaged("the table does not fit the object")),
        };
        let table_hash = Hash(raw.table_hash);
        let salt = raw.salt;
        Ok(Self { head, sealed, salt, extents, chunks, table, content_len, table_hash, id })
    }

    pub(crate) fn build(
        head: Head,
        sealed: bool,
        salt: [u8; 16],
        (extents, chunks): (usize, usize),
        table: Range<usize>,
        (content_len, table_hash): (u64, Hash),
    ) -> (Self, Vec<u8>) {
        let mut raw = RawTrailer {
            magic: TRAILER_MAGIC,
            version: VERSION.into(),
            flags: if sealed { SEALED } else { 0 }.into(),
            uuid: head.uuid,
            sequence: head.sequence.into(),
            image_len: head.image_len.into(),
            block_size: head.block_size.into(),
            chunk_size: head.chunk_size.into(),
            parent: head.parent.unwrap_or_default().0,
            stands_for: head.stands_for.unwrap_or_default().0,
            salt,
            extents: (extents as u64).into(),
            chunks: (chunks as u64).into(),
            table_at: (table.start as u64).into(),
            content_len: content_len.into(),
            table_hash: table_hash.0,
            hash: [0; 32],
        };
        let id = Hash::of(&raw.as_bytes()[..TRAILER_LEN - 32]);
        raw.hash = id.0;
        let bytes = raw.as_bytes().to_vec();
        (Self { head, sealed, salt, extents, chunks, table, content_len, table_hash, id }, bytes)
    }

    /// What it is a delta of.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The hash of the trailer, which names the delta.
    pub fn id(&self) -> Hash {
        self.id
    }

    /// Is the content sealed?
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Where the table is in the object.
    pub fn table(&self) -> Range<usize> {
        self.table.clone()
    }

    /// Bytes of content before compression.
    pub fn content_len(&self) -> u64 {
        self.content_len
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.extents, self.chunks)
    }

    pub(crate) fn salt(&self) -> &[u8; 16] {
        &self.salt
    }

    pub(crate) fn table_hash(&self) -> Hash {
        self.table_hash
    }

    /// May it lie directly above `below`, or at the bottom if that is `None`?
    pub fn follows(&self, below: Option<&Self>) -> bool {
        match (self.head.parent, below) {
            (None, None) => true,
            (Some(parent), Some(below)) => {
                parent == below.id || below.head.stands_for == Some(parent)
            }
            _ => false,
        }
    }
}
