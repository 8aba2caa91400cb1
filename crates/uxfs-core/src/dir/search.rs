//! Searching the leaf entries of a block for a name.
//!
//! Where names compare without case, several spellings have the same hash. The entry spelled as the
//! name sought wins, otherwise the first in another spelling.

use uxfs_format::da;
use uxfs_format::dir as format;

use super::data;
use super::form::{Hit, Slots};
use crate::buf::BufRef;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;

/// Searches the leaf entries of a block for a name. Also returns whether the next leaf may hold a
/// better entry with the same hash.
pub(super) fn search(
    fs: &Mount,
    inode: &InodeState,
    leaf: &BufRef,
    slots: Slots,
    name: &[u8],
    hash: u32,
) -> Result<(Option<Hit>, bool)> {
    let mut found = None;
    let mut index = da::lower_bound(&leaf.read()[slots.start..], slots.count, hash);
    while index < slots.count {
        let address = {
            let block = leaf.read();
            let entries = &block[slots.start..];
            if format::leaf::hash(entries, index) != hash {
                return Ok((found, false));
            }
            format::leaf::address(entries, index)
        };
        if address != 0
            && let Some(hit) = data::probe(fs, inode, leaf, address, name, index)?
        {
            if hit.exact {
                return Ok((Some(hit), false));
            }
            found.get_or_insert(hit);
        }
        index += 1;
    }
    Ok((found, true))
}
