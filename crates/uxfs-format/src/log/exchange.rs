//! Intents of exchanging mappings between two files.

use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::{le32, le64};
use crate::types::{FileBlock, Ino};

bitflags::bitflags! {
    /// `xmi_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ExchangeFlags: u64 {
        /// The attribute forks.
        const ATTR_FORK = 0x1;
        /// At the end set the sizes that the item tells.
        const SET_SIZES = 0x2;
        /// Skip what is not written in file 1.
        const INO1_WRITTEN = 0x4;
        /// At the end file 1 shares no blocks any more.
        const CLEAR_INO1_REFLINK = 0x8;
        /// At the end file 2 shares no blocks any more.
        const CLEAR_INO2_REFLINK = 0x10;
    }
}

/// What remains to be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeIntent {
    /// The files.
    pub inos: [Ino; 2],
    /// Their generations.
    pub generations: [u32; 2],
    /// First block in each.
    pub starts: [FileBlock; 2],
    /// Number of blocks.
    pub blocks: u64,
    /// How.
    pub flags: ExchangeFlags,
    /// Sizes in bytes that they get, with [`ExchangeFlags::SET_SIZES`]; else all ones.
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
