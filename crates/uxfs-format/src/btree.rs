//! Blocks and records of the seven btrees.
//!
//! A block starts with a header: the short form for btrees inside an AG, the long form for a file's
//! extent btree. A leaf holds records behind the header. A node holds keys, then pointers; the
//! pointers start behind the space for the block's maximum number of keys.

use core::ops::Range;

use crate::bytes::{Field, Number, be16, be32, be64};
use crate::types::{AgBlock, AgIno, FileBlock, FsBlock, Ino};

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

/// Place of the magic number in a block.
pub const MAGIC: Field<u32> = Field::at(0);
/// Place of the level, 0 for leaves.
pub const LEVEL: Field<u16> = Field::at(4);
/// Place of the number of records, in a node of keys.
pub const NUMRECS: Field<u16> = Field::at(6);
/// Length of the header of an extent tree's root in a fork.
pub const ROOT_HEADER_LEN: usize = 4;
/// Place of the level in an extent tree's root in a fork.
pub const ROOT_LEVEL: Field<u16> = Field::at(0);
/// Place of the number of keys in an extent tree's root in a fork.
pub const ROOT_NUMRECS: Field<u16> = Field::at(2);
/// Place of the owner in a block of an extent tree.
pub const BMAP_OWNER: Field<Ino> = Field::at(LONG.owner);
/// Place of a record's start. In the trees of inode chunks and of reference counts this is the whole
/// key.
pub const START: Field<u32> = Field::at(0);
/// No tree is higher than this many levels.
pub const MAX_LEVELS: usize = 9;

impl HeaderLayout {
    /// Bytes of the left or the right sibling's number.
    pub const fn sibling(&self, left: bool) -> Range<usize> {
        let at = if left { self.leftsib } else { self.rightsib };
        at..at + self.ptr_len
    }
}

/// A child's block number as a node holds it: in an AG 4 bytes, in an extent tree 8.
#[inline]
pub fn ptr(raw: &[u8]) -> u64 {
    match raw.len() {
        4 => be32(raw, 0).into(),
        _ => be64(raw, 0),
    }
}

/// Stores a block number in the 4 or 8 bytes of `raw`.
///
/// # Panics
/// If `raw` is neither 4 nor at least 8 bytes long.
#[inline]
pub fn put_ptr(raw: &mut [u8], block: u64) {
    match raw.len() {
        4 => (block as u32).write(raw, 0),
        _ => block.write(raw, 0),
    }
}

/// A sibling's block number from the bytes at [`HeaderLayout::sibling`]; `None` at the edge of the
/// tree.
pub fn sibling(raw: &[u8]) -> Option<u64> {
    let none = raw.iter().all(|byte| *byte == 0xff);
    (!none).then(|| ptr(raw))
}

/// Stores a sibling's block number, as [`sibling`] reads it.
///
/// # Panics
/// As [`put_ptr`].
pub fn put_sibling(raw: &mut [u8], block: Option<u64>) {
    put_ptr(raw, block.unwrap_or(u64::MAX));
}

impl TreeKind {
    /// Writes magic number and level into the header of a new block, and marks both siblings as
    /// absent. Does not change the number of records.
    ///
    /// # Panics
    /// If `block` is shorter than the header.
    pub fn put_header(self, block: &mut [u8], level: u16) {
        let layout = self.header();
        MAGIC.set(block, self.magic());
        LEVEL.set(block, level);
        block[layout.leftsib..layout.rightsib + layout.ptr_len].fill(0xff);
    }

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
        fork_len.saturating_sub(ROOT_HEADER_LEN) / 16
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

/// A node of an extent tree: the places of its keys and pointers.
#[derive(Clone, Copy, Debug)]
pub struct BmapNode {
    header: usize,
    max: usize,
}

impl BmapNode {
    /// The root in a fork of `fork_len` bytes.
    pub const fn root(fork_len: usize) -> Self {
        Self { header: ROOT_HEADER_LEN, max: TreeKind::max_bmap_root(fork_len) }
    }

    /// A node block of `block_size` bytes.
    pub const fn block(block_size: usize) -> Self {
        Self { header: LONG.len, max: TreeKind::Bmap.max_node(block_size) }
    }

    /// Most children that the node holds.
    pub const fn max(self) -> usize {
        self.max
    }

    /// Place of key `index`: the first offset in the file that the child maps.
    pub const fn key(self, index: usize) -> Field<FileBlock> {
        Field::at(self.header + 8 * index)
    }

    /// Place of pointer `index`: the child's block.
    pub const fn ptr(self, index: usize) -> Field<FsBlock> {
        Field::at(self.header + 8 * self.max + 8 * index)
    }

    /// The first `count` keys with their pointers, at most as many as the node holds.
    pub fn entries(
        self,
        node: &[u8],
        count: usize,
    ) -> impl Iterator<Item = (FileBlock, FsBlock)> + '_ {
        let entry = move |index| (self.key(index).get(node), self.ptr(index).get(node));
        (0..count.min(self.max)).map(entry)
    }

    /// Stores keys and pointers from the first on, at most as many as the node holds. Does not change
    /// the count.
    ///
    /// # Panics
    /// If `node` is shorter than the node.
    pub fn put_entries(self, node: &mut [u8], entries: &[(FileBlock, FsBlock)]) {
        debug_assert!(entries.len() <= self.max, "the caller keeps to the node's maximum");
        for (index, (key, ptr)) in entries.iter().enumerate() {
            self.key(index).set(node, *key);
            self.ptr(index).set(node, *ptr);
        }
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

impl FreeExtent {
    /// Decodes a record or a key.
    #[inline]
    pub fn decode(raw: &[u8]) -> Self {
        Self { start: AgBlock(be32(raw, 0)), len: be32(raw, 4) }
    }

    /// Encodes a record or a key.
    ///
    /// # Panics
    /// If `raw` is shorter than a record.
    #[inline]
    pub fn encode(&self, raw: &mut [u8]) {
        self.start.write(raw, 0);
        self.len.write(raw, 4);
    }
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
    /// Decodes a record. On volumes without sparse chunks `holemask` and `count` are 0.
    #[inline]
    pub fn decode(raw: &[u8]) -> Self {
        let [count, freecount] =
            raw.get(6..).and_then(|raw| raw.first_chunk().copied()).unwrap_or_default();
        let (start, holemask) = (AgIno(be32(raw, 0)), be16(raw, 4));
        Self { start, holemask, count, freecount, free: be64(raw, 8) }
    }

    /// Encodes a record. Volumes without sparse chunks store a 32-bit `freecount` where others have
    /// `holemask` and `count`, too, so these have to be 0 there.
    ///
    /// # Panics
    /// If `raw` is shorter than a record.
    #[inline]
    pub fn encode(&self, raw: &mut [u8]) {
        self.start.write(raw, 0);
        self.holemask.write(raw, 4);
        raw[6] = self.count;
        raw[7] = self.freecount;
        self.free.write(raw, 8);
    }

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
    /// Decodes a record.
    #[inline]
    pub fn decode(raw: &[u8]) -> Self {
        let mut rec = Self {
            start: AgBlock(be32(raw, 0)),
            len: be32(raw, 4),
            owner: RmapOwner(be64(raw, 8)),
            ..Self::default()
        };
        rec.set_packed_offset(be64(raw, 16));
        rec
    }

    /// Encodes a record.
    ///
    /// # Panics
    /// If `raw` is shorter than a record.
    #[inline]
    pub fn encode(&self, raw: &mut [u8]) {
        self.start.write(raw, 0);
        self.len.write(raw, 4);
        self.owner.0.write(raw, 8);
        self.packed_offset().write(raw, 16);
    }

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

/// Key of reverse mappings: block, owner, and offset with its flags except "unwritten".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RmapKey {
    /// Block.
    pub block: AgBlock,
    /// Owner.
    pub owner: RmapOwner,
    /// Packed offset.
    pub offset: u64,
}

impl RmapKey {
    /// The lowest key of mappings that start at `block`.
    pub const fn at(block: AgBlock) -> Self {
        Self { block, owner: RmapOwner(0), offset: 0 }
    }

    /// The highest key of mappings that start at `block`.
    pub const fn last_at(block: AgBlock) -> Self {
        Self { block, owner: RmapOwner(u64::MAX), offset: u64::MAX }
    }

    /// Decodes a key.
    #[inline]
    pub fn decode(raw: &[u8]) -> Self {
        let (block, owner) = (AgBlock(be32(raw, 0)), RmapOwner(be64(raw, 4)));
        Self { block, owner, offset: be64(raw, 12) }
    }

    /// Encodes a key.
    ///
    /// # Panics
    /// If `raw` is shorter than a key.
    #[inline]
    pub fn encode(&self, raw: &mut [u8]) {
        self.block.write(raw, 0);
        self.owner.0.write(raw, 4);
        self.offset.write(raw, 12);
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

impl Refcount {
    /// Decodes a record.
    #[inline]
    pub fn decode(raw: &[u8]) -> Self {
        let start = START.get(raw);
        Self {
            start: AgBlock(start & !REFCOUNT_COW_FLAG),
            len: be32(raw, 4),
            count: be32(raw, 8),
            cow: start & REFCOUNT_COW_FLAG != 0,
        }
    }

    /// Encodes a record.
    ///
    /// # Panics
    /// If `raw` is shorter than a record.
    #[inline]
    pub fn encode(&self, raw: &mut [u8]) {
        START.set(raw, self.packed_start());
        self.len.write(raw, 4);
        self.count.write(raw, 8);
    }

    /// Start block with the flag of staged runs: the key.
    pub const fn packed_start(&self) -> u32 {
        self.start.0 | if self.cow { REFCOUNT_COW_FLAG } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_at_4k_match_the_format() {
        let both = |t: TreeKind| (t.max_leaf(4096), t.max_node(4096));
        assert_eq!(both(TreeKind::Bno), (505, 336));
        assert_eq!(both(TreeKind::Cnt), (505, 336));
        assert_eq!(both(TreeKind::Ino), (252, 505));
        assert_eq!(both(TreeKind::Rmap), (168, 91));
        assert_eq!(both(TreeKind::Refcount), (336, 505));
        assert_eq!(both(TreeKind::Bmap), (251, 251));
    }

    #[test]
    fn records_keep_their_fields() {
        let mut raw = [0xee; 24];
        let free = FreeExtent { start: AgBlock(3), len: 0x0102_0304 };
        free.encode(&mut raw);
        assert_eq!(raw[..9], [0, 0, 0, 3, 1, 2, 3, 4, 0xee]);
        assert_eq!(FreeExtent::decode(&raw), free);
        let chunk =
            InodeChunk { start: AgIno(64), holemask: 0xff00, count: 32, freecount: 5, free: 7 };
        chunk.encode(&mut raw);
        assert_eq!(raw[..9], [0, 0, 0, 64, 0xff, 0, 32, 5, 0]);
        assert_eq!((raw[15], raw[16], InodeChunk::decode(&raw)), (7, 0xee, chunk));
        let rmap = Rmap {
            start: AgBlock(9),
            len: 2,
            owner: RmapOwner(131),
            offset: 77,
            unwritten: true,
            ..Rmap::default()
        };
        rmap.encode(&mut raw);
        assert_eq!((raw[3], raw[7], raw[15], raw[16], raw[23]), (9, 2, 131, 0x20, 77));
        assert_eq!(Rmap::decode(&raw), rmap);
        let key = RmapKey { block: AgBlock(9), owner: RmapOwner::LOG, offset: 1 << 62 };
        key.encode(&mut raw);
        assert_eq!((raw[3], raw[11], raw[12], RmapKey::decode(&raw)), (9, 0xfc, 0x40, key));
        let refcount = Refcount { start: AgBlock(9), len: 2, count: 1, cow: true };
        refcount.encode(&mut raw);
        assert_eq!((raw[0], raw[3], raw[7], raw[11]), (0x80, 9, 2, 1));
        assert_eq!(Refcount::decode(&raw), refcount);
        assert_eq!(START.get(&raw), refcount.packed_start());
        // A short record is no record, but it ends no program.
        for len in 0..24 {
            let _ = (FreeExtent::decode(&raw[..len]), InodeChunk::decode(&raw[..len]));
            let _ = (Rmap::decode(&raw[..len]), Refcount::decode(&raw[..len]));
        }
    }

    #[test]
    fn pointers_have_the_length_of_their_tree() {
        let mut raw = [0; 8];
        put_ptr(&mut raw[..4], 0x0102_0304);
        assert_eq!((raw, ptr(&raw[..4])), ([1, 2, 3, 4, 0, 0, 0, 0], 0x0102_0304));
        put_ptr(&mut raw, 5);
        assert_eq!((raw[7], ptr(&raw), sibling(&raw)), (5, 5, Some(5)));
        for len in [4, 8] {
            put_sibling(&mut raw[..len], None);
            assert_eq!(sibling(&raw[..len]), None);
        }
    }

    #[test]
    fn nodes_of_an_extent_tree_keep_their_entries() {
        let entries = [(FileBlock(1), FsBlock(7)), (FileBlock(20), FsBlock(8))];
        for (node, len) in [(BmapNode::root(76), 76), (BmapNode::block(512), 512)] {
            let mut raw = vec![0; len];
            node.put_entries(&mut raw, &entries);
            assert!(node.entries(&raw, 2).eq(entries));
            assert_eq!(node.entries(&raw, 999).count(), node.max());
            assert!(node.ptr(node.max() - 1).range().end <= len);
        }
        assert_eq!((BmapNode::root(76).ptr(0).offset(), BmapNode::root(3).max()), (4 + 32, 0));
    }

    #[test]
    fn present_follows_the_holemask() {
        let chunk = InodeChunk { holemask: 0xff00, ..InodeChunk::default() };
        assert_eq!(chunk.present(), 0xffff_ffff);
    }
}
