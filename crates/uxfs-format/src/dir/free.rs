//! Blocks of the free index: the longest free area of each data block of a node-form directory.
//!
//! 1. Block `k` covers the data blocks from `k` times its capacity on. A block that would cover no
//!    existing data block may be absent.
//! 2. `nused` counts the existing data blocks among the first `nvalid` slots.

use super::leaf::{NO_BLOCK, check_room};
use crate::bytes::{be16, be32};
use crate::error::{Check, Problem};

/// "XDF3".
pub const MAGIC: u32 = 0x5844_4633;
/// Byte offset of the number of the first data block covered.
pub const FIRST_DB: usize = 48;
/// Byte offset of the count of valid slots.
pub const NVALID: usize = 52;
/// Byte offset of the count of existing data blocks.
pub const NUSED: usize = 56;
/// Byte offset of the first slot.
pub const BESTS: usize = 64;

/// Number of data blocks that an index block of `len` bytes covers.
pub const fn capacity(len: usize) -> usize {
    len.saturating_sub(BESTS) / 2
}

/// Number of the first data block that an index block covers.
pub fn first_db(block: &[u8]) -> u32 {
    be32(block, FIRST_DB)
}

/// Number of slots in use.
pub fn nvalid(block: &[u8]) -> usize {
    be32(block, NVALID) as usize
}

/// Number of existing data blocks.
pub fn nused(block: &[u8]) -> usize {
    be32(block, NUSED) as usize
}

/// Byte offset of slot `index`.
pub const fn best_at(index: usize) -> usize {
    BESTS + 2 * index
}

/// Longest free area of slot `index`; [`NO_BLOCK`] if the data block does not exist.
pub fn best(block: &[u8], index: usize) -> u16 {
    if index < nvalid(block) { be16(block, best_at(index)) } else { NO_BLOCK }
}

/// First slot in `from..to` whose data block has a free area of at least `len` bytes.
pub fn find(block: &[u8], from: usize, to: usize, len: usize) -> Option<usize> {
    let to = to.min(nvalid(block)).min(capacity(block.len()));
    let slots = block.get(best_at(from)..best_at(to.max(from)))?;
    let fits = |slot: &[u8]| {
        let best = u16::from_be_bytes([slot[0], slot[1]]);
        best != NO_BLOCK && usize::from(best) >= len
    };
    slots.chunks_exact(2).position(fits).map(|index| from + index)
}

/// Checks the rules that hold inside a block of the free index.
///
/// # Errors
/// A description of the first violated rule.
pub fn check(block: &[u8]) -> Result<(), Problem> {
    let (room, nvalid, nused) = (capacity(block.len()), nvalid(block), nused(block));
    if nvalid > room {
        return Err(Check::Count.failed(format!("{nvalid} slots, room for {room}")));
    }
    let first = first_db(block) as usize;
    if !first.is_multiple_of(room) {
        return Err(Check::Address
            .failed(format!("starts with data block {first}, not a multiple of {room}")));
    }
    let mut seen = 0;
    for index in 0..nvalid {
        let best = be16(block, best_at(index));
        check_room(best, first + index, block.len())?;
        seen += usize::from(best != NO_BLOCK);
    }
    if seen != nused {
        return Err(Check::Count.failed(format!("{seen} data blocks, says {nused}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Vec<u8> {
        let mut b = vec![0; 4096];
        b[NVALID + 3] = 4;
        b[NUSED + 3] = 3;
        for (i, best) in [16u16, NO_BLOCK, 400, 8].into_iter().enumerate() {
            b[best_at(i)..best_at(i) + 2].copy_from_slice(&best.to_be_bytes());
        }
        b
    }

    #[test]
    fn finds_room() {
        let b = block();
        assert_eq!(check(&b), Ok(()));
        assert_eq!(capacity(4096), 2016);
        assert_eq!(find(&b, 0, 2016, 16), Some(0));
        assert_eq!(find(&b, 1, 2016, 16), Some(2));
        assert_eq!(find(&b, 0, 2, 24), None);
        assert_eq!(find(&b, 3, 2016, 16), None);
        assert_eq!(find(&b, 7, 3, 16), None);
        assert_eq!((best(&b, 2), best(&b, 5)), (400, NO_BLOCK));
    }

    #[test]
    fn checks_counts_and_room() {
        let mut b = block();
        b[NUSED + 3] = 4;
        assert!(check(&b).is_err());
        b = block();
        b[best_at(0) + 1] = 17;
        assert!(check(&b).is_err());
        b = block();
        b[FIRST_DB + 3] = 1;
        assert!(check(&b).is_err());
        b = block();
        b[NVALID] = 0xff;
        assert!(check(&b).is_err());
    }
}
