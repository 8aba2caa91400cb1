//! Parent pointers: on volumes that have them, the inode of every directory entry records that entry,
//! in the same transaction that changes the directory.

use uxfs_format::Check;

use crate::attr;
use crate::error::Result;
use crate::fs::Fs;
use crate::tx::{InodeSlot, Tx};

impl Fs {
    /// Most blocks that adding or removing one parent pointer may take.
    pub(crate) fn parent_blocks(&self) -> u64 {
        const VALUE_LEN: usize = 12;
        if self.geo.has_parent() { attr::set_blocks(&self.geo, VALUE_LEN) } else { 0 }
    }
}

/// Records that `child` is now the entry `name` of directory `dir`.
pub(super) fn add(tx: &mut Tx<'_>, child: InodeSlot, dir: InodeSlot, name: &[u8]) -> Result<()> {
    if !tx.fs().geo.has_parent() {
        return Ok(());
    }
    let (parent, generation) = (tx.inode(dir).ino, tx.inode(dir).core.generation);
    attr::add_parent(tx, child, name, parent, generation)
}

/// Removes the record that `child` is the entry `name` of directory `dir`.
///
/// # Errors
/// Also [`crate::Error::Corrupt`] if there is no such record.
pub(super) fn remove(tx: &mut Tx<'_>, child: InodeSlot, dir: InodeSlot, name: &[u8]) -> Result<()> {
    if !tx.fs().geo.has_parent() {
        return Ok(());
    }
    let (parent, generation) = (tx.inode(dir).ino, tx.inode(dir).core.generation);
    if attr::remove_parent(tx, child, name, parent, generation)? {
        return Ok(());
    }
    let name = name.escape_ascii();
    Err(tx
        .inode(child)
        .corrupt(Check::Missing, format!("no parent pointer for entry {name} of inode {parent}")))
}
