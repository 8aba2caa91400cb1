//! The header fields that every metadata block has: its own address, the volume's UUID, its owner.

use uxfs_format::verify::BufKind;

use super::Tx;
use crate::buf::BufRef;

/// Stores address, UUID and owner in a new buffer.
pub(crate) fn label(tx: &mut Tx<'_>, buf: &BufRef, kind: BufKind, owner: u64) {
    let Some(layout) = kind.layout() else { return };
    let uuid = tx.fs().geo.meta_uuid;
    layout.label(&mut tx.edit_all(buf), buf.daddr(), &uuid, owner);
}
