//! The index of a delta: which blocks it has, and which chunk holds each.
//!
//! 1. A parsed index is consistent: its extents ascend, do not touch the outside of the image, and their
//!    content is that of its chunks, whose bytes fill the object up to the table.

use core::ops::Range;
use std::borrow::Cow;

use zerocopy::FromBytes;

use crate::key::{Part, TABLE, TAG_LEN, open_part};
use crate::layout::{EXTENT_LEN, PREAMBLE_LEN, RawChunk, RawExtent, STORED, ZEROES};
use crate::{Error, Hash, Key, Result, Trailer};

/// A run of blocks in a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// Where their bytes begin in the delta's content; `None` for zeroes.
    pub at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    at: u64,
    len: u32,
    flags: u32,
    hash: Hash,
}

/// The index of a delta.
#[derive(Clone, Debug)]
pub struct Index {
    trailer: Trailer,
    extents: Vec<Extent>,
    chunks: Vec<Chunk>,
}

impl Index {
    /// Parses the table, as [`Trailer::table`] locates it.
    ///
    /// # Errors
    /// If it is not the table of this trailer, or the key is missing or another one.
    pub fn parse(trailer: &Trailer, table: &[u8], key: Option<&Key>) -> Result<Self> {
        if table.len() != trailer.table().len() {
            return Err(Error::Damaged("the table is cut short"));
        }
        let part = Part { uuid: &trailer.head().uuid, salt: trailer.salt(), number: TABLE };
        let plain = open_part(trailer.is_sealed(), key, part, table)?;
        if Hash::of(&plain) != trailer.table_hash() {
            return Err(Error::Damaged("the table's hash is wrong"));
        }
        let (extents, chunks) = trailer.counts();
        let Some((extents, rest)) = plain.split_at_checked(extents * EXTENT_LEN) else {
            return Err(Error::Damaged("the table is cut short"));
        };
        let raw = <[RawExtent]>::ref_from_bytes(extents);
        let extents = Self::extents_of(raw.map_err(|_| Error::Damaged("the extents"))?, trailer)?;
        let raw = <[RawChunk]>::ref_from_bytes(rest).map_err(|_| Error::Damaged("the chunks"))?;
        if raw.len() != chunks {
            return Err(Error::Damaged("the chunks"));
        }
        let chunks = Self::chunks_of(raw, trailer)?;
        Ok(Self { trailer: trailer.clone(), extents, chunks })
    }

    fn extents_of(raw: &[RawExtent], trailer: &Trailer) -> Result<Vec<Extent>> {
        let head = trailer.head();
        let (blocks, block) = (head.blocks(), u64::from(head.block_size));
        let (mut next, mut content) = (0, 0_u64);
        let mut extents = Vec::with_capacity(raw.len());
        for one in raw {
            let (first, count, flags) =
                (one.first.get(), u64::from(one.count.get()), one.flags.get());
            let end = first.checked_add(count);
            if count == 0 || first < next || end.is_none_or(|end| end > blocks) {
                return Err(Error::Damaged("an extent lies outside of its place"));
            }
            let at = match flags {
                0 => Some(content),
                ZEROES => None,
                _ => return Err(Error::Damaged("an extent has an unknown flag")),
            };
            if at.is_some() {
                content += count * block;
            }
            extents.push(Extent { first, count, at });
            next = first + count;
        }
        if content != trailer.content_len() {
            return Err(Error::Damaged("the extents do not fit the content"));
        }
        Ok(extents)
    }

    fn chunks_of(raw: &[RawChunk], trailer: &Trailer) -> Result<Vec<Chunk>> {
        let mut at = PREAMBLE_LEN as u64;
        let mut chunks = Vec::with_capacity(raw.len());
        for one in raw {
            let (len, flags) = (one.stored_len.get(), one.flags.get());
            if flags & !STORED != 0 || len as usize > trailer.head().chunk_size as usize + TAG_LEN {
                return Err(Error::Damaged("a chunk of an unknown kind"));
            }
            chunks.push(Chunk { at, len, flags, hash: Hash(one.hash) });
            at += u64::from(len);
        }
        if at != trailer.table().start as u64 {
            return Err(Error::Damaged("the chunks do not fill the object"));
        }
        Ok(chunks)
    }

    /// The trailer.
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The runs of blocks, ascending.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Where a chunk is in the object.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is no such chunk.
    pub fn chunk_at(&self, number: usize) -> Result<Range<usize>> {
        let chunk = self.chunk(number)?;
        let at = usize::try_from(chunk.at).map_err(|_| Error::Damaged("a long object"))?;
        Ok(at..at + chunk.len as usize)
    }

    /// The hash of a chunk's content before compression.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is no such chunk.
    pub fn chunk_hash(&self, number: usize) -> Result<Hash> {
        self.chunk(number).map(|chunk| chunk.hash)
    }

    /// Where a chunk's bytes are in the content.
    pub fn content_of(&self, number: usize) -> Range<u64> {
        let size = u64::from(self.trailer.head().chunk_size);
        let at = number as u64 * size;
        at..(at + size).min(self.trailer.content_len())
    }

    fn chunk(&self, number: usize) -> Result<&Chunk> {
        self.chunks.get(number).ok_or(Error::Damaged("a chunk is missing"))
    }

    /// The content of a chunk, from the bytes at [`Index::chunk_at`], verified.
    ///
    /// # Errors
    /// If these are not the bytes of this chunk, or the key is missing or another one.
    pub fn open<'s>(
        &self,
        number: usize,
        stored: &'s [u8],
        key: Option<&Key>,
    ) -> Result<Cow<'s, [u8]>> {
        let chunk = self.chunk(number)?;
        if stored.len() != chunk.len as usize {
            return Err(Error::Damaged("a chunk is cut short"));
        }
        let head = self.trailer.head();
        let part = Part { uuid: &head.uuid, salt: self.trailer.salt(), number: number as u64 };
        let packed = open_part(self.trailer.is_sealed(), key, part, stored)?;
        let range = self.content_of(number);
        let len = (range.end - range.start) as usize;
        let plain = match chunk.flags & STORED {
            0 => Cow::Owned(
                zstd::bulk::decompress(&packed, len)
                    .map_err(|_| Error::Damaged("a chunk does not decompress"))?,
            ),
            _ => packed,
        };
        if plain.len() != len || Hash::of(&plain) != chunk.hash {
            return Err(Error::Damaged("a chunk's hash is wrong"));
        }
        Ok(plain)
    }
}
