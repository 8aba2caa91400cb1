//! Blocks of the free index: the longest free area of each data block of a node-form directory.
//!
//! 1. Block `k` covers the data blocks from `k` times its capacity on. A block that would cover no
//!    existing data block may be absent.
//! 2. `nused` counts the existing data blocks among the first `nvalid` slots.

use core::ops::Range;

use super::leaf::{NO_BLOCK, check_room, rooms};
use crate::bytes::Field;
use crate::error::{Check, Problem};

/// "XDF3".
pub const MAGIC: u32 = 0x5844_4633;
/// Place of the number of the first data block covered.
pub const FIRST_DB: Field<u32> = Field::at(48);
/// Place of the count of valid slots.
pub const NVALID: Field<u32> = Field::at(52);
/// Place of the count of existing data blocks.
pub const NUSED: Field<u32> = Field::at(56);
/// Byte offset of the first slot.
pub const BESTS: usize = 64;

/// Number of data blocks that an index block of `len` bytes covers.
pub const fn capacity(len: usize) -> usize {
    len.saturating_sub(BESTS) / 2
}

/// Number of the first data block that an index block covers.
pub fn first_db(block: &[u8]) -> u32 {
    FIRST_DB.get(block)
}

/// Number of slots in use.
pub fn nvalid(block: &[u8]) -> usize {
    NVALID.get(block) as usize
}

/// Number of existing data blocks.
pub fn nused(block: &[u8]) -> usize {
    NUSED.get(block) as usize
}

/// Place of slot `index`.
pub const fn best_at(index: usize) -> Field<u16> {
    Field::at(BESTS + 2 * index)
}

/// Bytes of the slots `slots`.
pub const fn slots(slots: Range<usize>) -> Range<usize> {
    best_at(slots.start).offset()..best_at(slots.end).offset()
}

/// Longest free area of slot `index`; [`NO_BLOCK`] if the data block does not exist.
pub fn best(block: &[u8], index: usize) -> u16 {
    if index < nvalid(block) { best_at(index).get(block) } else { NO_BLOCK }
}

/// First slot in `from..to` whose data block has a free area of at least `len` bytes.
pub fn find(block: &[u8], from: usize, to: usize, len: usize) -> Option<usize> {
    let to = to.min(nvalid(block)).min(capacity(block.len()));
    let fits = |best: u16| best != NO_BLOCK && usize::from(best) >= len;
    rooms(block.get(slots(from..to.max(from)))?).position(fits).map(|index| from + index)
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
        let best = best_at(index).get(block);
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
        NVALID.set(&mut b, 4);
        NUSED.set(&mut b, 3);
        for (i, best) in [16u16, NO_BLOCK, 400, 8].into_iter().enumerate() {
            best_at(i).set(&mut b, best);
        }
        b
    }

    #[test]
    fn finds_a_block_with_enough_space() {
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
        NUSED.set(&mut b, 4);
        assert!(check(&b).is_err());
        b = block();
        best_at(0).set(&mut b, 17);
        assert!(check(&b).is_err());
        b = block();
        FIRST_DB.set(&mut b, 1);
        assert!(check(&b).is_err());
        b = block();
        NVALID.set(&mut b, 0xff00_0004);
        assert!(check(&b).is_err());
    }
}
