//! Intents to exchange mappings between two files.

use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::{le32, le64};
use crate::types::{FileBlock, Ino};

bitflags::bitflags! {
    /// `xmi_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ExchangeFlags: u64 {
        /// Exchange the attribute forks.
        const ATTR_FORK = 0x1;
        /// Set the item's sizes when the exchange is complete.
        const SET_SIZES = 0x2;
        /// Skip ranges of file 1 that are holes or unwritten.
        const INO1_WRITTEN = 0x4;
        /// Clear the reflink flag of file 1 when the exchange is complete.
        const CLEAR_INO1_REFLINK = 0x8;
        /// Clear the reflink flag of file 2 when the exchange is complete.
        const CLEAR_INO2_REFLINK = 0x10;
    }
}

/// The part of an exchange that is still to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeIntent {
    /// The files.
    pub inos: [Ino; 2],
    /// Their generations.
    pub generations: [u32; 2],
    /// First block of the range in each file.
    pub starts: [FileBlock; 2],
    /// Number of blocks to exchange.
    pub blocks: u64,
    /// Options of the exchange.
    pub flags: ExchangeFlags,
    /// File sizes in bytes to set, with [`ExchangeFlags::SET_SIZES`]; otherwise all ones.
    pub sizes: [u64; 2],
}

pub(super) const LEN: usize = 88;

impl ExchangeIntent {
    pub(super) fn parse(region: &[u8]) -> Result<Self, BadItem> {
        let bad = |problem: String| Err(BadItem::new(ItemKind::Xmi, problem));
        if region.len() != LEN {
            return bad(format!("{} bytes", region.len()));
        }
        let flags = ExchangeFlags::from_bits_retain(le64(region, 64));
        if le32(region, 4) != 0 || !(flags - ExchangeFlags::all()).is_empty() {
            return bad(format!("flags {:#x}", flags.bits()));
        }
        let pair = |at: usize| [le64(region, at), le64(region, at + 8)];
        Ok(Self {
            inos: pair(16).map(Ino),
            generations: [le32(region, 32), le32(region, 36)],
            starts: pair(40).map(FileBlock),
            blocks: le64(region, 56),
            flags,
            sizes: pair(72),
        })
    }

    pub(super) fn encode(&self, id: u64) -> Vec<u8> {
        let mut raw = Vec::with_capacity(LEN);
        raw.extend_from_slice(&first_word(ItemKind::Xmi, 1));
        raw.extend_from_slice(&[0; 4]);
        let [ino1, ino2] = self.inos;
        let generations = u64::from(self.generations[1]) << 32 | u64::from(self.generations[0]);
        let [start1, start2] = self.starts;
        let [size1, size2] = self.sizes;
        let words = [
            id,
            ino1.0,
            ino2.0,
            generations,
            start1.0,
            start2.0,
            self.blocks,
            self.flags.bits(),
            size1,
            size2,
        ];
        raw.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        raw
    }
}
