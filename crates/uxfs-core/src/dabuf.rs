//! Directory and attribute blocks: finding them through the fork's extents, reading, adding and
//! freeing them. Directory and attribute code uses mapping and allocation only through this module.

use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, FileBlock};

use crate::bmap;
use crate::buf::{BufRef, Piece, Pieces};
use crate::error::Result;
use crate::inode::Changed;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Number of file system blocks in a da block: a directory block in the data fork, 1 in the
/// attribute fork.
pub fn fsbs(fs: &Mount, fork: Fork) -> u64 {
    match fork {
        Fork::Data => fs.geo.dir_block_fsbs(),
        Fork::Attr => 1,
    }
}

/// Reads the da block at offset `at` of a fork and checks that it is one of `kinds` and belongs to
/// the inode. Returns `None` if nothing is mapped there.
///
/// # Errors
/// If the block is mapped only in part, cannot be read, or is damaged.
pub fn read_opt(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    at: FileBlock,
    kinds: &[BufKind],
) -> Result<Option<BufRef>> {
    let Some(pieces) = pieces_known(fs, inode, fork, at)? else { return Ok(None) };
    fs.bufs.get_pieces(pieces, kinds, Owner::Inode(inode.ino)).map(Some)
}

/// As [`read_opt`], but the block must exist.
///
/// # Errors
/// As [`read_opt`], and if nothing is mapped.
pub fn read(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    at: FileBlock,
    kinds: &[BufKind],
) -> Result<BufRef> {
    match read_opt(fs, inode, fork, at, kinds)? {
        Some(buf) => Ok(buf),
        None => {
            Err(inode
                .corrupt(Check::Missing, format!("no {} at {fork:?} block {at}", kinds[0].name())))
        }
    }
}

/// As [`pieces`], with a cache for directories in btree format.
fn pieces_known(
    fs: &Mount,
    inode: &InodeState,
    fork: Fork,
    at: FileBlock,
) -> Result<Option<Pieces>> {
    if fork != Fork::Data || inode.core.format != ForkFormat::Btree {
        return pieces(fs, inode, fork, at);
    }
    if let Some(daddr) = inode.hints.places.get(at) {
        let len = fs.geo.dir_block_size();
        return Ok(Some(Pieces::from_buf([Piece { daddr, len }])));
    }
    let found = pieces(fs, inode, fork, at)?;
    if let Some([only]) = found.as_deref() {
        inode.hints.places.remember(at, only.daddr);
    }
    Ok(found)
}

/// Returns the first offset at or after `base`, the start of a part of the fork, at which a da
/// block can be mapped.
///
/// # Errors
/// A damaged structure on the way.
pub fn first_unused(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    base: FileBlock,
) -> Result<FileBlock> {
    let fs = tx.fs();
    let (inode, len) = (tx.inode(slot), fsbs(fs, fork));
    if fork != Fork::Data {
        return bmap::first_unused(fs, inode, fork, len, base);
    }
    let from = inode.hints.search_from(&fs.geo, base);
    let at = bmap::first_unused(fs, inode, fork, len, from)?;
    if !(at.0 - base.0).is_multiple_of(len) {
        // A hole between da blocks has whole blocks, unless the fork is damaged.
        return Err(
            inode.corrupt(Check::Missing, format!("directory has an odd hole at block {at}"))
        );
    }
    tx.inode_mut(slot, Changed::empty()).hints.hole_found(&fs.geo, at);
    Ok(at)
}

fn pieces(fs: &Mount, inode: &InodeState, fork: Fork, at: FileBlock) -> Result<Option<Pieces>> {
    let (mut at, end) = (at, at.plus(fsbs(fs, fork)));
    let mut pieces = Pieces::new();
    while at < end {
        let Some(extent) = bmap::lookup(fs, inode, fork, at)? else {
            if pieces.is_empty() {
                return Ok(None);
            }
            return Err(
                inode.corrupt(Check::Missing, format!("{fork:?} block {at} is missing in part"))
            );
        };
        let skip = at.0 - extent.offset.0;
        let len = (extent.len - skip).min(end.0 - at.0);
        let daddr = fs.geo.fsb_daddr(extent.start.plus(skip));
        let bytes = (len << fs.geo.block_log) as u32;
        match pieces.last_mut() {
            Some(last) if last.daddr.bytes() + u64::from(last.len) == daddr.bytes() => {
                last.len += bytes;
            }
            _ => pieces.push(Piece { daddr, len: bytes }),
        }
        at = at.plus(len);
    }
    Ok(Some(pieces))
}

/// Allocates and maps the da block at offset `at`, and creates its buffer. Address, UUID and owner
/// are set as `kind` requires; the rest is zero. The caller sets the magic number and the content.
///
/// # Errors
/// [`crate::Error::NoSpace`], or a damaged structure on the way.
pub fn grow(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    kind: BufKind,
) -> Result<BufRef> {
    let fs = tx.fs();
    let len = fsbs(fs, fork);
    bmap::alloc_all(tx, slot, fork, at, len)?;
    if fork == Fork::Data {
        tx.inode_mut(slot, Changed::empty()).hints.mapped(&fs.geo, at, len);
    }
    let inode = tx.inode(slot);
    let Some(pieces) = pieces(fs, inode, fork, at)? else {
        return Err(inode
            .corrupt(Check::Missing, format!("{fork:?} block {at} was mapped but is not found")));
    };
    let ino = inode.ino;
    let buf = tx.make_buf(pieces, kind);
    crate::tx::label(tx, &buf, kind, ino.0);
    Ok(buf)
}

/// Unmaps and frees the da block at offset `at`, whose buffer is `buf`.
///
/// # Errors
/// A damaged structure on the way.
pub fn shrink(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    buf: &BufRef,
) -> Result<()> {
    tx.invalidate(buf);
    let fs = tx.fs();
    let len = fsbs(fs, fork);
    if fork == Fork::Data {
        tx.inode_mut(slot, Changed::empty()).hints.unmapped(&fs.geo, at);
    }
    bmap::unmap(tx, slot, fork, at, len, u64::MAX).map(|_| ())
}
