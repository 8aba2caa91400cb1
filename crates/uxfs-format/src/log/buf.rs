//! Buffer items: which 128-byte chunks of a metadata buffer changed, and their new content.

use smallvec::SmallVec;

use super::kind::{BadItem, ItemKind, first_word};
use crate::btree::TreeKind;
use crate::bytes::{le16, le32, le64};
use crate::dquot::QuotaType;
use crate::types::{BASIC_BLOCK, Daddr};
use crate::verify::BufKind;

/// Bytes of a buffer that one bit of the item's map covers.
pub const CHUNK: usize = 128;

/// Maximum number of regions in an item.
pub const MAX_REGIONS: usize = (64 << 10) / CHUNK / 2 + 1;
/// Bytes of the format before the map.
const MAP_OFFSET: usize = 20;
/// Words of the longest map, for a 64 KiB buffer.
const MAP_WORDS_MAX: usize = (64 << 10) / CHUNK / 32;
/// Position in `blf_flags` of the buffer's type.
const TYPE_SHIFT: u32 = 11;

bitflags::bitflags! {
    /// `blf_flags` without the type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct BufFlags: u16 {
        /// The buffer holds inodes; only `di_next_unlinked` is logged.
        const INODE = 0x01;
        /// The buffer was freed: recovery must not replay earlier items for it.
        const CANCEL = 0x02;
        /// User quota records.
        const UDQUOT = 0x04;
        /// Project quota records.
        const PDQUOT = 0x08;
        /// Group quota records.
        const GDQUOT = 0x10;
        /// Quota records of any type.
        const DQUOT = 0x1c;
    }
}

macro_rules! types {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// Content type of a logged buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are the format's own")]
        pub enum BufType { $($name = $code),* }

        impl BufType {
            /// From the high bits of `blf_flags`.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Name for listings.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

types! {
    Unknown = 0 "unknown", Udquot = 1 "udquot", Pdquot = 2 "pdquot", Gdquot = 3 "gdquot",
    Btree = 4 "btree", Agf = 5 "agf", Agfl = 6 "agfl", Agi = 7 "agi", Dino = 8 "dinode",
    Symlink = 9 "symlink", DirBlock = 10 "dir_block", DirData = 11 "dir_data",
    DirFree = 12 "dir_free", DirLeaf1 = 13 "dir_leaf1", DirLeafN = 14 "dir_leafn",
    DaNode = 15 "da_node", AttrLeaf = 16 "attr_leaf", AttrRemote = 17 "attr_remote",
    Superblock = 18 "sb", RtBitmap = 19 "rtbitmap", RtSummary = 20 "rtsummary",
}

impl BufType {
    /// The type under which a kind of buffer is logged.
    pub const fn of(kind: BufKind) -> Self {
        match kind {
            BufKind::Superblock => Self::Superblock,
            BufKind::Agf => Self::Agf,
            BufKind::Agi => Self::Agi,
            BufKind::Agfl => Self::Agfl,
            BufKind::Btree(_) => Self::Btree,
            BufKind::InodeCluster => Self::Dino,
            BufKind::Symlink => Self::Symlink,
            BufKind::DirBlock => Self::DirBlock,
            BufKind::DirData => Self::DirData,
            BufKind::DirLeaf1 => Self::DirLeaf1,
            BufKind::DirLeafN => Self::DirLeafN,
            BufKind::DirFree => Self::DirFree,
            BufKind::DaNode => Self::DaNode,
            BufKind::AttrLeaf => Self::AttrLeaf,
            BufKind::AttrRemote => Self::AttrRemote,
            BufKind::Dquot(QuotaType::User) => Self::Udquot,
            BufKind::Dquot(QuotaType::Project) => Self::Pdquot,
            BufKind::Dquot(QuotaType::Group) => Self::Gdquot,
        }
    }

    /// The kinds of buffer that are logged under this type; empty for realtime types.
    pub const fn kinds(self) -> &'static [BufKind] {
        match self {
            Self::Btree => &[
                BufKind::Btree(TreeKind::Bno),
                BufKind::Btree(TreeKind::Cnt),
                BufKind::Btree(TreeKind::Ino),
                BufKind::Btree(TreeKind::FreeIno),
                BufKind::Btree(TreeKind::Rmap),
                BufKind::Btree(TreeKind::Refcount),
                BufKind::Btree(TreeKind::Bmap),
            ],
            Self::Agf => &[BufKind::Agf],
            Self::Agfl => &[BufKind::Agfl],
            Self::Agi => &[BufKind::Agi],
            Self::Dino => &[BufKind::InodeCluster],
            Self::Symlink => &[BufKind::Symlink],
            Self::DirBlock => &[BufKind::DirBlock],
            Self::DirData => &[BufKind::DirData],
            Self::DirFree => &[BufKind::DirFree],
            Self::DirLeaf1 => &[BufKind::DirLeaf1],
            Self::DirLeafN => &[BufKind::DirLeafN],
            Self::DaNode => &[BufKind::DaNode],
            Self::AttrLeaf => &[BufKind::AttrLeaf],
            Self::AttrRemote => &[BufKind::AttrRemote],
            Self::Superblock => &[BufKind::Superblock],
            Self::Udquot => &[BufKind::Dquot(QuotaType::User)],
            Self::Pdquot => &[BufKind::Dquot(QuotaType::Project)],
            Self::Gdquot => &[BufKind::Dquot(QuotaType::Group)],
            _ => &[],
        }
    }
}

/// Format of a buffer item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufItem {
    /// Flags.
    pub flags: BufFlags,
    /// Content type of the buffer.
    pub kind: BufType,
    /// Device address of the buffer.
    pub blkno: Daddr,
    /// Length of the buffer in basic blocks.
    pub len: u16,
    /// One bit for each chunk that is logged, lowest first.
    pub map: SmallVec<[u32; 4]>,
}

/// Iterator over runs of logged chunks (first chunk, number of chunks). Each run is one region.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    map: &'a [u32],
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let bits = self.map.len() * 32;
        let set = |bit: usize| self.map[bit / 32] >> (bit % 32) & 1 == 1;
        while self.at < bits && !set(self.at) {
            // Most words of a map are empty.
            let empty = self.at.is_multiple_of(32) && self.map[self.at / 32] == 0;
            self.at += if empty { 32 } else { 1 };
        }
        let first = self.at;
        while self.at < bits && set(self.at) {
            self.at += 1;
        }
        (self.at > first).then_some((first, self.at - first))
    }
}

impl BufItem {
    /// An item for the buffer of `bytes` bytes at `blkno`, nothing logged yet.
    pub fn new(kind: BufType, blkno: Daddr, bytes: usize) -> Self {
        let flags = match kind {
            BufType::Udquot => BufFlags::UDQUOT,
            BufType::Pdquot => BufFlags::PDQUOT,
            BufType::Gdquot => BufFlags::GDQUOT,
            _ => BufFlags::empty(),
        };
        Self {
            flags,
            kind,
            blkno,
            // No buffer is longer than 64 KiB.
            len: (bytes / BASIC_BLOCK) as u16,
            map: SmallVec::from_elem(0, bytes.div_ceil(CHUNK).div_ceil(32)),
        }
    }

    /// An item that cancels all earlier items of a freed buffer.
    pub fn cancel(blkno: Daddr, bytes: usize) -> Self {
        let flags = BufFlags::CANCEL;
        Self { flags, ..Self::new(BufType::Unknown, blkno, bytes) }
    }

    /// Marks a chunk as logged; a chunk beyond the buffer is ignored.
    pub fn set_chunk(&mut self, chunk: usize) {
        if let Some(word) = self.map.get_mut(chunk / 32) {
            *word |= 1 << (chunk % 32);
        }
    }

    /// Length of the buffer in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.len) * BASIC_BLOCK
    }

    /// Runs of logged chunks.
    pub fn runs(&self) -> Runs<'_> {
        Runs { map: &self.map, at: 0 }
    }

    /// Is a chunk logged?
    pub fn has_chunk(&self, chunk: usize) -> bool {
        self.map.get(chunk / 32).is_some_and(|word| word >> (chunk % 32) & 1 == 1)
    }

    /// Reads the format from an item's first region.
    ///
    /// # Errors
    /// If the region is too short, the type is unknown, or the map is too long.
    pub fn parse(region: &[u8]) -> Result<Self, BadItem> {
        let bad = |problem: String| Err(BadItem::new(ItemKind::Buf, problem));
        let words = le32(region, 16) as usize;
        if region.len() < MAP_OFFSET || words > MAP_WORDS_MAX {
            return bad(format!("{} bytes of format, map of {words} words", region.len()));
        }
        if region.len() < MAP_OFFSET + 4 * words {
            return bad(format!("map of {words} words in {} bytes", region.len()));
        }
        let flags = le16(region, 4);
        let Some(kind) = BufType::from_code((flags >> TYPE_SHIFT) as u8) else {
            return bad(format!("buffer type {}", flags >> TYPE_SHIFT));
        };
        Ok(Self {
            flags: BufFlags::from_bits_retain(flags & ((1 << TYPE_SHIFT) - 1)),
            kind,
            blkno: Daddr(le64(region, 8)),
            len: le16(region, 6),
            map: (0..words).map(|word| le32(region, MAP_OFFSET + 4 * word)).collect(),
        })
    }

    /// Encodes the first region; the other regions are the bytes of the logged runs.
    pub fn encode(&self) -> Vec<u8> {
        let regions = match self.flags.contains(BufFlags::CANCEL) {
            true => 1,
            false => 1 + self.runs().count().min(MAX_REGIONS - 1),
        };
        let flags = self.flags.bits() | u16::from(self.kind as u8) << TYPE_SHIFT;
        let mut raw = Vec::with_capacity(MAP_OFFSET + 4 * self.map.len());
        raw.extend_from_slice(&first_word(ItemKind::Buf, regions));
        raw.extend_from_slice(&flags.to_le_bytes());
        raw.extend_from_slice(&self.len.to_le_bytes());
        raw.extend_from_slice(&self.blkno.0.to_le_bytes());
        raw.extend_from_slice(&(self.map.len() as u32).to_le_bytes());
        for word in &self.map {
            raw.extend_from_slice(&word.to_le_bytes());
        }
        raw
    }
}
