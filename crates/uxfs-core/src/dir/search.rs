//! Searching the leaf entries of a block for a name.

use uxfs_format::da;
use uxfs_format::dir as format;

use super::data;
use super::form::{Hit, Slots};
use crate::buf::BufRef;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;

/// Searches the leaf entries of a block for a name. Also returns whether the next leaf may hold
/// entries with the same hash.
pub(super) fn search(
    fs: &Mount,
    inode: &InodeState,
    leaf: &BufRef,
    slots: Slots,
    name: &[u8],
    hash: u32,
) -> Result<(Option<Hit>, bool)> {
    let mut index = da::lower_bound(&leaf.read()[slots.start..], slots.count, hash);
    while index < slots.count {
        let address = {
            let block = leaf.read();
            let entries = &block[slots.start..];
            if format::leaf::hash(entries, index) != hash {
                return Ok((None, false));
            }
            format::leaf::address(entries, index)
        };
        if address != 0
            && let Some(hit) = data::probe(fs, inode, leaf, address, name, index)?
        {
            return Ok((Some(hit), false));
        }
        index += 1;
    }
    Ok((None, true))
}
