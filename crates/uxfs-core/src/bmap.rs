//! The extent map of a fork: where a file's blocks lie.

use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock};

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::InodeState;
use crate::tx::{InodeSlot, Tx};

/// The extent that maps block `at` of a fork, if one does.
///
/// # Errors
/// A damaged structure on the way.
pub fn lookup(_fs: &Fs, _inode: &InodeState, _fork: Fork, _at: FileBlock) -> Result<Option<Extent>> {
    unimplemented!()
}

/// Allocates and maps exactly `len` blocks at offset `at` of a fork (a hole now), in as few extents
/// as free space allows, written state. Counts them in the inode.
///
/// # Errors
/// [`crate::Error::NoSpace`], or a damaged structure on the way.
pub fn alloc_all(_tx: &mut Tx<'_>, _slot: InodeSlot, _fork: Fork, _at: FileBlock, _len: u64) -> Result<()> {
    unimplemented!()
}

/// Unmaps up to `max_extents` extents in `len` blocks from `at` on, from the end backwards, and
/// frees their blocks (deferred). Gives the number of blocks from `at` that may still be mapped.
///
/// # Errors
/// A damaged structure on the way.
pub fn unmap(_tx: &mut Tx<'_>, _slot: InodeSlot, _fork: Fork, _at: FileBlock, _len: u64, _max_extents: u64) -> Result<u64> {
    unimplemented!()
}

/// First offset, not below `from`, at which `len` blocks of a fork are unmapped.
///
/// # Errors
/// A damaged structure on the way.
pub fn first_unused(_fs: &Fs, _inode: &InodeState, _fork: Fork, _len: u64, _from: FileBlock) -> Result<FileBlock> {
    unimplemented!()
}

/// Offset just behind the last mapped block below `below` (0 if there is none).
///
/// # Errors
/// A damaged structure on the way.
pub fn last_before(_fs: &Fs, _inode: &InodeState, _fork: Fork, _below: FileBlock) -> Result<FileBlock> {
    unimplemented!()
}

/// Makes a fork in extents or btree form fit into `room` bytes of the literal area: extent records
/// move into a btree if need be.
///
/// # Errors
/// [`crate::Error::NoSpace`], or a damaged structure on the way.
pub fn fit(_tx: &mut Tx<'_>, _slot: InodeSlot, _fork: Fork, _room: usize) -> Result<()> {
    unimplemented!()
}
