//! A delta being made, from blocks in ascending order.
//!
//! 1. The bytes made so far can be taken away at any time, so that a large delta needs no memory of its
//!    size. They are final.
//! 2. A block of zeroes takes room in the table only.

use zerocopy::IntoBytes;

use crate::key::{Part, TABLE};
use crate::layout::{RawChunk, RawExtent, STORED, ZEROES, preamble};
use crate::trailer::Trailer;
use crate::{Error, Hash, Head, Key, Result};

/// The level of compression: the fastest one that is still dense.
const LEVEL: i32 = 3;

fn system(error: std::io::Error) -> Error {
    Error::System(error.to_string())
}

/// A delta that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The hash of its trailer.
    pub id: Hash,
    /// Bytes of the object.
    pub object_len: u64,
    /// Where the table begins.
    pub table_at: u64,
    /// Blocks in it, zeroes included.
    pub blocks: u64,
    /// What it is a delta of.
    pub head: Head,
}

/// Are all bytes zero?
pub fn is_zero(bytes: &[u8]) -> bool {
    // Each byte equals the next one: a comparison of memory, which is fast in every build.
    bytes.first().is_none_or(|first| *first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

/// A delta being made.
pub struct Writer<'a> {
    head: Head,
    key: Option<&'a Key>,
    salt: [u8; 16],
    extents: Vec<RawExtent>,
    chunks: Vec<RawChunk>,
    /// The content of the open chunk.
    open: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    content_len: u64,
    /// Bytes that were made and not taken.
    made: Vec<u8>,
    taken: usize,
    blocks: u64,
    next: u64,
}

impl<'a> Writer<'a> {
    /// An empty delta, sealed if there is a key.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no delta has such a head; [`Error::System`] if the system has no random
    /// numbers for a salt.
    pub fn new(head: Head, key: Option<&'a Key>) -> Result<Self> {
        head.check().map_err(Error::Invalid)?;
        let salt = key.map_or(Ok([0; 16]), |_| Key::new_salt())?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(system)?;
        Ok(Self {
            compressor,
            open: Vec::with_capacity(head.chunk_size as usize),
            head,
            key,
            salt,
            extents: Vec::new(),
            chunks: Vec::new(),
            content_len: 0,
            made: preamble().to_vec(),
            taken: 0,
            blocks: 0,
            next: 0,
        })
    }

    /// Adds a block. `data` has the size of a block; behind the image's end it is zero.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the block does not lie above those before it, or not in the image.
    pub fn push(&mut self, block: u64, data: &[u8]) -> Result<()> {
        if data.len() != self.head.block_size as usize {
            return Err(Error::Invalid("the data is not one block"));
        }
        if block < self.next || block >= self.head.blocks() {
            return Err(Error::Invalid("the block is out of order or outside of the image"));
        }
        let zeroes = is_zero(data);
        let flags = if zeroes { ZEROES } else { 0 };
        match self.extents.last_mut() {
            Some(last)
                if block == self.next && last.flags == flags && last.count.get() < u32::MAX =>
            {
                last.count += 1;
            }
            _ => self.extents.push(RawExtent {
                first: block.into(),
                count: 1.into(),
                flags: flags.into(),
            }),
        }
        self.next = block + 1;
        self.blocks += 1;
        if !zeroes {
            self.open.extend_from_slice(data);
            if self.open.len() == self.head.chunk_size as usize {
                self.end_chunk()?;
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<()> {
        let hash = Hash::of(&self.open);
        let mut stored = self.compressor.compress(&self.open).map_err(system)?;
        let mut flags = 0;
        if stored.len() >= self.open.len() {
            stored.clone_from(&self.open);
            flags = STORED;
        }
        let number = self.chunks.len() as u64;
        if let Some(key) = self.key {
            key.seal(Part { uuid: &self.head.uuid, salt: &self.salt, number }, &mut stored)?;
        }
        let stored_len = u32::try_from(stored.len()).map_err(|_| Error::Invalid("a long chunk"))?;
        let chunk = RawChunk { stored_len: stored_len.into(), flags: flags.into(), hash: hash.0 };
        self.chunks.push(chunk);
        self.content_len += self.open.len() as u64;
        self.open.clear();
        self.made.append(&mut stored);
        Ok(())
    }

    /// Bytes that can be taken.
    pub fn ready(&self) -> usize {
        self.made.len()
    }

    /// Bytes of blocks that were added.
    pub fn pushed(&self) -> u64 {
        self.blocks * u64::from(self.head.block_size)
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Takes the bytes that are ready away.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken += self.made.len();
        std::mem::take(&mut self.made)
    }

    /// Ends the delta. Returns the bytes that were not taken, and what was made.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn finish(mut self) -> Result<(Vec<u8>, Delta)> {
        if !self.open.is_empty() {
            self.end_chunk()?;
        }
        let mut table = self.extents.as_bytes().to_vec();
        table.extend_from_slice(self.chunks.as_bytes());
        let table_hash = Hash::of(&table);
        let part = Part { uuid: &self.head.uuid, salt: &self.salt, number: TABLE };
        if let Some(key) = self.key {
            key.seal(part, &mut table)?;
        }
        let at = self.taken + self.made.len();
        let counts = (self.extents.len(), self.chunks.len());
        let content = (self.content_len, table_hash);
        let range = at..at + table.len();
        let sealed = self.key.is_some();
        let (trailer, end) = Trailer::build(self.head, sealed, self.salt, counts, range, content);
        self.made.append(&mut table);
        self.made.extend_from_slice(&end);
        let delta = Delta {
            id: trailer.id(),
            object_len: (self.taken + self.made.len()) as u64,
            table_at: at as u64,
            blocks: self.blocks,
            head: trailer.head().clone(),
        };
        Ok((self.made, delta))
    }
}
