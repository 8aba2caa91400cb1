//! Blocks of quota records: found in a quota inode, and made for ids that have none.

use uxfs_format::dquot::{self, QuotaType};
use uxfs_format::inode::{Fork, InodeCore};
use uxfs_format::verify::BufKind;
use uxfs_format::{Daddr, FileBlock, Ino};

use crate::bmap;
use crate::buf::{Piece, Pieces};
use crate::dquot_places::Places;
use crate::engine::Engine;
use crate::error::Result;
use crate::limits::TREE_BLOCKS;
use crate::mount::Mount;
use crate::tx::Tx;

/// The places of the blocks of a quota inode.
pub(crate) fn places(fs: &Mount, ino: Ino) -> Result<Places> {
    let cell = fs.inodes.get(fs, ino)?;
    let inode = uxfs_sync::read(&cell);
    let mut all = Places::new(fs.geo.block_size);
    let mut at = FileBlock(0);
    while let Some(extent) = bmap::at_or_after(fs, &inode, Fork::Data, at)? {
        if !all.add(extent.offset.0, extent.len, fs.geo.fsb_daddr(extent.start)) {
            break;
        }
        at = extent.end();
    }
    Ok(all)
}

/// Makes the block of an id's record, if there is none.
///
/// # Errors
/// [`crate::Error::NoSpace`], or a damaged structure on the way.
pub(crate) fn make(fs: &Engine, kind: QuotaType, id: u32) -> Result<()> {
    let Some(quota) = &fs.quota else { return Ok(()) };
    let Some(ino) = quota.inode(kind) else { return Ok(()) };
    let number = quota.block_of(id);
    let at = FileBlock(number.into());
    let mut tx = Tx::begin(fs, 1 + TREE_BLOCKS)?;
    let slot = tx.lock_inode(ino)?;
    let daddr_of = |tx: &Tx<'_>| -> Result<Option<Daddr>> {
        let found = bmap::lookup(fs, tx.inode(slot), Fork::Data, at)?;
        Ok(found.map(|e| fs.geo.fsb_daddr(e.start.plus(at.0 - e.offset.0))))
    };
    if let Some(daddr) = daddr_of(&tx)? {
        // Another thread was faster.
        quota.block_made(kind, number, daddr);
        return Ok(());
    }
    bmap::alloc_all(&mut tx, slot, Fork::Data, at, 1)?;
    let daddr = daddr_of(&tx)?;
    if let Some(daddr) = daddr {
        let piece = Piece { daddr, len: fs.geo.block_size };
        let buf = tx.make_buf(Pieces::from_buf([piece]), BufKind::Dquot(kind));
        let first = number * dquot::records(fs.geo.block_size);
        dquot::fill_block(&mut tx.edit_all(&buf), kind, first, &fs.geo);
    }
    tx.commit()?;
    daddr.into_iter().for_each(|daddr| quota.block_made(kind, number, daddr));
    Ok(())
}

/// Makes the records that an inode of this core would count in and that do not exist. Returns whether there
/// were any. The caller has no transaction open.
///
/// # Errors
/// As [`make`].
pub(crate) fn provide(fs: &Engine, core: &InodeCore) -> Result<bool> {
    let Some(quota) = &fs.quota else { return Ok(false) };
    let mut made = false;
    while let Some((kind, id)) = quota.lacks(&fs.bufs, core)? {
        make(fs, kind, id)?;
        made = true;
    }
    Ok(made)
}
