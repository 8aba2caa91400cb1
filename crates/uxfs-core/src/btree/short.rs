//! The trees of an allocation group: two of free space, two of inodes, reverse mappings, and reference
//! counts.

use core::marker::PhantomData;

use uxfs_format::btree::{
    FreeExtent, InodeChunk, Refcount, Rmap, RmapKey, RmapOwner, START, TreeKind,
};
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{AgBlock, AgNo, Check, Daddr, Place};

use super::tree::{Env, Root, Tree};
use crate::buf::BufRef;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::tx::Tx;

/// A tree of allocation group `ag`, of the kind `K`.
pub struct AgTree<K> {
    /// The group.
    pub ag: AgNo,
    kind: PhantomData<K>,
}

impl<K> AgTree<K> {
    /// The tree of group `ag`.
    pub fn new(ag: AgNo) -> Self {
        Self { ag, kind: PhantomData }
    }
}

/// The properties of one kind of AG tree.
pub trait AgKind {
    /// A record.
    type Rec: Copy + core::fmt::Debug;
    /// Its key.
    type Key: Copy + Ord + core::fmt::Debug;
    /// The kind of the tree.
    const KIND: TreeKind;
    /// Do nodes hold high keys?
    const OVERLAPPING: bool = false;
    /// Owner of its blocks, for reverse mappings.
    const OWNER: RmapOwner;
    /// Decodes a record.
    fn read_rec(raw: &[u8]) -> Self::Rec;
    /// Encodes a record.
    fn write_rec(rec: &Self::Rec, raw: &mut [u8]);
    /// Key of a record.
    fn key(rec: &Self::Rec) -> Self::Key;
    /// Highest key a record covers.
    fn high_key(rec: &Self::Rec) -> Self::Key {
        Self::key(rec)
    }
    /// Decodes a key.
    fn read_key(raw: &[u8]) -> Self::Key;
    /// Encodes a key.
    fn write_key(key: &Self::Key, raw: &mut [u8]);
}

/// Free space by block number.
pub struct Bno;
/// Free space by length.
pub struct Cnt;
/// Inode chunks.
pub struct InoKind;
/// Inode chunks with free inodes.
pub struct FinoKind;
/// Reverse mappings.
pub struct RmapKind;
/// Reference counts.
pub struct RefcountKind;

/// The tree of free space by block number.
pub type BnoTree = AgTree<Bno>;
/// The tree of free space by length.
pub type CntTree = AgTree<Cnt>;
/// The tree of inode chunks.
pub type InoTree = AgTree<InoKind>;
/// The tree of inode chunks with free inodes.
pub type FinoTree = AgTree<FinoKind>;
/// The tree of reverse mappings.
pub type RmapTree = AgTree<RmapKind>;
/// The tree of reference counts.
pub type RefcountTree = AgTree<RefcountKind>;

impl AgKind for Bno {
    type Rec = FreeExtent;
    /// Start, then length. Ordering never needs the length, but nodes store it.
    type Key = (u32, u32);
    const KIND: TreeKind = TreeKind::Bno;
    const OWNER: RmapOwner = RmapOwner::AG;

    fn read_rec(raw: &[u8]) -> FreeExtent {
        FreeExtent::decode(raw)
    }
    fn write_rec(rec: &FreeExtent, raw: &mut [u8]) {
        rec.encode(raw);
    }
    fn key(rec: &FreeExtent) -> Self::Key {
        (rec.start.0, rec.len)
    }
    fn read_key(raw: &[u8]) -> Self::Key {
        Self::key(&FreeExtent::decode(raw))
    }
    fn write_key(key: &Self::Key, raw: &mut [u8]) {
        FreeExtent { start: AgBlock(key.0), len: key.1 }.encode(raw);
    }
}

impl AgKind for Cnt {
    type Rec = FreeExtent;
    /// Length, then start.
    type Key = (u32, u32);
    const KIND: TreeKind = TreeKind::Cnt;
    const OWNER: RmapOwner = RmapOwner::AG;

    fn read_rec(raw: &[u8]) -> FreeExtent {
        FreeExtent::decode(raw)
    }
    fn write_rec(rec: &FreeExtent, raw: &mut [u8]) {
        rec.encode(raw);
    }
    fn key(rec: &FreeExtent) -> Self::Key {
        (rec.len, rec.start.0)
    }
    fn read_key(raw: &[u8]) -> Self::Key {
        Self::key(&FreeExtent::decode(raw))
    }
    fn write_key(key: &Self::Key, raw: &mut [u8]) {
        FreeExtent { start: AgBlock(key.1), len: key.0 }.encode(raw);
    }
}

macro_rules! chunk_tree {
    ($kind:ty, $tree:expr) => {
        impl AgKind for $kind {
            type Rec = InodeChunk;
            type Key = u32;
            const KIND: TreeKind = $tree;
            const OWNER: RmapOwner = RmapOwner::INOBT;

            fn read_rec(raw: &[u8]) -> InodeChunk {
                InodeChunk::decode(raw)
            }
            fn write_rec(rec: &InodeChunk, raw: &mut [u8]) {
                rec.encode(raw);
            }
            fn key(rec: &InodeChunk) -> u32 {
                rec.start.0
            }
            fn read_key(raw: &[u8]) -> u32 {
                START.get(raw)
            }
            fn write_key(key: &u32, raw: &mut [u8]) {
                START.set(raw, *key);
            }
        }
    };
}

chunk_tree!(InoKind, TreeKind::Ino);
chunk_tree!(FinoKind, TreeKind::FreeIno);

impl AgKind for RmapKind {
    type Rec = Rmap;
    type Key = RmapKey;
    const KIND: TreeKind = TreeKind::Rmap;
    const OVERLAPPING: bool = true;
    const OWNER: RmapOwner = RmapOwner::AG;

    fn read_rec(raw: &[u8]) -> Rmap {
        Rmap::decode(raw)
    }
    fn write_rec(rec: &Rmap, raw: &mut [u8]) {
        rec.encode(raw);
    }
    fn key(rec: &Rmap) -> RmapKey {
        RmapKey { block: rec.start, owner: rec.owner, offset: rec.key_offset() }
    }
    fn high_key(rec: &Rmap) -> RmapKey {
        let last = rec.len.saturating_sub(1);
        let moved = if rec.offset_moves() { u64::from(last) } else { 0 };
        RmapKey {
            block: AgBlock(rec.start.0.saturating_add(last)),
            owner: rec.owner,
            offset: rec.key_offset().saturating_add(moved),
        }
    }
    fn read_key(raw: &[u8]) -> RmapKey {
        RmapKey::decode(raw)
    }
    fn write_key(key: &RmapKey, raw: &mut [u8]) {
        key.encode(raw);
    }
}

impl AgKind for RefcountKind {
    type Rec = Refcount;
    /// Start block with the flag of CoW staging extents.
    type Key = u32;
    const KIND: TreeKind = TreeKind::Refcount;
    const OWNER: RmapOwner = RmapOwner::REFC;

    fn read_rec(raw: &[u8]) -> Refcount {
        Refcount::decode(raw)
    }
    fn write_rec(rec: &Refcount, raw: &mut [u8]) {
        rec.encode(raw);
    }
    fn key(rec: &Refcount) -> u32 {
        rec.packed_start()
    }
    fn read_key(raw: &[u8]) -> u32 {
        START.get(raw)
    }
    fn write_key(key: &u32, raw: &mut [u8]) {
        START.set(raw, *key);
    }
}

/// Allocates and frees the blocks of a tree. The module that owns the tree implements it.
pub trait BlockSource {
    /// Allocates a block of the group, near another one.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or a damaged structure on the way.
    fn take(tx: &mut Tx<'_>, ag: AgNo, near: AgBlock) -> Result<AgBlock>;

    /// Frees a block of the group.
    ///
    /// # Errors
    /// A damaged structure on the way.
    fn give(tx: &mut Tx<'_>, ag: AgNo, block: AgBlock) -> Result<()>;
}

impl<K: AgKind + BlockSource> Tree for AgTree<K> {
    type Rec = K::Rec;
    type Key = K::Key;
    const KIND: TreeKind = K::KIND;
    const OVERLAPPING: bool = K::OVERLAPPING;

    fn read_rec(raw: &[u8]) -> K::Rec {
        K::read_rec(raw)
    }
    fn write_rec(rec: &K::Rec, raw: &mut [u8]) {
        K::write_rec(rec, raw);
    }
    fn key(rec: &K::Rec) -> K::Key {
        K::key(rec)
    }
    fn high_key(rec: &K::Rec) -> K::Key {
        K::high_key(rec)
    }
    fn read_key(raw: &[u8]) -> K::Key {
        K::read_key(raw)
    }
    fn write_key(key: &K::Key, raw: &mut [u8]) {
        K::write_key(key, raw);
    }

    fn root(&self, env: Env<'_, '_>) -> Root {
        let Env::Tx(tx) = env else { unreachable!("AG trees are read in a transaction") };
        let (block, levels) = match K::KIND {
            TreeKind::Ino => {
                let agi = tx.agi(self.ag);
                (agi.root.get(), agi.level.get())
            }
            TreeKind::FreeIno => {
                let agi = tx.agi(self.ag);
                (agi.free_root.get(), agi.free_level.get())
            }
            kind => {
                let agf = tx.agf(self.ag);
                match kind {
                    TreeKind::Bno => (agf.bno_root.get(), agf.bno_level.get()),
                    TreeKind::Cnt => (agf.cnt_root.get(), agf.cnt_level.get()),
                    TreeKind::Rmap => (agf.rmap_root.get(), agf.rmap_level.get()),
                    _ => (agf.refcount_root.get(), agf.refcount_level.get()),
                }
            }
        };
        Root::Block(block.into(), levels as usize)
    }

    fn set_root(&self, tx: &mut Tx<'_>, block: u64, levels: usize) {
        let (block, levels) = (block as u32, levels as u32);
        match K::KIND {
            TreeKind::Ino => tx.edit_agi(self.ag, |agi| {
                agi.root.set(block);
                agi.level.set(levels);
            }),
            TreeKind::FreeIno => tx.edit_agi(self.ag, |agi| {
                agi.free_root.set(block);
                agi.free_level.set(levels);
            }),
            kind => tx.edit_agf(self.ag, |agf| {
                let (root, level) = match kind {
                    TreeKind::Bno => (&mut agf.bno_root, &mut agf.bno_level),
                    TreeKind::Cnt => (&mut agf.cnt_root, &mut agf.cnt_level),
                    TreeKind::Rmap => (&mut agf.rmap_root, &mut agf.rmap_level),
                    _ => (&mut agf.refcount_root, &mut agf.refcount_level),
                };
                root.set(block);
                level.set(levels);
            }),
        }
    }

    fn daddr(&self, fs: &Mount, block: u64) -> Result<Daddr> {
        let block = AgBlock(block as u32);
        if !fs.geo.agblock_valid(self.ag, block) {
            let place = Place::Ag(self.ag, block);
            return Err(Error::corrupt(
                K::KIND.block_name(),
                place,
                Check::Pointer,
                "lies outside the AG",
            ));
        }
        Ok(fs.geo.ag_daddr(self.ag, block))
    }

    fn block_at(&self, fs: &Mount, daddr: Daddr) -> u64 {
        fs.geo.daddr_ag(daddr).1.0.into()
    }

    fn owner(&self, _env: Env<'_, '_>) -> Owner {
        Owner::Ag(self.ag)
    }

    fn alloc(&self, tx: &mut Tx<'_>, near: u64) -> Result<u64> {
        let block = K::take(tx, self.ag, AgBlock(near as u32))?;
        count_block(tx, self.ag, K::KIND, 1);
        Ok(block.0.into())
    }

    fn free(&self, tx: &mut Tx<'_>, buf: &BufRef) -> Result<()> {
        debug_assert_eq!(buf.kind(), BufKind::Btree(K::KIND));
        let (ag, block) = tx.fs().geo.daddr_ag(buf.daddr());
        tx.invalidate(buf);
        count_block(tx, ag, K::KIND, -1);
        K::give(tx, ag, block)
    }
}

/// Updates the counts of tree blocks in the AG's headers.
fn count_block(tx: &mut Tx<'_>, ag: AgNo, kind: TreeKind, change: i32) {
    let geo = &tx.fs().geo;
    match kind {
        TreeKind::Refcount => tx.edit_agf(ag, |agf| {
            agf.refcount_blocks.set(agf.refcount_blocks.get().wrapping_add_signed(change));
        }),
        TreeKind::Ino if geo.has_inobtcnt() => tx.edit_agi(ag, |agi| {
            agi.iblocks.set(agi.iblocks.get().wrapping_add_signed(change));
        }),
        TreeKind::FreeIno if geo.has_inobtcnt() => tx.edit_agi(ag, |agi| {
            agi.fblocks.set(agi.fblocks.get().wrapping_add_signed(change));
        }),
        _ => {}
    }
}
