//! Blocks and records of the seven btrees.
//!
//! A block starts with a header: the short form for btrees inside an AG, the long form for a file's
//! extent btree. A leaf holds records behind the header. A node holds keys, then pointers; the
//! pointers start behind the space for the block's maximum number of keys.

use crate::types::{AgBlock, AgIno};

/// Which tree a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TreeKind {
    /// Free space by block number.
    Bno,
    /// Free space by length.
    Cnt,
    /// Inode chunks.
    Ino,
    /// Inode chunks with free inodes.
    FreeIno,
    /// Reverse mappings.
    Rmap,
    /// Reference counts of shared blocks.
    Refcount,
    /// Extents of a fork.
    Bmap,
}

/// Offsets of the fields in a block header. There are two forms, [`SHORT`] and [`LONG`].
#[derive(Clone, Copy, Debug)]
pub struct HeaderLayout {
    /// Length of the header.
    pub len: usize,
    /// Size of sibling numbers and of child pointers.
    pub ptr_len: usize,
    /// Left sibling.
    pub leftsib: usize,
    /// Right sibling.
    pub rightsib: usize,
    /// Own address.
    pub blkno: usize,
    /// Log sequence number.
    pub lsn: usize,
    /// UUID.
    pub uuid: usize,
    /// Owner: AG number (4 bytes) or inode number (8).
    pub owner: usize,
    /// Checksum.
    pub crc: usize,
}

/// Header of blocks inside an AG.
pub const SHORT: HeaderLayout = HeaderLayout {
    len: 56,
    ptr_len: 4,
    leftsib: 8,
    rightsib: 12,
    blkno: 16,
    lsn: 24,
    uuid: 32,
    owner: 48,
    crc: 52,
};

/// Header of blocks of a file's extent tree.
pub const LONG: HeaderLayout = HeaderLayout {
    len: 72,
    ptr_len: 8,
    leftsib: 8,
    rightsib: 16,
    blkno: 24,
    lsn: 32,
    uuid: 40,
    owner: 56,
    crc: 64,
};

/// Offset of the magic number in a block.
pub const MAGIC_OFFSET: usize = 0;
/// Offset of the level, 0 for leaves.
pub const LEVEL_OFFSET: usize = 4;
/// Offset of the number of records.
pub const NUMRECS_OFFSET: usize = 6;
/// No tree is higher than this many levels.
pub const MAX_LEVELS: usize = 9;

impl TreeKind {
    /// Magic number of its blocks.
    pub const fn magic(self) -> u32 {
        match self {
            Self::Bno => 0x4142_3342,
            Self::Cnt => 0x4142_3343,
            Self::Ino => 0x4941_4233,
            Self::FreeIno => 0x4649_4233,
            Self::Rmap => 0x524d_4233,
            Self::Refcount => 0x5233_4643,
            Self::Bmap => 0x424d_4133,
        }
    }

    /// XFS' name for its blocks.
    pub const fn block_name(self) -> &'static str {
        match self {
            Self::Bno => "bnobt block",
            Self::Cnt => "cntbt block",
            Self::Ino => "inobt block",
            Self::FreeIno => "finobt block",
            Self::Rmap => "rmapbt block",
            Self::Refcount => "refcountbt block",
            Self::Bmap => "bmbt block",
        }
    }

    /// Form of its blocks' header.
    pub const fn header(self) -> &'static HeaderLayout {
        match self {
            Self::Bmap => &LONG,
            _ => &SHORT,
        }
    }

    /// Bytes of a record.
    pub const fn rec_len(self) -> usize {
        match self {
            Self::Bno | Self::Cnt => 8,
            Self::Ino | Self::FreeIno | Self::Bmap => 16,
            Self::Rmap => 24,
            Self::Refcount => 12,
        }
    }

    /// Bytes of a key in a node: for overlapping trees the low and the high key together.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Bno | Self::Cnt | Self::Bmap => 8,
            Self::Ino | Self::FreeIno | Self::Refcount => 4,
            Self::Rmap => 40,
        }
    }

    /// Most records a leaf block of `block_size` bytes holds.
    pub const fn max_leaf(self, block_size: usize) -> usize {
        (block_size - self.header().len) / self.rec_len()
    }

    /// Most children a node block of `block_size` bytes holds.
    pub const fn max_node(self, block_size: usize) -> usize {
        (block_size - self.header().len) / (self.key_len() + self.header().ptr_len)
    }

    /// Most children the root of an extent tree holds in a fork of `fork_len` bytes.
    pub const fn max_bmap_root(fork_len: usize) -> usize {
        fork_len.saturating_sub(4) / 16
    }

    /// Levels a tree of at most `records` records can have when every block is half full.
    pub fn max_height(self, block_size: usize, records: u64) -> u32 {
        let leaf_min = (self.max_leaf(block_size) / 2) as u64;
        let node_min = (self.max_node(block_size) / 2).max(2) as u64;
        let mut blocks = records.div_ceil(leaf_min).max(1);
        let mut height = 1;
        while blocks > 1 {
            blocks = blocks.div_ceil(node_min);
            height += 1;
        }
        height
    }
}

/// A free extent: record and key of both free-space trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FreeExtent {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks.
    pub len: u32,
}

/// An inode chunk: record of both inode trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InodeChunk {
    /// First inode of the chunk.
    pub start: AgIno,
    /// One bit for every four inodes; set where the chunk has a hole.
    pub holemask: u16,
    /// Inodes present. 0 on volumes without sparse chunks, whose records lack this field.
    pub count: u8,
    /// Inodes present and free.
    pub freecount: u8,
    /// One bit an inode, set where it is free; holes are set too.
    pub free: u64,
}

impl InodeChunk {
    /// Number of inodes present.
    pub fn inodes(&self) -> u8 {
        if self.count == 0 { 64 } else { self.count }
    }

    /// One bit an inode, set where it is present.
    pub fn present(&self) -> u64 {
        let mut mask = 0;
        for group in 0..16 {
            if self.holemask & (1 << group) == 0 {
                mask |= 0xf << (group * 4);
            }
        }
        mask
    }
}

/// Owner of a run of blocks in the reverse-mapping btree: an inode number or a special owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RmapOwner(pub u64);

impl RmapOwner {
    /// The AG's headers.
    pub const FS: Self = Self(-3i64 as u64);
    /// The internal log.
    pub const LOG: Self = Self(-4i64 as u64);
    /// Free-space and reverse-mapping tree blocks, and the free list.
    pub const AG: Self = Self(-5i64 as u64);
    /// Inode tree blocks.
    pub const INOBT: Self = Self(-6i64 as u64);
    /// Inode chunks.
    pub const INODES: Self = Self(-7i64 as u64);
    /// Reference count tree blocks.
    pub const REFC: Self = Self(-8i64 as u64);
    /// Blocks staged for copy on write.
    pub const COW: Self = Self(-9i64 as u64);

    /// Is it an inode rather than one of the special owners?
    pub const fn is_inode(self) -> bool {
        self.0 >> 63 == 0
    }
}

/// A reverse mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rmap {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks.
    pub len: u32,
    /// Owner.
    pub owner: RmapOwner,
    /// Offset in the owner's fork in blocks; 0 for special owners and bmbt blocks.
    pub offset: u64,
    /// The blocks belong to the attribute fork.
    pub attr: bool,
    /// The blocks are bmbt blocks of the fork.
    pub bmbt: bool,
    /// The blocks are allocated but not written.
    pub unwritten: bool,
}

const RMAP_ATTR: u64 = 1 << 63;
const RMAP_BMBT: u64 = 1 << 62;
const RMAP_UNWRITTEN: u64 = 1 << 61;
const RMAP_OFFSET: u64 = (1 << 54) - 1;

impl Rmap {
    /// Offset with its flags, as records hold it.
    pub fn packed_offset(&self) -> u64 {
        self.key_offset() | if self.unwritten { RMAP_UNWRITTEN } else { 0 }
    }

    /// Offset with the flags that take part in the sort order, as keys hold it.
    pub fn key_offset(&self) -> u64 {
        (self.offset & RMAP_OFFSET)
            | if self.attr { RMAP_ATTR } else { 0 }
            | if self.bmbt { RMAP_BMBT } else { 0 }
    }

    /// Sets offset and flags from their packed form.
    pub fn set_packed_offset(&mut self, packed: u64) {
        self.offset = packed & RMAP_OFFSET;
        self.attr = packed & RMAP_ATTR != 0;
        self.bmbt = packed & RMAP_BMBT != 0;
        self.unwritten = packed & RMAP_UNWRITTEN != 0;
    }

    /// Does the offset advance with the block number? True for file data only, not for special
    /// owners and bmbt blocks.
    pub fn offset_moves(&self) -> bool {
        self.owner.is_inode() && !self.bmbt
    }
}

/// A run of blocks with more than one owner, or staged for copy on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Refcount {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks.
    pub len: u32,
    /// Number of owners; 1 for staged blocks.
    pub count: u32,
    /// Staged for copy on write.
    pub cow: bool,
}

/// Bit of a record's start block that marks a staged run.
pub const REFCOUNT_COW_FLAG: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_at_4k_are_the_formats_own() {
        let both = |t: TreeKind| (t.max_leaf(4096), t.max_node(4096));
        assert_eq!(both(TreeKind::Bno), (505, 336));
        assert_eq!(both(TreeKind::Cnt), (505, 336));
        assert_eq!(both(TreeKind::Ino), (252, 505));
        assert_eq!(both(TreeKind::Rmap), (168, 91));
        assert_eq!(both(TreeKind::Refcount), (336, 505));
        assert_eq!(both(TreeKind::Bmap), (251, 251));
    }

    #[test]
    fn present_follows_the_holemask() {
        let chunk = InodeChunk { holemask: 0xff00, ..InodeChunk::default() };
        assert_eq!(chunk.present(), 0xffff_ffff);
    }
}
