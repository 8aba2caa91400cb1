//! The fork offset: how an inode's literal area is divided between the data and attribute forks.
//!
//! 1. The data fork keeps space for a btree root of three entries, the attribute fork for a root of
//!    two. Devices and other special files keep exactly eight bytes of data.
//! 2. The attribute fork grows towards the data fork, never the other way. It is removed with the last
//!    attribute, unless the data fork cannot simply take its space: a btree root would have to be laid
//!    out again, and a link target that has moved out would have to move back.

use uxfs_format::btree::{ROOT_HEADER_LEN, ROOT_NUMRECS};
use uxfs_format::inode::{Fork, ForkFormat, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs_format::{Check, Geometry};

use crate::bmap;
use crate::error::Result;
use crate::inode::Changed;
use crate::inode::InodeState;
use crate::tx::{InodeSlot, Tx};

/// Fork offset of new files and directories in the kernel, in units of 8 bytes.
const USUAL: usize = 24;
/// Fork offset of devices, fifos and sockets.
const DEVICE: usize = 1;
/// Smallest data fork, in units of 8 bytes: a btree root of three entries.
const DATA_MIN: usize = 7;
/// Smallest attribute fork in bytes: a btree root of two entries.
const ATTR_MIN: usize = 36;

/// Highest fork offset in a literal area of `literal` bytes.
fn highest(literal: usize) -> usize {
    (literal - ATTR_MIN) / 8
}

/// Lowest fork offset that keeps the data fork's content in place.
fn lowest(inode: &InodeState) -> usize {
    let core = &inode.core;
    let fork = inode.fork(Fork::Data);
    let bytes = match core.format {
        ForkFormat::Dev => return DEVICE,
        ForkFormat::Local => usize::try_from(core.size).unwrap_or(usize::MAX),
        ForkFormat::Extents => usize::try_from(core.nextents).unwrap_or(usize::MAX / 16) * 16,
        ForkFormat::Btree => ROOT_HEADER_LEN + 16 * usize::from(ROOT_NUMRECS.get(fork)),
    };
    bytes.div_ceil(8).max(DATA_MIN)
}

/// The fork offset of a new inode, in units of 8 bytes; 0 means no attribute fork.
/// `first_attr_bytes` is the size of the first attributes in short form (0 if none are known). The
/// target of a new link must fit before the attribute fork, or is stored in blocks.
pub fn default_forkoff(geo: &Geometry, mode: u16, first_attr_bytes: usize) -> u8 {
    let usual = match mode & S_IFMT {
        S_IFLNK if first_attr_bytes == 0 => 0,
        S_IFREG | S_IFDIR | S_IFLNK => {
            let fits = geo.literal_len().saturating_sub(first_attr_bytes) / 8;
            // Attributes that do not fit at all go into a block and need no space here.
            if fits < DATA_MIN { USUAL } else { fits.min(USUAL) }
        }
        _ => DEVICE,
    };
    usual as u8
}

/// Makes space for `bytes` in the attribute fork, which need not exist yet, if the data fork's
/// content can stay in the inode. Otherwise changes nothing and returns `false`.
pub(super) fn make(tx: &mut Tx<'_>, slot: InodeSlot, bytes: usize) -> Result<bool> {
    let inode = tx.inode(slot);
    if inode.core.has_attr_fork() && inode.fork(Fork::Attr).len() >= bytes {
        return Ok(true);
    }
    let (low, literal) = (lowest(inode), inode.literal.len());
    let Some(left) = literal.checked_sub(bytes) else { return Ok(false) };
    let mut place = (left / 8).min(highest(literal));
    if inode.core.format == ForkFormat::Dev {
        place = place.min(DEVICE);
    } else if !inode.core.has_attr_fork() && low <= USUAL {
        place = place.min(USUAL);
    }
    if place < low {
        return Ok(false);
    }
    divide(tx, slot, place)?;
    Ok(true)
}

/// Ensures an attribute fork with space for extents. If necessary, the data fork's content moves
/// out of the inode. An existing attribute fork must be empty.
pub(super) fn for_blocks(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let inode = tx.inode(slot);
    if inode.core.has_attr_fork() && inode.fork(Fork::Attr).len() >= ATTR_MIN {
        return Ok(());
    }
    let high = highest(inode.literal.len());
    let mut low = lowest(inode);
    if low > high && inode.core.format == ForkFormat::Local {
        move_out(tx, slot)?;
        low = lowest(tx.inode(slot));
    }
    let inode = tx.inode(slot);
    let place = match inode.core.format {
        ForkFormat::Dev => DEVICE,
        // Extents that do not fit move into a btree.
        ForkFormat::Extents | ForkFormat::Btree if low > high => USUAL.min(high),
        _ if low > high => return Err(inode.corrupt(Check::Size, "no space for an attribute fork")),
        _ => USUAL.clamp(low, high),
    };
    divide(tx, slot, place)
}

/// Sets the fork offset to `place`, in units of 8 bytes, and moves the attribute fork's bytes
/// there.
fn divide(tx: &mut Tx<'_>, slot: InodeSlot, place: usize) -> Result<()> {
    debug_assert!(place > 0 && place < tx.inode(slot).literal.len() / 8);
    if matches!(tx.inode(slot).core.format, ForkFormat::Extents | ForkFormat::Btree) {
        bmap::fit(tx, slot, Fork::Data, place * 8)?;
    }
    let inode = tx.inode_mut(slot, Changed::CORE | Changed::ATTR);
    let held = inode.fork(Fork::Attr).to_vec();
    if !inode.core.has_attr_fork() {
        inode.core.aformat = ForkFormat::Extents;
    }
    inode.core.forkoff = place as u8;
    let fork = inode.fork_mut(Fork::Attr);
    let kept = held.len().min(fork.len());
    fork[..kept].copy_from_slice(&held[..kept]);
    fork[kept..].fill(0);
    tx.fs().note_attr();
    Ok(())
}

/// Removes an attribute fork without attributes if the data fork can simply take its space.
/// Otherwise leaves the empty fork.
pub(super) fn drop_fork(tx: &mut Tx<'_>, slot: InodeSlot) {
    tx.fork_mut(slot, Fork::Attr).fill(0);
    let core = tx.core_mut(slot);
    core.aformat = ForkFormat::Extents;
    core.anextents = 0;
    let moved_link = core.is_symlink() && core.format != ForkFormat::Local;
    if core.format != ForkFormat::Btree && !moved_link {
        core.forkoff = 0;
    }
}

/// Moves the content of a directory or link out of the inode.
fn move_out(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    if tx.inode(slot).core.is_dir() {
        crate::dir::to_block(tx, slot)
    } else {
        crate::symlink::to_remote(tx, slot)
    }
}
