//! The forms of a directory and their common types: entries found or to be added, leaf entries, and
//! writes into blocks.

use smallvec::SmallVec;
use uxfs_format::dir::FileType;
use uxfs_format::dir::leaf::encode_counts;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Ino, da};

use crate::buf::BufRef;
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::Tx;

/// The form of a directory, with the block that identifies it.
pub(super) enum Form {
    Short,
    /// The only block.
    Block(BufRef),
    /// The only leaf.
    Leaf(BufRef),
    /// The root of the tree above the leaves.
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

/// Size of the data space of a directory in block, leaf or node form, checked.
pub(super) fn data_size(fs: &Mount, inode: &InodeState) -> Result<u64> {
    let (size, block) = (inode.core.size, u64::from(fs.geo.dir_block_size()));
    if size == 0 || !size.is_multiple_of(block) || size > uxfs_format::geometry::DIR_LEAF_OFFSET {
        return Err(
            inode.corrupt(Check::Size, format!("directory of {size} bytes, in blocks of {block}"))
        );
    }
    Ok(size)
}

/// A found entry of a directory in block, leaf or node form.
pub(super) struct Hit {
    pub(super) ino: Ino,
    pub(super) ftype: FileType,
    /// Index of its data block.
    pub(super) db: u64,
    /// The data block.
    pub(super) data: BufRef,
    /// Offset of the entry in the data block.
    pub(super) at: usize,
    /// Index of its leaf entry in the leaf, which the caller knows.
    pub(super) index: usize,
    /// Is its name spelled as the one sought?
    pub(super) exact: bool,
}

/// The position of leaf entries in a block.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// Offset of the first entry.
    pub(super) start: usize,
    /// Number of entries.
    pub(super) count: usize,
}

/// A new name and its inode.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    pub(super) hash: u32,
    pub(super) ino: Ino,
    pub(super) ftype: FileType,
}

/// Buffer for bytes that are assembled before they are written.
pub(super) type Scratch = SmallVec<[u8; 512]>;

/// Writes `bytes` at offset `at` of a buffer.
pub(super) fn put(tx: &mut Tx<'_>, buf: &BufRef, at: usize, bytes: &[u8]) {
    tx.edit(buf, at..at + bytes.len()).copy_from_slice(bytes);
}

/// Sets the count and the stale count of a leaf.
pub(super) fn set_counts(tx: &mut Tx<'_>, leaf: &BufRef, count: usize, stale: usize) {
    put(tx, leaf, da::COUNT.offset(), &encode_counts(count, stale));
}
