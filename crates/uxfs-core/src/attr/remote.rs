//! Remote attribute values: values in blocks of their own.
//!
//! 1. A value's blocks are contiguous in the fork, but not necessarily on the device.
//! 2. Every block is a buffer of its own.

use uxfs_format::attr::remote::{self as layout, RemoteHeader};
use uxfs_format::inode::Fork;
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, Daddr, Extent, FileBlock};

use crate::bmap;
use crate::buf::{Piece, Pieces};
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// End of the fork's address space.
const END: u64 = 1 << 32;

/// Disk addresses of the mapped blocks in `at..at + count` of the attribute fork.
fn addresses(fs: &Mount, inode: &InodeState, at: FileBlock, count: u64) -> Result<Vec<Daddr>> {
    let mut addresses = Vec::new();
    let mut known: Option<Extent> = None;
    for block in at.0..at.0 + count {
        if known.is_none_or(|e| block < e.offset.0 || block >= e.end().0) {
            known = bmap::lookup(fs, inode, Fork::Attr, FileBlock(block))?;
        }
        if let Some(extent) = known {
            let fsb = extent.start.plus(block - extent.offset.0);
            addresses.push(fs.geo.fsb_daddr(fsb));
        }
    }
    Ok(addresses)
}

/// Reads a value of `len` bytes that starts at block `block`.
pub(super) fn read(fs: &Mount, inode: &InodeState, block: u32, len: usize) -> Result<Vec<u8>> {
    let size = fs.geo.block_size;
    let bare = !fs.geo.has_crc();
    let count = match bare {
        true => len.div_ceil(size as usize) as u64,
        false => layout::blocks(len, size as usize),
    };
    let addresses = addresses(fs, inode, FileBlock(block.into()), count)?;
    if addresses.len() as u64 != count {
        let seen = addresses.len();
        let problem = format!("value of {len} bytes at block {block}: {seen} of {count} blocks");
        return Err(inode.corrupt(Check::Missing, problem));
    }
    if bare {
        return read_bare(fs, &addresses, len);
    }
    let mut value = Vec::with_capacity(len);
    for daddr in addresses {
        let buf = fs.bufs.get(daddr, size, &[BufKind::AttrRemote], Owner::Inode(inode.ino))?;
        let part = buf.read();
        let header = RemoteHeader::view(&part);
        let (offset, bytes) = (header.offset.get() as usize, header.bytes.get() as usize);
        let wanted = (len - value.len()).min(layout::payload(size as usize));
        if offset != value.len() || bytes != wanted {
            drop(part);
            let problem = format!("holds {bytes} bytes at {offset}, {wanted} at {}", value.len());
            return Err(buf.corrupt(Check::Range, format!("{problem} are wanted")));
        }
        value.extend_from_slice(&part[layout::HEADER_LEN..layout::HEADER_LEN + bytes]);
    }
    Ok(value)
}

/// Reads a value of `len` bytes on a version 4 volume, where the blocks have no headers.
fn read_bare(fs: &Mount, addresses: &[Daddr], len: usize) -> Result<Vec<u8>> {
    let mut value = vec![0; len];
    for (part, daddr) in value.chunks_mut(fs.geo.block_size as usize).zip(addresses) {
        fs.read_device(daddr.bytes(), part)?;
    }
    Ok(value)
}

/// Writes a value into new blocks and returns the offset of the first block.
pub(super) fn write(tx: &mut Tx<'_>, slot: InodeSlot, value: &[u8]) -> Result<u32> {
    let fs = tx.fs();
    let size = fs.geo.block_size as usize;
    let count = layout::blocks(value.len(), size);
    let at = bmap::first_unused(fs, tx.inode(slot), Fork::Attr, count, FileBlock(1))?;
    let first = match u32::try_from(at.0) {
        Ok(first) if at.0 + count <= END => first,
        _ => return Err(Error::FileTooBig),
    };
    bmap::alloc_all(tx, slot, Fork::Attr, at, count)?;
    let inode = tx.inode(slot);
    let (ino, addresses) = (inode.ino, addresses(fs, inode, at, count)?);
    let mut offset = 0u32;
    for (part, daddr) in value.chunks(layout::payload(size)).zip(addresses) {
        let piece = Piece { daddr, len: fs.geo.block_size };
        let buf = tx.make_buf(Pieces::from_buf([piece]), BufKind::AttrRemote);
        crate::tx::label(tx, &buf, BufKind::AttrRemote, ino.0);
        let mut bytes = tx.edit_all(&buf);
        let header = RemoteHeader::view_mut(&mut bytes);
        header.magic.set(layout::MAGIC);
        header.offset.set(offset);
        // A part of a value of at most 64 KiB.
        header.bytes.set(part.len() as u32);
        header.lsn.set(layout::LSN);
        bytes[layout::HEADER_LEN..layout::HEADER_LEN + part.len()].copy_from_slice(part);
        offset += part.len() as u32;
    }
    Ok(first)
}

/// Frees the blocks of a value.
pub(super) fn free(tx: &mut Tx<'_>, slot: InodeSlot, block: u32, len: usize) -> Result<()> {
    let fs = tx.fs();
    let count = layout::blocks(len, fs.geo.block_size as usize);
    // Block 0 belongs to the tree: an entry with block 0 has no value blocks yet.
    if block == 0 || count == 0 {
        return Ok(());
    }
    let at = FileBlock(block.into());
    drop_buffers(tx, slot, at, count, Some(BufKind::AttrRemote))?;
    bmap::unmap(tx, slot, Fork::Attr, at, count, u64::MAX).map(|_| ())
}

/// Invalidates the buffers of these blocks of the fork. If `kind` is given, all must be of that
/// kind. Blocks that are not cached are not read.
pub(super) fn drop_buffers(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    at: FileBlock,
    count: u64,
    kind: Option<BufKind>,
) -> Result<()> {
    let fs = tx.fs();
    for daddr in addresses(fs, tx.inode(slot), at, count)? {
        let Some(buf) = fs.bufs.cached_at(daddr) else {
            // Remote values are not logged.
            match kind {
                Some(BufKind::AttrRemote) => fs.keeper.freed(daddr, fs.geo.block_size as usize),
                _ => tx.forget(daddr, fs.geo.block_size as usize),
            }
            continue;
        };
        if kind.is_some_and(|kind| buf.kind() != kind) {
            return Err(buf.corrupt(Check::Overlap, "is part of an attribute's value too"));
        }
        tx.invalidate(&buf);
    }
    Ok(())
}
