//! The forms of a directory and their common types: entries found or to be added, leaf entries, and
//! writes into blocks.

use smallvec::SmallVec;
use uxfs_format::dir::FileType;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{FileBlock, Ino, da};

use crate::buf::BufRef;
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::Tx;

/// The form of a directory, with the block that tells it.
pub(super) enum Form {
    Short,
    /// The one block.
    Block(BufRef),
    /// The one leaf.
    Leaf(BufRef),
    /// The root of the tree over the leaves.
    Node(BufRef),
}

pub(super) fn form(fs: &Mount, inode: &InodeState) -> Result<Form> {
    if !inode.core.is_dir() {
        return Err(Error::NotDir);
    }
    if inode.core.format == ForkFormat::Local {
        return Ok(Form::Short);
    }
    let size = data_size(fs, inode)?;
    if size == u64::from(fs.geo.dir_block_size()) {
        let kinds = [BufKind::DirBlock, BufKind::DirData];
        let buf = dabuf::read(fs, inode, Fork::Data, FileBlock(0), &kinds)?;
        if buf.kind() == BufKind::DirBlock {
            return Ok(Form::Block(buf));
        }
    }
    let kinds = [BufKind::DaNode, BufKind::DirLeafN, BufKind::DirLeaf1];
    let buf = dabuf::read(fs, inode, Fork::Data, fs.geo.dir_leaf_start(), &kinds)?;
    Ok(if buf.kind() == BufKind::DirLeaf1 { Form::Leaf(buf) } else { Form::Node(buf) })
}

/// Bytes of the data space of a directory that is not short: its size, checked.
pub(super) fn data_size(fs: &Mount, inode: &InodeState) -> Result<u64> {
    let (size, block) = (inode.core.size, u64::from(fs.geo.dir_block_size()));
    if size == 0 || !size.is_multiple_of(block) || size > uxfs_format::geometry::DIR_LEAF_OFFSET {
        return Err(inode.corrupt(format!("directory of {size} bytes, in blocks of {block}")));
    }
    Ok(size)
}

/// An entry that was found in a form with blocks.
pub(super) struct Hit {
    pub(super) ino: Ino,
    pub(super) ftype: FileType,
    /// Number of its data block.
    pub(super) db: u64,
    /// That block.
    pub(super) data: BufRef,
    /// Where in it the entry starts.
    pub(super) at: usize,
    /// Its leaf entry, numbered in the leaf; the leaf is known to the caller.
    pub(super) index: usize,
}

/// Where the leaf entries lie in a block.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// Offset of the first.
    pub(super) start: usize,
    /// Their number.
    pub(super) count: usize,
}

/// A name and where it is to lead.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    pub(super) hash: u32,
    pub(super) ino: Ino,
    pub(super) ftype: FileType,
}

/// Bytes that are put together before they are written.
pub(super) type Scratch = SmallVec<[u8; 512]>;

/// Writes `bytes` at `at` of a buffer.
pub(super) fn put(tx: &mut Tx<'_>, buf: &BufRef, at: usize, bytes: &[u8]) {
    tx.edit(buf, at..at + bytes.len()).copy_from_slice(bytes);
}

/// Sets count and stale count of a leaf.
pub(super) fn set_counts(tx: &mut Tx<'_>, leaf: &BufRef, count: usize, stale: usize) {
    let (count, stale) = ((count as u16).to_be_bytes(), (stale as u16).to_be_bytes());
    put(tx, leaf, da::COUNT, &[count[0], count[1], stale[0], stale[1]]);
}
