//! Items of new inode chunks. Recovery initialises the inodes; the blocks are not logged.

use super::kind::{BadItem, ItemKind, first_word};
use crate::types::{AgBlock, AgNo};

/// A new inode chunk. Unlike in other items, all fields but the first word are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icreate {
    /// The allocation group.
    pub ag: AgNo,
    /// First block.
    pub agbno: AgBlock,
    /// Number of inodes.
    pub count: u32,
    /// Size of an inode in bytes.
    pub isize: u32,
    /// Blocks of the chunk.
    pub length: u32,
    /// Generation of all inodes of the chunk.
    pub generation: u32,
}

/// Bytes of the one region.
const LEN: usize = 28;

impl Icreate {
    /// Reads the item's one region.
    ///
    /// # Errors
    /// If the region has another length.
    pub fn parse(region: &[u8]) -> Result<Self, BadItem> {
        let bad = || BadItem::new(ItemKind::Icreate, format!("{} bytes", region.len()));
        let raw: &[u8; LEN] = region.try_into().map_err(|_| bad())?;
        let word = |at: usize| u32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        Ok(Self {
            ag: AgNo(word(4)),
            agbno: AgBlock(word(8)),
            count: word(12),
            isize: word(16),
            length: word(20),
            generation: word(24),
        })
    }

    /// Encodes the region.
    pub fn encode(&self) -> [u8; LEN] {
        let mut raw = [0; LEN];
        raw[..4].copy_from_slice(&first_word(ItemKind::Icreate, 1));
        let words = [self.ag.0, self.agbno.0, self.count, self.isize, self.length, self.generation];
        for (field, word) in raw[4..].chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_be_bytes());
        }
        raw
    }
}
