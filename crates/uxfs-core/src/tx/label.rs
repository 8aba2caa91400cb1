//! The header fields that every metadata block has: its own address, the volume's UUID, its owner.

use uxfs_format::verify::{BufKind, OwnerField};

use super::Tx;
use crate::buf::BufRef;

/// Stores address, UUID and owner in a new buffer.
pub(crate) fn label(tx: &mut Tx<'_>, buf: &BufRef, kind: BufKind, owner: u64) {
    let Some(layout) = kind.layout() else { return };
    let uuid = tx.fs().geo.meta_uuid.0;
    let daddr = buf.daddr().0;
    let mut bytes = tx.edit_all(buf);
    bytes[layout.uuid..layout.uuid + 16].copy_from_slice(&uuid);
    if let Some(at) = layout.blkno {
        bytes[at..at + 8].copy_from_slice(&daddr.to_be_bytes());
    }
    match layout.owner {
        OwnerField::Inode(at) => bytes[at..at + 8].copy_from_slice(&owner.to_be_bytes()),
        OwnerField::Ag(at) => bytes[at..at + 4].copy_from_slice(&(owner as u32).to_be_bytes()),
        OwnerField::None => {}
    }
}
