//! The trait that a tree implements for the engine, and the environment that a tree is read through.

use uxfs_format::btree::TreeKind;
use uxfs_format::inode::Fork;
use uxfs_format::verify::Owner;
use uxfs_format::{AgNo, Daddr};

use crate::buf::BufRef;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// The environment that a tree is read through: an open transaction or, for extent trees only, a
/// locked inode.
#[derive(Clone, Copy)]
pub enum Env<'a, 'fs> {
    /// A transaction that has locked the AG or inode.
    Tx(&'a Tx<'fs>),
    /// An inode whose lock the caller holds.
    Inode(&'a Mount, &'a InodeState),
}

impl<'a> Env<'a, '_> {
    /// The file system.
    pub fn fs(self) -> &'a Mount {
        match self {
            Self::Tx(tx) => tx.fs(),
            Self::Inode(fs, _) => fs,
        }
    }

    /// The inode whose fork holds the root.
    pub(crate) fn inode(self, slot: Option<InodeSlot>) -> &'a InodeState {
        match (self, slot) {
            (Self::Inode(_, inode), _) => inode,
            (Self::Tx(tx), Some(slot)) => tx.inode(slot),
            (Self::Tx(_), None) => unreachable!("a tree inside a transaction knows its inode"),
        }
    }
}

/// Location of a tree's root.
#[derive(Clone, Copy, Debug)]
pub enum Root {
    /// In a block of its own, with the number of levels.
    Block(u64, usize),
    /// In a fork of an inode, at this level.
    Fork(Fork, usize),
}

/// The properties of one kind of tree.
pub trait Tree {
    /// A record.
    type Rec: Copy + core::fmt::Debug;
    /// What orders the records.
    type Key: Copy + Ord + core::fmt::Debug;
    /// The kind of the tree.
    const KIND: TreeKind;
    /// Do nodes also hold the highest key below each child?
    const OVERLAPPING: bool = false;

    /// Decodes a record.
    fn read_rec(raw: &[u8]) -> Self::Rec;
    /// Encodes a record.
    fn write_rec(rec: &Self::Rec, raw: &mut [u8]);
    /// Key of a record.
    fn key(rec: &Self::Rec) -> Self::Key;
    /// Highest key that a record covers; used only for overlapping trees.
    fn high_key(rec: &Self::Rec) -> Self::Key {
        Self::key(rec)
    }
    /// Decodes a key.
    fn read_key(raw: &[u8]) -> Self::Key;
    /// Encodes a key.
    fn write_key(key: &Self::Key, raw: &mut [u8]);

    /// Location of the root.
    fn root(&self, env: Env<'_, '_>) -> Root;
    /// Makes another block the root of a tree with `levels` levels.
    fn set_root(&self, tx: &mut Tx<'_>, block: u64, levels: usize);
    /// Address of a block of the tree.
    ///
    /// # Errors
    /// If it lies outside the AG or volume.
    fn daddr(&self, fs: &Mount, block: u64) -> Result<Daddr>;
    /// Number of the block at an address.
    fn block_at(&self, fs: &Mount, daddr: Daddr) -> u64;
    /// Expected owner of its blocks.
    fn owner(&self, env: Env<'_, '_>) -> Owner;
    /// Allocates a block for the tree to grow, near `near`.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], or a damaged structure on the way.
    fn alloc(&self, tx: &mut Tx<'_>, near: u64) -> Result<u64>;
    /// Frees a block.
    ///
    /// # Errors
    /// A damaged structure on the way.
    fn free(&self, tx: &mut Tx<'_>, buf: &BufRef) -> Result<()>;
    /// The inode and fork that hold the root, for extent trees.
    fn fork(&self) -> Option<(Option<InodeSlot>, Fork)> {
        None
    }
}

/// The AG of a tree that lies in one.
pub(crate) fn ag_of(owner: Owner) -> AgNo {
    match owner {
        Owner::Ag(ag) => ag,
        _ => AgNo::NULL,
    }
}
