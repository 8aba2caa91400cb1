//! Targets of symbolic links: in the inode, or in blocks with a header for each extent.

use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::symlink::{HEADER_LEN, MAGIC, MAX_TARGET, SymlinkHeader};
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, FileBlock, Geometry};

use crate::bmap;
use crate::buf::{Piece, Pieces};
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Fails if a link cannot have this target.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::Invalid("a link's target must not be empty or contain a NUL"));
    }
    if target.len() > MAX_TARGET {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

/// Most blocks that a target may take when it is written or moved out of the inode.
pub(crate) fn blocks(geo: &Geometry) -> u64 {
    geo.blocks_for(MAX_TARGET as u64 + 1) + 4
}

/// Writes the target of a new link.
pub(crate) fn write(tx: &mut Tx<'_>, slot: InodeSlot, target: &[u8]) -> Result<()> {
    tx.core_mut(slot).size = target.len() as u64;
    let fork = tx.fork_mut(slot, Fork::Data);
    if target.len() <= fork.len() {
        fork[..target.len()].copy_from_slice(target);
        tx.core_mut(slot).format = ForkFormat::Local;
        return Ok(());
    }
    write_remote(tx, slot, target)
}

/// Moves a target out of the inode to make space for attributes.
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub fn to_remote(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let target = read(tx.fs(), tx.inode(slot))?;
    tx.fork_mut(slot, Fork::Data).fill(0);
    tx.core_mut(slot).format = ForkFormat::Extents;
    write_remote(tx, slot, &target)
}

fn write_remote(tx: &mut Tx<'_>, slot: InodeSlot, target: &[u8]) -> Result<()> {
    let fs = tx.fs();
    let block = fs.geo.block_size as usize;
    // Each extent has a header, in the worst case one per block.
    let mut done = 0;
    let mut at = FileBlock(0);
    while done < target.len() {
        let need = fs.geo.blocks_for((target.len() - done + HEADER_LEN) as u64);
        let goal = crate::alloc::Goal::Near(fs.inode_goal(tx.inode(slot).ino));
        let extent = bmap::alloc_some(tx, slot, Fork::Data, at, need, false, goal)?;
        // The header belongs to all blocks that this call got.
        let len = extent.len as usize * block;
        let bytes = (len - HEADER_LEN).min(target.len() - done);
        let piece = Piece { daddr: fs.geo.fsb_daddr(extent.start), len: len as u32 };
        let buf = tx.make_buf(Pieces::from_buf([piece]), BufKind::Symlink);
        crate::tx::label(tx, &buf, BufKind::Symlink, tx.inode(slot).ino.0);
        let mut raw = tx.edit_all(&buf);
        let header = SymlinkHeader::view_mut(&mut raw);
        header.magic.set(MAGIC);
        header.offset.set(done as u32);
        header.bytes.set(bytes as u32);
        raw[HEADER_LEN..HEADER_LEN + bytes].copy_from_slice(&target[done..done + bytes]);
        done += bytes;
        at = extent.end();
    }
    Ok(())
}

const MISSING: &str = "a link's target is missing in part";

/// Reads the target of a link on a version 4 volume, where the blocks have no headers.
fn read_bare(fs: &Mount, inode: &InodeState, len: usize) -> Result<Vec<u8>> {
    let mut target = vec![0; len];
    let (mut done, mut at) = (0, FileBlock(0));
    while done < len {
        let Some(extent) = bmap::lookup(fs, inode, Fork::Data, at)? else {
            return Err(inode.corrupt(Check::Missing, MISSING));
        };
        let skip = at.0 - extent.offset.0;
        let room = (extent.len - skip).saturating_mul(fs.geo.block_size.into());
        let end = len.min(done.saturating_add(usize::try_from(room).unwrap_or(len)));
        let start = fs.geo.fsb_daddr(extent.start.plus(skip));
        fs.read_device(start.bytes(), &mut target[done..end])?;
        (done, at) = (end, extent.end());
    }
    Ok(target)
}

/// Reads the target of a link.
pub(crate) fn read(fs: &Mount, inode: &InodeState) -> Result<Vec<u8>> {
    let len = inode.core.size as usize;
    if len > MAX_TARGET + 1 {
        return Err(inode.corrupt(Check::Size, format!("a link's target of {len} bytes")));
    }
    if inode.core.format == ForkFormat::Local {
        return Ok(inode.fork(Fork::Data)[..len].to_vec());
    }
    if !fs.geo.has_crc() {
        return read_bare(fs, inode, len);
    }
    let mut target = Vec::with_capacity(len);
    let mut at = FileBlock(0);
    while target.len() < len {
        let Some(extent) = bmap::lookup(fs, inode, Fork::Data, at)? else {
            return Err(inode.corrupt(Check::Missing, MISSING));
        };
        let most = (1024 + 4 * HEADER_LEN as u64).div_ceil(fs.geo.block_size.into());
        let blocks = extent.len.min(most.max(1)) as u32;
        let daddr = fs.geo.fsb_daddr(extent.start);
        let bytes = blocks << fs.geo.block_log;
        let owner = Owner::Inode(inode.ino);
        let buf = fs.bufs.get(daddr, bytes, &[BufKind::Symlink], owner)?;
        let raw = buf.read();
        let header = SymlinkHeader::view(&raw);
        let (offset, here) = (header.offset.get() as usize, header.bytes.get() as usize);
        if offset != target.len() || here == 0 || here > raw.len() - HEADER_LEN {
            drop(raw);
            return Err(
                buf.corrupt(Check::Range, format!("holds {here} bytes at {offset} of a target"))
            );
        }
        target.extend_from_slice(&raw[HEADER_LEN..HEADER_LEN + here]);
        at = extent.end();
    }
    target.truncate(len);
    Ok(target)
}
